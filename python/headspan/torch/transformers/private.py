"""The private names of transformers that headspan uses, as functions that say why no public name serves.

All other modules call these functions. `tests/integrations/torch/transformers/test_private.py` reports what a new
version lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_Rule = Callable[..., Any]

# ---- the attention implementation of a model


def implementation_of(config: Any) -> Any:
    """Return the name of the attention implementation of a configuration, or None for other objects.

    Models have a public function that sets the name, but none that returns it.
    """
    return getattr(config, "_attn_implementation", None)


def calls_attention_functions(model_class: type) -> bool:
    """Whether the attentions of a model call the registered functions; True in versions that do not tell.

    The public `set_attn_implementation` needs a model, changes it, and only logs a warning if they do not.
    """
    answer = getattr(model_class, "_can_set_attn_implementation", None)
    return answer is None or bool(answer())


# ---- the rules of masks


def name_of_rule(rule: Any) -> str:
    """Return which function of `transformers.masking_utils` made a rule for pairs, or "" if none of them did.

    A rule is a function of batch item, head, query and key, which can be called but has no public description.
    """
    if getattr(rule, "__module__", None) != "transformers.masking_utils":
        return ""
    return str(rule.__qualname__).partition(".")[0]


def arguments_of_rule(rule: _Rule) -> dict[str, Any]:
    """Return the arguments that a rule was made with, by name: the variables of its closure."""
    values = (cell.cell_contents for cell in rule.__closure__ or ())
    return dict(zip(rule.__code__.co_freevars, values, strict=True))


def parts_of_rule(rule: Any) -> tuple[_Rule, ...]:
    """Return the rules that `and_masks` or `or_masks` joined; empty for other rules."""
    if name_of_rule(rule) not in ("and_masks", "or_masks"):
        return ()
    return tuple(arguments_of_rule(rule)["mask_functions"])


# ---- the results of a model


def collected_outputs() -> Any:
    """Return the variable that holds which outputs of a call are collected; None in versions that pass flags instead.

    Some models do not pass the public argument `output_attentions` on to their layers.
    """
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:
        return None
    return _active_collector
