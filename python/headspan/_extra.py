"""The error about an optional dependency, with the way to install the extra that contains it."""

__all__ = ["how_to_install", "missing"]

# On Linux, the PyTorch of PyPI includes CUDA and takes several gigabytes.
_CPU_BUILD = "without a GPU, first run pip install torch --index-url https://download.pytorch.org/whl/cpu"


def how_to_install(extra: str) -> str:
    """Say how to install an extra of headspan, which is not on PyPI yet."""
    command = f"run pip install '.[{extra}]' in the source folder of headspan"
    return f"{command} ({_CPU_BUILD})" if extra in ("torch", "transformers", "pretrained") else command


def missing(part: str, library: str, extra: str, name: str | None) -> ModuleNotFoundError:
    """Return the error of a part of headspan whose library is not installed.

    Parameters
    ----------
    part : str
        What needs the library.
    library : str
        The library, as its users call it.
    extra : str
        The extra of headspan that contains the library.
    name : str or None
        The module that cannot be imported.
    """
    return ModuleNotFoundError(f"{part} needs {library}; {how_to_install(extra)}", name=name)
