"""What a language model predicts on the text of a view, and what the view asks of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predictions of a model on a text.

    Attributes
    ----------
    loss : float or None
        The mean loss of all next tokens, in nats per token. None if there is no next token.
    candidates : ndarray of int32, shape (tokens, count)
        The most probable tokens after every token, the most probable one first.
    probabilities : ndarray of float32, shape (tokens, count)
        Their probabilities.
    following : ndarray of float32, shape (tokens,)
        The probability of the token that follows in the text; NaN after the last token.
    texts : dict of int to str
        The texts of all candidates, or no texts without a tokenizer.
    layers : int
        The number of layers that were computed.
    seconds : float
        The time that this took.
    """

    loss: float | None
    candidates: npt.NDArray[np.int32]
    probabilities: npt.NDArray[np.float32]
    following: npt.NDArray[np.float32]
    texts: dict[int, str]
    layers: int
    seconds: float

    def loss_and_texts(self) -> dict[str, Any]:
        """Return the loss and the texts in a form that JSON can represent."""
        return {"loss": self.loss, "texts": {str(token): text for token, text in self.texts.items()}}

    def candidate_bytes(self) -> bytes:
        """Return the candidates as bytes of int32, row by row."""
        return np.ascontiguousarray(self.candidates, "<i4").tobytes()

    def probability_bytes(self) -> bytes:
        """Return the probabilities of the candidates and of the token that follows as bytes of float32, row by row."""
        return np.column_stack([self.probabilities, self.following]).astype("<f4").tobytes()


class ViewedModel(Protocol):
    """A model that a view shows.

    Attributes
    ----------
    spans : ndarray, shape (layers, heads)
        The spans of the model when it was recorded; inf means no limit.
    ramp : float
    first_tokens : int
        The number of first tokens that are visible at any distance.
    num_key_heads : int
    recorded : Prediction
        The predictions with these spans.
    refusal : str or None
        Why the model cannot be computed with other spans, or None if it can.
    """

    spans: npt.NDArray[np.float64]
    ramp: float
    first_tokens: int
    num_key_heads: int
    recorded: Prediction
    refusal: str | None

    def predict(self, spans: npt.NDArray[np.float64], ramp: float) -> Prediction:
        """Return the predictions with spans of shape (layers, heads)."""
