"""The encoder of Whisper tiny.en (4 layers of 6 heads, 1500 frames) on spoken messages of a telephone exchange."""

from __future__ import annotations

import copy
import hashlib
import subprocess
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import whisper_file
from headspan.lab.runs import RunError
from numpy.typing import NDArray
from study import Study
from torch.nn import functional as F
from transformers import DynamicCache, EncoderDecoderCache, WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.models.whisper.modeling_whisper import WhisperEncoder
from wheels import WHISPER, file_of, sha256_of

PACKAGE = "asterisk-core-sounds-en-wav"
SHA256 = "2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d"
RATE, SECONDS, FRAMES, LONGEST = 16_000, 30, 1500, 120
START, END = [50257, 50362], 50256  # the start of a transcript without times, and the end of a text
WINDOWS, HELD_OUT = 32, 8
PAUSE, SHORTEST = 0.3, 1.5  # seconds between messages, and of a message


class Batch(NamedTuple):
    """Thirty seconds of sound as a spectrogram, and the transcript that the model writes with full attention."""

    features: torch.Tensor
    transcript: torch.Tensor


def study(folder: Path = Path("build/atlas")) -> Study:
    """Load the model and the messages; the last windows are held out."""
    whisper, encoder = load()
    extractor = WhisperFeatureExtractor(feature_size=80)
    features = [
        torch.from_numpy(extractor(sound, sampling_rate=RATE, return_tensors="np").input_features)
        for sound in windows(messages(folder))[:WINDOWS]
    ]
    batches = [Batch(*pair) for pair in zip(features, transcripts(whisper, encoder, features), strict=True)]
    kept = len(batches) - HELD_OUT

    def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Return the mean cross-entropy of the transcript, in nats per token."""
        logits = _logits(whisper, model, batch)
        return F.cross_entropy(logits, batch.transcript[0, len(START) :])

    @torch.no_grad()
    def accuracy(model: torch.nn.Module, batches: Sequence[Any]) -> float:
        """Return the share of tokens of the transcripts that the model predicts, given the tokens before."""
        right = [_logits(whisper, model, batch).argmax(1) == batch.transcript[0, len(START) :] for batch in batches]
        return float(torch.cat(right).float().mean())

    files = sha256_of(WHISPER) | {f"{PACKAGE}_1.6.1-1_all.deb": SHA256}
    return Study(encoder, loss, accuracy, batches[:kept], batches[kept:], tokens=FRAMES, ramp=32, sha256=files)


def load() -> tuple[WhisperForConditionalGeneration, WhisperEncoder]:
    """Return the model, and its encoder once more with a configuration of its own.

    In one configuration, the spans of encoder and decoder could not be told apart.
    """
    whisper = whisper_file.load(file_of(WHISPER["model.bin"]))
    config = copy.deepcopy(whisper.config)
    config.is_encoder_decoder, config._attn_implementation = False, "headspan"
    encoder = WhisperEncoder(config).eval()
    encoder.load_state_dict(whisper.model.encoder.state_dict())
    return whisper, encoder


def messages(folder: Path) -> list[NDArray[np.float32]]:
    """Return the spoken messages of a Debian package in the order of their names, at 16 kHz; nothing is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(f"{PACKAGE}_*.deb")):
        subprocess.run(["apt-get", "download", "-qq", PACKAGE], cwd=folder, check=True)
    (archive,) = folder.glob(f"{PACKAGE}_*.deb")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise RunError(f"{archive} must be version 1.6.1-1 of {PACKAGE}, with the SHA-256 {SHA256}")
    subprocess.run(["dpkg-deb", "-x", archive, folder / PACKAGE], check=True)
    sounds = []
    for path in sorted((folder / PACKAGE).rglob("*.wav")):
        with wave.open(str(path)) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(2**15)
            if len(sound) >= SHORTEST * file.getframerate():
                times = np.arange(len(sound) * RATE // file.getframerate()) / RATE * file.getframerate()
                sounds.append(np.interp(times, np.arange(len(sound)), sound).astype(np.float32))
    return sounds


def windows(sounds: list[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """Join messages with pauses to windows of at most 30 seconds."""
    pause = np.zeros(int(PAUSE * RATE), np.float32)
    joined: list[list[NDArray[np.float32]]] = [[]]
    length = 0
    for sound in (one for one in sounds if len(one) <= SECONDS * RATE):
        if length + len(sound) > SECONDS * RATE:
            joined.append([])
            length = 0
        joined[-1] += [sound, pause]
        length += len(sound) + len(pause)
    return [np.concatenate(window) for window in joined]


@torch.no_grad()
def transcripts(whisper: Any, encoder: torch.nn.Module, features: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the most likely tokens of each window, one after the other, with the start before them and the end."""
    states = torch.cat([encoder(one).last_hidden_state for one in features])
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    ids = torch.tensor([START]).repeat(len(features), 1)
    last = ids
    while (last[:, -1] != END).any() and ids.shape[1] < LONGEST:
        hidden = whisper.model.decoder(input_ids=last, encoder_hidden_states=states, cache=cache, use_cache=True)[0]
        scores = whisper.proj_out(hidden[:, -1])
        scores[:, END + 1 :] = -torch.inf
        last = scores.argmax(1, keepdim=True).masked_fill(last[:, -1:] == END, END)
        ids = torch.cat([ids, last], dim=1)
    return [row[: len(row) - max(int((row == END).sum()) - 1, 0)][None] for row in ids]


def _logits(whisper: Any, encoder: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Return the logits of the tokens after the start, each given the tokens before."""
    states = encoder(batch.features).last_hidden_state
    hidden = whisper.model.decoder(input_ids=batch.transcript[:, :-1], encoder_hidden_states=states, use_cache=False)
    return whisper.proj_out(hidden.last_hidden_state[0, len(START) - 1 :])
