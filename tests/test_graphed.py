"""Decoding as a graph: the same step with positions in tensors, run here without a graph."""

import pytest
import torch
from builders import random_tokens, sharp_model

from gyre import graphed
from gyre.graphed import GraphedStep, can_graph, graph_batch
from model.config import RopeScaling
from model.encodings import POSITIONS
from model.generation import Batch, next_logits
from model.position import PositionEncoding
from model.sampling import Sampling
from model.transformer import KVCache

GREEDY = Sampling(temperature=0)
CAPACITY = 21
GRAPHED = ["rope", "sinusoidal", "learned", "alibi", "none", "rope_sinscale", "partial_25",
           "partial_10"]
ATTACHED = ["sin_qk", "sin_qk_first", "sin_qkv", "sin_residual", "learned_qk", "rope_first",
            "rope_nope", "sin_aligned", "sin_qk_aligned", "pope", "pope_nophase", "rope_sin_qk",
            "sin_qk_rope_last"]
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(graphed, "KEY_BLOCK", 8)


def filled_cache(model, tokens) -> KVCache:
    """A cache with these tokens; all that follows them is NaN, as memory may be."""
    cache = KVCache(model.config, len(tokens), CAPACITY)
    for x in cache.keys + cache.values:
        x.fill_(torch.nan)
    next_logits(model, tokens, cache)
    return cache


def decode_all(make, model, tokens, known) -> torch.Tensor:
    """The logits (B, T, V) after each token from number `known` on; the others are in the cache."""
    cache = filled_cache(model, tokens[:, :known])
    step = make(model, cache)
    logits = []
    for number in range(known, tokens.shape[1]):
        logits.append(step(model, tokens[:, number : number + 1], cache).clone())
    assert cache.length == tokens.shape[1]
    return torch.stack(logits, dim=1)


def plain(model, cache):
    return next_logits


def unrecorded(model, cache):
    return GraphedStep(model, cache, recorded=False)


@pytest.mark.parametrize("position", GRAPHED)
@torch.inference_mode()
def test_logits_are_those_of_the_plain_step_in_every_block(position):
    model = sharp_model(n_layers=2, position=position)
    tokens = random_tokens(2 * CAPACITY, seed=3).view(2, CAPACITY)
    expected = decode_all(plain, model, tokens, known=3)
    assert (decode_all(unrecorded, model, tokens, known=3) - expected).abs().max() < 1e-5


@torch.inference_mode()
def test_grouped_heads_and_a_bias_are_decoded_alike():
    model = sharp_model(n_layers=1, position="alibi", n_kv_heads=2)
    tokens = random_tokens(12, seed=3).view(1, 12)
    expected = decode_all(plain, model, tokens, known=2)
    assert (decode_all(unrecorded, model, tokens, known=2) - expected).abs().max() < 1e-5


class KeyBias(PositionEncoding):
    """A bias that is read from a table of `max_positions` numbers."""

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.linspace(0, 1, config.max_positions)

    def bias(self, q_positions, k_positions):
        return self.table[k_positions].expand(1, len(q_positions), -1)


DYNAMIC = {"rope_scaling": RopeScaling("dynamic", 4.0, 12), "max_positions": 40}


@pytest.mark.parametrize("options", [DYNAMIC, {"position": "key_bias", "max_positions": 12}],
                         ids=["dynamic", "bias"])
