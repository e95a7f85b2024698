"""Compiled decoding equals eager decoding, and what is compiled is kept, checked and used again."""

import importlib
import os
import sys
from pathlib import Path
from unittest.mock import Mock
from zipfile import ZipFile

import pytest
import torch
from builders import ROOT, random_model, random_tokens, run_python, sharp_model
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from gyre import compiled
from gyre.compiled import compile_batch, compile_step, wants_package, wants_prefill_package
from model import decoding_forms, kernels, packed_forms
from model.generation import Batch, next_logits
from model.int8 import int8_tensors, to_int8
from model.sampling import Sampling
from model.transformer import KVCache

GREEDY = Sampling(temperature=0)
MANY = kernels.MAX_SUMMED_TOKENS + 1


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """An empty cache. Returns a function that lists the packages in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lambda: list((tmp_path / "gyre").glob("*"))


def make_batch(model, lengths, samples=1, new=12) -> Batch:
    """Prompts of these lengths."""
    prompts = [random_tokens(length, seed=seed).tolist() for seed, length in enumerate(lengths)]
    return Batch(model, prompts, GREEDY, max_new_tokens=new, num_samples=samples)


def draw_texts(model, lengths, compile, samples=1):
    """Prompts of these lengths, continued."""
    batch = make_batch(model, lengths, samples)
    step = compile_batch(batch) if compile else next_logits
    for _ in batch.draw(step):
        pass
    return batch.new_tokens()


# --- what is compiled, and when -------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch):
    """(rows, tokens, keys) of the packages that were asked for. `open_package` finds none."""
    opened = []

    def open_package(model, cache, tokens, n_keys):
        opened.append((*tokens.shape, n_keys))

    monkeypatch.setattr(compiled, "open_package", open_package)
    return opened


@pytest.mark.parametrize("new, samples, needed", [
    (12, 1, [(1, 5, 5), (1, 1, 6), (1, 1, 16)]), (12, 2, [(1, 5, 5), (2, 1, 6), (2, 1, 16)]),
    (3, 1, [(1, 5, 5), (1, 1, 6)]), (1, 1, [(1, 5, 5)])])
def test_what_a_text_needs_is_opened_before_its_first_token(
        new, samples, needed, opened, monkeypatch):
    """Prefill, and decoding on both sides of 10 keys.

    The cache of 5 tokens and 12 new ones has a capacity of 5 + 12 = 17, and the last step has 16
    keys, because the last token is not read.
    """
    monkeypatch.setattr(decoding_forms, "LONGEST_SUM", 10)
    monkeypatch.setattr(compiled, "MIN_PREFILL", 4)
    batch = make_batch(sharp_model(n_layers=1), [5], samples, new)
    compile_batch(batch)
    assert opened == needed


def test_nothing_else_is_opened_while_tokens_are_drawn(opened, monkeypatch):
    monkeypatch.setattr(decoding_forms, "LONGEST_SUM", 10)
    monkeypatch.setattr(compiled, "MIN_PREFILL", 4)
    batch = make_batch(sharp_model(n_layers=1), [5])
    step = compile_batch(batch)
    opened.clear()
    assert len(list(batch.draw(step))) == 12
    assert opened == []


def make_cache(held: int) -> KVCache:
    """A cache of two rows with room for 9 tokens, of which it holds so many."""
    cache = KVCache(sharp_model(n_layers=1).config, 2, 9)
    cache.length = held
    return cache


@pytest.mark.parametrize("length, expected", [(3, False), (4, True), (8, True)])
def test_prefill_of_few_tokens_is_not_compiled(length, expected, monkeypatch):
    monkeypatch.setattr(compiled, "MIN_PREFILL", 4)
    assert wants_package(make_cache(held=0), length) is expected


def test_a_later_part_of_a_prompt_is_not_compiled(monkeypatch):
    monkeypatch.setattr(compiled, "MIN_PREFILL", 4)
    assert not wants_package(make_cache(held=1), 4)


def test_a_first_token_is_not_compiled():
    assert not wants_package(make_cache(held=0), 1)


@pytest.mark.parametrize("held", [1, 7])
def test_decoding_is_compiled(held):
    assert wants_package(make_cache(held), 1)


@pytest.mark.parametrize("held, length", [(0, 9), (8, 1)])
def test_what_fills_the_cache_is_not_compiled(held, length, monkeypatch):
    monkeypatch.setattr(compiled, "MIN_PREFILL", 4)
    assert not wants_package(make_cache(held), length)


@pytest.mark.parametrize("rows, capacity, dtype, message", [
    (3, 20, torch.float32, "3 x 13 tokens"), (2, 20, torch.bfloat16, "float32"),
    (2, 40, torch.float32, "position")], ids=["rows", "dtype", "positions"])
def test_no_package_takes_what_eager_steps_refuse(rows, capacity, dtype, message, monkeypatch):
    """Tokens of 3 rows for a cache of 2, a cache in another dtype, and more than 32 positions.

    The cache has room for 8 tokens: with a capacity of 20, the new token is the 13th.
    """
    monkeypatch.setattr(compiled, "open_package", lambda *_: pytest.fail("took a package"))
    model = sharp_model(n_layers=1, max_positions=32)
    step = compile_step(model, KVCache(model.config, 2, 20))
    cache = KVCache(model.config, 2, capacity, dtype=dtype)
    cache.length = capacity - 8
    with pytest.raises(ValueError, match=message), torch.inference_mode():
        step(model, torch.ones(rows, 1, dtype=torch.long), cache)


def test_a_step_decodes_other_rows_than_its_own_without_a_package(monkeypatch):
    """Its weights are packed for 2 rows."""
    monkeypatch.setattr(compiled, "open_package", lambda *_: pytest.fail("took a package"))
    model = sharp_model(n_layers=1)
    step = compile_step(model, KVCache(model.config, 2, 20))
    cache = KVCache(model.config, 3, 20)
    with torch.inference_mode():
        step(model, torch.ones(3, 5, dtype=torch.long), cache)
        step(model, torch.ones(3, 1, dtype=torch.long), cache)
    assert cache.length == 6


def test_prompts_of_another_number_of_rows_have_a_package_of_their_own(opened, monkeypatch):
    monkeypatch.setattr(compiled, "MIN_PREFILL", 4)
    model = sharp_model(n_layers=1)
    step = compile_step(model, KVCache(model.config, 2, 20))
    for rows in (2, 3):
        with torch.inference_mode():
            step(model, torch.ones(rows, 5, dtype=torch.long), KVCache(model.config, rows, 20))
    assert opened == [(2, 5, 5), (3, 5, 5)]


def test_a_step_is_for_the_model_that_it_was_compiled_for():
    model = sharp_model(n_layers=1)
    cache = KVCache(model.config, 1, 9)
    step = compile_step(model, cache)
    with pytest.raises(ValueError, match="compiled for another model"):
        step(sharp_model(n_layers=1), torch.ones(1, 3, dtype=torch.long), cache)


def test_no_prefill_is_compiled_for_samples_that_share_a_cache(monkeypatch):
    monkeypatch.setattr(compiled, "MIN_PREFILL", 4)
    cache = KVCache(sharp_model(n_layers=1).config, 4, 9)
    assert not wants_prefill_package(cache.every_nth(2), 4)


def test_without_a_cache_nothing_is_compiled(opened):
    batch = make_batch(sharp_model(n_layers=1), [5])
    batch.cache = None
    assert compile_batch(batch) is next_logits
    assert opened == []


def test_a_model_in_training_is_compiled_as_it_generates(monkeypatch):
    modes = []
    monkeypatch.setattr(compiled, "open_package",
                        lambda model, *inputs: modes.append(model.training))
    model = sharp_model(n_layers=1).train()
    compile_batch(make_batch(model, [3], new=3))
    assert modes == [False]
    assert model.training


# --- names ----------------------------------------------------------------------------------------


def locate(model=None, rows=1, tokens=1, keys=6) -> Path:
    """Where the package for these inputs is kept."""
    if model is None:
        model = sharp_model(n_layers=1)
    ids = torch.zeros(rows, tokens, dtype=torch.long)
    cache = KVCache(model.config, rows, 99, dtype=model.norm.weight.dtype)
    return compiled.locate_package(model, cache, ids, keys)


def test_packages_are_kept_in_the_users_cache(kept, tmp_path):
    assert locate().parent == tmp_path / "gyre"


def test_a_package_serves_any_weights():
    other = sharp_model(n_layers=1)
    with torch.no_grad():
        other.norm.weight.mul_(2)
    assert locate(other) == locate()


def test_a_package_serves_any_number_of_many_rows():
    assert locate(rows=MANY) == locate(rows=MANY + 9)


def test_with_packing_many_rows_share_no_package_with_few(monkeypatch):
    monkeypatch.setattr(kernels, "packs_weights", lambda *args: True)
    assert locate(rows=MANY) != locate(rows=MANY - 1)


def test_without_packing_many_rows_share_no_package_with_few(monkeypatch):
    monkeypatch.setattr(kernels, "packs_weights", lambda *args: False)
    assert locate(rows=MANY) != locate(rows=MANY - 1)


def test_prefill_has_one_package_however_decoding_is_packed(monkeypatch):
    monkeypatch.setattr(kernels, "packs_weights", lambda *args: True)
    packed = locate(tokens=129, keys=129)
    monkeypatch.setattr(kernels, "packs_weights", lambda *args: False)
    assert locate(tokens=129, keys=129) == packed


@pytest.mark.parametrize("changes", [
    {"rows": 2}, {"rows": MANY}, {"tokens": 6}, {"keys": decoding_forms.LONGEST_SUM + 1}], ids=str)
def test_other_sizes_have_a_package_of_their_own(changes):
    assert locate(**changes) != locate()


@pytest.mark.parametrize("dtype, has_bfloat16, n_packages", [
    (torch.bfloat16, True, 2), (torch.bfloat16, False, 1), (torch.float32, True, 1)])
def test_long_prompts_have_a_package_of_their_own_where_scores_are_stored(
        dtype, has_bfloat16, n_packages, monkeypatch):
    """All scores of a prompt are stored if it has at most 1024 tokens, LONGEST_SCORED."""
    monkeypatch.setattr(kernels, "has_bfloat16", lambda: has_bfloat16)
    model = sharp_model(n_layers=1).to(dtype)
    places = [locate(model, tokens=length, keys=length) for length in (129, 1024, 1025, 5000)]
    assert places[0] == places[1]
    assert places[2] == places[3]
    assert len({*places}) == n_packages


@pytest.mark.parametrize("changes", [{"n_layers": 2}, {"theta": 500.0}, {"dim": 48}], ids=str)
def test_another_model_has_a_package_of_its_own(changes):
    assert locate(sharp_model(**{"n_layers": 1} | changes)) != locate()


def test_another_dtype_has_a_package_of_its_own():
    assert locate(sharp_model(n_layers=1).bfloat16()) != locate()


def test_fast_products_in_int8_have_a_package_of_their_own(monkeypatch):
    model = sharp_model(n_layers=1)
    to_int8(model)
    monkeypatch.setattr(kernels, "multiplies_int8", lambda: True)
    fast = locate(model)
    monkeypatch.setattr(kernels, "multiplies_int8", lambda: False)
    assert locate(model) != fast


@pytest.mark.parametrize("owner, key, value", [
    (decoding_forms, "LONGEST_SUM", 4), (kernels, "uses_onednn", lambda: True),
    (torch, "__version__", "2"), (torch, "get_num_threads", lambda: 99),
    (torch.cpu, "get_capabilities", lambda: {"avx9": True}),
    (compiled.Path, "read_bytes", lambda path: path.name.encode())],
    ids=lambda value: value if isinstance(value, str) else "")
def test_another_machine_or_code_has_a_package_of_its_own(owner, key, value, monkeypatch):
    before = locate()
    monkeypatch.setattr(owner, key, value, raising=False)  # torch 2.11 has no get_capabilities
    assert locate() != before


def test_a_package_depends_on_the_code_of_model_and_compiler():
    names = [path.name for path in compiled.list_sources(sharp_model(n_layers=1))]
    assert {"compiled.py", "transformer.py", "rope.py", "position.py"} <= {*names}
    assert {"kernels.py", "decoding_forms.py", "packed_forms.py", "shared_forms.py"} <= {*names}


def test_a_package_depends_on_the_file_of_its_encoding():
    model = sharp_model(n_layers=1)

    class Mine(type(model.position)):
        pass

    model.position.__class__ = Mine
    assert Path(__file__) in compiled.list_sources(model)


@pytest.mark.parametrize("line", [
    "from helper import WIDTH", "import helper", "def f():\n    from helper import WIDTH",
    "from between import WIDTH"])
def test_a_package_depends_on_what_its_encoding_imports(tmp_path, monkeypatch, line):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helper.py").write_text("WIDTH = 3", encoding="utf-8")
    (tmp_path / "between.py").write_text("from helper import WIDTH", encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        f"from model.position import RoPE\nclass Mine(RoPE): pass\n{line}", encoding="utf-8")
    model = sharp_model(n_layers=1)
    try:
        importlib.import_module("between")  # and helper: only loaded modules are found
        model.position.__class__ = importlib.import_module("mine").Mine
        before = locate(model)
        (tmp_path / "helper.py").write_text("WIDTH = 4", encoding="utf-8")
        assert locate(model) != before
    finally:
        for name in ("mine", "between", "helper"):
            sys.modules.pop(name, None)


def test_a_package_does_not_depend_on_installed_ones():
    folders = {path.parent for path in compiled.list_sources(sharp_model(n_layers=1))}
    assert folders == {ROOT, ROOT / "gyre", ROOT / "model"}


# --- what cannot be compiled ----------------------------------------------------------------------


@pytest.fixture
def broken(kept, monkeypatch):
    """A compiler that fails."""
    broken = Mock(side_effect=RuntimeError("broken\nin two"))
    monkeypatch.setattr(compiled, "make_package", broken)
    return broken


def test_without_a_package_decoding_is_eager(broken, capsys):
    model = sharp_model(n_layers=1)
    assert draw_texts(model, [5], True) == draw_texts(model, [5], False)
    *_, note = capsys.readouterr().err.splitlines()
    assert note == "note: decoding is eager, because it could not be compiled or loaded: broken"


def test_a_compiler_that_gives_no_reason_is_told_by_its_error(broken, capsys):
    broken.side_effect = AssertionError
    draw_texts(sharp_model(n_layers=1), [5], True)
    assert capsys.readouterr().err.endswith("could not be compiled or loaded: AssertionError\n")


def test_compiling_is_announced_with_its_file(broken, capsys):
    draw_texts(sharp_model(n_layers=1), [5], True)
    notice, _ = capsys.readouterr().err.splitlines()
    assert notice == ("compiling decoding, once, which takes up to some minutes; kept as "
                      f"{locate()}")


def test_what_cannot_be_compiled_is_tried_once(broken):
    model = sharp_model(n_layers=1)
    draw_texts(model, [5], True)
    draw_texts(model, [9], True)
    assert broken.call_count == 1


def test_what_cannot_be_compiled_is_reported_once(broken, capsys):
    model = sharp_model(n_layers=1)
    draw_texts(model, [5], True)
    capsys.readouterr()
    draw_texts(model, [9], True)
    assert capsys.readouterr().err == ""


def test_what_cannot_be_compiled_is_not_kept(broken, kept):
    draw_texts(sharp_model(n_layers=1), [5], True)
    assert kept() == []


def test_a_damaged_package_is_compiled_again(broken, kept):
    package = locate()
    package.parent.mkdir()
    package.write_bytes(b"cut short")
    draw_texts(sharp_model(n_layers=1), [5], True)
    assert broken.call_count == 1


@pytest.mark.parametrize("content, expected", [(b"code", True), (b"c0de", False)])
def test_a_package_is_whole_unless_a_byte_differs(content, expected, tmp_path):
    package = tmp_path / "a.pt2"
    with ZipFile(package, "w") as archive:
        archive.writestr("model.cpp", "code")
    package.write_bytes(package.read_bytes().replace(b"code", content))
    assert compiled.is_whole(package) is expected


# --- packages -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory) -> Path:
    """The folder of a cache that several tests share, so that each package is compiled once."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def shared(shared_folder, monkeypatch):
    """That cache, where prefill is compiled from 10 tokens on, and decoding has a package for up to
    40 keys and one for more. Returns a function that lists the packages in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_folder))
    monkeypatch.setattr(compiled, "MIN_PREFILL", 10)
    monkeypatch.setattr(decoding_forms, "LONGEST_SUM", 40)
    return lambda: list((shared_folder / "gyre").glob("*"))


# Lengths of prompts, and samples of each. The comments say what they need that those before do not.
TEXTS = [
    ([5], 1),  # decoding
    ([1], 1),
    ([4] * 6, 1),  # decoding six rows
    ([5] * MANY, 1),  # decoding many rows
    ([5] * MANY + [27], 1),  # the rest of the prompt of 27 is eager
    ([12] * 5, 2),  # two samples of each share a cache, so their prefill is eager
    ([9], 1),
    ([37], 1),  # prefill, and decoding for more than 40 keys
    ([31], 1),
    ([41], 1),
]


@pytest.mark.slow
@pytest.mark.parametrize("lengths, samples", TEXTS)
def test_a_package_gives_the_texts_of_eager_steps(shared, lengths, samples):
    model = sharp_model(n_layers=1)
    eager = draw_texts(model, lengths, False, samples)
    assert draw_texts(model, lengths, True, samples) == eager


@pytest.mark.slow
def test_five_packages_serve_all_lengths_and_rows(shared):
    model = sharp_model(n_layers=1)
    for lengths, samples in TEXTS:
        draw_texts(model, lengths, True, samples)
    assert len(shared()) == 5


def rounded_models():
    """A model in int8, and one in float32 with the weights that it stands for."""
    model = quantize(sharp_model(n_layers=1))
    rounded = sharp_model(n_layers=1)
    state = model.state_dict()
    for name, weight in rounded.state_dict().items():
        scale = state.get(name.replace("weight", "scale"))
        weight.copy_(state[name] if scale is None else state[name] * scale[:, None])
    return model, rounded


@pytest.fixture
def fast_int8(monkeypatch):
    """On any processor, what is compiled is as for one with AVX-512 and fast int8 products."""
    monkeypatch.setattr(kernels, "has_avx512", lambda: True)
    monkeypatch.setattr(kernels, "multiplies_int8", lambda: True)


@pytest.mark.slow
def test_in_int8_few_rows_do_not_round_their_inputs(kept, fast_int8):
    """So their texts are those of the rounded weights."""
    model, rounded = rounded_models()
    assert draw_texts(model, [1] * 3, True) == draw_texts(rounded, [1] * 3, False)


@pytest.mark.slow
def test_in_int8_many_rows_round_their_inputs(kept, fast_int8):
    """As eager int8 does. Float inputs give logits that differ by 0.03."""
    model, rounded = rounded_models()
    eager = torch.stack(compute_logits(model, 5, False, torch.float32))
    unrounded = torch.stack(compute_logits(rounded, 5, False, torch.float32))
    assert (eager - unrounded).abs().max() > 0.01
    compiled_logits = torch.stack(compute_logits(model, 5, True, torch.float32))
    torch.testing.assert_close(compiled_logits, eager, rtol=0, atol=0.001)


@pytest.fixture
def words(monkeypatch):
    """As with AVX2: compiled decoding reads four int8 weights at a time, as one 32-bit word."""
    monkeypatch.setattr(kernels, "has_avx512", lambda: False)
    monkeypatch.setattr(kernels, "has_only_avx2", lambda: True)


@pytest.mark.slow
def test_int8_weights_read_as_words_round_no_inputs(kept, words, monkeypatch):
    multiply = Mock(side_effect=packed_forms.linear_by_words)
    monkeypatch.setattr(packed_forms, "linear_by_words", multiply)
    model, rounded = rounded_models()
    for rows in 1, 5:
        assert draw_texts(model, [1] * rows, True) == draw_texts(rounded, [1] * rows, False)
    assert multiply.call_count == 2 * 8  # wq, wk, wv, wo, w1, w2, w3 and the output


@pytest.mark.parametrize("tied, name", [
    (True, "tok_embeddings.weight"), (False, "output.weight")])
def test_each_matrix_in_int8_is_read_as_words(words, tied, name):
    model = quantize(random_model(n_layers=1, tie_embeddings=tied))
    assert sorted(compiled.choose_groups(model, 1)) == [
        ["layers.0.attention.wk.weight"], ["layers.0.attention.wo.weight"],
        ["layers.0.attention.wq.weight"], ["layers.0.attention.wv.weight"],
        ["layers.0.feed_forward.w1.weight"], ["layers.0.feed_forward.w2.weight"],
        ["layers.0.feed_forward.w3.weight"], [name]]


def test_a_model_of_other_widths_has_no_words(words):
    """Words hold four numbers, and no width here is a multiple of four."""
    model = random_model(dim=34, n_heads=1, n_kv_heads=1, head_dim=34, hidden_dim=66)
    assert compiled.choose_groups(quantize(model), 1) == []


def test_shared_and_computed_weights_of_an_encoding_are_packed_once_or_not():
    model = random_model(n_layers=1).bfloat16()
    model.position.first = nn.Linear(8, 8, dtype=torch.bfloat16)
    model.position.again = nn.Linear(8, 8, dtype=torch.bfloat16)
    model.position.again.weight = model.position.first.weight
    model.position.normed = weight_norm(nn.Linear(8, 8, dtype=torch.bfloat16))
    names = [name for group in packed_forms.group_matrices(model) for name in group]
    assert [name for name in names if "position" in name] == ["position.first.weight"]
    assert {*names} <= {*compiled.read_tensors(model)}


def test_more_rows_in_int8_are_not_read_as_words(words):
    model = quantize(random_model(n_layers=1))
    assert compiled.choose_groups(model, kernels.MAX_WORD_TOKENS + 1) == []


def quantize(model):
    """The model in int8."""
    weights = model.state_dict()
    to_int8(model)
    state = {}
    for name, weight in weights.items():
        state |= int8_tensors(model, name, weight)
    model.load_state_dict(state, assign=True)
    return model


def sin_qk_model(n_layers=1):
    """A model in which the hooks of the encoding give wq and wk other inputs than wv, and the
    matrix of the embeddings is packed and looked up."""
    model = random_model(n_layers=n_layers, position="sin_qk", tie_embeddings=True)
    with torch.no_grad():
        model.tok_embeddings.weight.mul_(10)  # logits reach 5
        for parameter in model.layers.parameters():
            if parameter.ndim > 1:
                parameter.mul_(7)
    return model.bfloat16()


def pack_small_matrices(patch):
    """Pack the weights for five rows even of a model as small as `sin_qk_model`."""
    patch.setattr(kernels, "MIN_PACKED_SIZE", 0)
    patch.setattr(kernels, "MIN_PACKED_SIZE_WITH_AMX", 0)


@pytest.fixture(scope="module")
def cache_of_sin_qk(tmp_path_factory) -> Path:
    """A cache with the package of `sin_qk_model` for five rows, whose texts are in texts.txt."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        pack_small_matrices(patch)
        patch.setenv("XDG_CACHE_HOME", str(folder))
        texts = draw_texts(sin_qk_model(), [4] * 5, True)
    (folder / "texts.txt").write_text(f"{texts}\n", encoding="utf-8")
    return folder


