"""Neighborhood attention: windows on a grid of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headspan import _check
from headspan.patterns.base import Primitive
from headspan.patterns.primitives import Global


@dataclass(frozen=True)
class Neighborhood(Primitive):
    """The window around a query on a grid of tokens in row-major order, shifted at borders to keep its full size.

    The window looks both ways by default, and `attention` then requires its argument `causal`: pass ``causal=True``
    here for windows without later coordinates. Along an axis of length L, a query at coordinate c sees `window`
    coordinates, from ``clip(c - window // 2, 0, L - window)`` on. On a causal axis it sees those from
    ``max(c - window + 1, 0)`` to c. With a dilation, the same holds among the coordinates that are congruent to c
    modulo the dilation. With a stride s, the queries from ``s * (c // s)`` to ``s * (c // s) + s - 1`` share the window
    of the query at ``min(s * (c // s) + s // 2, L - 1)``; on a causal axis, their windows share the start of the last
    query's window. In a pattern with a Neighborhood, the distance of a pair, for spans and slopes, is the largest
    distance along an axis.

    Parameters
    ----------
    shape : int or tuple of 1 to 3 int
        Shape of the grid, which contains all keys except the extra ones.
    window, dilation : int or tuple of int
        Window size and dilation, for all axes or for each.
    causal : bool or tuple of bool, optional
        Whether a query sees no later coordinates, for all axes or for each; ``(True, False, False)`` suits video. If it
        is given, `attention` needs no `causal` argument.
    extra : int or (int, int)
        Number of tokens outside the grid, such as class tokens and registers: after it, or (before, after). They see
        all tokens and are seen by all, like `Global` tokens, and no span limits their pairs.
    stride : int or tuple of int
        Number of neighbouring queries that share a window, for all axes or for each; at most the window. 1: one window
        per query. The window size: adjacent blocks. Queries with a shared window are computed together without masks.

    Raises
    ------
    ValueError
        If the window does not fit; when the pattern is used, if the grid does not contain all keys, or if there are
        more queries than keys.

    See Also
    --------
    Window : A sliding window.
    Global : Tokens that see all tokens and are seen by all.

    References
    ----------
    Hassani et al., "Neighborhood Attention Transformer", CVPR 2023, equation 1; "Dilated Neighborhood Attention
    Transformer", 2022. Stride: "Generalized Neighborhood Attention", 2025, arXiv:2504.16922. Extra tokens: Darcet et
    al., "Vision Transformers Need Registers", ICLR 2024.

    Examples
    --------
    >>> from headspan.patterns import Neighborhood
    >>> Neighborhood((4, 4), window=3).mask(16)[0].reshape(4, 4).astype(int)
    array([[1, 1, 1, 0],
           [1, 1, 1, 0],
           [1, 1, 1, 0],
           [0, 0, 0, 0]])
    >>> Neighborhood(5, window=3, causal=True, extra=(1, 0)).mask(6).astype(int)
    array([[1, 1, 1, 1, 1, 1],
           [1, 1, 0, 0, 0, 0],
           [1, 1, 1, 0, 0, 0],
           [1, 1, 1, 1, 0, 0],
           [1, 0, 1, 1, 1, 0],
           [1, 0, 0, 1, 1, 1]])
    >>> Neighborhood(8, window=4, stride=2).mask(8)[::2].astype(int)
    array([[1, 1, 1, 1, 0, 0, 0, 0],
           [0, 1, 1, 1, 1, 0, 0, 0],
           [0, 0, 0, 1, 1, 1, 1, 0],
           [0, 0, 0, 0, 1, 1, 1, 1]])
    """

    shape: tuple[int, ...]
    window: tuple[int, ...]
    dilation: tuple[int, ...] = (1,)
    causal: tuple[bool, ...] | None = None
    extra: tuple[int, int] = (0, 0)
    stride: tuple[int, ...] = (1,)
    _name = "neighborhood"

    def __init__(
        self,
        shape: int | Sequence[int],
        window: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        causal: bool | Sequence[bool] | None = None,
        extra: int | tuple[int, int] = 0,
        stride: int | Sequence[int] = 1,
    ) -> None:
        axes = len(shape) if isinstance(shape, Sequence) else 1
        if not 1 <= axes <= 3:
            raise ValueError(f"shape of Neighborhood must have 1 to 3 axes, not {axes}")
        numbers = {"shape": shape, "window": window, "dilation": dilation, "stride": stride}
        for name, value in numbers.items():
            values = self._each_axis(name, value, axes, "a number")
            checked = tuple(_check.integer(f"{name} of Neighborhood", n, at_least=1) for n in values)
            object.__setattr__(self, name, checked)
        for length, w, d, s in zip(self.shape, self.window, self.dilation, self.stride, strict=True):
            if w * d > length:
                raise ValueError(
                    f"window of Neighborhood, times its dilation, must fit the shape {self.shape}, "
                    f"not be {w} * {d} on an axis of {length}"
                )
            if s > w:
                raise ValueError(f"stride of Neighborhood must be at most the window of {w}, not {s}")
        flags = None if causal is None else self._each_axis("causal", causal, axes, "a bool")
        checked_flags = flags and tuple(_check.flag("causal of Neighborhood", flag) for flag in flags)
        object.__setattr__(self, "causal", checked_flags)
        ends = tuple(extra) if isinstance(extra, Sequence) and not isinstance(extra, str) else (0, extra)
        if len(ends) != 2:
            raise ValueError(f"extra of Neighborhood must be a number or (before, after), not {extra}")
        counts = tuple(_check.integer("extra of Neighborhood", n, at_least=0) for n in ends)
        object.__setattr__(self, "extra", counts)

    @staticmethod
    def _each_axis(name: str, value: object, axes: int, one: str) -> tuple[object, ...]:
        values = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * axes
        if len(values) != axes:
            raise ValueError(f"{name} of Neighborhood must be {one} or have {axes} axes, not {value}")
        return values

    def _check_size(self, queries: int, keys: int, global_tokens: tuple[int, ...]) -> None:
        on_grid = self.grid_tokens
        off_grid = sum(token not in on_grid for token in global_tokens)
        if on_grid.stop > keys or len(on_grid) + off_grid != keys:
            hint = "; extra= is the number of tokens outside the grid" if len(on_grid) + off_grid < keys else ""
            raise ValueError(f"shape of Neighborhood must hold the {keys} keys, not {len(on_grid) + off_grid}{hint}")
        if queries > keys:
            raise ValueError(f"Neighborhood must have a key for every query, not {queries} queries and {keys} keys")

    @property
    def grid(self) -> tuple[int, ...]:
        return self.shape

    @property
    def grid_start(self) -> int:
        return self.extra[0]

    @property
    def global_tokens(self) -> tuple[int, ...]:
        before, after = self.extra
        end = self.grid_tokens.stop
        return (*range(before), *range(end, end + after))

    @property
    def default_causal(self) -> bool | None:
        return None if self.causal is None else all(self.causal)

    def conjunctions(self) -> list[tuple[Primitive, ...]]:
        return [(self,), (Global(self.global_tokens),)] if any(self.extra) else [(self,)]

    def _numbers(self) -> list[int]:
        axes = len(self.shape)
        causal = map(int, self.causal or (False,) * axes)
        return [axes, self.grid_start, *self.shape, *self.window, *self.dilation, *causal, *self.stride]
