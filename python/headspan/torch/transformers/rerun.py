"""A run of a transformers model on a text, repeated with other spans from the first changed layer on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from headspan.explorer.data import ViewData
from headspan.explorer.layers import checked_layers
from headspan.explorer.prediction import Prediction
from headspan.torch.transformers.models import decoder_config, decoder_layers, is_bidirectional, reads_other_layers
from headspan.torch.transformers.recording.tokens import readable_tokens
from headspan.torch.transformers.spans import UNLIMITED, of_model, ramp_of, temporary_spans

if TYPE_CHECKING:
    from headspan.explorer.model_view import ModelExplorer

CANDIDATES = 5  # next tokens that the view lists
MOST_BYTES = 256_000_000  # of hidden states that are kept by default
_ROWS = 256  # tokens whose logits are converted at once
_Row = tuple[tuple[float, ...], float] | None  # the spans and the ramp of a layer, or None without a limit


class ModelRun:
    """A model, a text, and the hidden states after each layer.

    Layers below the first changed one are not run: they return the kept hidden states. Everything else is the model's
    own code, so that embeddings, masks, norms and caps of logits are those of the model.

    Attributes
    ----------
    spans, ramp, first_tokens, num_key_heads, recorded, refusal
        As in `ViewedModel`.
    predicts_next : bool
        Whether the model is causal and returns logits, known after the first run.
    """

    def __init__(self, model: torch.nn.Module, ids: torch.Tensor, tokenizer: Any, *, live: bool | None) -> None:
        self._model, self._ids, self._tokenizer = model, ids, tokenizer
        self._config = config = decoder_config(model)
        self._layers = decoder_layers(model, config)
        self._is_causal = not is_bidirectional(model, config)
        rows = of_model(model, config)
        heads = config.num_attention_heads
        self.spans = np.array([[np.inf] * heads if row is None else row for row in rows], np.float64)
        self.spans[self.spans >= UNLIMITED] = np.inf
        self.ramp = ramp_of(model, config)
        self.first_tokens: int = getattr(config, "headspan_first_tokens", 0)
        self.num_key_heads: int = getattr(config, "num_key_value_heads", None) or heads
        self.refusal = self._refusal(live)
        self._rows = self._rows_of(self.spans, self.ramp)
        self._outputs: list[Any] = [None] * len(self._layers)
        self._kept = 0  # number of layers whose outputs are those of the spans in `_rows`
        self._last: Prediction | None = None
        self.predicts_next = False
        self.recorded: Prediction

    def _refusal(self, live: bool | None) -> str | None:
        """Return why the model cannot be run with other spans, or None."""
        size = self._ids.numel() * self._config.hidden_size * self._config.num_hidden_layers
        size *= next(self._model.parameters()).element_size()
        if any(hasattr(module, "headspan_span") for module in self._model.modules()):
            refusal = "its spans are learned; headspan.torch.freeze_spans(model) turns them into fixed spans"
        elif not self._layers or reads_other_layers(self._config):
            refusal = "its layers cannot be run one by one"
        elif live is False:
            return "the view was made with live=False"
        elif live is None and size > MOST_BYTES:
            return f"its hidden states would take {size / 1e6:.0f} MB; live=True keeps them"
        else:
            return None
        if live:
            raise ValueError(f"live must be False or None, because the model cannot be recomputed: {refusal}")
        return refusal

    def record(self) -> None:
        """Run the whole model with its own spans."""
        started = time.perf_counter()
        logits = self._run(0)
        self.predicts_next = self._is_causal and logits is not None
        if logits is not None and self.predicts_next:
            self.recorded = self._last = self._prediction(logits, len(self._layers), started)

    def predict(self, spans: npt.NDArray[np.float64], ramp: float) -> Prediction:
        """Return the predictions with spans of shape (layers, heads). The spans of the model stay as they are."""
        started = time.perf_counter()
        rows = self._rows_of(spans, ramp)
        first = next((i for i in range(self._kept) if rows[i] != self._rows[i]), self._kept)
        if first == len(rows) and self._last is not None:
            return self._last
        self._rows, self._kept, self._last = rows, first, None
        limits = [None if row is None else np.minimum(row[0], UNLIMITED).tolist() for row in rows]
        with temporary_spans(self._config, limits, ramp):
            logits = self._run(first)
        self._last = self._prediction(logits, len(rows) - first, started)
        return self._last

    def _rows_of(self, spans: npt.NDArray[np.float64], ramp: float) -> list[_Row]:
        """Return what determines the results of each layer on this text."""
        effective = np.where(spans >= self._ids.shape[1], np.inf, spans)
        return [(tuple(row.tolist()), ramp) if np.isfinite(row).any() else None for row in effective]

    @torch.no_grad()
    def _run(self, first: int) -> Any:
        """Return the logits after running the layers from `first` on, or None if the model has none."""
        options = {"use_cache": False} if self._is_causal else {}
        with _evaluating(self._model), self._skipping(first), self._keeping(first):
            return getattr(self._model(self._ids, **options), "logits", None)

    @contextmanager
    def _skipping(self, first: int) -> Iterator[None]:
        """Let the layers before `first` return the kept output of the last of them."""
        kept: Any = self._outputs[first - 1] if first else None
        before = [vars(layer).get("forward") for layer in self._layers[:first]]
        try:
            for layer in self._layers[:first]:
                layer.forward = lambda *_, **__: kept
            yield
        finally:
            for layer, forward in zip(self._layers, before, strict=False):
                if forward is not None:
                    layer.forward = forward
                else:
                    vars(layer).pop("forward", None)

    @contextmanager
    def _keeping(self, first: int) -> Iterator[None]:
        """Keep the outputs of the layers from `first` on."""
        if self.refusal is not None:
            yield
            return

        def keep(place: int, output: Any) -> None:
            self._outputs[place], self._kept = output, place + 1

        hooks = [
            layer.register_forward_hook(lambda _, __, output, place=place: keep(place, output))
            for place, layer in enumerate(self._layers)
            if place >= first
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _prediction(self, logits: torch.Tensor, layers: int, started: float) -> Prediction:
        """Return the loss and the most probable next tokens."""
        tokens = self._ids.shape[1]
        top, probabilities, following = [], [], []
        for first in range(0, tokens, _ROWS):
            log_probabilities = logits[0, first : first + _ROWS].float().log_softmax(dim=-1)
            best = log_probabilities.topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
            targets = self._ids[0, first + 1 : first + 1 + len(log_probabilities)]
            top.append(best.indices.cpu())
            probabilities.append(best.values.cpu())
            following.append(log_probabilities[: len(targets)].gather(1, targets[:, None])[:, 0].double().cpu())
        candidates = torch.cat(top).numpy().astype(np.int32)
        log_next = torch.cat(following).numpy()
        return Prediction(
            loss=-float(log_next.mean()) if log_next.size else None,
            candidates=candidates,
            probabilities=torch.cat(probabilities).exp().numpy(),
            following=np.append(np.exp(log_next), np.nan).astype(np.float32),
            texts=self._texts(candidates),
            layers=layers,
            seconds=time.perf_counter() - started,
        )

    def _texts(self, candidates: npt.NDArray[np.int32]) -> dict[int, str]:
        if self._tokenizer is None:
            return {}
        wanted = np.unique(candidates).tolist()
        text = self._ids[0].tolist()  # marks of the tokenizer are recognized from many tokens
        names = readable_tokens(self._tokenizer.convert_ids_to_tokens([*text, *wanted]))
        return dict(zip(wanted, names[len(text) :], strict=True))


def view_of(
    run: ModelRun, layers: dict[int, Any], tokens: list[str] | None = None, *, max_tokens: int
) -> ModelExplorer:
    """Return the view of a recorded run and of its layers, as arguments of `headspan.explore`."""
    data = ViewData.of(checked_layers(layers), tokens=tokens, max_tokens=max_tokens, unit="tokens")
    from headspan.explorer.model_view import ModelExplorer  # after the checks, as it needs anywidget

    return ModelExplorer(data, run)


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put a model into eval mode, without dropout, and restore the modes of its modules."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
