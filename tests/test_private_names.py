"""CONTRIBUTING.md lists the private names of torch that the code uses, and no others."""

import ast
import re
from collections.abc import Iterator

import pytest
from builders import ROOT

FOLDERS = ("ablation", "data", "formats", "gyre", "model", "tools")
# Functions that take options of the compiler, which are attributes of torch._inductor.config.
PATCH = "torch._dynamo.config.patch"
COMPILERS = ("torch.compile", "torch._inductor.aoti_compile_and_package")


def list_imports(nodes: list[ast.AST]) -> dict[str, str]:
    """Return what the imported names of a file stand for: {"dist": "torch.distributed"}."""
    imports: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                if alias.asname is None:
                    imports[package] = package
                else:
                    imports[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return imports


def spell(node: ast.AST) -> str:
    """Return a dotted name. `ast.unparse`, which spells all else, takes some ten times as long."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    root = node.id if isinstance(node, ast.Name) else ast.unparse(node)
    return ".".join([root, *reversed(parts)])


def list_names(nodes: list[ast.AST], imports: dict[str, str]) -> Iterator[str]:
    """Yield the dotted names of a file, in full; torch's also from its texts."""
    yield from imports.values()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"torch(\.\w+)+", node.value):
                yield node.value
        elif isinstance(node, ast.Attribute):
            root, _, rest = spell(node).partition(".")
            yield f"{imports.get(root, root)}.{rest}"


def list_compiler_options(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the options in calls of the compiler: of dicts, there or assigned to names."""
    assigned = {spell(node.targets[0]): node.value
                for node in nodes if isinstance(node, ast.Assign)}
    for node in nodes:
        if not isinstance(node, ast.Call) or spell(node.func) not in COMPILERS:
            continue
        for part in (part for keyword in node.keywords for part in ast.walk(keyword.value)):
            given = assigned.get(part.id) if isinstance(part, ast.Name) else part
            if isinstance(given, ast.Dict):
                yield from (f"torch._inductor.config.{key}" for key in ast.literal_eval(given))


def list_dynamo_settings(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the settings in calls of `torch._dynamo.config.patch`: of keywords, and of a dict that
    is assigned to a name."""
    assigned = {spell(node.targets[0]): node.value
                for node in nodes if isinstance(node, ast.Assign)}
    for node in nodes:
        if not isinstance(node, ast.Call) or spell(node.func) != PATCH:
            continue
        for keyword in node.keywords:
            yield f"torch._dynamo.config.{keyword.arg}"
        for argument in node.args:
            given = ast.literal_eval(assigned[spell(argument)])
            yield from (f"torch._dynamo.config.{key}" for key in given)


def is_private(name: str) -> bool:
    return re.search(r"\._[A-Za-z]", name) is not None


def list_private_names(source: str) -> set[str]:
    """Return the private names of a file that are torch's, or those of an object that may be."""
    nodes = [*ast.walk(ast.parse(source))]
    imports = list_imports(nodes)
    ours = {"self", "cls"}
    for name in imports.values():
        package = name.partition(".")[0]
        if package != "torch":
            ours.add(package)
    names = {*list_names(nodes, imports), *list_compiler_options(nodes)}
    names |= {*list_dynamo_settings(nodes)}
    private = {name for name in names
               if is_private(name) and name.partition(".")[0] not in ours}
    # The longest names only: torch._dynamo.config.verbose, and not torch._dynamo.config.
    prefixes = {name.rpartition(".")[0] for name in private}
    return private - prefixes


@pytest.mark.parametrize("source, name", [
    ("import torch\ntorch._int_mm(a, b)", "torch._int_mm"),
    ("import torch\ntorch._dynamo.config.verbose = True", "torch._dynamo.config.verbose"),
    ("import torch.distributed as dist\ndist._a.b()", "torch.distributed._a.b"),
    ("from torch import nn\nnn.Module._apply", "torch.nn.Module._apply"),
    ("def f():\n    from torch._inductor.a import b", "torch._inductor.a.b"),
    ("'torch._dynamo' in sys.modules", "torch._dynamo"),
    ("tensor._version", "tensor._version"), ("super()._apply(f)", "super()._apply"),
    ("torch.compile(f, options={'a.b': 1})", "torch._inductor.config.a.b"),
    ("A = {'a': 1}\ntorch.compile(f, options=A)", "torch._inductor.config.a"),
    ("A = {}\nC = {'c': 1}\ntorch.compile(f, options=A | C if c else A)",
     "torch._inductor.config.c")])
def test_a_private_name_is_noticed_however_it_is_spelt(source, name):
    assert list_private_names(source) == {name}


@pytest.mark.parametrize("source", [
    "import torch\ntorch._dynamo.config.patch(a=1)",
    "import torch\nS = {'a': 1}\ntorch._dynamo.config.patch(S)"])
def test_the_settings_of_a_patch_are_private_names(source):
    expected = {"torch._dynamo.config.patch", "torch._dynamo.config.a"}
    assert list_private_names(source) == expected


@pytest.mark.parametrize("source", [
    "self._step()", "import os\nos._exit(1)", "import torch\ntorch.__version__",
    "import torch\ntorch.compile(f)", "from torch import nn\nnn.Linear(1, 2)"])
def test_public_names_and_those_of_others_are_not_listed(source):
    assert list_private_names(source) == set()


def test_contributing_lists_every_private_name_of_torch():
    files = [*ROOT.glob("*.py")]
    for folder in FOLDERS:
        files += (ROOT / folder).glob("*.py")
    used: set[str] = set()
    for file in files:
        used |= list_private_names(file.read_text(encoding="utf-8"))
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, after = text.partition("\n## Private names of torch\n")
    section, _, _ = after.partition("\n## ")
    names = re.findall(r"^\| .* \| (.*) \|$", section, re.MULTILINE)
    listed = set(re.findall(r"`([^`]+)`", " ".join(names)))
    assert (used - listed, listed - used) == (set(), set())
