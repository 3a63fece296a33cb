"""The spans of all heads of a model, and the files and tensors in which they go from one program to another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._compiled import __version__
from headspan._help import as_written
from headspan.ops.spans import farthest

_FORMAT = "headspan.spans"
_VERSION = 1
_GATES, _SIZES = "full_attention_heads.tsv", "config.json"  # the files of DuoAttention


@as_written
class ModelSpans(NamedTuple):
    """The spans of all heads of a model.

    Attributes
    ----------
    spans : ndarray, shape (layers, heads)
        The spans in tokens; inf means no limit.
    ramp : float
        The ramp of the soft mask in tokens.
    first_tokens : int
        The number of first tokens that are visible at any distance.
    num_key_heads : int
        The number of key heads of a layer.
    about : dict, optional
        What the file says about the spans, such as the name of the model; only numbers, texts, lists and dicts.

    See Also
    --------
    SpanFit : The result of a fit, whose ``model_spans`` are the spans that it found.
    headspan.torch.set_spans : Sets the spans of a transformers model.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> import headspan as hs
    >>> spans = hs.ModelSpans(np.array([[8, 8, np.inf, np.inf]]), ramp=1, first_tokens=4, num_key_heads=2)
    >>> folder = tempfile.mkdtemp()
    >>> spans.save(folder + "/spans.json")
    >>> hs.ModelSpans.load(folder + "/spans.json").spans
    array([[ 8.,  8., inf, inf]])

    The tensor of flash-sparse-attn for texts of 1000 tokens has for each key head the number of first tokens, two
    numbers of a second window that headspan does not have, and the number of last tokens with the query's own:

    >>> spans.window_sizes(1000)
    array([[[   4,    0,    0,    9],
            [   4,    0,    0, 1000]]], dtype=int32)
    """

    spans: npt.NDArray[np.float64]
    ramp: float
    first_tokens: int = 0
    num_key_heads: int = 1
    about: dict[str, Any] | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file. A head without a limit has null.

        Parameters
        ----------
        path : str or path
            A file name that ends in ".json".
        """
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "headspan": __version__,
            "about": self.about,
            "num_key_heads": self.num_key_heads,
            "first_tokens": self.first_tokens,
            "ramp": self.ramp,
            "spans": [[None if np.isinf(span) else span for span in row] for row in self.spans.tolist()],
        }
        import json  # here, as pictures of fits do without

        file = _check.file_path("path", path, "spans.json")
        file.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ModelSpans:
        """Read a JSON file that `save` has written.

        Raises
        ------
        ValueError
            If the file is another one.
        """
        import json

        file = _check.file_path("path", path, "spans.json")
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            raise ValueError(f"{file} must be a file of ModelSpans.save, but is not JSON") from None
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise ValueError(f"{file} must be a file of ModelSpans.save, with the format {_FORMAT!r}")
        if document["version"] > _VERSION:
            raise ValueError(
                f"{file} is of version {document['version']} of the format; this headspan reads {_VERSION}"
            )
        rows = [[np.inf if span is None else span for span in row] for row in document["spans"]]
        fields = {name: document[name] for name in ("ramp", "first_tokens", "num_key_heads", "about")}
        return cls(_check.spans("spans", np.array(rows, np.float64)), **fields)

    def window_sizes(self, tokens: int) -> npt.NDArray[np.int32]:
        """Return the tensor of window sizes of flash-sparse-attn, of shape (layers, key heads, 4).

        Its columns are the numbers of first tokens, of tokens of a distant window (0), of tokens between the windows
        (0), and of last tokens with the query's own. Keys on the ramp are in the window with their full weight.

        Parameters
        ----------
        tokens : int
            The number of tokens of a head without a limit.
        """
        near = np.minimum(self._reach() + 1, _check.integer("tokens", tokens, at_least=1)).astype(np.int32)
        sizes = np.zeros((*near.shape, 4), np.int32)
        sizes[..., 0], sizes[..., 3] = self.first_tokens, near
        return sizes

    @classmethod
    def from_window_sizes(cls, window_sizes: npt.ArrayLike, num_heads: int, *, tokens: int) -> ModelSpans:
        """Return the spans of window sizes of flash-sparse-attn, of shape (layers, key heads, 4).

        Parameters
        ----------
        window_sizes : array_like
        num_heads : int
            The number of query heads of a layer.
        tokens : int
            A head that sees this many tokens or more has no limit.

        Raises
        ------
        ValueError
            If a head has a distant window, or heads see different numbers of first tokens.
        """
        sizes = _check.integers("window_sizes", window_sizes)
        if sizes.ndim != 3 or sizes.shape[2] != 4 or not sizes.size:
            raise ValueError(f"window_sizes must be of shape (layers, key heads, 4), not {sizes.shape}")
        if sizes[..., 1].any():
            raise ValueError("window_sizes must have no distant windows (column 1), which spans cannot describe")
        sinks = np.unique(sizes[..., 0])
        if len(sinks) > 1:
            raise ValueError(f"window_sizes must have one number of first tokens (column 0), not {sinks.tolist()}")
        limit = _check.integer("tokens", tokens, at_least=1)
        near = np.where(sizes[..., 3] >= limit, np.inf, np.maximum(sizes[..., 3] - 1.0, 0))
        key_heads = sizes.shape[1]
        return cls(_of_heads(near, num_heads), 0.0, int(sinks[0]), key_heads)

    def save_duo_attention(self, folder: str | os.PathLike[str]) -> None:
        """Write the files of DuoAttention, for spans of which each is without a limit or has one common value.

        Parameters
        ----------
        folder : str or path
            The folder of ``full_attention_heads.tsv`` and ``config.json``; it is made if it does not exist.

        Raises
        ------
        ValueError
            If there are several finite spans.
        """
        import json

        reach = self._reach()
        finite = np.unique(reach[np.isfinite(reach)])
        if len(finite) > 1:
            raise ValueError(
                f"the pattern of DuoAttention has one window for all heads with a limit, but spans have {len(finite)}"
            )
        recent = int(finite[0]) + 1 if len(finite) else 0
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        np.savetxt(target / _GATES, np.isinf(reach).astype(float), fmt="%.1f", delimiter="\t")
        sizes = {"sink_size": self.first_tokens, "recent_size": recent}
        (target / _SIZES).write_text(json.dumps(sizes) + "\n", encoding="utf-8")

    @classmethod
    def load_duo_attention(
        cls, folder: str | os.PathLike[str], num_heads: int, *, threshold: float = 0.5
    ) -> ModelSpans:
        """Read the files of DuoAttention: heads with a gate of at least `threshold` see all tokens.

        Parameters
        ----------
        folder : str or path
            The folder of ``full_attention_heads.tsv`` and ``config.json``.
        num_heads : int
            The number of query heads of a layer.
        threshold : float

        References
        ----------
        Xiao et al., "DuoAttention", ICLR 2025, sections 2.2 and 2.3.
        """
        import json

        gates = np.loadtxt(Path(folder) / _GATES, ndmin=2)
        sizes = json.loads((Path(folder) / _SIZES).read_text(encoding="utf-8"))
        spans = np.where(gates < _check.number("threshold", threshold), sizes["recent_size"] - 1.0, np.inf)
        return cls(_of_heads(spans, num_heads), 0.0, int(sizes["sink_size"]), gates.shape[1])

    def _reach(self) -> npt.NDArray[np.float64]:
        """Return the number of earlier tokens that each key head reaches."""
        reach = np.asarray(farthest(self.spans, self.ramp), np.float64)
        groups = reach.reshape(len(reach), self.num_key_heads, -1)
        return np.asarray(groups.max(axis=2))


def _of_heads(spans: npt.NDArray[np.float64], num_heads: int) -> npt.NDArray[np.float64]:
    """Repeat the spans of key heads for the query heads that share them."""
    heads = _check.integer("num_heads", num_heads, at_least=1)
    if heads % spans.shape[1]:
        raise ValueError(f"num_heads must be a multiple of the {spans.shape[1]} key heads, not {heads}")
    return np.repeat(spans, heads // spans.shape[1], axis=1)
