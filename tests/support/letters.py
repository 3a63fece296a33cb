"""A tokenizer of the letters from a to j, made without a file."""

import tokenizers
from peers import transformers


def letters(bos=False):
    """Each letter is a token; with or without a token before each text."""
    vocabulary = {"<s>": 0, **{letter: 1 + place for place, letter in enumerate("abcdefghij")}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<s>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if bos:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")
