"""Compiled decoding equals eager decoding, and what is compiled is kept, checked and used again."""

import os
import sys
from unittest.mock import Mock

import pytest
import torch
from conftest import output, random_tokens, sharpened
from test_int8 import quantized

from model import compiled, int8, kernels
from model.compiled import compile_step
from model.generation import generate, next_logits
from model.sampling import Sampling
from model.transformer import KVCache

MANY = kernels.MAX_SUMMED_TOKENS + 1


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The packages that there are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lambda: list((tmp_path / "gyre").glob("*"))


def texts(model, lengths, compile, samples=1):
    """Prompts of these lengths, continued."""
    prompts = [random_tokens(length, seed=seed).tolist() for seed, length in enumerate(lengths)]
    return generate(model, prompts, Sampling(temperature=0), max_new_tokens=12, compile=compile,
                    num_samples=samples)


@pytest.mark.slow
def test_a_package_serves_all_lengths_and_all_numbers_of_many_rows(kept, monkeypatch):
    monkeypatch.setattr(kernels, "LONGEST_SUM", 40)
    monkeypatch.setattr(compiled, "MIN_PREFILL", 10)
    model, counts, many = sharpened(n_layers=1), [], [5] * MANY
    # Eager: the rest of the prompt of 27, and five prompts whose samples share a cache. Then
    # prefill, with decoding for more than 40 keys, the same, and prefill of more than 40.
    for lengths in [5], [1], [4] * 6, many, [*many, 27], [12] * 5, [9], [37], [31], [41]:
        samples = 2 if len(lengths) == 5 else 1
        assert texts(model, lengths, True, samples) == texts(model, lengths, False, samples)
        counts.append(len(kept()))
    assert counts == [1, 1, 2, 3, 3, 3, 3, 5, 5, 6]


@pytest.mark.parametrize("new, samples, opened", [
    (12, 1, [(1, 5, 5), (1, 1, 6), (1, 1, 16)]), (12, 2, [(1, 5, 5), (2, 1, 6), (2, 1, 16)]),
    (3, 1, [(1, 5, 5), (1, 1, 6)]), (1, 1, [(1, 5, 5)])])
def test_what_a_text_needs_is_opened_before_its_first_token(
        new, samples, opened, monkeypatch):
    """Rows, tokens and keys of each package: prefill, and decoding on both sides of 10 keys."""
    monkeypatch.setattr(kernels, "LONGEST_SUM", 10)
    monkeypatch.setattr(compiled, "MIN_PREFILL", 4)
    monkeypatch.setattr(compiled, "open_package", lambda model, cache, inputs: events.append(
        (*inputs[1].shape, len(inputs[2]))))
    events = []
    generate(sharpened(n_layers=1), [[1, 2, 3, 4, 5]], Sampling(), max_new_tokens=new,
             num_samples=samples, compile=True, on_start=lambda: events.append("start"),
             on_token=lambda row, token: events.append("token"))
    assert events == [*opened, "start", *["token"] * (new * samples)]


def test_a_model_in_training_is_compiled_as_it_generates(monkeypatch):
    modes = []
    model = sharpened(n_layers=1).train()
    monkeypatch.setattr(compiled, "open_package",
                        lambda model, cache, inputs: modes.append(model.training))
    generate(model, [[1, 2, 3]], Sampling(), max_new_tokens=3, compile=True)
    assert modes == [False] and model.training


@pytest.mark.slow
def test_in_int8_few_rows_round_the_weights_only_and_more_rows_the_inputs_too(kept, monkeypatch):
    monkeypatch.setattr(int8, "MAX_FLOAT_TOKENS", 4)  # on any processor
    model, rounded = quantized(sharpened(n_layers=1)), sharpened(n_layers=1)
    state = model.state_dict()
    for name, weight in rounded.state_dict().items():
        scale = state.get(name.replace("weight", "scale"))
        weight.copy_(state[name] if scale is None else state[name] * scale[:, None])
    for lengths, reference in (([1] * 3, rounded), ([1] * 5, model)):
        assert texts(model, lengths, True) == texts(reference, lengths, False)