@torch.inference_mode()
def test_a_cache_with_more_room_than_a_text_changes_nothing(monkeypatch, options):
    """Rotations are scaled in texts of more than 12 tokens, and there is no bias past them."""
    monkeypatch.setitem(POSITIONS, "key_bias", KeyBias)
    model = sharp_model(n_layers=1, **options)
    tokens = random_tokens(12, seed=3).view(1, 12)
    expected = decode_all(plain, model, tokens, known=2)
    assert (decode_all(unrecorded, model, tokens, known=2) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("options, message", [
    (DYNAMIC, "past 12 tokens"), ({"max_positions": 12}, "longer than the context")],
    ids=["dynamic", "plain"])
@torch.inference_mode()
def test_what_a_larger_cache_could_hold_is_an_error(options, message):
    model = sharp_model(n_layers=1, **options)
    tokens = random_tokens(12).view(1, -1)
    step = GraphedStep(model, filled_cache(model, tokens), recorded=False)
    with pytest.raises(ValueError, match=message):
        step(model, tokens[:, :1], step.cache)


@torch.inference_mode()
def test_in_bfloat16_logits_are_those_of_the_plain_step():
    model = sharp_model(n_layers=1).bfloat16()
    tokens = random_tokens(12, seed=3).view(1, 12)
    logits = []
    for make in (plain, unrecorded):
        cache = KVCache(model.config, 1, CAPACITY, dtype=torch.bfloat16)
        next_logits(model, tokens, cache)
        logits.append(make(model, cache)(model, tokens[:, :1], cache).clone())
    assert (logits[1] - logits[0]).abs().max() < 0.02 * logits[0].abs().max()


def test_texts_of_prompts_of_different_lengths_are_the_same():
    model = sharp_model(n_layers=2)
    prompts = [random_tokens(9, seed=1).tolist(), random_tokens(4, seed=2).tolist()]
    texts = []
    for make in (plain, unrecorded):
        batch = Batch(model, prompts, GREEDY, max_new_tokens=12, num_samples=2)
        for _ in batch.draw(make(model, batch.cache)):
            pass
        texts.append(batch.new_tokens())
    assert texts[0] == texts[1]


@torch.inference_mode()
def test_there_is_a_block_for_every_eight_keys_and_the_last_is_shorter():
    model = sharp_model(n_layers=1)
    tokens = random_tokens(CAPACITY).view(1, -1)
    cache = filled_cache(model, tokens[:, :7])
    step = GraphedStep(model, cache, recorded=False)
    for number in range(7, CAPACITY):
        step(model, tokens[:, number : number + 1], cache)
    assert list(step.blocks) == [8, 16, 21]


@torch.inference_mode()
def test_a_step_that_was_filled_and_not_run_is_filled_anew():
    """As recording does: it fills a step, and a text may begin one token later."""
    model = sharp_model(n_layers=1)
    tokens = random_tokens(7).view(1, -1)
    step = GraphedStep(model, filled_cache(model, tokens[:, :4]), recorded=False)
    block = step.find_block(4)
    block.fill(tokens[:, :1], 4)
    block.fill(tokens[:, :1], 5)
    assert block.position.tolist() == [5]
    block.run()
    assert block.position.tolist() == [6]
    assert block.known_position == 6


@torch.inference_mode()
def test_a_full_cache_is_an_error():
    model = sharp_model(n_layers=1)
    tokens = random_tokens(CAPACITY).view(1, -1)
    cache = filled_cache(model, tokens)
    step = GraphedStep(model, cache, recorded=False)
    with pytest.raises(ValueError, match="do not fit into a cache"):
        step(model, tokens[:, :1], cache)


@pytest.mark.parametrize("position", GRAPHED)
def test_encodings_that_leave_the_layers_alone_are_recorded(position):
    assert can_graph(sharp_model(n_layers=1, position=position), CUDA)


@pytest.mark.parametrize("position", ATTACHED)
def test_encodings_that_change_the_layers_are_not_recorded(position):
    assert not can_graph(sharp_model(n_layers=1, position=position), CUDA)


def test_on_a_cpu_nothing_is_recorded():
    model = sharp_model(n_layers=1)
    batch = Batch(model, [[1]], GREEDY, max_new_tokens=2)
    assert graph_batch(batch) is next_logits


# --- the next text --------------------------------------------------------------------------------


def keep_step(model, new) -> tuple[Batch, GraphedStep]:
    """A batch that has been drawn, and its step."""
    batch = Batch(model, [[1, 2, 3]], GREEDY, max_new_tokens=new)
    assert batch.cache is not None
    step = GraphedStep(model, batch.cache, recorded=False)
    list(batch.draw(step))
    return batch, step


@pytest.fixture
def on_cuda(monkeypatch):
    monkeypatch.setattr(graphed, "can_graph", lambda model, device: True)


def test_the_next_text_of_this_size_uses_what_was_recorded(on_cuda):
    model = sharp_model(n_layers=2)
    _, step = keep_step(model, new=12)
    batch = Batch(model, [[7, 5]], GREEDY, max_new_tokens=13)
    assert graph_batch(batch, previous=step) is step
    blocks = dict(step.blocks)
    list(batch.draw(step))
    assert step.blocks == blocks
    expected = Batch(model, [[7, 5]], GREEDY, max_new_tokens=13)
    list(expected.draw())
    assert batch.new_tokens() == expected.new_tokens()


def test_a_next_text_of_one_token_begins_with_an_empty_cache(on_cuda):
    model = sharp_model(n_layers=2)
    _, step = keep_step(model, new=12)
    batch = Batch(model, [random_tokens(14).tolist()], GREEDY, max_new_tokens=1)
    list(batch.draw(graph_batch(batch, previous=step)))
    expected = Batch(model, [random_tokens(14).tolist()], GREEDY, max_new_tokens=1)
    list(expected.draw())
    assert batch.new_tokens() == expected.new_tokens()


@torch.inference_mode()
def test_nan_that_a_broken_text_has_left_breaks_no_later_one(on_cuda):
    model = sharp_model(n_layers=2)
    first, step = keep_step(model, new=12)
    for x in first.cache.keys + first.cache.values:
        x[:, :, 4:] = torch.nan
    batch = Batch(model, [[7, 5]], GREEDY, max_new_tokens=13)
    list(batch.draw(graph_batch(batch, previous=step)))
    expected = Batch(model, [[7, 5]], GREEDY, max_new_tokens=13)
    list(expected.draw())
    assert batch.new_tokens() == expected.new_tokens()


@pytest.mark.parametrize("change", ["model", "size", "rows", "compiled"])
def test_another_model_size_or_number_of_rows_is_recorded_anew(change, on_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch, "compile", lambda function: function)  # imports take a second
    model = sharp_model(n_layers=1)
    _, step = keep_step(model, new=12)
    other = sharp_model(n_layers=1) if change == "model" else model
    batch = Batch(other, [[1, 2, 3]], GREEDY, max_new_tokens=13 if change == "size" else 12,
                  num_samples=2 if change == "rows" else 1)
    fresh = graph_batch(batch, previous=step, compiled=change == "compiled")
    assert fresh is not step
    assert fresh.cache is batch.cache


def test_a_token_that_cannot_be_recorded_is_computed_as_it_is(monkeypatch, capsys):
    def record(block, pool):
        block.compute()  # which moves the position on
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "a pool")
    monkeypatch.setattr(graphed.DecodingBlock, "record", record)
    model = sharp_model(n_layers=1)
    batch = Batch(model, [[1, 2, 3]], GREEDY, max_new_tokens=12)
    list(batch.draw(GraphedStep(model, batch.cache)))
    expected = Batch(model, [[1, 2, 3]], GREEDY, max_new_tokens=12)
    list(expected.draw())
    assert batch.new_tokens() == expected.new_tokens()
    assert capsys.readouterr().err == (
        "note: no CUDA graph can be recorded of a token, which is then computed as it is, and more "
        "slowly (operation not permitted when stream is capturing)\n")