@pytest.fixture
def sin_qk_packages(cache_of_sin_qk, monkeypatch):
    """`cache_of_sin_qk` for this process. Returns a function that lists the packages in it."""
    pack_small_matrices(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_of_sin_qk))
    return lambda: list((cache_of_sin_qk / "gyre").iterdir())


CHILD = """import sys
import pytest
from test_compiled import draw_texts, pack_small_matrices, sin_qk_model
pack_small_matrices(pytest.MonkeyPatch())
print(draw_texts(sin_qk_model(), [4] * 5, True))
print(sorted({"torch._inductor", "torch._dynamo"} & {*sys.modules}))"""


@pytest.fixture(scope="module")
def printed_by_child(cache_of_sin_qk) -> list[str]:
    """The two lines of another process that uses this cache: its texts, and which packages of the
    compiler it has imported."""
    printed = run_python(CHILD, PYTHONPATH=os.pathsep.join(sys.path),
                         XDG_CACHE_HOME=str(cache_of_sin_qk))
    return printed.splitlines()


@pytest.mark.slow
def test_a_package_serves_other_processes(cache_of_sin_qk, printed_by_child):
    texts = (cache_of_sin_qk / "texts.txt").read_text(encoding="utf-8")
    assert printed_by_child[0] == texts.strip()


