"""The names that others may use: all of them, where the documentation says they are, and what importing them loads."""

import importlib
import inspect
import pydoc

import headspan as hs
import pytest
from helpers import run_python

NAMES = {
    "headspan": """
        Cost Gradients ModelSpans SpanCache SpanFit __version__ attention attention_vjp attention_weights build_info
        cost dynamic_span dynamic_span_vjp explore fit_spans get_num_threads key_importance key_importance_vjp
        merge_attention merge_attention_vjp patterns segment_ids set_num_threads soft_mask span_penalty span_penalty_vjp
        t5_buckets """,
    "headspan.autograd": "attention",
    "headspan.hybrid": "HybridParameters hybrid_attention hybrid_attention_vjp hybrid_parameters",
    "headspan.lab": "TrainConfig as_config lm load_pretrained load_run train write_report",
    "headspan.lab.lm": """
        ModelConfig Parameters init_parameters logits loss spans stream_bits surprisal trace window_bits
        """,
    "headspan.memory": "KeyIndex KeyValueStore StreamingAttention retrieval_attention retrieval_attention_vjp",
    "headspan.patterns": "Blocks Blockwise Fixed Full Global Mask Neighborhood Pattern Random Strided Window",
    "headspan.plot": """
        attention_map block_gates distance_profile dynamic_spans hierarchy kept_tokens limit_sweep mean_by_distance
        pattern soft_mask span_fit span_history spans
        """,
    "headspan.reference": "attention",
    "headspan.sparse": """
        hierarchical_attention hierarchical_attention_vjp hierarchical_cost learned_blocks learned_blocks_vjp
        selected_blocks """,
}
MODULES = "autograd hybrid jax lab memory plot reference sparse torch"


@pytest.mark.parametrize("module", NAMES)
def test_a_module_exports_these_names_and_no_others(module):
    assert sorted(importlib.import_module(module).__all__) == sorted(NAMES[module].split())


@pytest.mark.parametrize("module", NAMES)
def test_every_name_can_be_imported(module):
    names = {}
    exec(f"from {module} import *", names)
    assert set(NAMES[module].split()) <= set(names)


def test_names_that_are_loaded_when_used_are_listed_too():
    assert dir(hs) == sorted(f"{NAMES['headspan']} {MODULES}".split())
    with pytest.raises(AttributeError, match="module 'headspan' has no attribute 'nothing'"):
        _ = hs.nothing


@pytest.mark.parametrize("first", ["", "import headspan.explorer", "from headspan.explorer import page", "hs.plot"])
def test_explore_is_the_function_whatever_has_been_imported(first):
    code = (
        f"import headspan as hs; {first}\nfrom headspan import explore\nprint(hs.explore is explore, explore.__name__)"
    )
    assert run_python(code).split() == ["True", "explore"]


CALLABLE = [(module, name) for module in NAMES for name in NAMES[module].split() if not name.startswith("_")]


@pytest.mark.parametrize(("module", "name"), CALLABLE, ids=lambda part: part)
def test_help_opens_with_what_can_be_read(module, name):
    """The aliases of types are named, and not what they stand for."""
    public = getattr(importlib.import_module(module), name)
    opening = pydoc.plain(pydoc.render_doc(public)).splitlines()[:10]
    assert not [line for line in opening if "Union[" in line or "numpy._typing" in line or "ForwardRef" in line]


@pytest.mark.parametrize("module", ["headspan", "headspan.patterns"])
def test_dir_shows_what_is_public_and_nothing_else(module):
    shown = {name for name in dir(importlib.import_module(module)) if not name.startswith("_")}
    modules = MODULES.split() if module == "headspan" else []
    assert shown == {name for name in [*NAMES[module].split(), *modules] if not name.startswith("_")}


def test_what_is_internal_of_a_pattern_starts_with_an_underscore():
    """A pattern has its fields, and what its class describes for users; test_docs.py asks for the descriptions."""
    public = (
        "alternatives check_batch check_tokens conjunctions core from_spec global_tokens grid grid_start grid_tokens "
        "heads is_shared items mask part primitives short_name to_spec with_globals_below"
    )
    one = hs.patterns.Window(4) | hs.patterns.Global(0)
    assert {name for name in dir(one) if not name.startswith("_")} == set(public.split())
    local = {name for name in dir(hs.patterns.Window(4)) if not name.startswith("_")}
    assert local == {*public.split(), "default_causal", "size", "ahead", "dilation"}


def test_signatures_name_every_option():
    for function in (hs.attention, hs.attention_vjp, hs.attention_weights, hs.cost, hs.reference.attention):
        parameters = inspect.signature(function).parameters
        assert {"span", "ramp", "key_start", "key_bias", "pattern"} <= set(parameters)
        assert parameters["ramp"].default == 32
        assert parameters["span"].default is None
        assert parameters["span"].annotation == "npt.ArrayLike | None"


LOADED = """
import sys

before = set(sys.modules)
{code}
shown = ("headspan.", "matplotlib", "anywidget", "faiss", "lmdb", "autograd", "tqdm", "json", "html")
print(*(name for name in set(sys.modules) - before if name.startswith(shown)))
"""


def loaded(code):
    return set(run_python(LOADED.format(code=code)).split())


def test_attention_alone_loads_nothing_that_draws_or_trains():
    rooms = {name.split(".")[1] for name in loaded("import headspan")}
    assert rooms == {
        "_check", "_compiled", "_core", "_help", "cache", "ops", "patterns",
    }  # fmt: skip
    assert not any(name.partition(".")[0] != "headspan" for name in loaded("import headspan"))


def test_what_draws_is_loaded_when_it_is_first_used():
    drawing, looking = loaded("import headspan; headspan.plot.spans"), loaded("import headspan; headspan.explore")
    trained = loaded("import headspan; headspan.lab.load_run")
    kept = loaded("import headspan; headspan.memory.KeyValueStore")
    fitted = loaded("import headspan; headspan.fit_spans")
    assert "headspan.memory.store" in kept
    assert "lmdb" not in kept
    assert "headspan.plot" in drawing
    assert "headspan.explorer" in looking
    assert "headspan.lab.trained.loaded" in trained
    assert "headspan.fitting" in fitted
    assert not any(name.startswith(("headspan.plot", "matplotlib")) for name in fitted)
    assert not any(name.startswith(("headspan.plot", "headspan.explorer", "matplotlib", "tqdm")) for name in trained)
    assert not any(name.startswith(("headspan.explorer", "matplotlib", "json", "html")) for name in drawing)
    assert not any(name.startswith(("headspan.plot", "headspan.explorer.widget", "anywidget")) for name in looking)
