"""Tokens of tokenizers as text: byte-level, SentencePiece, WordPiece and others."""

import pytest
from peers import torch  # noqa: F401  (the module needs torch)

from headspan.torch.transformers.recording.tokens import readable_tokens  # isort: skip

CASES = {
    "byte level": (
        ["Hello", "\u0120world", "\u010a", "\u0109", "\u00c3\u00a9", "<|endoftext|>"],
        ["Hello", " world", "\n", "\t", "\u00e9", "<|endoftext|>"],
    ),
    "byte level, a character in parts": (["\u0120\u00f0\u0141", "\u013b\u0124"], [" <F0 9F>", "<99 82>"]),
    "byte level, a whole character": (["\u0120\u00f0\u0141\u013b\u0124"], [" \U0001f642"]),
    "byte level, digits and signs": (["\u0120##", "1", "</s>"], [" ##", "1", "</s>"]),
    "SentencePiece": (
        ["<s>", "\u2581Hello", "\u2581", "wor", "ld", "<0x0A>", "<0xF0>", "caf\u00e9"],
        ["<s>", " Hello", " ", "wor", "ld", "\n", "<F0>", "caf\u00e9"],
    ),
    "WordPiece": (["[CLS]", "play", "##ing", "##", "[SEP]"], ["[CLS]", " play", "ing", " ##", " [SEP]"]),
    "words": (
        ["# ", "caf\u00e9", "##", "\u0142\u00f3d\u017a", " "],
        ["# ", "caf\u00e9", "##", "\u0142\u00f3d\u017a", " "],
    ),
    "bytes": ([b"a ", "\u00e9".encode()[:1], b"\n"], ["a ", "<C3>", "\n"]),
    "padding of a batch": (["\u2581a", None], [" a", ""]),
    "none": ([], []),
}


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_text_without_marks(name):
    tokens, texts = CASES[name]
    assert readable_tokens(tokens) == texts


def test_the_tokens_of_a_text_give_the_text():
    tokenizers = pytest.importorskip("tokenizers")
    text = "Caf\u00e9 \U0001f642 in \u0141\u00f3d\u017a:\n\tnaive  spaces"
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text] * 3, trainer)
    tokens = tokenizer.encode(text).tokens
    assert "".join(readable_tokens(tokens)) == text
