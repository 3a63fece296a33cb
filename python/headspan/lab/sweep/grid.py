"""The plan of a sweep, which a TOML file describes as a grid of values.

=============  ====================================================================================================
``text``       file to train on, relative to the folder of the TOML file. Default: the standard library's source
``[model]``    fields of `ModelConfig` that all runs share
``[training]`` fields of `TrainConfig` that all runs share
``[grid]``     fields with lists of values, and ``text`` with a list of files. The sweep runs all combinations in the
               order of the file; the last field changes fastest
``[[kinds]]``  models to compare at each point of the grid, each with a ``name`` and its fields. The name of another
               field can replace a number: ``span_init = "span_limit"``. ``equal_cost_to = "name"`` instead of fields
               stands for the smallest hard window that computes as many pairs as the learned spans of an earlier kind
               with that name
=============  ====================================================================================================

A field that a kind sets is no axis of the grid for it: full attention with a ramp of 0 runs once, not for each ramp.
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
from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.runs import RunError
from headspan.lab.text import Text

# The fields that a sweep can set, with their defaults. The text determines the vocabulary.
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
        File to train on, or None for the standard library's source.
    grid : dict
        Values of the axes of the grid that the kind does not set itself; ``text`` is the name of a file.
    values : dict
        Fields of `ModelConfig` and `TrainConfig`. Missing fields have their defaults.
    equal_cost_to : str or None
        Name of the run whose number of pairs the window has to match.
    """

    kind: str
    text: Path | None
    grid: dict[str, Any]
    values: dict[str, Any]
    equal_cost_to: str | None = None

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return _folder(self.kind, self.grid)

    def configs(self, text: Text) -> tuple[ModelConfig, TrainConfig]:
        """Return the configurations of the model, with the vocabulary of `text`, and of its training."""
        try:
            model = {name: value for name, value in self.values.items() if name in MODEL}
            training = {name: value for name, value in self.values.items() if name in TRAINING}
            return ModelConfig(len(text.vocabulary), **model), TrainConfig(**training)
        except (TypeError, ValueError) as error:
            raise RunError(f"{self.name}: {error}") from None


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep in their order.

    Attributes
    ----------
    name : str
    path : Path
        The TOML file that describes the sweep.
    points : list of Point
    """

    name: str
    path: Path
    points: list[Point]


def read_plan(path: Path) -> Plan:
    """Read a TOML file that describes a sweep."""
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is not valid TOML: {error}") from None
    try:
        _check_names("", content, _TOP)
        name = _check_word("name", content.get("name", path.stem))
        points = list(_points(content, name, path.parent))
    except (TypeError, ValueError) as error:
        raise RunError(f"{path}: {error}") from None
    return Plan(name, path, points)


def _points(content: Mapping[str, Any], name: str, folder: Path) -> Iterator[Point]:
    shared = _shared(content)
    grid = _grid(content, shared)
    kinds = _kinds(content, name)
    points: dict[str, Point] = {}
    for combination in product(*grid.values()):
        at = dict(zip(grid, combination, strict=True))
        for kind, kind_fields in kinds.items():
            reference = kind_fields.get("equal_cost_to")
            kind_fields = kind_fields if reference is None else kinds[reference]
            axes = {axis: value for axis, value in at.items() if axis not in kind_fields}
            file = axes.get("text", content.get("text"))
            if "text" in axes:
                axes["text"] = Path(axes["text"]).name
            values = _resolved(kind, {**shared, **at, **kind_fields})
            values.pop("text", None)
            same_cost = None if reference is None else _folder(reference, axes)
            point = Point(kind, None if file is None else folder / _check_word("text", file), axes, values, same_cost)
            first = points.setdefault(point.name, point)
            if first is point:
                yield point
            elif first != point:
                raise ValueError(f"two different runs would share the folder {point.name}")


def _shared(content: Mapping[str, Any]) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    for name, defaults in (("model", MODEL), ("training", TRAINING)):
        table = _table(name, content.get(name, {}))
        _check_names(f" of [{name}]", table, tuple(defaults))
        for field, value in table.items():
            _check_value(field, value)
        shared |= table
    return shared


def _grid(content: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, list[Any]]:
    grid = _table("grid", content.get("grid", {}))
    _check_names(" of [grid]", grid, ("text", *FIELDS))
    for name, values in grid.items():
        if name in shared or (name == "text" and "text" in content):
            raise ValueError(f"{name} is given twice, for all runs and in [grid]")
        if not isinstance(values, list) or not values:
            raise TypeError(f"{name} in [grid] must be a list of one or more values, not {_check.describe(values)}")
        for value in values:
            if name == "text":
                _check_word(name, value)
            else:
                _check_value(name, value)
        if len(set(values)) < len(values):
            raise ValueError(f"{name} in [grid] must not repeat a value, got {values}")
    return grid


def _kinds(content: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return the fields of each kind by name. Without ``[[kinds]]`` there is one kind with the name of the sweep."""
    tables = content.get("kinds", [{"name": name}])
    if not isinstance(tables, list) or not tables:
        raise TypeError(f"kinds must be tables, each under [[kinds]], not {_check.describe(tables)}")
    kinds: dict[str, dict[str, Any]] = {}
    for table in tables:
        table_fields = dict(_table("kinds", table))
        if "name" not in table_fields:
            raise ValueError("each of [[kinds]] must have a name")
        kind = _check_word("name", table_fields.pop("name"))
        if kind in kinds:
            raise ValueError(f"two kinds have the name {kind}")
        _check_names(f" of the kind {kind}", table_fields, ("equal_cost_to", *FIELDS))
        if "equal_cost_to" in table_fields:
            _check_equal_cost(kind, table_fields, kinds)
        for field in table_fields.keys() - {"equal_cost_to"}:
            if not _is_reference(field, table_fields[field]):
                _check_value(field, table_fields[field])
        kinds[kind] = table_fields
    return kinds


