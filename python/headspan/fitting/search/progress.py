"""The progress bar of a fit."""

from __future__ import annotations

from typing import Any


class Progress:
    """A tqdm bar of the steps of a descent, or of the evaluations of a model; silent without tqdm or a terminal.

    Parameters
    ----------
    shown : bool
        Whether to show the bar at all.
    steps : int, optional
        The number of steps, if it is known.
    begun : int
        The number of steps that are done already.
    """

    def __init__(self, shown: bool, steps: int | None, begun: int = 0) -> None:
        self._bar: Any = None
        self._counts_steps = steps is not None
        if shown:
            try:
                from tqdm.auto import tqdm
            except ModuleNotFoundError:
                return
            unit = "step" if self._counts_steps else "evaluation"
            # None: no bar where the output is a file or a pipe.
            self._bar = tqdm(total=steps, initial=begun, desc="fit_spans", unit=unit, disable=None, dynamic_ncols=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def stepped(self, increase: float, share: float) -> None:
        """Show a step of the descent, with the increase of the loss and the share of the amount of full attention."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {increase:+.4f}, {share:.1%} kept", refresh=False)
            self._bar.update()

    def measured(self, evaluations: int, loss: float) -> None:
        """Show an evaluation of the loss."""
        if self._bar is None:
            return
        self._bar.set_postfix_str(f"measured {evaluations} times, loss {loss:.4f}", refresh=self._counts_steps)
        if not self._counts_steps:
            self._bar.update()
