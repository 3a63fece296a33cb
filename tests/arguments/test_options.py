"""The table of options is complete, and whatever else names options by hand agrees with it."""

import inspect
import re

import headspan as hs
import limits_oracle
import oracle
import pytest
from bad_calls import TABLE
from headspan.ops.adapters.options import AXES, PLAIN, SAVED, TENSORS
from headspan.ops.arguments.options import (
    ARRAY_OPTIONS,
    DIFFERENTIABLE,
    ELSEWHERE,
    NAMES,
    PLAIN_OPTIONS,
    ROWS,
    TYPES,
    Options,
    options_in,
)
from headspan.ops.arguments.rows import ArrayRow, Group, In, PlainRow
from headspan.ops.execution.functional import ARRAYS
from helpers import ROOT
from option_cases import OPTIONS
from tolerances import TOLERANCES

OTHER_ERRORS = "".join(
    (ROOT / "tests" / "arguments" / f"test_{kind}_errors.py").read_text() for kind in ("pattern", "visibility")
)
# Methods whose docstrings name the options that they take.
NAMED = {
    hs.SpanCache.attend: options_in(In.CACHE),
    hs.memory.StreamingAttention.attend: options_in(In.STREAM),
    hs.memory.KeyValueStore.attend: options_in(In.STORE) + options_in(In.STORE_ONCE),
}


def oracle_parameters():
    functions = (oracle.with_persistent_columns, oracle.reach, limits_oracle.in_reach)
    return {name for function in functions for name in inspect.signature(function).parameters}


@pytest.mark.parametrize("name", ROWS)
def test_option_is_in_docstring_oracle_and_cases(name):
    assert re.search(rf"^    (\w+, )*{name}(, \w+)* : ", hs.attention.__doc__, flags=re.MULTILINE)
    assert ("pattern_mask" if name == "pattern" else name) in oracle_parameters()
    assert name == "pattern" or any(name in options for options in OPTIONS.values())
    # Wrong calls of patterns and of visibility stand in files of their own.
    assert name in TABLE["attention"] or f'"{name}"' in OTHER_ERRORS or f"{name}=" in OTHER_ERRORS


def test_docstring_has_the_groups_and_the_order_of_the_table():
    listed = inspect.getdoc(hs.attention).partition("Parameters\n----------\n")[2].partition("\n\nReturns\n")[0]
    options = re.split(r"^(\S.*):$", listed, flags=re.MULTILINE)[1:]
    groups = {
        heading.lower(): ", ".join(re.findall(r"^(\S.*) : ", text, flags=re.MULTILINE)).split(", ")
        for heading, text in zip(options[::2], options[1::2], strict=True)
    }
    assert list(groups) == [*(group.value for group in Group), "output"]
    assert [name for group in Group for name in groups[group.value]] == list(ROWS)
    assert all(ROWS[name].group.value == group for group, names in groups.items() for name in names if name in ROWS)


def test_docstring_says_every_default():
    described = re.split(r"^(\S.*) : ", inspect.getdoc(hs.attention).partition("\n\nReturns\n")[0], flags=re.MULTILINE)
    texts = zip(described[1::2], described[2::2], strict=True)
    assert [names for names, text in texts if "Default: " not in text] == ["query", "key, value"]


def test_types_and_defaults_are_those_of_the_signature():
    parameters = inspect.signature(hs.attention).parameters
    assert list(Options.__annotations__) == list(ROWS) == list(TYPES)
    assert {name: parameters[name].annotation for name in ROWS} == TYPES
    assert {name: parameters[name].default for name in ROWS} == {name: row.default for name, row in ROWS.items()}
    assert not any("Annotated" in text or "Row" in text for text in TYPES.values())
    assert {name for name in ROWS if TYPES[name] == "npt.ArrayLike | None"} == ARRAY_OPTIONS.keys()


def test_every_array_has_axes_and_every_number_a_check():
    assert {"pattern", *ARRAY_OPTIONS, *PLAIN_OPTIONS} == NAMES
    assert {*TENSORS, *SAVED} <= AXES.keys()
    assert {*TENSORS, *PLAIN} == NAMES | set(ARRAYS)
    assert all(re.fullmatch(r"b?h?q?k?\.*", row.axes) for row in ARRAY_OPTIONS.values())
    assert all(row.modifies in (None, *ARRAY_OPTIONS) for row in ARRAY_OPTIONS.values())
    assert {row.group for row in ROWS.values()} == set(Group)
    for kind in (ArrayRow, PlainRow):
        with pytest.raises(TypeError, match=r"axes|check"):
            kind(Group.SPANS)


def test_every_option_with_a_gradient_is_named_where_gradients_are():
    assert hs.Gradients._fields == (*ARRAYS, *DIFFERENTIABLE)
    assert {name for name, _ in TOLERANCES} >= set(DIFFERENTIABLE)


@pytest.mark.parametrize("method", NAMED)
def test_docstring_names_what_a_feature_takes(method):
    listed = inspect.getdoc(method).split("**options\n")[1].split("as for")[0]
    assert set(re.findall(r"\w+", listed)) - {"and"} == set(NAMED[method])


def test_view_takes_what_the_table_says():
    assert inspect.signature(hs.explore).parameters.keys() & NAMES == set(options_in(In.VIEW))


def test_page_on_gpus_says_what_the_kernels_take():
    page = (ROOT / "docs" / "howto" / "gpu.md").read_text()
    rows = re.findall(r"^\| (`.*`) \| (yes|no|in part) \|", page, flags=re.MULTILINE)
    taken = {name: answer != "no" for names, answer in rows for name in re.findall(r"`(\w+)`", names)}
    assert taken == {name: name in options_in(In.CUDA) for name in ROWS}


def test_the_page_of_conventions_has_a_row_for_each_name_of_other_libraries():
    page = (ROOT / "docs" / "reference" / "conventions.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \|", page, re.M)
    assert {name.strip("`") for row in rows for name in row.split(", ")} == set(ELSEWHERE)
