"""Find names that do not say what they stand for, as docs/develop/style.md lists: `python vague_names.py paths...`.

In Python these are the names that a file binds. In C++ and JavaScript every name outside comments and strings counts.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

VAGUE = {"its", "given", "found", "there", "whole", "own", "beside", "concerned"}
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # in own_blocks, ownBlocks and OWN_BLOCKS
STRING = r'"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'"
# In C++ a quote can also separate digits. In JavaScript a template can contain expressions.
CPP = re.compile(rf"//[^\n]*|/\*.*?\*/|\w+(?:'\w+)*|{STRING}", re.DOTALL)
JAVASCRIPT = re.compile(rf"//[^\n]*|/\*.*?\*/|\w+|{STRING}|`(?:[^`\\]|\\.)*`", re.DOTALL)
EXPRESSION = re.compile(r"(?<=\$\{)[^}]*")


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names that Python code binds, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                continue  # the name of a test is a sentence
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name


def words_of(code: str, token: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the names in C++ or JavaScript code, with their lines."""
    for match in token.finditer(code):
        text, line = match[0], code.count("\n", 0, match.start()) + 1
        if text[0] == "`":
            for expression in EXPRESSION.finditer(text):
                yield from ((line + at - 1, name) for at, name in words_of(expression[0], token))
        elif text[0] not in "/\"'":
            yield line, text


READERS = {
    **dict.fromkeys((".py", ".pyi"), lambda code: bound_names(ast.parse(code))),
    **dict.fromkeys((".h", ".cpp"), lambda code: words_of(code, CPP)),
    ".js": lambda code: words_of(code, JAVASCRIPT),
}


def vague_names(path: Path) -> list[tuple[int, str]]:
    """Return the vague names in a file, with their lines."""
    names = READERS[path.suffix](path.read_text(encoding="utf-8"))
    return sorted({(line, name) for line, name in names if VAGUE & {word.lower() for word in WORD.findall(name)}})


def main(paths: list[str]) -> int:
    """Print the vague names in files and folders, and return whether there are any."""
    tops = [Path(path) for path in paths]
    files = sorted(file for top in tops for file in (top.rglob("*") if top.is_dir() else [top]))
    status = 0
    for file in files:
        if file.suffix in READERS and "third_party" not in file.parts:
            for line, name in vague_names(file):
                print(f"{file}:{line}: {name}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