@pytest.mark.slow
def test_where_a_package_is_kept_no_compiler_is_imported(printed_by_child):
    assert printed_by_child[1] == "[]"


@torch.inference_mode()
def compute_logits(model, rows, compile, dtype=torch.bfloat16):
    """Logits of five tokens, with a cache in `dtype`.

    They reach 5, where neighbouring numbers of bfloat16 are 0.03 apart.
    """
    cache = KVCache(model.config, rows, 9, dtype=dtype)
    step = compile_step(model, cache) if compile else next_logits
    return [step(model, random_tokens(rows, 1, seed=seed), cache) for seed in range(5)]


@pytest.mark.slow
def test_the_table_of_an_encoding_is_an_input(sin_qk_packages):
    model = sin_qk_model()
    model.position.table.neg_()
    compiled_logits = compute_logits(model, 5, True)
    torch.testing.assert_close(compiled_logits, compute_logits(model, 5, False), rtol=0, atol=0.1)
    assert len(sin_qk_packages()) == 1


needs_bfloat16 = pytest.mark.skipif("AVX512" not in torch.backends.cpu.get_cpu_capability(),
                                    reason="no weights are packed in bfloat16 there")


@pytest.mark.slow
@needs_bfloat16
def test_packed_decoding_gives_the_logits_of_eager_decoding(sin_qk_packages):
    model = sin_qk_model()
    assert ["tok_embeddings.weight"] in compiled.choose_groups(model, 5)
    compiled_logits = compute_logits(model, 5, True)
    torch.testing.assert_close(compiled_logits, compute_logits(model, 5, False), rtol=0, atol=0.1)
    assert len(sin_qk_packages()) == 1


