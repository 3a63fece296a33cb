"""The private names of transformers that headspan uses: whether this version has them, and what they return.

If a name has moved, change its function in `headspan.torch.transformers.private`; nothing else uses it. If a rule of a
mask has other arguments, change the function of the rule in `headspan.torch.transformers.masks`.
"""

import ast
import inspect
import pkgutil

import pytest
from families import model_of
from peers import torch, transformers

from headspan.torch.transformers import masks, private  # isort: skip

# Each private name: the function that uses it, and what headspan needs it for.
NAMES = {
    "transformers.PreTrainedConfig._attn_implementation": ("implementation_of", "to see which models call headspan"),
    "transformers.PreTrainedModel._can_set_attn_implementation": (
        "calls_attention_functions",
        "to refuse models whose attention calls no function",
    ),
    "transformers.utils.output_capturing._active_collector": (
        "collected_outputs",
        "to return weights where a model does not pass output_attentions to its layers",
    ),
}
IDS = torch.zeros(1, 6, dtype=torch.int64)
# How transformers makes each rule that headspan knows.
RULES = {
    "causal_mask_function": lambda made: made.causal_mask_function,
    "bidirectional_mask_function": lambda made: made.bidirectional_mask_function,
    "sliding_window_overlay": lambda made: made.sliding_window_overlay(3),
    "sliding_window_bidirectional_overlay": lambda made: made.sliding_window_bidirectional_overlay(3),
    "chunked_overlay": lambda made: made.chunked_overlay(3, IDS[:, 0]),
    "packed_sequence_mask_function": lambda made: made.packed_sequence_mask_function(IDS),
    "remap_positions_for_packed_sequence": lambda made: made.remap_positions_for_packed_sequence(
        made.causal_mask_function, IDS
    ),
    "blockwise_overlay": lambda made: made.blockwise_overlay(IDS),
}


def fail(name, function, purpose):
    version = f"transformers {transformers.__version__}"
    needed = f"which headspan.torch.transformers.private.{function} needs {purpose}"
    pytest.fail(f"{version} has no {name}, {needed}", pytrace=False)


@pytest.mark.parametrize("name", NAMES)
def test_transformers_has_the_private_name(name):
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        fail(name, *NAMES[name])


def test_every_private_name_of_the_module_is_tested():
    used = set()
    for node in ast.walk(ast.parse(inspect.getsource(private))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("transformers"):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            used.add(node.args[1].value)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
    used = {name for name in used if name.startswith("_") and not name.endswith("__")}
    assert used == {name.rpartition(".")[2] for name in NAMES}


def test_the_implementation_of_a_configuration():
    config = transformers.LlamaConfig(attn_implementation="eager")
    assert private.implementation_of(config) == "eager"
    assert private.implementation_of(object()) is None


def test_which_models_call_attention_functions():
    assert private.calls_attention_functions(transformers.LlamaForCausalLM)
    assert not private.calls_attention_functions(transformers.BigBirdModel)


@torch.no_grad()
def test_outputs_are_collected():
    collected = private.collected_outputs()
    assert collected.get() is None
    model, seen = model_of("llama"), []
    model.model.layers[0].register_forward_hook(lambda *_: seen.append(set(collected.get())))
    model(torch.ones(1, 5, dtype=torch.int64), output_attentions=True)
    assert [bool(names & {"attentions"}) for names in seen] == [True]


@pytest.mark.parametrize("name", masks.RULES)
def test_a_rule_has_the_name_and_the_arguments_that_headspan_reads(name):
    version = f"transformers {transformers.__version__}"
    try:
        rule = RULES[name](transformers.masking_utils)
    except (AttributeError, TypeError) as error:
        pytest.fail(f"{version} does not make the mask rule {name} as headspan expects: {error}", pytrace=False)
    assert private.name_of_rule(rule) == name, f"{version} makes {name} as {rule.__qualname__}"
    arguments = set(private.arguments_of_rule(rule))
    expected = set(inspect.signature(masks.RULES[name]).parameters) - {"query", "all_keys"}
    assert arguments == expected, f"{version} gives the mask rule {name} {arguments}, but headspan reads {expected}"


@pytest.mark.parametrize("join", ["and_masks", "or_masks"])
def test_the_parts_of_a_joined_rule(join):
    made = transformers.masking_utils
    parts = (made.causal_mask_function, made.sliding_window_overlay(3))
    joined = getattr(made, join)(*parts)
    assert private.name_of_rule(joined) == join
    assert private.parts_of_rule(joined) == parts
    assert private.parts_of_rule(parts[1]) == ()


def test_a_rule_of_others_has_no_name():
    assert private.name_of_rule(lambda *places: True) == ""
    assert private.name_of_rule(None) == ""
