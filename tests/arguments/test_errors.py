"""Bad calls, of a table: each gives one sentence that names the argument, and changes nothing."""

import copy

import headspan as hs
import pytest
from bad_calls import GOOD, TABLE, public
from bad_values import check_sentence, same

ROWS = [
    pytest.param(function, argument, error, value, id=f"{function}-{argument}-{what}")
    for function, arguments in TABLE.items()
    for argument, rows in arguments.items()
    for what, error, value in rows
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
def test_the_calls_that_the_table_spoils_are_good(function):
    public(function)(**GOOD[function])