@pytest.mark.slow
def test_packed_decoding_in_float32_gives_the_texts_of_eager_decoding(kept):
    model = sharp_model(n_layers=1)
    with kernels.products_by_onednn(True):
        texts = draw_texts(model, [5] * kernels.MIN_ONEDNN_TOKENS, True)
        assert texts == draw_texts(model, [5] * kernels.MIN_ONEDNN_TOKENS, False)
    assert len(kept()) == 1


@torch.inference_mode()
def prefill_logits(model, length, compile):
    """Logits that follow a prompt of this length, in bfloat16. The cache has room for one more."""
    cache = KVCache(model.config, 1, length + 1, dtype=torch.bfloat16)
    step = compile_step(model, cache) if compile else next_logits
    return step(model, random_tokens(1, length, seed=length), cache)


@pytest.mark.slow
def test_compiled_prefill_in_bfloat16_gives_the_logits_of_eager_prefill(kept, monkeypatch):
    """One package for prompts of two lengths, whose attention is two products in the first layer.

    In the last layer only the last token has a query.
    """
    attend = Mock(wraps=packed_forms.attend_by_two_products)
    monkeypatch.setattr(packed_forms, "attend_by_two_products", attend)
    monkeypatch.setattr(kernels, "has_bfloat16", lambda: True)
    monkeypatch.setattr(compiled, "MIN_PREFILL", 10)
    model = sin_qk_model(n_layers=2)
    for length in (12, 23):
        torch.testing.assert_close(prefill_logits(model, length, True),
                                   prefill_logits(model, length, False), rtol=0, atol=0.1)
    assert attend.called
    assert len(kept()) == 1


