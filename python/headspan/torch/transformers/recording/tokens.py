"""Tokens of a tokenizer as readable text."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The bytes that byte-level tokenizers such as that of GPT-2 write as themselves; all others become letters from U+0100.
_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(0x100 + i): byte for i, byte in enumerate(_OTHERS)}
_MARKS = re.compile("[\u0100-\u0143]")  # letters that stand for spaces, line breaks and bytes of longer characters
_SPECIAL = re.compile(r"<.+>|\[[A-Z]+\]")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def readable_tokens(tokens: Iterable[object]) -> list[str]:
    """Return tokens as text, without the marks of their tokenizer.

    A space that belongs to a token is at its start, where byte-level tokenizers write ``Ġ`` and SentencePiece ``▁``.
    Tokens of WordPiece that do not start with ``##`` get such a space. Bytes that are no complete character are in
    angle brackets, such as ``<F0 9F>``. Special tokens stay as they are.

    Parameters
    ----------
    tokens : iterable of str
        The result of ``tokenizer.convert_ids_to_tokens``, whose items may also be bytes or None.
    """
    texts = [token.decode("latin-1") if isinstance(token, bytes) else str(token or "") for token in tokens]
    plain = [text for text in texts if not _SPECIAL.fullmatch(text)]
    if any(isinstance(token, bytes) for token in tokens):
        return [_decoded(text.encode("latin-1")) for text in texts]
    if any("\u2581" in text for text in plain):
        return [_BYTE.sub(_one_byte, text).replace("\u2581", " ") for text in texts]
    if any(text.startswith("##") and len(text) > 2 for text in plain):
        return [_joined(text, is_first=place == 0) for place, text in enumerate(texts)]
    if any(_MARKS.search(text) for text in plain) and all(_BYTES.keys() >= set(text) for text in plain):
        return [text if _SPECIAL.fullmatch(text) else _decoded(bytes(_BYTES[sign] for sign in text)) for text in texts]
    return [_BYTE.sub(_one_byte, text) for text in texts]


def _joined(text: str, *, is_first: bool) -> str:
    """Return a token of WordPiece with the space before it."""
    if text.startswith("##") and len(text) > 2:
        return text[2:]
    return text if is_first else f" {text}"


def _one_byte(match: re.Match[str]) -> str:
    return _decoded(bytes.fromhex(match[1]))


def _decoded(data: bytes) -> str:
    """Return bytes as text, and bytes that are no complete character as numbers."""
    return re.sub(
        "[\udc80-\udcff]+",
        lambda match: f"<{match[0].encode('utf-8', 'surrogateescape').hex(' ').upper()}>",
        data.decode("utf-8", "surrogateescape"),
    )
