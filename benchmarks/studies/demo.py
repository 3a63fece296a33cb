"""The models that the README compares: ``python -m benchmarks.studies.demo``.

The study runs ``headspan demo`` without a limit of time, in ``build/demo`` unless `--out` names another folder. It goes
on with a run that was interrupted. The folder then has the picture of the spans, ``spans.svg``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from headspan.lab.text import standard_library

from benchmarks.output.saved import add_json_option, write_study


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo"))
    add_json_option(parser)
    options = parser.parse_args()
    new = ["demo", "--out", str(options.out)]
    again = ["train", "--resume", str(options.out)]
    command = [*(again if options.out.exists() else new), "--minutes", "600"]
    subprocess.run([sys.executable, "-m", "headspan", *command], check=True)
    summary = json.loads((options.out / "summary.json").read_text())
    text = standard_library()
    names = ("steps", "compared", "spans", "full pairs", "sha256")
    write_study(options.json, {**{name: summary[name] for name in names}, "files": text.files})


if __name__ == "__main__":
    main()
