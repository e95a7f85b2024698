"""Which code a model computes with: its files, and the hash of its encoding."""

import importlib
import sys
from types import SimpleNamespace

import pytest

from gyre import code
from gyre.code import are_of_other_code, hash_encoding, list_imports
from model.encodings import POSITIONS

MINE = """
from model.position import PositionEncoding
import slopes
from factors import SCALE

UNUSED = 1

def double(h):
    return h * 2

class Doubled(PositionEncoding):
    def embed(self, h, start):
        return double(h) * slopes.slope(1)

class Mine(Doubled):
    def embed(self, h, start):
        return super().embed(h, start) + SCALE
"""
SLOPES = """
BASE = 8

def slope(head):
    return BASE ** -head
"""
FACTORS = "SCALE = 3\n"


@pytest.fixture
def hash_of(tmp_path, monkeypatch):
    """The hash of `Mine` with a change: `old` is replaced by `new`, wherever it stands."""
    monkeypatch.syspath_prepend(tmp_path)
    names = ("mine", "slopes", "factors")

    def compute(old: str = "", new: str = "", scale: int = 3) -> str:
        code.read_module.cache_clear()
        code.read_definition.cache_clear()
        factors = FACTORS.replace("3", str(scale))
        for name, text in zip(names, (MINE, SLOPES, factors), strict=True):
            sys.modules.pop(name, None)
            code.TEXTS.pop(name, None)
            changed = text.replace(old, new) if old else text
            (tmp_path / f"{name}.py").write_text(changed, encoding="utf-8")
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.setitem(POSITIONS, "mine", importlib.import_module("mine").Mine)
        return hash_encoding("mine")

    yield compute
    code.read_module.cache_clear()
    code.read_definition.cache_clear()
    for name in names:
        sys.modules.pop(name, None)
        code.TEXTS.pop(name, None)


@pytest.mark.parametrize("old, new", [
    ("+ SCALE", "- SCALE"), ("* slopes", "/ slopes"), ("h * 2", "h * 3"), ("BASE = 8", "BASE = 4"),
    ("** -head", "** head"), ("SCALE = 3", "SCALE = 4")],
    ids=["class", "base class", "function", "variable", "other module", "imported variable"])
def test_the_hash_of_an_encoding_changes_with_what_it_uses(hash_of, old, new):
    assert hash_of(old, new) != hash_of()


@pytest.mark.parametrize("binding", [
    "UNUSED, FACTOR = 0, {}", "if True:\n    FACTOR = {}", "for FACTOR in ({},):\n    pass",
    "FACTOR = 1\nFACTOR += {}", "FACTOR = {}\nFACTOR = FACTOR + 1", "T = {{}}\nT['a'] = {}",
    "T = {{}}\nT.update(a={})"])
def test_the_hash_of_an_encoding_changes_with_any_binding_of_what_it_uses(hash_of, binding):
    used = "T['a']" if "T" in binding.split() else "FACTOR"

    def hash_with(value: int) -> str:
        top = binding.format(value)
        return hash_of("def double(h):\n    return h * 2",
                       f"{top}\n\ndef double(h):\n    return {used}")

    assert hash_with(2) != hash_with(3)


@pytest.mark.parametrize("line, new", [
    ("from factors import SCALE\n", "from factors import *\n"),
    ("        return super().embed(h, start) + SCALE",
     "        from factors import SCALE\n        return super().embed(h, start) + SCALE")],
    ids=["star", "within a method"])
def test_the_hash_of_an_encoding_follows_every_import(hash_of, line, new):
    def hash_with(scale: int) -> str:
        code.TEXTS.pop("factors", None)
        return hash_of(line, new, scale)

    assert hash_with(3) != hash_with(4)


@pytest.mark.parametrize("old, new", [
    ("UNUSED = 1", "UNUSED = 2"), ("h * 2", "h * 2  # twice"), ("head):", "head: int) -> float:"),
    ("def double(h):", "def double(h):\n    'Twice.'"), ("BASE = 8\n", "BASE = 8\n\n\n")],
    ids=["unused", "comment", "annotation", "docstring", "blank line"])
