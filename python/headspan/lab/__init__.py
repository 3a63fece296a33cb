"""Experiments with a small character model: training, run folders, reports and sweeps. Names here may still change.

`headspan demo` and `headspan train` on the command line call these functions. Training needs the extra ``[demo]``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headspan.lab import lm
    from headspan.lab.config import TrainConfig
    from headspan.lab.pretrained.loading import load_pretrained
    from headspan.lab.report.write import write_report
    from headspan.lab.trained.loaded import load_run
    from headspan.lab.training.start import as_config
    from headspan.lab.training.train import train

__all__ = ["TrainConfig", "as_config", "lm", "load_pretrained", "load_run", "train", "write_report"]

_MODULES = {
    "TrainConfig": "config",
    "as_config": "training.start",
    "load_pretrained": "pretrained.loading",
    "load_run": "trained.loaded",
    "train": "training.train",
    "write_report": "report.write",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: the command line sets environment variables before NumPy is loaded."""
    if name == "lm":
        return import_module("headspan.lab.lm")
    if name in _MODULES:
        return getattr(import_module(f"headspan.lab.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