def _check_equal_cost(kind: str, table_fields: Mapping[str, Any], before: Mapping[str, Mapping[str, Any]]) -> None:
    others = [name for name, fields in before.items() if "equal_cost_to" not in fields]
    if table_fields["equal_cost_to"] not in others:
        raise ValueError(
            f"equal_cost_to of the kind {kind} must name an earlier kind that learns spans "
            f"({', '.join(others) or 'there is none'}), not {table_fields['equal_cost_to']!r}"
        )
    if len(table_fields) > 1:
        raise ValueError(
            f"the kind {kind} has equal_cost_to and takes all fields from that kind, so it must not set others"
        )


def _resolved(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    """Replace each value that is the name of another field by the value of that field."""
    resolved = {}
    for name, value in values.items():
        if _is_reference(name, value):
            other = values.get(value, FIELDS[value])
            if isinstance(other, str):
                raise ValueError(f"{name} of the kind {kind} must name a field that is a number, not {value}")
            value = other
        resolved[name] = value
    return resolved


def _is_reference(name: str, value: object) -> bool:
    """Return whether a value is the name of another field and stands for a number."""
    return name in FIELDS and not isinstance(FIELDS[name], str) and isinstance(value, str) and value in FIELDS


def _check_value(name: str, value: Any) -> None:
    """Raise an error if a value has a wrong type for its field. The configurations check its range."""
    expected = FIELDS[name]
    if isinstance(expected, str):
        _check_word(name, value)
    elif isinstance(expected, int):
        _check.integer(name, value, at_least=0)
    else:
        _check.number(name, value, at_least=0)


def _check_names(where: str, table: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in table:
        if name not in names:
            raise ValueError(f"unknown field {name}{where}; the fields are {', '.join(names)}")


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a table, not {_check.describe(value)}")
    return value


def _check_word(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _slug(value):
        raise TypeError(f"{name} must be a string with a letter or digit, not {_check.describe(value)}")
    return value


def _folder(kind: str, grid: Mapping[str, Any]) -> str:
    """Return a readable folder name such as ``adaptive-limit512-seed0``."""
    return "-".join([_slug(kind), *(labelled(axis, value) for axis, value in grid.items())])


def labelled(axis: str, value: Any) -> str:
    """Return a short label for a value of an axis, such as ``limit512``."""
    if isinstance(value, str):
        return _slug(value)
    short = axis.removeprefix("span_")
    return f"{axis if short in FIELDS else short}{value:.12g}"


def _slug(words: str) -> str:
    return re.sub(r"[^\w.]+", "-", words).strip("-.")