@pytest.mark.slow
@torch.inference_mode()
def test_layers_of_all_lengths_are_compiled_once():
    """And once more where a cache has no more keys than are read."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = sharp_model(n_layers=3)
    tokens = random_tokens(CAPACITY, seed=3).view(1, -1)
    cache = filled_cache(model, tokens[:, :3])
    step = GraphedStep(model, cache, compiled=True, recorded=False)
    for number in range(3, CAPACITY):
        step(model, tokens[:, number : number + 1], cache)
    assert len(step.blocks) == 3
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3  # with the output


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("position, n_kv_heads", [
    ("rope", 6), ("rope", 2), ("alibi", 6), ("alibi", 2), ("sinusoidal", 6)])
def test_recorded_graphs_draw_the_texts_of_the_plain_step(position, n_kv_heads, compiled):
    """One row, which is computed by sums, and six, which are not; blocks of 8 keys."""
    model = sharp_model(n_layers=2, position=position, n_kv_heads=n_kv_heads).cuda()
    prompts = [random_tokens(5, seed=1).tolist(), random_tokens(3, seed=2).tolist()]
    for part, samples in ((prompts[:1], 1), (prompts, 3)):
        options = {"max_new_tokens": 20, "num_samples": samples, "seed": 3}
        expected = Batch(model, part, Sampling(), **options)
        list(expected.draw())
        batch = Batch(model, part, Sampling(), **options)
        step = graph_batch(batch, compiled=compiled)
        list(batch.draw(step))
        assert isinstance(step, GraphedStep)
        assert step.blocks
        assert batch.new_tokens() == expected.new_tokens()
