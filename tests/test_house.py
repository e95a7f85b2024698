"""Rules of the house, read from the source: arrows point one way (CONTRIBUTING.md), every option is
read, and nothing is loaded that could execute."""

import ast
import dataclasses
import re
import sys
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from typing import get_type_hints

import pytest
from builders import ROOT

from gyre.options import Config
from model.encodings import POSITIONS

ROOMS = ("ablation", "data", "formats", "gyre", "model", "tools")
FILES = list(ROOT.glob("*.py"))
for name in ROOMS:
    FILES += (ROOT / name).glob("*.py")
SOURCES = {".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text(encoding="utf-8")
           for file in FILES}
COMMANDS = {"ablate", "bench", "evaluate", "export", "generate", "train"}
GROUND = {"errors", "files"}
# What each room may import of ours, beside itself.
ARROWS = {"interrupts": set(), "errors": {"interrupts"}, "files": {"errors"},
          "model": {"errors"}, "data": GROUND, "gyre": {"data", "model"} | GROUND}
ARROWS["formats"] = ARROWS["ablation"] = ARROWS["tools"] = {"gyre"} | ARROWS["gyre"]
ARROWS |= dict.fromkeys(COMMANDS, {"ablation", "formats", "interrupts"} | ARROWS["formats"])
ARROWS["ablate"] |= {"train"}  # whose function the study is given
ARROWS["tools"] |= {"formats"}  # judges read other people's files
ARROWS["bench"] |= {"tools"}  # llama.cpp, a peer


@cache
def parsed() -> dict[str, ast.Module]:
    """Every module. Not parsed at import: every process imports all tests."""
    return {module: ast.parse(source) for module, source in SOURCES.items()}


@cache
def trees() -> dict[str, list[ast.AST]]:
    """The nodes of every module."""
    return {module: list(ast.walk(tree)) for module, tree in parsed().items()}


def imports(tree: Iterable[ast.AST]) -> set[str]:
    """Every module that these nodes import."""
    names: set[str] = set()
    for node in tree:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = {f"{node.module}.{alias.name}" for alias in node.names} & set(SOURCES)
            names |= modules if modules else {node.module}
    return names


def run_at_import(module: ast.Module) -> list[ast.AST]:
    """The statements that run when a module is imported, also those in `with importing(...)`."""
    statements: list[ast.AST] = []
    for statement in module.body:
        statements += statement.body if isinstance(statement, ast.With) else [statement]
    return statements


@cache
def all_imports() -> dict[str, set[str]]:
    """What every module imports, at the top or in a function."""
    return {module: imports(tree) for module, tree in trees().items()}


@cache
def imports_at_once() -> dict[str, set[str]]:
    """What every module imports when it is imported."""
    return {module: imports(run_at_import(tree)) for module, tree in parsed().items()}


# Where a configuration reads itself.
CHECKS = {"__post_init__", "expand_home", "name_source", "prefer_files", "check",
          "make_config"}
SLOW = {"datasets", "gguf", "huggingface_hub", "matplotlib", "scipy", "tokenizers", "transformers",
        "wandb"}


def room(module: str) -> str:
    """The package of a module, or the module itself at the root."""
    return module.partition(".")[0]


def test_modules_import_each_other_in_no_circle():
    order = TopologicalSorter(all_imports()).static_order()  # CycleError names a circle
    assert {*order} >= set(SOURCES)


def test_arrows_point_one_way():
    wrong = []
    for module, targets in all_imports().items():
        for target in targets:
            ours = room(target) in ARROWS and room(target) != room(module)
            if ours and room(target) not in ARROWS[room(module)]:
                wrong.append(f"{module} imports {target}")
    assert not wrong


def test_every_room_has_its_arrows():
    assert set(map(room, SOURCES)) == set(ARROWS)


def test_the_model_needs_nothing_but_torch_and_errors():
    used = set()
    for module, targets in all_imports().items():
        if room(module) == "model":
            used |= set(map(room, targets))
    assert used - set(sys.stdlib_module_names) == {"torch", "model", "errors"}


def test_faster_forms_know_neither_each_other_nor_the_choice():
    forms = [module for module in SOURCES if module.endswith("_forms")]
    assert len(forms) == 4
    for module in forms:
        assert not set(map(room, all_imports()[module])) & set(ARROWS), module


def test_one_module_reads_the_ranks():
    ranks = re.compile(r"""["'](LOCAL_)?(RANK|WORLD_SIZE)["']""")
    assert [name for name, source in SOURCES.items() if ranks.search(source)] == ["gyre.parallel"]


def test_one_module_imports_wandb():
    importing = [name for name in SOURCES if "wandb" in map(room, all_imports()[name])]
    assert importing == ["gyre.wandb_log"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_starts_without_packages_slow_to_import(command):
    met = set()
    left = [command]
    while left:
        module = left.pop()
        if module not in met:
            met.add(module)
            left += imports_at_once().get(module, ())
    assert len(met & set(SOURCES)) > 5  # the walk went into our modules
    assert not SLOW & set(map(room, met))


def compared_words(tree: Iterable[ast.AST]) -> set[str]:
    """The strings that these nodes compare something with."""
    words = set()
    for node in tree:
        if not isinstance(node, ast.Compare):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                words.add(part.value)
    return words


def test_no_module_asks_which_encoding_it_is():
    """But formats/, which must refuse what other runtimes cannot load, and ablation/, which
    compares encodings."""
    for module, tree in trees().items():
        if room(module) not in ("formats", "ablation", "tools"):
            assert not compared_words(tree) & set(POSITIONS), module


def read_attributes(tree: Iterable[ast.AST]) -> set[str]:
    """The attributes that these nodes read, but for the checks of what a class declares."""
    checks: set[int] = set()
    for function in tree:
        if isinstance(function, ast.FunctionDef) and function.name in CHECKS:
            checks |= set(map(id, ast.walk(function)))
    read: set[str] = set()
    for node in tree:
        if isinstance(node, ast.Attribute) and id(node) not in checks:
            read.add(node.attr)
        elif isinstance(node, ast.MatchClass):  # case DataConfig(files=...)
            read |= set(node.kwd_attrs)
    return read


def test_every_option_is_read_by_something():
    """An option that only its own check reads has no effect."""
    read: set[str] = set()
    for module, tree in trees().items():
        if room(module) not in ("ablation", "formats", "tools"):
            read |= read_attributes(tree)
    parts = [hint for hint in get_type_hints(Config).values() if dataclasses.is_dataclass(hint)]
    for part in [Config, *parts]:
        for field in dataclasses.fields(part):
            assert field.name in read, f"{part.__name__}.{field.name}"


def test_nothing_is_loaded_that_could_execute():
    executing = re.compile(r"weights_only=False|\bpickle\.loads?\(|(?<![.\w])(eval|exec)\(")
    assert not [module for module, source in SOURCES.items() if executing.search(source)]


def test_no_state_dict_is_loaded_loosely():
    loose = re.compile(r"load_state_dict\(.*strict=False")
    assert not [module for module, source in SOURCES.items() if loose.search(source)]
