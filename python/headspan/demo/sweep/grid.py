"""What a sweep runs: a TOML file that names values, and the product of them.

=============  ====================================================================================================
``text``       the file to train on, beside the TOML file; without it the standard library's source
``[model]``    fields of `ModelConfig` that all runs share
``[training]`` fields of `TrainConfig` that all runs share
``[grid]``     fields, each with a list of values, and ``text``, a list of files: every combination is run, in the order
               of the file, the last one changing first
``[[kinds]]``  what is compared at each point of the grid: a ``name``, and fields that hold for it. In place of a number
               may stand the name of another field: ``span_init = "span_limit"``. Instead of fields,
               ``equal_cost_to = "name"``: the hard window that costs as much as what was learned by the kind of that
               name, which comes before it
=============  ====================================================================================================

A field that a kind sets is no axis of the grid for it: full attention with a ramp of 0 is run once, not for each ramp.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from headspan import _check
from headspan.demo.config import ModelConfig, TrainConfig
from headspan.demo.runs import RunError
from headspan.demo.text import Text

# The fields that a sweep may set, with their defaults; the vocabulary is that of the text.
MODEL = {field.name: field.default for field in fields(ModelConfig) if field.default is not MISSING}
TRAINING = {field.name: field.default for field in fields(TrainConfig)}
FIELDS: dict[str, Any] = {**MODEL, **TRAINING}

_TOP = ("name", "text", "model", "training", "grid", "kinds")


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes
    ----------
    kind : str
    text : Path or None
        None for the standard library's source.
    grid : dict
        The values of the axes of the grid that its kind does not set itself; ``text`` is the name of a file.
    values : dict
        Fields of `ModelConfig` and `TrainConfig`; what is not there is left at its default.
    equal_cost_to : str or None
        The name of the run whose pairs its window has to match.
    """

    kind: str
    text: Path | None
    grid: dict[str, Any]
    values: dict[str, Any]
    equal_cost_to: str | None = None

    @property
    def name(self) -> str:
        """What its folder is called."""
        return _folder(self.kind, self.grid)

    def configs(self, text: Text) -> tuple[ModelConfig, TrainConfig]:
        """Return the model, for a text, and its training."""
        try:
            model = {name: value for name, value in self.values.items() if name in MODEL}
            training = {name: value for name, value in self.values.items() if name in TRAINING}
            return ModelConfig(len(text.vocabulary), **model), TrainConfig(**training)
        except (TypeError, ValueError) as error:
            raise RunError(f"{self.name}: {error}") from None


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep, in their order.

    Attributes
    ----------
    name : str
    path : Path
        The file that describes it.
    points : list of Point
    """

    name: str
    path: Path
    points: list[Point]


def read_plan(path: Path) -> Plan:
    """Read a file that describes a sweep."""
    try:
        given = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is not valid TOML: {error}") from None
    try:
        _known("", given, _TOP)
        name = _word("name", given.get("name", path.stem))
        points = list(_points(given, name, path.parent))
    except (TypeError, ValueError) as error:
        raise RunError(f"{path}: {error}") from None
    return Plan(name, path, points)


def _points(given: Mapping[str, Any], name: str, beside: Path) -> Iterator[Point]:
    shared = _shared(given)
    grid = _grid(given, shared)
    kinds = _kinds(given, name)
    seen: dict[str, Point] = {}
    for combination in product(*grid.values()):
        at = dict(zip(grid, combination, strict=True))
        for kind, own in kinds.items():
            reference = own.get("equal_cost_to")
            own = own if reference is None else kinds[reference]
            axes = {axis: value for axis, value in at.items() if axis not in own}
            file = axes.get("text", given.get("text"))
            if "text" in axes:
                axes["text"] = Path(axes["text"]).name
            values = _resolved(kind, {**shared, **at, **own})
            values.pop("text", None)
            same_cost = None if reference is None else _folder(reference, axes)
            point = Point(kind, None if file is None else beside / _word("text", file), axes, values, same_cost)
            before = seen.setdefault(point.name, point)
            if before is point:
                yield point
            elif before != point:
                raise ValueError(f"two runs that differ would both have the folder {point.name}")


def _shared(given: Mapping[str, Any]) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    for name, known in (("model", MODEL), ("training", TRAINING)):
        table = _table(name, given.get(name, {}))
        _known(f" of [{name}]", table, tuple(known))
        for field, value in table.items():
            _check_value(field, value)
        shared |= table
    return shared


def _grid(given: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, list[Any]]:
    grid = _table("grid", given.get("grid", {}))
    _known(" of [grid]", grid, ("text", *FIELDS))
    for name, values in grid.items():
        if name in shared or (name == "text" and "text" in given):
            raise ValueError(f"{name} is given twice, for all runs and in [grid]")
        if not isinstance(values, list) or not values:
            raise TypeError(f"{name} in [grid] must be a list of one or more values, not {_check.describe(values)}")
        for value in values:
            if name == "text":
                _word(name, value)
            else:
                _check_value(name, value)
        if len(set(values)) < len(values):
            raise ValueError(f"{name} in [grid] must not have a value twice, but is {values}")
    return grid


def _kinds(given: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return the fields of each kind by its name; without any there is one that is called as the sweep is."""
    tables = given.get("kinds", [{"name": name}])
    if not isinstance(tables, list) or not tables:
        raise TypeError(f"kinds must be tables, each under [[kinds]], not {_check.describe(tables)}")
    kinds: dict[str, dict[str, Any]] = {}
    for table in tables:
        own = dict(_table("kinds", table))
        if "name" not in own:
            raise ValueError("each of [[kinds]] must have a name")
        kind = _word("name", own.pop("name"))
        if kind in kinds:
            raise ValueError(f"there are two kinds of the name {kind}")
        _known(f" of the kind {kind}", own, ("equal_cost_to", *FIELDS))
        if "equal_cost_to" in own:
            _check_equal_cost(kind, own, kinds)
        for field in own.keys() - {"equal_cost_to"}:
            if not _is_reference(field, own[field]):
                _check_value(field, own[field])
        kinds[kind] = own
    return kinds


