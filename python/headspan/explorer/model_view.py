"""The widget of a language model on a text. Importing this module needs anywidget."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from headspan.explorer.data import ViewData
from headspan.explorer.prediction import Prediction, ViewedModel
from headspan.explorer.widget import Explorer
from headspan.fitting import ModelSpans


class ModelExplorer(Explorer):
    """An interactive view of a language model on a text, made by `headspan.torch.explore`.

    In addition to `Explorer`, the view shows the loss of the model and the most probable next tokens. If the spans or
    the ramp change, it shows those with the new spans.

    Attributes
    ----------
    model_spans : ModelSpans
        The spans of the view, for `headspan.torch.set_spans` and for files. A head that you have not moved has the span
        that the model had, and a head whose slider is at its end has no limit.
    loss : float or None
        The loss of the model with the spans of the view, in nats per token, over all next tokens of the text. Reading
        it computes the model if necessary.
    recorded_loss : float or None
        The loss with the spans that the model had.
    """

    recorded = traitlets.Dict().tag(sync=True)
    recorded_candidates = traitlets.Bytes().tag(sync=True)
    recorded_probabilities = traitlets.Bytes().tag(sync=True)
    predicted = traitlets.Dict().tag(sync=True)
    candidates = traitlets.Bytes().tag(sync=True)
    probabilities = traitlets.Bytes().tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)

    _saved_traits = (*Explorer._saved_traits, "recorded", "predicted")
    _saved_arrays = (
        *Explorer._saved_arrays, "recorded_candidates", "recorded_probabilities", "candidates", "probabilities"
    )  # fmt: skip

    def __init__(self, data: ViewData, model: ViewedModel) -> None:
        self._model = model
        self._first_spans = data.span
        self._full_loss: float | None = None  # without spans, once it is known
        super().__init__(data)
        self.ramp = model.ramp
        recorded = model.recorded
        with self.hold_sync():
            self.recorded = {
                **recorded.loss_and_texts(),
                "span": self.span,
                "ramp": self.ramp,
                "limited": bool((model.spans < data.sizes[1]).any()),
                "allLayers": len(model.spans),
                "refusal": model.refusal,
            }
            self.recorded_candidates = recorded.candidate_bytes()
            self.recorded_probabilities = recorded.probability_bytes()
        self.observe(self._answer, names=["asked"])

    @property
    def model_spans(self) -> ModelSpans:
        """The spans of the view, for `headspan.torch.set_spans` and for files."""
        model, keys = self._model, self._data.sizes[1]
        spans = model.spans.copy()
        for place, first, span in zip(self._data.heads, self._first_spans, self.span, strict=True):
            if span != first:
                spans[place] = span if span < keys else np.inf
        return ModelSpans(spans, self.ramp, model.first_tokens, model.num_key_heads)

    @property
    def loss(self) -> float | None:
        """The loss of the model with the spans of the view, in nats per token."""
        return self._predict().loss

    @property
    def recorded_loss(self) -> float | None:
        """The loss of the model with the spans that it had, in nats per token."""
        return self._model.recorded.loss

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the current view to one HTML file, with the loss and predictions for its spans, as `Explorer.save`."""
        last = self.predicted or self.recorded
        if self._model.refusal is None and (self.span, self.ramp) != (last["span"], last["ramp"]):
            self._answer(None)
        return super().save(path)

    def _predict(self) -> Prediction:
        if self._model.refusal is None:
            return self._model.predict(self.model_spans.spans, self.ramp)
        if (self.span, self.ramp) == (self.recorded["span"], self.recorded["ramp"]):
            return self._model.recorded
        raise ValueError(f"the model cannot be computed with other spans: {self._model.refusal}")

    def _answer(self, _: Any) -> None:
        """Compute the predictions that the browser asked for, and send them in one message."""
        settings = {"span": self.span, "ramp": self.ramp}
        try:
            prediction = self._predict()
        except (Exception, KeyboardInterrupt) as error:
            reason = "it was interrupted" if isinstance(error, KeyboardInterrupt) else str(error).partition("\n")[0]
            self.predicted = {**settings, "error": f"The model could not be recomputed: {reason or repr(error)}."}
            return
        if min(self.span) >= self._data.sizes[1]:
            self._full_loss = prediction.loss
        with self.hold_sync():
            self.candidates = prediction.candidate_bytes()
            self.probabilities = prediction.probability_bytes()
            self.predicted = {
                **settings,
                **prediction.loss_and_texts(),
                "layers": prediction.layers,
                "seconds": prediction.seconds,
                "full": self._full_loss,
            }
