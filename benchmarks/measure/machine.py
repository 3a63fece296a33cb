"""Description of the machine that ran the measurements."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import headspan as hs

_PACKAGES = ("headspan", "numpy", "torch", "jax", "jaxlib")


def describe_machine(threads: int) -> dict[str, object]:
    """Return the processor, the build of headspan and the versions of all packages."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "build": {**hs.build_info(), "threads": threads},
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    # Virtual machines can hide the name of the model, but its family and number identify it.
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    fields = {name.strip(): value.strip() for name, value in pairs}
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key} {fields[key]}" for key in ("cpu family", "model", "stepping") if key in fields]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
