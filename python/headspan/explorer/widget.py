"""The widget, with traits that Python and the browser share. Importing this module needs anywidget."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _extra

try:
    import anywidget
    import traitlets
except ModuleNotFoundError as error:
    raise _extra.missing("headspan.explore", "anywidget", "widget", error.name) from error

from headspan import _check
from headspan.explorer import page
from headspan.explorer.counts import counts
from headspan.explorer.data import HeadId, ViewData
from headspan.explorer.part import STRONGEST, Part, full_part, zoomed
from headspan.ops.spans import farthest


class Explorer(anywidget.AnyWidget):
    """An interactive view of attention, made by `headspan.explore`.

    You can read, set and observe every trait. Setting a trait updates the picture, and moving a slider sets a trait.

    Attributes
    ----------
    head : int or list of two int
        The head with the large map: its index in the query, from 0, or in a view of layers the numbers of its layer and
        of the head in it, from 0, such as ``[2, 3]``.
    span : list of float
        One span per shown head, in tokens, layer by layer. Setting a number sets all spans.
    ramp, temperature : float
    selected : int or None
        The pinned query.
    zoom : list of two lists of int, or None
        The ranges of queries and keys in the picture, as ``[[first, end], [first, end]]`` without the ends. None: all.
    """

    _esm = page.module()
    _css = page.style()
    _saved_traits: tuple[str, ...] = (
        "meta", "counts", "distances", "head", "span", "ramp", "temperature", "selected", "zoom", "strongest"
    )  # fmt: skip
    _saved_arrays: tuple[str, ...] = ("query", "key", "norms", "bias", "allowed", "maps")

    meta = traitlets.Dict().tag(sync=True)
    query = traitlets.Bytes().tag(sync=True)
    key = traitlets.Bytes().tag(sync=True)
    norms = traitlets.Bytes().tag(sync=True)
    bias = traitlets.Bytes().tag(sync=True)
    maps = traitlets.Bytes().tag(sync=True)
    allowed = traitlets.Bytes().tag(sync=True)
    distances = traitlets.List().tag(sync=True)
    counts = traitlets.List().tag(sync=True)
    strongest = traitlets.Dict().tag(sync=True)
    computing = traitlets.Bool().tag(sync=True)
    head: traitlets.TraitType[int | list[int], int | Sequence[int]] = traitlets.TraitType(0).tag(sync=True)
    span: traitlets.TraitType[list[float], npt.ArrayLike | None] = traitlets.TraitType([]).tag(sync=True)
    ramp = traitlets.Float().tag(sync=True)
    temperature = traitlets.Float(1.0).tag(sync=True)
    selected = traitlets.Int(None, allow_none=True).tag(sync=True)
    zoom: traitlets.TraitType[list[list[int]] | None, npt.ArrayLike | None] = traitlets.TraitType(
        None, allow_none=True
    ).tag(sync=True)

    def __init__(self, data: ViewData) -> None:
        self._data = data
        self._part: Part = full_part(data)
        # Of every head, with the settings for which they were computed.
        self._maps: dict[int, tuple[tuple[float, ...], bytes, float | None]] = {}
        super().__init__(
            meta=self._part.meta,
            **self._part.arrays,
            **self._pooled(data.span, data.ramp, 1.0),
            counts=self._counted(data.span, data.ramp),
            head=_as_trait(data.heads[0]),
            span=data.span,
            ramp=data.ramp,
        )
        self.observe(self._compute_again, names=["span", "ramp", "temperature"])
        self.observe(self._zoom_again, names=["zoom"])
        self.observe(self._look_again, names=["selected", "head"])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the current view to one HTML file that needs no network and no Python.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        Path

        Raises
        ------
        ValueError
            If `path` is a folder.
        TypeError
            If `path` is not a path.
        """
        target = _check.file_path("path", path, "view.html")
        if self._part.loaded and not self._part.is_complete:
            self._update()
        traits = {name: getattr(self, name) for name in self._saved_traits}
        arrays = {name: getattr(self, name) for name in self._saved_arrays}
        target.write_text(page.page("Attention with spans", traits, arrays), encoding="utf-8")
        return target

    def _compute_again(self, change: Any) -> None:
        part = self._part
        loaded = [self.span[index] for index in part.loaded]
        reaches = int(farthest(max(loaded or self.span), self.ramp))
        if self.zoom is not None and part.reach is not None and reaches > part.reach:
            self._zoom_again(None)  # the browser lacks keys that are now in reach
        elif self.zoom is not None and part.kept is None and part.needs:
            self._zoom_again(None)  # with shorter spans the keys may fit
        elif part.pool is not None and not (self.zoom is None and self._is_drawn_in_browser(change)):
            self._update()

    def _is_drawn_in_browser(self, change: Any) -> bool:
        """Whether only spans of heads that the browser computes have changed; Python draws their small maps later."""
        if change["name"] != "span":
            return False
        pairs = enumerate(zip(change["old"], change["new"], strict=True))
        return {index for index, (old, new) in pairs if old != new} <= set(self._part.loaded)

    def _zoom_again(self, _: Any) -> None:
        before = self._part
        if self.zoom is None:
            part = full_part(self._data, self._index)
        else:
            rows, cols = (tuple(ends) for ends in self.zoom)
            part = zoomed(self._data, rows, cols, self.span, self.ramp, self._index)
        changed, self._part = part.meta != before.meta, part
        if (part.rows, part.cols, part.pool) != (before.rows, before.cols, before.pool):
            self._maps.clear()
        self._update(**({"meta": part.meta, **part.arrays} if changed else {}))

    def _look_again(self, change: Any) -> None:
        part = self._part
        if change["name"] == "head" and self._index not in part.loaded and (part.loaded or self.zoom is not None):
            self._zoom_again(None)  # the browser has other heads, or none because this one did not fit
        else:
            self.strongest = self._strongest()

    @property
    def _index(self) -> int:
        """The index of the head with the large map among the shown heads."""
        return [_as_trait(head) for head in self._data.heads].index(self.head)

    def _update(self, **others: Any) -> None:
        """Compute maps and counts, and send them in one message, so that they always belong together."""
        self.computing = self._part.pool is not None
        try:
            computed = {
                **self._pooled(self.span, self.ramp, self.temperature),
                "counts": self._counted(self.span, self.ramp),
                "strongest": self._strongest(),
            }
            with self.hold_sync():
                for name, value in (computed | others).items():
                    setattr(self, name, value)
        finally:
            self.computing = False

    def _pooled(self, spans: list[float], ramp: float, temperature: float) -> dict[str, Any]:
        """Return the maps and mean distances of all heads. Only changed ones are computed, which may take seconds."""
        part = self._part
        if part.pool is None:
            return {"maps": b"", "distances": []}
        for index, span in enumerate(spans):
            state = (span, ramp, temperature)
            if self._maps.get(index, (None,))[0] != state:
                self._maps[index] = (state, part.map_of(index, *state), part.distance_of(index, *state))
        maps = [self._maps[index] for index in range(len(spans))]
        return {"maps": b"".join(pooled for _, pooled, _ in maps), "distances": [distance for *_, distance in maps]}

    def _counted(self, spans: list[float], ramp: float) -> list[list[int] | None]:
        return [] if self._part.pool is None else counts(self._data, spans, ramp)

    def _strongest(self) -> dict[str, Any]:
        """Return the keys with the largest weights for the pinned query, if the browser has only maps."""
        index = self._index
        if index in self._part.loaded or self.selected is None:
            return {}
        settings = (self.span[index], self.ramp, self.temperature)
        row = self._data.weights(index, *settings, rows=[self.selected])[0]
        order = np.argsort(-row, kind="stable")[:STRONGEST]
        keys = [[key, float(row[key])] for key in order.tolist() if row[key] > 0]
        return {"head": self.head, "query": self.selected, "settings": list(settings), "keys": keys}

    @traitlets.validate("head")
    def _valid_head(self, proposal: Any) -> int | list[int]:
        value = np.asarray(proposal["value"])
        if not self._data.is_layered:
            head: HeadId = int(proposal["value"])
        elif value.shape == (2,) and value.dtype.kind in "iu":
            head = tuple(value.tolist())
        else:
            raise ValueError(f"head must be the numbers of a layer and of a head in it, not {proposal['value']!r}")
        if head not in self._data.heads:
            raise ValueError(f"head must be one of {_check.describe(self._data.heads)}, not {head}")
        return _as_trait(head)

    @traitlets.validate("span")
    def _valid_span(self, proposal: Any) -> list[float]:
        heads, keys = len(self._data.heads), self._data.sizes[1]
        if proposal["value"] is None:
            return [float(keys)] * heads
        spans = _check.spans("span", proposal["value"])
        if spans.shape not in ((), (1,), (heads,)):
            raise ValueError(f"span must be a number or {heads} numbers, not of shape {spans.shape}")
        return [min(float(z), float(keys)) for z in spans.ravel().tolist() * (heads // spans.size)]

    @traitlets.validate("ramp")
    def _valid_ramp(self, proposal: Any) -> float:
        return _check.number("ramp", proposal["value"], at_least=0)

    @traitlets.validate("temperature")
    def _valid_temperature(self, proposal: Any) -> float:
        return _check.positive("temperature", proposal["value"])

    @traitlets.validate("selected")
    def _valid_selected(self, proposal: Any) -> int | None:
        chosen, queries = proposal["value"], self._data.sizes[0]
        if chosen is not None and not 0 <= chosen < queries:
            raise ValueError(f"selected must be None or a query from 0 to {queries - 1}, not {chosen}")
        return None if chosen is None else int(chosen)

    @traitlets.validate("zoom")
    def _valid_zoom(self, proposal: Any) -> list[list[int]] | None:
        if proposal["value"] is None:
            return None
        lengths = dict(zip(("queries", "keys"), self._data.sizes, strict=False))
        ranges = _check.as_array("zoom", proposal["value"])
        if ranges.shape != (2, 2) or ranges.dtype.kind not in "iu":
            raise ValueError(
                "zoom must be None or two pairs of integers, of queries and of keys, such as [[100, 200], [0, 200]], "
                f"not {_check.describe(proposal['value'])}"
            )
        for (what, length), (first, end) in zip(lengths.items(), ranges.tolist(), strict=True):
            if not 0 <= first < end <= length:
                raise ValueError(f"zoom must be a range within the {length} {what}, not {first} to {end}")
        pairs: list[list[int]] = ranges.tolist()
        return pairs


def _as_trait(head: HeadId) -> int | list[int]:
    """Return a head in the form that a trait has in Python and in the browser."""
    return head if isinstance(head, int) else list(head)