def logits(model, rows, compile):
    """Those of five tokens, in bfloat16: they reach 3, which it rounds to 0.02."""
    with torch.inference_mode():
        cache = KVCache(model.config, rows, 9, dtype=torch.bfloat16)
        step = compile_step(next_logits, model, cache) if compile else next_logits
        return [step(model, random_tokens(rows, 1, seed=seed), cache) for seed in range(5)]


CHILD = """from test_compiled import sharpened, sys, texts
print(texts(sharpened(n_layers=1, position="sin_qk").bfloat16(), [4], True))
assert not {"torch._inductor", "torch._dynamo"} & {*sys.modules}"""


@pytest.mark.slow
def test_a_package_serves_other_processes_and_weights_and_is_made_again_if_damaged(kept):
    model = sharpened(n_layers=1, position="sin_qk").bfloat16()
    expected = texts(model, [4], True)
    (package,) = kept()
    whole = package.read_bytes()
    assert output(CHILD, PYTHONPATH=os.pathsep.join(sys.path)) == f"{expected}\n"
    package.write_bytes(whole[:9999] + bytes([whole[9999] ^ 1]) + whole[10000:])
    compiled.OPENED.clear()
    assert not compiled.is_whole(package) and texts(model, [4], True) == expected
    assert compiled.is_whole(package)
    model.position.table.neg_()  # a table is an input too, as weights are
    torch.testing.assert_close(logits(model, 1, True), logits(model, 1, False), rtol=0, atol=0.1)


def test_a_package_has_the_name_of_all_it_depends_on_and_without_one_decoding_is_eager(
        kept, monkeypatch, capsys):
    def name(model, rows=1):
        assert texts(model, [5] * rows, True) == texts(model, [5] * rows, False)
        *_, said, note = capsys.readouterr().err.splitlines()
        assert note == "note: decoding is eager, because compiling it failed: broken"
        return said.rpartition("/")[2]

    monkeypatch.setattr(compiled, "make_package", Mock(side_effect=RuntimeError("broken\nin two")))
    model = sharpened(n_layers=1)
    names = [name(model), name(model, MANY), name(model, 2), name(sharpened(n_layers=2)),
             name(sharpened(n_layers=1).bfloat16()), name(sharpened(n_layers=1, theta=500.0))]
    texts(model, [9], True), texts(model, [5] * (MANY + 9), True)
    assert capsys.readouterr().err == ""  # of the same names; and what fails is tried once
    for owner, key, value in (
        (kernels, "LONGEST_SUM", 4), (kernels, "_uses_onednn", True), (torch, "__version__", "2"),
        (torch, "get_num_threads", lambda: 99), (torch.cpu, "get_capabilities", dict),
        (compiled.Path, "read_bytes", lambda path: path.name.encode())):  # another code
        with monkeypatch.context() as patch:
            patch.setattr(owner, key, value)
            names.append(name(model))
    assert len({*names}) == len(names) and kept() == []


@pytest.mark.slow
def test_elsewhere_the_graph_is_made_before_the_first_token():
    """As on a GPU, under autocast."""
    graphs = []
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    stats = torch._dynamo.utils.counters["stats"]
    model = sharpened(n_layers=1)
    with torch.autocast("cpu", torch.bfloat16):
        generate(model, [[1, 2, 3]], Sampling(), max_new_tokens=9, compile=True,
                 on_start=lambda: graphs.append(stats["unique_graphs"]))
    assert (graphs, stats["unique_graphs"]) == ([1], 1)


@pytest.mark.slow
def test_elsewhere_one_graph_serves_an_empty_cache_and_one_all_other_lengths():
    """As on a GPU, under autocast."""
    model = sharpened(n_layers=1)
    torch._dynamo.reset(), torch._dynamo.utils.counters.clear()
    with torch.autocast("cpu", torch.bfloat16):
        eager, graphs = logits(model, MANY, False), logits(model, MANY, True)
        torch.testing.assert_close(graphs, eager, rtol=0, atol=0.1)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
