"""Which code a model computes with: the files that it imports, and a hash of its encoding's code.

An encoding of one's own is edited. Without a hash, an older run would then compute another model in
silence, and a study would compare two encodings under one name.
"""

import ast
import functools
import hashlib
import importlib.util
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from model.encodings import POSITIONS

# The texts of modules, by name, as they were when this process imported this module. It computes
# with that code, whatever is edited meanwhile. Others are read when they are first needed.
TEXTS: dict[str, str] = {}

# What a hash begins with. Another version of Python may spell the same code in another way, and
# another version of this module may count other parts of it. So hashes compare only within a kind.
KIND = f"2-python{sys.version_info.major}.{sys.version_info.minor}"


def hash_encoding(position: str) -> str:
    """Return a hash of the code of an encoding, or "" if that cannot be read, as in a notebook.

    The code is the definition of its class, and of all that it uses, directly or through others:
    classes that it inherits from, functions, numbers. Comments, docstrings, annotations, errors,
    and what is installed do not count. Nor does what no name at the top of a module leads to, such
    as an object that a function has changed.
    """
    encoding = POSITIONS[position]
    start = resolve_name(encoding.__module__, encoding.__qualname__)
    if start is None:
        return ""
    seen = {start}
    waiting = [start]
    texts: list[str] = []
    while waiting:
        definition = read_definition(*waiting.pop())
        texts += definition.texts
        waiting += definition.used - seen
        seen |= definition.used
    digest = hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()
    return f"{KIND}:{digest}"


def are_of_other_code(first: str, second: str) -> bool:
    """Return whether two hashes are of different code. False if that is not known, because they are
    of different kinds. Those of older versions, and "", are of none."""
    kind, _, _ = first.rpartition(":")
    other_kind, _, _ = second.rpartition(":")
    return kind != "" and kind == other_kind and first != second


@dataclass
class ModuleCode:
    """What stands at the top of a module, by name."""

    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    """The statements that bind or change a name, without what does not count: of classes, functions
    and variables."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """(module, name) of what is imported from a module."""
    stars: list[str] = field(default_factory=list)
    """Modules of which all names are imported."""
    modules: dict[str, str] = field(default_factory=dict)
    """Full names of imported modules."""

    def add_import(self, node: ast.Import) -> None:
        """Add the modules of a line such as `import model.rope as rope`."""
        for alias in node.names:
            if alias.asname is not None:
                self.modules[alias.asname] = alias.name
            else:  # `import model.rope` binds `model`
                first = alias.name.partition(".")[0]
                self.modules[first] = first

    def add_names(self, node: ast.ImportFrom, origin: str) -> None:
        """Add the names of a line such as `from model.rope import rope_frequencies`."""
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(origin)
            else:
                self.imported[alias.asname or alias.name] = (origin, alias.name)

    def add_statement(self, node: ast.stmt) -> None:
        """Add a statement to those of each name that it binds or changes."""
        for name in list_bound(node):
            self.definitions.setdefault(name, []).append(node)


def list_bound(node: ast.AST) -> set[str]:
    """Return the names that a statement at the top of a module binds or changes, also within an
    `if` or a loop."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return list_root(node) if isinstance(node.ctx, ast.Store) else set()
    bound: set[str] = set()
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):  # as `table.update(...)`
        bound = list_root(node.value.func)
    for child in ast.iter_child_nodes(node):
        bound |= list_bound(child)
    return bound


