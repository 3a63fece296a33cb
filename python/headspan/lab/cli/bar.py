"""The progress bar of training."""

from __future__ import annotations

import headspan.lab.extra  # noqa: F401 - checks first that the optional dependencies are installed

# isort: split
from tqdm import tqdm as tqdm

from headspan.lab.runs import State


class Bar:
    """A tqdm progress bar with bits per character, mean span and widest span."""

    def __init__(self, steps: int, begun: int, name: str | None = None) -> None:
        self._bar = tqdm(total=steps, initial=begun, desc=name, unit="step", dynamic_ncols=True)
        self._smooth: float | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def show(self, state: State, bits: float) -> None:
        """Advance the bar by one step."""
        self._smooth = bits if self._smooth is None else 0.98 * self._smooth + 0.02 * bits
        text = f"{self._smooth:.2f} bits/char"
        if state.spans is not None:
            text += f", span mean {state.spans.mean():.0f} widest {state.spans.max():.0f}"
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update()
