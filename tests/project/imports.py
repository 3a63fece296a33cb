"""Whether every module can be imported with no more than an extra brings: `python imports.py [extra]`, as nox does.

A module whose library is missing must say which extra brings it, and so must every call and command that needs it. With
an extra, what the pages show for it must run. `python imports.py --hide` acts as if no optional library was installed.
"""

import contextlib
import importlib
import importlib.util
import io
import pkgutil
import pydoc
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# What a page shows for each extra, shortened.
EXAMPLES = {
    "plot": """
import matplotlib; matplotlib.use("agg")
hs.plot.spans([8, 32, 128, 1000], ramp=32)
""",
    "widget": """
q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 50, 16))
hs.explore(q, k)
""",
    "store": """
q, k, v = np.random.default_rng(0).standard_normal((3, 2, 100, 16), dtype=np.float32)
with hs.memory.KeyValueStore("keys", num_key_heads=2, head_dim=16) as store:
    store.append(k, v)
    assert store.attend(q[:, -3:]).shape == (2, 3, 16)
""",
    "faiss": """
key = np.random.default_rng(0).standard_normal((2, 1000, 16), dtype=np.float32)
index = hs.memory.KeyIndex(2, 16, nlist=8)
index.add(key)
assert index.retrieve(key[:, [3, 5]], 4).shape == (2, 2, 4)
""",
    "bfloat16": """
import ml_dtypes
q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 100, 16)).astype(ml_dtypes.bfloat16)
assert hs.attention(q, k, v).dtype == ml_dtypes.bfloat16
""",
    "jax": """
import jax
from headspan.jax import attention
q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 2, 100, 16))
assert jax.jit(attention)(q, k, v).shape == (1, 2, 100, 16)
""",
    "torch": """
import torch
from headspan.torch import TransformerBlock
block = TransformerBlock(64, num_heads=4, max_span=1000, ramp=32)
block(torch.randn(2, 100, 64)).square().mean().backward()
""",
    "transformers": """
import headspan.torch
from transformers import LlamaConfig, LlamaForCausalLM
headspan.torch.register()
sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes, attn_implementation="headspan"))
""",
}

# What needs an extra, and a module that the extra brings.
NEEDS = {
    "hs.torch.attention": ("torch", "torch"),
    "from headspan.torch import TransformerBlock": ("torch", "torch"),
    "hs.jax.attention": ("jax", "jax"),
    "from headspan.jax import attention": ("jax", "jax"),
    "hs.autograd.attention": ("demo", "autograd"),
    "hs.lab.load_pretrained('smollm2')": ("pretrained", "transformers"),
    "hs.lab.load_run('run')": ("demo", "autograd"),
    "hs.lab.train(b'text')": ("demo", "autograd"),
    "hs.lab.write_report": ("demo", "autograd"),
    "hs.plot.spans([8, 32], ramp=32)": ("plot", "matplotlib"),
    "hs.explore(np.ones((2, 5, 4)), np.ones((2, 5, 4)))": ("widget", "anywidget"),
    "hs.memory.KeyValueStore('keys', num_key_heads=2, head_dim=16)": ("store", "lmdb"),
    "hs.memory.KeyIndex(2, 16, nlist=8)": ("faiss", "faiss"),
}
COMMANDS = ("demo", "train text.txt", "report run", "sample run --prompt a", "sweep text.txt")
HIDDEN = ("anywidget", "autograd", "faiss", "filelock", "jax", "lmdb", "matplotlib", "tqdm", "torch", "transformers")
SENTENCE = re.compile(
    r"[\w. ]+ needs [\w. ]+; run pip install '\.\[(\w+)\]' in the source folder of headspan( \(.*\))?"
)


def extra_in(sentence: str) -> str | None:
    """Return the extra that an error names, or None if the error is not the sentence about a missing library."""
    match = SENTENCE.fullmatch(sentence)
    return match.group(1) if match else None


def modules() -> Iterator[str]:
    """Names of all modules of the package, found without importing them."""
    import headspan

    def walk(folder: Path, prefix: str) -> Iterator[str]:
        for module in pkgutil.iter_modules([str(folder)]):
            yield prefix + module.name
            if module.ispkg:
                yield from walk(folder / module.name, f"{prefix}{module.name}.")

    yield "headspan_command"
    for folder in headspan.__path__:
        yield from walk(Path(folder), "headspan.")


def import_all() -> tuple[list[str], list[str]]:
    """Import every module; return which need an extra, and what went wrong otherwise."""
    needing, wrong = [], []
    for name in modules():
        if name.endswith("__main__"):
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                importlib.import_module(name)
        except ImportError as error:
            says = extra_in(str(error)) or str(error).endswith("pip install triton")  # which the CPU build lacks
            (needing if says else wrong).append(f"{name}: {error}")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    return needing, wrong


def is_installed(module: str) -> bool:
    """Whether a library is installed and not hidden."""
    return importlib.util.find_spec(module) is not None


def calls_without_their_extra() -> Iterator[str]:
    """Make each call whose extra is not installed; yield those that do not name it, and what they say instead."""
    import headspan as hs
    import numpy as np

    for call, (extra, module) in NEEDS.items():
        if is_installed(module):
            continue
        try:
            exec(call, {"hs": hs, "np": np})
            said = "nothing"
        except (ImportError, AttributeError) as error:
            said = str(error)
        if extra_in(said) != extra:
            yield f"{call}: {said}"


def commands_without_their_extra() -> Iterator[str]:
    """Run each command; yield those that do not name their extra in one line, and what they say instead."""
    from headspan.lab import cli

    for command in COMMANDS:
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = cli.main(command.split())
        if code != 1 or extra_in(said.getvalue().removeprefix("headspan: error: ").removesuffix("\n")) != "demo":
            yield f"headspan {command}: {said.getvalue()}"


def main(extra: str | None) -> None:
    """Import all, make the calls that need another extra, then run what is shown for the extra."""
    if extra == "--hide":
        sys.modules.update(dict.fromkeys(HIDDEN))
    import headspan as hs
    import numpy as np

    needing, wrong = import_all()
    print(f"Python {sys.version.split()[0]}, extra {extra}: {len(needing)} modules ask for another extra")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("text.txt").write_text("How far does this text look back? " * 60)
        wrong += calls_without_their_extra()
        pydoc.render_doc(hs)  # looks through all names
        if not is_installed("autograd"):
            wrong += commands_without_their_extra()
    print(*needing, *wrong, sep="\n")
    if wrong:
        raise SystemExit(f"{len(wrong)} modules, calls or commands fail and do not say which extra they need")
    if extra in EXAMPLES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            exec(EXAMPLES[extra], {"hs": hs, "np": np})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
