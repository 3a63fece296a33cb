"""A private name is used in the file that defines it, and private names of other libraries in the files for them."""

import ast

from helpers import ROOT

PACKAGE = ROOT / "python" / "headspan"
FILES = {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
# Each of their functions says why no public name serves, and a test says which name a new version lacks.
FOR_OTHER_LIBRARIES = {"torch/private.py", "torch/transformers/private.py"}
# Named tuples have these documented methods, whose underscore keeps them apart from fields.
OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def defined(tree):
    """The private names that a file defines: functions, classes, variables, and attributes that classes set."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            name = node.attr
        else:
            continue
        if is_private(name):
            yield name


def is_self(value):
    """Whether the attributes of an expression are those of the class itself: of self, cls or super()."""
    if isinstance(value, ast.Call):
        value = value.func
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "super")


def used(tree):
    """The private names that a file takes from other objects or modules, with their lines."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Attribute) and not is_self(node.value):
            names = [node.attr]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr", "setattr"):
            names = [node.args[1].value] if isinstance(node.args[1], ast.Constant) else []
        elif isinstance(node, ast.ImportFrom):
            names = [name.name for name in node.names]
            # Import-linter checks modules of headspan.
            if (node.module or "headspan").partition(".")[0] == "headspan":
                names = [name for name in names if f"{name}.py" not in FILES]
            else:
                names += node.module.split(".")
        elif isinstance(node, ast.Import):
            names = [part for name in node.names for part in name.name.split(".")]
        yield from ((name, node.lineno) for name in names if is_private(name))


DEFINED = {name: set(defined(tree)) for name, tree in FILES.items()}
OF_HEADSPAN = set().union(*DEFINED.values())


def places(is_wrong):
    """The files with wrong names, and the lines of these names."""
    wrong = {file: [place for place in used(tree) if is_wrong(file, place[0])] for file, tree in FILES.items()}
    return {file: lines for file, lines in wrong.items() if lines}


def test_private_names_of_headspan_are_used_where_they_are_defined():
    assert places(lambda file, name: name in OF_HEADSPAN - DEFINED[file]) == {}


def test_private_names_of_other_libraries_are_used_in_the_files_for_them():
    others = places(lambda file, name: name not in OF_HEADSPAN | OF_NAMED_TUPLES)
    assert {file: lines for file, lines in others.items() if file not in FOR_OTHER_LIBRARIES} == {}
    assert others.keys() == FOR_OTHER_LIBRARIES