def _check_equal_cost(kind: str, own: Mapping[str, Any], before: Mapping[str, Mapping[str, Any]]) -> None:
    others = [name for name, fields in before.items() if "equal_cost_to" not in fields]
    if own["equal_cost_to"] not in others:
        raise ValueError(
            f"equal_cost_to of the kind {kind} must name one that comes before it and learns spans "
            f"({', '.join(others) or 'there is none'}), not {own['equal_cost_to']!r}"
        )
    if len(own) > 1:
        raise ValueError(f"the kind {kind} has equal_cost_to, so that all its fields are those of that kind")


def _resolved(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    """Put the value of a field where another one has its name for a value."""
    found = {}
    for name, value in values.items():
        if _is_reference(name, value):
            other = values.get(value, FIELDS[value])
            if isinstance(other, str):
                raise ValueError(f"{name} of the kind {kind} must name a field that is a number, not {value}")
            value = other
        found[name] = value
    return found


def _is_reference(name: str, value: object) -> bool:
    """Return whether a value is the name of another field, in place of the number that a field must be."""
    return name in FIELDS and not isinstance(FIELDS[name], str) and isinstance(value, str) and value in FIELDS


def _check_value(name: str, value: Any) -> None:
    """Raise unless a value is of the type of its field; whether it fits is said by the configs."""
    expected = FIELDS[name]
    if isinstance(expected, str):
        _word(name, value)
    elif isinstance(expected, int):
        _check.integer(name, value, at_least=0)
    else:
        _check.number(name, value, at_least=0)


def _known(where: str, table: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in table:
        if name not in names:
            raise ValueError(f"there is no field {name}{where}; there are {', '.join(names)}")


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a table, not {_check.describe(value)}")
    return value


def _word(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _slug(value):
        raise TypeError(f"{name} must be a string with a letter or digit, not {_check.describe(value)}")
    return value


def _folder(kind: str, grid: Mapping[str, Any]) -> str:
    """Return a readable name of a folder: ``adaptive-limit512-seed0``."""
    return "-".join([_slug(kind), *(labelled(axis, value) for axis, value in grid.items())])


def labelled(axis: str, value: Any) -> str:
    """Return what says a value of an axis in few letters: ``limit512``."""
    if isinstance(value, str):
        return _slug(value)
    short = axis.removeprefix("span_")
    return f"{axis if short in FIELDS else short}{value:.12g}"


def _slug(words: str) -> str:
    return re.sub(r"[^\w.]+", "-", words).strip("-.")
