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

from model.encodings import POSITIONS

# The texts of modules, by name, as they were when this process imported this module. It computes
# with that code, whatever is edited meanwhile. Others are read when they are first needed.
TEXTS: dict[str, str] = {}


def hash_encoding(position: str) -> str:
    """Return a hash of the code of an encoding, or "" if that cannot be read, as in a notebook.

    The code is the definition of its class, and of all that it uses, directly or through others:
    classes that it inherits from, functions, numbers. Comments, docstrings, annotations, errors,
    and what is installed do not count.
    """
    encoding = POSITIONS[position]
    start = resolve_name(encoding.__module__, encoding.__qualname__)
    if start is None:
        return ""
    seen = {start}
    waiting = [start]
    texts: list[str] = []
    while waiting:
        module, name = waiting.pop()
        definition = read_module(module).definitions[name]
        texts.append(ast.unparse(definition))
        used = find_globals(definition, module) - seen
        seen |= used
        waiting += used
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()


@dataclass
class ModuleCode:
    """What stands at the top of a module, by name."""

    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    """Of classes, functions and variables, without what does not count."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """(module, name) of what is imported from a module."""
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

    def add_assignment(self, node: ast.Assign | ast.AnnAssign) -> None:
        """Add the variables that a line sets."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                self.definitions[target.id] = node


@functools.cache
def read_module(name: str) -> ModuleCode:
    """Return what stands at the top of a module; nothing if it is installed."""
    code = ModuleCode()
    package = getattr(sys.modules.get(name), "__package__", None) or ""
    for node in ast.parse(read_text(name)).body:
        if isinstance(node, ast.Import):
            code.add_import(node)
        elif isinstance(node, ast.ImportFrom):
            origin = find_origin(node, package)
            for alias in node.names:
                code.imported[alias.asname or alias.name] = (origin, alias.name)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            code.definitions[node.name] = WhatCounts().visit(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            code.add_assignment(node)
    return code


def read_text(module: str) -> str:
    """Return the text of a module, as it was when it was first asked for; "" if it is installed."""
    if module not in TEXTS:
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None or is_installed(module, Path(file)):
            return ""
        TEXTS[module] = Path(file).read_text(encoding="utf-8")
    return TEXTS[module]


class WhatCounts(ast.NodeTransformer):
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
    code = read_module(module)
    if name in code.definitions:
        return module, name
    if name in code.imported:
        return resolve_name(*code.imported[name])
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
    packages = {"site-packages", "dist-packages"} & {*file.parts}
    library = Path(sysconfig.get_paths()["stdlib"])
    return name.partition(".")[0] == "torch" or bool(packages) or library in file.parents


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
