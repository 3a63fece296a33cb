"""A table of bad calls: each raises one sentence that names the argument, and changes nothing.

If two functions check an argument with the same code, one of them is called with all bad values, and the other with one
bad value, which shows that it checks.
"""

import copy

import headspan as hs
import pytest
from bad_calls import ARRAYS, GOOD, TABLE, public
from bad_values import check_sentence, same

# A function, and the one that checks the same arguments with the same code.
SAME_CHECK = {
    "attention_vjp": "attention",
    "attention_weights": "attention",
    "dynamic_span_vjp": "dynamic_span",
    "sparse.hierarchical_attention_vjp": "sparse.hierarchical_attention",
    "hybrid.hybrid_attention_vjp": "hybrid.hybrid_attention",
    "key_importance_vjp": "key_importance",
    "span_penalty_vjp": "span_penalty",
    "sparse.learned_blocks_vjp": "sparse.learned_blocks",
    "merge_attention_vjp": "merge_attention",
    "memory.retrieval_attention": "attention",
    "memory.retrieval_attention_vjp": "memory.retrieval_attention",
}
SEPARATE_CHECKS = {"attention_weights": ARRAYS, "memory.retrieval_attention": ARRAYS}  # of these arguments


def rows_of(function, argument):
    rows = TABLE[function][argument]
    others = TABLE[SAME_CHECK[function]] if function in SAME_CHECK else {}
    is_same = others.get(argument) is rows and argument not in SEPARATE_CHECKS.get(function, ())
    return rows[:1] if is_same else rows


ROWS = [
    pytest.param(function, argument, error, value, id=f"{function}-{argument}-{what}")
    for function, arguments in TABLE.items()
    for argument in arguments
    for what, error, value in rows_of(function, argument)
]


def call(function, arguments):
    if function == "set_num_threads":
        return hs.set_num_threads(arguments["n"])
    return public(function)(**arguments)


@pytest.mark.parametrize(("function", "argument", "error", "value"), ROWS)
def test_bad_argument(function, argument, error, value):
    threads = hs.get_num_threads()
    arguments = {**GOOD[function], argument: value}
    before = copy.deepcopy(GOOD[function])
    with pytest.raises(error) as caught:
        call(function, arguments)
    check_sentence(caught.value, argument)
    assert all(same(GOOD[function][name], before[name]) for name in before)
    assert hs.get_num_threads() == threads


@pytest.mark.parametrize("function", [name for name in GOOD if name != "set_num_threads"])
def test_calls_without_a_bad_argument_pass(function):
    public(function)(**GOOD[function])
