"""Who imports whom, read from the source: arrows point one way (CONTRIBUTING.md)."""

import ast
import re
import sys
from graphlib import TopologicalSorter

from conftest import ROOT

from model.position import POSITIONS

ROOMS = ("ablation", "data", "docs", "formats", "gyre", "model")
FILES = [*ROOT.glob("*.py"), *(file for room in ROOMS for file in (ROOT / room).glob("*.py"))]
SOURCES = {".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text(encoding="utf-8")
           for file in FILES}
COMMANDS = {"ablate", "bench", "evaluate", "export", "generate", "train"}
GROUND = {"errors", "files"}
# What each room may import of ours, beside itself.
ARROWS = {"errors": set(), "files": {"errors"}, "model": set(), "docs": {"model"}, "data": GROUND,
          "gyre": {"data", "model"} | GROUND}
ARROWS["formats"] = ARROWS["ablation"] = {"gyre"} | ARROWS["gyre"]
ARROWS |= dict.fromkeys(COMMANDS, {"ablation", "formats"} | ARROWS["formats"])


TREES = {module: list(ast.walk(ast.parse(source))) for module, source in SOURCES.items()}


def imports(tree: list[ast.AST]) -> set[str]:
    """Every module that is imported, at the top or in a function."""
    found: set[str] = set()
    for node in tree:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & set(SOURCES) or {node.module}
    return found


IMPORTS = {module: imports(tree) for module, tree in TREES.items()}


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


def test_the_model_needs_nothing_but_torch():
    used = {room(target) for module in SOURCES if room(module) == "model"
            for target in IMPORTS[module]}
    assert used - set(sys.stdlib_module_names) == {"torch", "model"}


def test_one_module_reads_the_ranks_and_one_imports_wandb():
    ranks = re.compile(r"""["'](LOCAL_)?(RANK|WORLD_SIZE)["']""")
    assert [module for module, source in SOURCES.items() if ranks.search(source)] == [
        "gyre.parallel"]
    assert [module for module in SOURCES if "wandb" in map(room, IMPORTS[module])] == [
        "gyre.wandb_log"]


def test_no_module_asks_which_encoding_it_is():
    """Comparing with an encoding's name is for the encodings, for formats/, which must refuse what
    other runtimes cannot load, and for ablation/, which compares them."""
    for module, tree in TREES.items():
        if module != "model.position" and room(module) not in ("formats", "ablation", "docs"):
            words = {part.value for node in tree if isinstance(node, ast.Compare)
                     for part in ast.walk(node)
                     if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            assert not words & set(POSITIONS), module
