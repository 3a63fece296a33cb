"""Check the figures on the pages, write them, or measure everything that they need.

``check`` names each number on a page that is not the number of its file, ``write`` replaces these numbers, and ``list``
shows which file each figure of a page comes from. ``measure`` writes the files on a quiet machine. It skips the parts
that are finished. After the last one it copies all files to ``benchmarks/results/`` and draws the pictures.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import GROUPS
from benchmarks.pages.numbers import Figure, find, with_numbers, wrong_numbers
from benchmarks.pages.registry import ROOT, all_figures

RESULTS, OUTPUT = ROOT / "benchmarks" / "results", ROOT / "docs" / "explain" / "measured.md"
# Modules and arguments, by the names of the files that they write. About 55 minutes on two cores.
PARTS = {
    "decode": ("studies.decode",),
    "texts": ("studies.texts", "--rounds", "5"),
    "heads": ("studies.heads",),
    "retrieval": ("studies.retrieval",),
    "jax_mask": ("studies.jax_mask",),
    "calls": ("studies.calls",),
    "flex": ("studies.flex",),
    "hybrid": ("__main__", "--quick", "--cases", "hybrid", "--resume"),
    "measured": ("__main__", "--quick", "--cases", *(group for group in GROUPS if group != "hybrid"), "--resume"),
}


def measure(folder: Path, names: Sequence[str]) -> int:
    """Measure the parts that a folder does not have, and return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in names:
        module, *arguments = PARTS[name]
        path = folder / f"{name}.json"
        if path.exists() and "--resume" not in arguments:
            print(f"{path} exists", flush=True)
            continue
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--json", str(path)]
        print(" ".join(command[1:]), flush=True)
        if subprocess.run(command, cwd=ROOT).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}; nothing was copied to {RESULTS}")
        return 1
    for name in names:
        path = Path(shutil.copy(folder / f"{name}.json", RESULTS))
        if PARTS[name][0] == "__main__":
            command = [sys.executable, "-m", "benchmarks", "--from", str(path), "--figures", "docs/pictures"]
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    print(f"copied to {RESULTS}; put the numbers on the pages with: python -m benchmarks.pages write")
    return 0


def check(figures: Sequence[Figure]) -> int:
    """Print the numbers that are not those of the files, and return the exit code."""
    messages = [message for figure in figures for message in wrong_numbers(figure, _text_of(figure))]
    print("\n".join(messages) or "all figures are those of their files")
    return 1 if messages else 0


def list_files(figures: Sequence[Figure]) -> int:
    """Print a table of all figures with their files."""
    print("| page | figure | file |\n| --- | --- | --- |")
    for figure in figures:
        text = " ".join(find(figure, _text_of(figure))[0].split()).replace("|", "\\|")
        print(f"| {figure.page} | {text} | {figure.file}{'' if figure.is_measured else ' (not measured yet)'} |")
    return 0


def write(figures: Sequence[Figure]) -> int:
    """Put the numbers of the files on the pages, and the output of the benchmarks on its page."""
    for page in dict.fromkeys(figure.page for figure in figures):
        path = ROOT / page
        text = path.read_text()
        for figure in figures:
            if figure.page == page:
                text = with_numbers(figure, text)
        path.write_text(text)
    command = [sys.executable, "-m", "benchmarks", "--from", str(RESULTS / "measured.json"), "--quick"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    before, _, _ = OUTPUT.read_text().partition("```text\n")
    OUTPUT.write_text(f"{before}```text\n{printed}\n```\n")
    return 0


def _text_of(figure: Figure) -> str:
    return (ROOT / figure.page).read_text()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("action", nargs="?", choices=["check", "write", "list", "measure"], default="check")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="what to measure")
    parser.add_argument("--folder", type=Path, default=Path("build/measured"), help="where finished parts are kept")
    options = parser.parse_args()
    if options.action == "measure":
        return measure(options.folder.resolve(), options.parts)
    return {"check": check, "write": write, "list": list_files}[options.action](all_figures())


if __name__ == "__main__":
    sys.exit(main())