# --- without packages: by torch.compile, as on a GPU and under autocast ---------------------------


@pytest.fixture
def graphs():
    """Forget all graphs of dynamo. Returns a function that counts those made since."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return count_graphs


def count_graphs() -> int:
    """Return how many graphs dynamo has made since its counters were cleared."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.fixture
def traced(monkeypatch):
    """Graphs run as they were traced: no kernels are compiled of them."""
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda step, dynamic, options:
                        compile(step, dynamic=dynamic, backend="eager"))


@pytest.mark.slow
def test_without_packages_the_graph_is_made_before_the_first_token(graphs, traced):
    with torch.autocast("cpu", torch.bfloat16):
        batch = make_batch(sharp_model(n_layers=1), [3], new=9)
        step = compile_batch(batch)
        assert graphs() == 1
        assert len(list(batch.draw(step))) == 9
    assert graphs() == 1


@pytest.fixture(scope="module")
def many_by_graphs():
    """Logits of many rows, eager and by graphs of torch.compile, and the number of these graphs."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = sharp_model(n_layers=1)
    with torch.autocast("cpu", torch.bfloat16):
        eager = compute_logits(model, MANY, False)
        by_graphs = compute_logits(model, MANY, True)
    return eager, by_graphs, count_graphs()


@pytest.mark.slow
def test_without_packages_graphs_give_the_logits_of_eager_steps(many_by_graphs):
    eager, by_graphs, _ = many_by_graphs
    torch.testing.assert_close(by_graphs, eager, rtol=0, atol=0.1)


@pytest.mark.slow
def test_without_packages_two_graphs_serve_an_empty_cache_and_others(many_by_graphs):
    _, _, n_graphs = many_by_graphs
    assert n_graphs == 2
