"""Rules of the house, read from the source: arrows point one way (CONTRIBUTING.md), every option is
read, and nothing is loaded that could execute."""

import ast
import dataclasses
import re
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from typing import get_type_hints

from conftest import ROOT

from gyre.options import Config
from model.position import POSITIONS

ROOMS = ("ablation", "data", "formats", "gyre", "model", "tools")
FILES = [*ROOT.glob("*.py"), *(file for room in ROOMS for file in (ROOT / room).glob("*.py"))]
SOURCES = {".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text(encoding="utf-8")
           for file in FILES}
COMMANDS = {"ablate", "bench", "evaluate", "export", "generate", "train"}
GROUND = {"errors", "files"}
# What each room may import of ours, beside itself.
ARROWS = {"errors": set(), "files": {"errors"}, "model": {"errors"}, "data": GROUND,
          "gyre": {"data", "model"} | GROUND}
ARROWS["formats"] = ARROWS["ablation"] = ARROWS["tools"] = {"gyre"} | ARROWS["gyre"]
ARROWS |= dict.fromkeys(COMMANDS, {"ablation", "formats"} | ARROWS["formats"])


def nodes(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


TREES = {module: nodes(source) for module, source in SOURCES.items()}


def imports(tree: Iterable[ast.AST]) -> set[str]:
    """Every module that these nodes import."""
    names: set[str] = set()
    for node in tree:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inside & set(SOURCES) or {node.module}
    return names


def run_at_import(source: str) -> list[ast.AST]:
    """The statements that run when a module is imported, those of `with starting(...)` included."""
    statements: list[ast.AST] = []
    for statement in ast.parse(source).body:
        statements += statement.body if isinstance(statement, ast.With) else [statement]
    return statements


# At the top or in a function; and at the top alone, which is when a module is imported.
IMPORTS = {module: imports(tree) for module, tree in TREES.items()}
AT_ONCE = {module: imports(run_at_import(source)) for module, source in SOURCES.items()}
SLOW = {"datasets", "gguf", "huggingface_hub", "matplotlib", "scipy", "tokenizers", "transformers",
        "wandb"}


def room(module: str) -> str:
    """The package of a module, or the module itself at the root."""
    return module.partition(".")[0]


def test_modules_import_each_other_in_no_circle():
    assert {*TopologicalSorter(IMPORTS).static_order()} >= set(SOURCES)  # CycleError names a circle


def test_arrows_point_one_way():
    wrong = [f"{module} imports {target}" for module, targets in IMPORTS.items()
             for target in targets if room(target) in ARROWS and room(target) != room(module)
             and room(target) not in ARROWS[room(module)]]
    assert not wrong and set(map(room, SOURCES)) == set(ARROWS)


def test_the_model_needs_nothing_but_torch_and_errors():
    used = {room(target) for name in SOURCES if room(name) == "model" for target in IMPORTS[name]}
    assert used - set(sys.stdlib_module_names) == {"torch", "model", "errors"}


def test_one_module_reads_the_ranks_and_one_imports_wandb():
    ranks = re.compile(r"""["'](LOCAL_)?(RANK|WORLD_SIZE)["']""")
    assert [name for name, source in SOURCES.items() if ranks.search(source)] == ["gyre.parallel"]
    assert [name for name in SOURCES if "wandb" in map(room, IMPORTS[name])] == ["gyre.wandb_log"]


def test_a_command_starts_without_the_packages_that_are_slow_to_import():
    for command in COMMANDS:
        met, left = set(), [command]
        while left:
            module = left.pop()
            if module not in met:
                met.add(module)
                left += AT_ONCE.get(module, ())
        assert len(met & set(SOURCES)) > 5 and not SLOW & set(map(room, met)), command


def test_no_module_asks_which_encoding_it_is():
    """Comparing with an encoding's name is for the encodings, for formats/, which must refuse what
    other runtimes cannot load, and for ablation/, which compares them."""
    for module, tree in TREES.items():
        if module != "model.position" and room(module) not in ("formats", "ablation", "tools"):
            words = {part.value for node in tree if isinstance(node, ast.Compare)
                     for part in ast.walk(node)
                     if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            assert not words & set(POSITIONS), module


# Where a configuration reads itself.
CHECKS = {"__post_init__", "check", "check_positions", "fill_in_model"}


def test_every_option_is_read_by_something():
    """Outside the checks of the class that declares it: an option that nothing reads has no
    effect."""
    read = set()
    for module, tree in TREES.items():
        if room(module) in ("ablation", "formats", "tools"):
            continue
        checks = {id(node) for function in tree if isinstance(function, ast.FunctionDef)
                  and function.name in CHECKS
                  for node in ast.walk(function)}
        for node in tree:
            if isinstance(node, ast.Attribute) and id(node) not in checks:
                read.add(node.attr)
            elif isinstance(node, ast.MatchClass):  # case DataConfig(files=...)
                read.update(node.kwd_attrs)
    parts = [hint for hint in get_type_hints(Config).values() if dataclasses.is_dataclass(hint)]
    for part in [Config, *parts]:
        for field in dataclasses.fields(part):
            assert field.name in read, f"{part.__name__}.{field.name}"


def test_nothing_is_loaded_that_could_execute_and_nothing_is_loaded_loosely():
    loose = re.compile(r"weights_only=False|load_state_dict\(.*strict=False|\bpickle\.loads?\("
                       r"|(?<![.\w])(eval|exec)\(")
    assert not [module for module, source in SOURCES.items() if loose.search(source)]
