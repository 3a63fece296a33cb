"""Description of the machine, the versions and the day of a measurement, for every file of results."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import headspan as hs

_PACKAGES = (
    "numpy", "torch", "triton", "transformers", "jax", "jaxlib", "autograd", "faiss-cpu", "local-attention",
)  # fmt: skip


def describe_machine(threads: int) -> dict[str, object]:
    """Return the processor, the threads in use, the build of headspan, the versions of packages, and the date."""
    versions = {name: version for name in _PACKAGES if (version := _version_of(name))}
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": threads,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "build": {**hs.build_info(), "threads": threads},
        "versions": {"headspan": hs.__version__, **versions},
        "date": datetime.now(UTC).date().isoformat(),
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


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
