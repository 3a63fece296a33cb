"""The widget: traits that Python and the browser share. Importing this needs anywidget."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from headspan import _check
from headspan.explorer import page
from headspan.explorer.data import ViewData

_STATE = ("head", "span", "ramp", "temperature", "selected")


class Explorer(anywidget.AnyWidget):
    """An interactive view of attention, as `headspan.explore` makes it.

    Every trait can be read, set and observed; setting one moves the picture, moving a slider sets one.

    Attributes
    ----------
    head : int
        Index in the query, from 0, of the head whose map is large; the view counts heads from 1.
    span : list of float
        One a head shown, in tokens; a number sets all.
    ramp, temperature : float
    selected : int or None
        The pinned query.
    """

    _esm = page.module()
    _css = page.style()

    meta = traitlets.Dict().tag(sync=True)
    query = traitlets.Bytes().tag(sync=True)
    key = traitlets.Bytes().tag(sync=True)
    norms = traitlets.Bytes().tag(sync=True)
    maps = traitlets.Bytes().tag(sync=True)
    allowed = traitlets.Bytes().tag(sync=True)
    counts = traitlets.List().tag(sync=True)
    computing = traitlets.Bool().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    span = traitlets.TraitType([]).tag(sync=True)
    ramp = traitlets.Float().tag(sync=True)
    temperature = traitlets.Float(1.0).tag(sync=True)
    selected = traitlets.Int(None, allow_none=True).tag(sync=True)

    def __init__(self, data: ViewData) -> None:
        self._data = data
        self._maps: dict[int, tuple[tuple[float, ...], bytes]] = {}  # of each head, and of what it was computed
        super().__init__(
            meta=data.meta,
            **data.arrays,
            maps=self._pooled(data.span, data.ramp, 1.0),
            counts=data.counts(data.span, data.ramp),
            head=data.heads[0],
            span=data.span,
            ramp=data.ramp,
        )
        self.observe(self._pool_again, names=["span", "ramp", "temperature"])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the view, as it stands, as one HTML file that needs no network and no Python.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        Path

        Raises
        ------
        ValueError
            For a folder.
        TypeError
            For what is no path.
        """
        target = _check.file_path("path", path, "view.html")
        traits = {name: getattr(self, name) for name in ("meta", "counts", *_STATE)}
        arrays = {name: getattr(self, name) for name in ("query", "key", "norms", "maps", "allowed")}
        target.write_text(page.page("Attention with spans", traits, arrays), encoding="utf-8")
        return target

    def _pool_again(self, _: Any) -> None:
        if self._data.pool is None:
            return
        self.computing = True
        try:
            maps = self._pooled(self.span, self.ramp, self.temperature)
            counts = self._data.counts(self.span, self.ramp)
            with self.hold_sync():  # one message, so that no map stands beside the counts of another
                self.maps, self.counts = maps, counts
        finally:
            self.computing = False

    def _pooled(self, spans: list[float], ramp: float, temperature: float) -> bytes:
        """Return the maps of all heads; only those that change are computed, since one may take seconds."""
        for index, span in enumerate(spans):
            state = (span, ramp, temperature)
            if self._maps.get(index, (None,))[0] != state:
                self._maps[index] = (state, self._data.map_of(index, *state))
        return b"".join(pooled for _, pooled in self._maps.values())

    @traitlets.validate("head")
    def _valid_head(self, proposal: Any) -> int:
        number = int(proposal["value"])
        if number not in self._data.heads:
            raise ValueError(f"head must be one of {_check.describe(self._data.heads)}, not {number}")
        return number

    @traitlets.validate("span")
    def _valid_span(self, proposal: Any) -> list[float]:
        heads, keys = len(self._data.heads), self._data.key.shape[1]
        if proposal["value"] is None:
            return [float(keys)] * heads
        spans = _check.real_array("span", proposal["value"])
        _check.non_negative("span", spans)
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
        chosen, queries = proposal["value"], self._data.query.shape[1]
        if chosen is not None and not 0 <= chosen < queries:
            raise ValueError(f"selected must be None or a query from 0 to {queries - 1}, not {chosen}")
        return None if chosen is None else int(chosen)
