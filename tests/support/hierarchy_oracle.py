"""Which groups of tokens hierarchical attention sees, from its definition."""


def means_of(query, side):
    """The groups that a query sees, as (begin, size), from the token of the query back to the first."""
    block = query // side
    begin = max(block - 1, 0) // 2 * 2 * side
    groups = [(token, 1) for token in range(begin, query + 1)]
    size = 1
    while begin > 0:
        size *= 2
        stretch = side * size  # tokens of a block of such groups
        end, begin = begin, max(begin // stretch - 1, 0) // 2 * 2 * stretch
        groups += [(first, size) for first in range(begin, end, size)]
    return groups
