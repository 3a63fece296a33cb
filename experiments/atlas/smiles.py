"""Reactions as SMILES: their tokens, which of them are atoms, the elements, and the bonds."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

ARROW = ">>"
# The expression of RXNMapper, after Schwaller et al., "Molecular Transformer", 2019.
_TOKEN = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"
)


def tokens_of(smiles: str) -> list[str]:
    """Split SMILES into tokens."""
    tokens = _TOKEN.findall(smiles)
    if "".join(tokens) != smiles:
        raise ValueError(f"not SMILES: {smiles}")
    return tokens


def is_atom(token: str) -> bool:
    """Whether a token is an atom."""
    return token[0].isalpha() or token[0] == "[" or "*" in token


def element_of(token: str) -> str:
    """Return the element of an atom, such as "N" for "n" and "[nH]"."""
    matched = re.match(r"\[?\d*([A-Z][a-z]?|[a-z]{1,2}|\*)", token)
    assert matched is not None
    return matched.group(1).capitalize()


def bonds_of(tokens: list[str]) -> NDArray[np.bool_]:
    """Return which atoms have a bond, (atoms, atoms)."""
    count = sum(map(is_atom, tokens))
    bonds = np.zeros((count, count), dtype=bool)
    atom, last, branches, rings = -1, None, [], {}
    for token in tokens:
        if is_atom(token):
            atom += 1
            if last is not None:
                bonds[atom, last] = bonds[last, atom] = True
            last = atom
        elif token == "(":
            branches.append(last)
        elif token == ")":
            last = branches.pop()
        elif token in (".", ARROW):
            last = None
        elif token.strip("%").isdigit():
            other = rings.pop(token, None)
            if other is None:
                rings[token] = last
            else:
                bonds[last, other] = bonds[other, last] = True
    if branches or rings:
        raise ValueError(f"not SMILES, with a branch or a ring that is not closed: {''.join(tokens)}")
    return bonds