def test_the_hash_of_an_encoding_keeps_to_what_counts(hash_of, old, new):
    assert hash_of(old, new) == hash_of()


def test_an_edit_after_the_import_does_not_count(hash_of, tmp_path):
    before = hash_of()
    (tmp_path / "mine.py").write_text("class Mine:", encoding="utf-8")
    code.read_module.cache_clear()
    code.read_definition.cache_clear()
    assert hash_encoding("mine") == before


def test_encodings_have_hashes_of_their_own():
    hashes = {hash_encoding(name) for name in POSITIONS}
    assert len(hashes) == len(POSITIONS)
    assert "" not in hashes


def test_another_encoding_in_the_same_file_changes_no_hash(monkeypatch):
    before = hash_encoding("rope")
    code.read_module.cache_clear()
    code.read_definition.cache_clear()
    text = f"{code.TEXTS['model.encodings']}\n\nPOSITIONS['log'] = Alibi\n"
    monkeypatch.setitem(code.TEXTS, "model.encodings", text)
    assert hash_encoding("rope") == before
    code.read_module.cache_clear()
    code.read_definition.cache_clear()


def test_a_package_that_imports_its_modules_has_a_hash(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "tables.py").write_text("SCALE = 2\n", encoding="utf-8")
    (tmp_path / "mypackage" / "__init__.py").write_text(
        "from . import tables\nfrom model.position import PositionEncoding\n\n"
        "class Mine(PositionEncoding):\n    def embed(self, h, start):\n"
        "        return h * tables.SCALE\n", encoding="utf-8")
    monkeypatch.setitem(POSITIONS, "mine", importlib.import_module("mypackage").Mine)
    assert hash_encoding("mine").startswith(code.KIND)


def test_a_compiled_module_has_no_text(tmp_path, monkeypatch):
    (tmp_path / "built.so").write_bytes(b"\x7fELF\xff")
    monkeypatch.setitem(sys.modules, "built", SimpleNamespace(__file__=str(tmp_path / "built.so")))
    assert code.read_text("built") == ""


def test_hashes_of_other_kinds_do_not_compare():
    assert are_of_other_code("2-python3.11:a", "2-python3.11:b")
    assert not are_of_other_code("2-python3.11:a", "2-python3.12:b")
    assert not are_of_other_code("of an older version", "2-python3.12:b")
    assert not are_of_other_code("of an older version", "of another one")
    assert not are_of_other_code("", "")


def test_an_encoding_without_a_file_has_no_hash(monkeypatch):
    made = type("Made", (POSITIONS["rope"],), {})  # as in a notebook
    monkeypatch.setitem(POSITIONS, "made", made)
    assert hash_encoding("made") == ""


def test_the_hash_of_an_encoding_follows_the_functions_of_rope():
    used = code.find_globals(code.read_module("model.position").definitions["RoPE"][0],
                             "model.position")
    assert ("model.rope", "precompute_freqs_cis") in used


def test_relative_imports_are_found(tmp_path):
    (tmp_path / "mine.py").write_text("from . import a\nfrom ..b import c", encoding="utf-8")
    names = list_imports(tmp_path / "mine.py", "top.deep")
    assert names == ["top.deep", "top.deep.a", "top.b", "top.b.c"]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="Python writes code in its own way")
@pytest.mark.parametrize("position, start", [
    ("rope", "952757197d5d"), ("sinusoidal", "631d91235ee5"), ("alibi", "450605a2c924")])
def test_the_code_of_an_encoding_is_that_of_earlier_runs(position, start):
    """Else commands say that it has changed, and a study does not go on. So this hash may change
    only where an encoding computes other numbers."""
    assert hash_encoding(position).startswith(f"2-python3.11:{start}")
