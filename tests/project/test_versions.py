"""What is said in two places is said alike: versions of tools and of the package."""

import re
import tomllib

from helpers import ROOT

PINNED = re.compile(r'"([\w-]+)==([\w.]+)"')


def pinned(name):
    return set(PINNED.findall((ROOT / name).read_text()))


def test_hooks_before_a_commit_take_the_versions_of_the_lint():
    tools = {"ruff", "clang-format"}
    hooks, lint = (
        {pin for pin in pinned(name) if pin[0] in tools} for name in (".pre-commit-config.yaml", "noxfile.py")
    )
    assert hooks == lint
    assert {name for name, _ in hooks} == tools


def test_the_citation_is_of_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = dict(re.findall(r"^([\w-]+): (\S+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE))
    assert [said["title"], said["version"], said["license"]] == [
        project["name"],
        project["version"],
        project["license"].partition(" AND ")[0],  # then come those of what others wrote
    ]