def list_root(node: ast.expr) -> set[str]:
    """Return the name that an expression such as `table["a"].b` begins with, if it does."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


class Definition(NamedTuple):
    """What defines a name at the top of a module, without what does not count."""

    texts: list[str]
    """Of each statement."""
    used: set[tuple[str, str]]
    """(module, name) of the definitions that these use."""


@functools.cache  # a study asks for the same ones for each of its runs
def read_definition(module: str, name: str) -> Definition:
    """Return the definition of a name of a module."""
    statements = read_module(module).definitions[name]
    texts = [ast.unparse(statement) for statement in statements]
    used: set[tuple[str, str]] = set()
    for statement in statements:
        used |= find_globals(statement, module)
    return Definition(texts, used)


@functools.cache
def read_module(name: str) -> ModuleCode:
    """Return what stands at the top of a module; nothing if it is installed."""
    code = ModuleCode()
    package = getattr(sys.modules.get(name), "__package__", None) or ""
    tree = ast.parse(read_text(name))
    for node in ast.walk(tree):  # also imports within functions
        if isinstance(node, ast.Import):
            code.add_import(node)
        elif isinstance(node, ast.ImportFrom):
            code.add_names(node, find_origin(node, package))
    for statement in tree.body:
        counted = RemoveUncounted().visit(statement)
        if counted is not None:
            code.add_statement(counted)
    return code


def read_text(module: str) -> str:
    """Return the text of a module, as it was when it was first asked for; "" if it is installed, or
    is not written in Python."""
    if module not in TEXTS:
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None or not file.endswith(".py") or is_installed(module, Path(file)):
            return ""
        TEXTS[module] = Path(file).read_text(encoding="utf-8")
    return TEXTS[module]


class RemoveUncounted(ast.NodeTransformer):
    """Removes docstrings, annotations, and which errors are raised."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        return ast.Raise()

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def find_globals(definition: ast.stmt, module: str) -> set[tuple[str, str]]:
    """Return (module, name) of the definitions that a definition in a module uses."""
    used: set[tuple[str, str]] = set()
    for node in ast.walk(definition):
        found = None
        if isinstance(node, ast.Name):
            found = resolve_name(module, node.id)
        elif isinstance(node, ast.Attribute):  # perhaps `rope.rope_frequencies`
            owner = resolve_module(module, node.value)
            if owner is not None:
                found = resolve_name(owner, node.attr)
        if found is not None:
            used.add(found)
    return used


def resolve_name(module: str, name: str) -> tuple[str, str] | None:
    """Return the module that defines a name of another one, and the name there; None if that is
    installed, or no definition."""
    waiting = [(module, name)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        place = waiting.pop()
        if place in seen:  # as of `from . import tables` in a package, which is a module
            continue
        seen.add(place)
        module, name = place
        code = read_module(module)
        if name in code.definitions:
            return place
        waiting += [(origin, name) for origin in code.stars]
        if name in code.imported:
            waiting.append(code.imported[name])
    return None


def resolve_module(module: str, expression: ast.expr) -> str | None:
    """Return the full name of the module that an expression in a module stands for, or None."""
    if isinstance(expression, ast.Name):
        code = read_module(module)
        name = code.modules.get(expression.id)
        if expression.id in code.imported:  # by `from model import rope`
            name = ".".join(code.imported[expression.id])
    elif isinstance(expression, ast.Attribute):
        owner = resolve_module(module, expression.value)
        name = None if owner is None else f"{owner}.{expression.attr}"
    else:
        return None
    return name if name in sys.modules else None


# --- files ----------------------------------------------------------------------------------------


def find_imported(names: list[str]) -> set[Path]:
    """Return the files of modules and of all that they import, without installed packages."""
    waiting = [*names]
    seen: set[str] = set()
    files: set[Path] = set()
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if module is None or name in seen:
            continue
        seen.add(name)
        file = getattr(module, "__file__", None)
        if file is None or is_installed(name, Path(file)):
            continue
        files.add(Path(file))
        if file.endswith(".py"):
            waiting += list_imports(Path(file), module.__package__ or "")
    return files


def is_installed(name: str, file: Path) -> bool:
    """Return whether a module is PyTorch's, Python's own, or of an installed package."""
    if name.partition(".")[0] == "torch":
        return True
    if "site-packages" in file.parts or "dist-packages" in file.parts:
        return True
    library = Path(sysconfig.get_paths()["stdlib"])
    return library in file.parents


@functools.cache  # a module is imported once
def list_imports(file: Path, package: str) -> list[str]:
    """Return the names of what a file of this package imports: modules, and what is in them."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = find_origin(node, package)
            names.append(origin)
            names += [f"{origin}.{alias.name}" for alias in node.names]
    return names


def find_origin(node: ast.ImportFrom, package: str) -> str:
    """Return the full name of the module that something is imported from, in this package."""
    origin = node.module or ""
    if node.level > 0:
        origin = importlib.util.resolve_name("." * node.level + origin, package)
    return origin


# Read now what encodings are made of.
for _module in [*sys.modules]:
    if _module.startswith("model."):
        read_text(_module)
for _encoding in POSITIONS.values():
    read_text(_encoding.__module__)
