"""Cached = uncached, sampling = brute force, and every row = the same prompt alone.

Sizes are all different, so that no transpose or mix-up of two dimensions can pass.
"""

import dataclasses
import math

import pytest
import torch

from model.cache import KVCache
from model.config import ModelConfig, RopeScaling
from model.generation import compiled_next_logits, compute_dtype, generate, next_logits
from model.kernels import LONGEST_SUM, MAX_SUMMED_TOKENS, PARTS
from model.position import POSITIONS
from model.sampling import FIRST_CANDIDATES, Sampling, nucleus, sample, uniform
from model.transformer import Transformer, attend

T, H, D, V, LIMIT = 13, 6, 8, 97, 80
GREEDY = Sampling(temperature=0)


def build(position="rope", n_kv_heads=2, limit=LIMIT, **changes):
    config = ModelConfig(
        dim=40, n_layers=3, n_heads=H, n_kv_heads=n_kv_heads, head_dim=D, hidden_dim=56,
        vocab_size=V, max_positions=limit, position=position, tie_embeddings=False, **changes,
    )  # fmt: skip
    model = Transformer(config).eval()
    model.init_weights(seed=4)
    with torch.no_grad():
        # Far from the initial weights, with which attention is flat and a wrong key hardly shows.
        for parameter in model.layers.parameters():
            if parameter.ndim > 1:
                parameter.mul_(7)
        model.output.weight.mul_(8)
    return model


def tokens(*shape, seed=0):
    return torch.randint(0, V, shape, generator=torch.Generator().manual_seed(seed))


def prompt(length, seed=0):
    return tokens(length, seed=seed).tolist()


def splits(total):
    """Every split in two, and chunks of 1, 3, 7 and everything."""
    for first in range(1, total):
        yield [first, total - first]
    for size in (1, 3, 7, total):
        yield [min(size, total - start) for start in range(0, total, size)]


def graphs():
    """How many were compiled since this was last asked."""
    count = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch._dynamo.utils.counters.clear()
    return count


@pytest.mark.parametrize("rows", [1, 3, MAX_SUMMED_TOKENS + 1])
@pytest.mark.parametrize("narrow", [False, True], ids=["float32", "autocast"])
def test_compiled_decoding_equals_eager_and_compiles_twice(rows, narrow):
    """Once for an empty cache and once for all other lengths, however many tokens are drawn."""
    model = build()
    compiled = compiled_next_logits("cpu")
    torch._dynamo.reset(), graphs()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        caches = [KVCache(model.config, rows, LIMIT, dtype=compute_dtype(model)) for _ in "ab"]
        fed = tokens(rows, 1)
        for _ in range(40):
            expected = next_logits(model, fed, caches[0])
            got = compiled(model, fed, caches[1])
            # logits reach 3 and bfloat16 rounds that to 0.02
            torch.testing.assert_close(got, expected, rtol=0, atol=0.1 if narrow else 1e-4)
            fed = expected.argmax(-1, keepdim=True)
    assert caches[1].length == 40
    assert graphs() == 2


def test_compiled_decoding_equals_eager_in_long_texts_and_compiles_once_more():
    """Beyond LONGEST_SUM keys it is another sum. The call that fills the cache, which `generate`
    never makes, compiles too, and is right."""
    long = LONGEST_SUM + 3 * PARTS
    model = build(limit=long + 1)
    compiled = compiled_next_logits("cpu")
    torch._dynamo.reset(), graphs()
    counts = []
    with torch.inference_mode():
        caches = [KVCache(model.config, 1, long) for _ in "ab"]
        for cache in caches:
            next_logits(model, tokens(1, LONGEST_SUM - 5), cache)
        while caches[1].length < long:
            fed = tokens(1, 1, seed=caches[1].length)
            expected = next_logits(model, fed, caches[0])
            got = compiled(model, fed, caches[1])
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)
            counts.append(graphs())
    assert [i for i, n in enumerate(counts[:-1]) if n] == [0, 5]


def test_the_likeliest_token_needs_no_random_number(monkeypatch):
    model = build()
    expected = generate(model, [prompt(3)], GREEDY, max_new_tokens=5)
    monkeypatch.setattr("model.generation.uniform", None)
    assert generate(model, [prompt(3)], GREEDY, max_new_tokens=5) == expected


def test_generation_compiles_once_whatever_is_asked_of_it():
    """Rows that start, and go on, at other places than those before them are no new case, nor is
    their number, once it is past what sums are made for."""
    model = build()
    torch._dynamo.reset(), graphs()
    counts = []
    many = [5] * (MAX_SUMMED_TOKENS + 1)
    for prompts in ([5], [2], [5, 5, 5], [3, 9, 6], many, [*many, 6]):
        prompts = [prompt(length, seed) for seed, length in enumerate(prompts)]
        eager, compiled = (
            generate(model, prompts, GREEDY, max_new_tokens=30, compile=c) for c in (False, True)
        )
        assert eager == compiled
        counts.append(graphs())
    assert counts == [1, 0, 1, 0, 1, 0]
    with pytest.raises(ValueError, match="needs the cache"):
        generate(model, [[1]], GREEDY, max_new_tokens=1, compile=True, use_cache=False)


# --- cache ----------------------------------------------------------------------------------------


SCALED = {
    type: {"rope_scaling": RopeScaling(type, 4, original_positions=5)}  # 5 of T = 13
    for type in ("linear", "ntk", "yarn", "llama3")
}


@pytest.mark.parametrize(
    ("position", "n_kv_heads", "changes"),
    [(position, heads, {}) for position in POSITIONS for heads in (1, 2, H)]
    + [pytest.param("rope", 2, changes, id=f"rope-{name}") for name, changes in SCALED.items()],
)
@torch.inference_mode()
def test_cached_logits_equal_uncached_at_every_split(position, n_kv_heads, changes):
    model = build(position, n_kv_heads, **changes)
    for batch in (1, 3):
        ids = tokens(batch, T)
        whole = model(ids)
        for chunks in splits(T):
            cache = KVCache(model.config, batch, T)
            parts = [model(part, cache) for part in ids.split(chunks, dim=1)]
            assert (torch.cat(parts, 1) - whole).abs().max() <= 1e-5, chunks
            assert cache.length == T


@torch.inference_mode()
def test_dynamic_scaling_uses_a_cache_as_long_as_it_is_right():
    """Past the trained length the keys in it were turned by other frequencies."""
    model = build(rope_scaling=RopeScaling("dynamic", 4, original_positions=9))
    ids = tokens(3, T)
    whole = model(ids[:, :9])
    for chunks in splits(9):
        cache = KVCache(model.config, 3, T)
        parts = [model(part, cache) for part in ids[:, :9].split(chunks, dim=1)]
        assert (torch.cat(parts, 1) - whole).abs().max() <= 1e-5, chunks
    for held, more in ((9, 1), (0, 10), (4, 9)):
        cache = KVCache(model.config, 3, T)
        if held:
            model(ids[:, :held], cache)
        with pytest.raises(
            ValueError, match="past 9, from where .* turns all keys anew .* without"
        ):
            model(ids[:, held : held + more], cache)
        assert cache.length == held
    # What the refusal prevents: with the check off, the logits are others.
    cache = KVCache(model.config, 3, T)
    model(ids[:, :9], cache)
    model.position.table = model.position.at(0, T)
    model.position.cache_limit = math.inf
    assert (model(ids[:, 9:], cache)[:, -1] - model(ids)[:, -1]).abs().max() > 0.01


@torch.inference_mode()
def test_dynamic_scaling_generates_without_a_cache():
    model = build(rope_scaling=RopeScaling("dynamic", 4, original_positions=9))
    ids = prompt(7)
    new = generate(model, [ids], GREEDY, max_new_tokens=9, use_cache=False)[0]
    for i, token in enumerate(new):
        assert model(torch.tensor([ids + new[:i]]))[0, -1].argmax() == token


def test_a_cache_says_itself_where_it_stands():
    model = build()
    with pytest.raises(ValueError, match="offset 3: .* a cache says itself where"):
        model(tokens(1, 4), KVCache(model.config, 1, T), offset=3)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1, top_p=0.95)])
def test_the_cache_changes_no_token(position, sampling):
    model = build(position)
    texts = [
        generate(model, [prompt(7)], sampling, max_new_tokens=64, seed=5, use_cache=use_cache)
        for use_cache in (True, False)
    ]
    assert texts[0] == texts[1]
    assert len(texts[0][0]) == 64 and len(set(texts[0][0])) > 5  # not one token for ever


@pytest.mark.parametrize("n_kv_heads", [1, 2, H])
@pytest.mark.parametrize("new", [1, 3, T])
def test_attention_is_aligned_at_the_lower_right(n_kv_heads, new):
    """A query at position i sees the keys 0 .. i, in explicit loops."""
    model = build("none", n_kv_heads)
    draw = torch.Generator().manual_seed(0)
    xq = torch.randn(2, H, new, D, generator=draw)
    xk, xv = (torch.randn(2, n_kv_heads, T, D, generator=draw) for _ in range(2))
    mask = model._mask(T - new, T, xq.device)
    out = attend(xq, xk, xv, mask)
    for head in range(H):
        group = head // (H // n_kv_heads)
        for i in range(new):
            seen = T - new + i + 1
            keys, values = xk[:, group, :seen], xv[:, group, :seen]
            weights = (keys @ xq[:, head, i, :, None] / math.sqrt(D)).softmax(1)
            assert (out[:, head, i] - (weights * values).sum(1)).abs().max() < 1e-5


def test_the_cache_keeps_kv_heads_only_and_returns_what_was_written():
    config = build(n_kv_heads=2).config
    cache = KVCache(config, 3, T)
    assert cache.keys[0].shape == (3, 2, T, D)
    first, second = torch.randn(2, 3, 2, 5, D), torch.randn(2, 3, 2, 4, D)
    cache.update(1, *first)
    cache.length = 5
    keys, values = cache.update(1, *second)
    assert torch.equal(keys, torch.cat((first[0], second[0]), 2))
    assert torch.equal(values, torch.cat((first[1], second[1]), 2))
    assert keys[0, 0].is_contiguous()


def test_a_full_cache_refuses_before_it_writes():
    model = build()
    cache = KVCache(model.config, 2, 9)
    with torch.inference_mode():
        model(tokens(2, 7), cache)
        before = [x.clone() for x in (*cache.keys, *cache.values)]
        with pytest.raises(ValueError, match=r"7 \+ 3 tokens, room for 9"):
            model(tokens(2, 3), cache)
    assert cache.length == 7
    for x, y in zip((*cache.keys, *cache.values), before, strict=True):
        assert torch.equal(x[:, :, :7], y[:, :, :7])


def test_the_cache_refuses_another_batch_or_dtype():
    cache = KVCache(build().config, 3, T)
    for wrong in (torch.zeros(1, 2, 4, D), torch.zeros(3, 2, 4, D, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match="the cache holds 3 rows of torch.float32"):
            cache.update(0, wrong, wrong)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("autocast", [False, True])
@torch.inference_mode()
def test_bfloat16_is_cached_as_such(position, autocast):
    """Cached and uncached differ by bfloat16's rounding (8 bits), not by more."""
    model = build(position)
    if not autocast:
        model.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        ids = tokens(3, T)
        whole = model(ids)
        cache = KVCache(model.config, 3, T, dtype=compute_dtype(model))
        parts = [model(part, cache) for part in ids.split(5, dim=1)]
        assert cache.keys[0].dtype == torch.bfloat16
        new = generate(model, [prompt(7)], GREEDY, max_new_tokens=9)
    scale = whole.float().abs().max()
    assert (torch.cat(parts, 1) - whole).float().abs().max() <= 0.03 * scale
    assert len(new[0]) == 9


# --- sampling -------------------------------------------------------------------------------------


def mass(logits, sampling, seen=()):
    """The distribution that `sample` should draw from, one row, written out in plain Python."""
    scores = [float(x) for x in logits]
    for i in seen:
        penalty = sampling.repetition_penalty
        scores[i] = scores[i] / penalty if scores[i] > 0 else scores[i] * penalty
    weights = [math.exp((x - max(scores)) / sampling.temperature) for x in scores]
    ranked = sorted(range(len(scores)), key=lambda i: -weights[i])
    if sampling.top_k is not None:
        ranked = ranked[: sampling.top_k]
    if sampling.top_p is not None:
        total, reached, kept = sum(weights[i] for i in ranked), 0.0, []
        for i in ranked:
            if reached >= sampling.top_p * total:
                break
            kept.append(i)
            reached += weights[i]
        ranked = kept
    if sampling.min_p is not None:
        ranked = [i for i in ranked if weights[i] >= sampling.min_p * max(weights)]
    total = sum(weights[i] for i in ranked)
    return [weights[i] / total if i in ranked else 0.0 for i in range(len(scores))]


def drawn_mass(logits, sampling, seen=None, draws=4000):
    """The distribution that `sample` does draw from: one row per point of a grid over [0, 1)."""
    grid = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    seen = torch.zeros_like(logits, dtype=torch.bool) if seen is None else seen
    ids = sample(logits.expand(draws, -1), sampling, grid, seen.expand(draws, -1))
    return torch.bincount(ids, minlength=len(logits)) / draws


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.3),
        Sampling(temperature=7.0),
        Sampling(temperature=1.0, top_k=1),
        Sampling(temperature=1.3, top_k=5),
        Sampling(temperature=1.0, top_k=1000),
        Sampling(temperature=1.0, top_p=1e-9),
        Sampling(temperature=1.0, top_p=0.5),
        Sampling(temperature=2.0, top_p=0.93),
        Sampling(temperature=1.0, top_p=1.0),
        Sampling(temperature=1.0, min_p=0.0),
        Sampling(temperature=1.0, min_p=0.2),
        Sampling(temperature=1.0, min_p=1.0),
        Sampling(temperature=1.0, repetition_penalty=1.7),
        Sampling(temperature=0.9, top_k=9, top_p=0.8, min_p=0.1, repetition_penalty=1.2),
    ],
    ids=str,
)
def test_sample_draws_from_the_brute_force_distribution(sampling):
    for seed in range(3):
        logits = 2 * torch.randn(23, generator=torch.Generator().manual_seed(seed))
        seen = torch.zeros(23, dtype=torch.bool)
        seen[[1, 4, 19]] = True
        drawn = drawn_mass(logits, sampling, seen)
        expected = torch.tensor(mass(logits, sampling, [1, 4, 19]))
        # A grid of n points misses each of the two borders of a token by at most 1/n.
        assert (drawn - expected).abs().max() <= 2 / 4000 + 1e-6
        assert not drawn[expected == 0].any()


def test_ties_do_not_add_candidates():
    logits = torch.tensor([1.0, 3.0, 3.0, 3.0, 3.0, 0.0])
    assert (drawn_mass(logits, Sampling(1.0, top_k=2)) > 0).sum() == 2
    # Four tokens of about 0.24: two of them do not reach a half, three do.
    assert (drawn_mass(logits, Sampling(1.0, top_p=0.5)) > 0).sum() == 3
    assert (drawn_mass(torch.zeros(4), Sampling(1.0, top_p=0.5)) > 0).sum() == 2


@pytest.mark.parametrize("p", [1e-300, 0.3, 0.9, 0.999, 1 - 1e-9])
def test_nucleus_is_the_head_of_a_stable_sort(p):
    """Sharp rows and flat ones, with ties within and across the candidates that are looked at."""
    size = 9 * FIRST_CANDIDATES  # so that some are enough, eight times as many, and only all
    draw = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    few = torch.full((size,), -math.inf).index_fill(0, torch.tensor([3, 4, 2000]), 0)
    rows = [9 * draw, draw, draw.round(), torch.zeros(size), few]
    masses = torch.stack([row.double().softmax(-1) for row in rows])
    for some in (masses, masses[:1], masses[-1:]):  # with rows that need more candidates and not
        ranked, order = some.sort(descending=True, stable=True)
        head = ranked.cumsum(-1) - ranked < p
        assert torch.equal(nucleus(some, p), torch.empty_like(head).scatter(-1, order, head))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=5e-324),
        Sampling(temperature=1e300),
        Sampling(temperature=1e-9, top_p=1e-300),
        Sampling(temperature=1e300, top_p=1e-300, min_p=1.0),
        Sampling(temperature=1.0, repetition_penalty=100),
        Sampling(temperature=0, repetition_penalty=0.01),
    ],
    ids=str,
)
@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
def test_extreme_values_draw_a_token(sampling, u):
    rows = torch.tensor(
        [
            [3e38, -3e38, 0.0, 1e-45],
            [-3e38, -3e38, -3e38, -3e38],
            [0.0, -math.inf, -math.inf, -math.inf],
            [0.0, 0.0, 0.0, 0.0],
        ]
    )
    seen = torch.tensor([True, False, True, True]).expand(4, -1)
    ids = sample(rows, sampling, torch.full((4,), u, dtype=torch.float64), seen)
    assert ((ids >= 0) & (ids < 4)).all()
    assert ids[2] == 0  # never a token without mass


def test_a_token_without_mass_is_not_drawn_at_the_borders():
    logits = torch.tensor([-math.inf, 0.0, -math.inf, -math.inf, 0.0, -math.inf])
    uniforms = torch.tensor([0.0, 0.5 - 2**-53, 0.5, 1 - 2**-53], dtype=torch.float64)
    none = torch.zeros(4, 6, dtype=torch.bool)
    assert sample(logits.expand(4, -1), Sampling(1.0), uniforms, none).tolist() == [1, 1, 4, 4]


def test_temperature_0_is_argmax_and_the_limit_of_small_temperatures():
    logits = torch.randn(5, V, generator=torch.Generator().manual_seed(1))
    none = torch.zeros(5, V, dtype=torch.bool)
    for u in (0.0, 0.7):
        uniforms = torch.full((5,), u, dtype=torch.float64)
        for temperature in (0, 1e-6):
            ids = sample(logits, Sampling(temperature), uniforms, none)
            assert torch.equal(ids, logits.argmax(-1))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_broken_logits_are_an_error_and_not_a_token(broken):
    logits = torch.zeros(2, V)
    logits[1] = broken
    with pytest.raises(ValueError, match="not finite"):
        sample(logits, GREEDY, torch.zeros(2), torch.zeros(2, V, dtype=torch.bool))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": -0.1}, "temperature must be 0 or a positive number, not -0.1"),
        ({"temperature": math.nan}, "temperature .* nan"),
        ({"temperature": math.inf}, "temperature .* inf"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], not 0.0"),
        ({"top_p": 1.1}, "top_p .* 1.1"),
        ({"top_p": math.nan}, "top_p .* nan"),
        ({"min_p": -0.1}, r"min_p must be in \[0, 1\], not -0.1"),
        ({"min_p": 1.1}, "min_p .* 1.1"),
        ({"repetition_penalty": 0.0}, r"repetition_penalty must be in \[0.01, 100\], not 0.0"),
        ({"temperature": 0, "top_k": 3}, "top_k has no effect at temperature 0"),
        ({"temperature": 0, "top_p": 0.9}, "top_p has no effect at temperature 0"),
    ],
)
def test_sampling_refuses_values_without_a_meaning(changes, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(Sampling(), **changes)


def test_uniform_numbers_are_a_function_of_their_address():
    addresses = [(seed, s, n) for seed in range(3) for s in range(3) for n in range(300)]
    numbers = torch.tensor([uniform(*address) for address in addresses], dtype=torch.float64)
    assert len(set(numbers.tolist())) == len(addresses)
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert (numbers.histc(9, 0, 1) / len(numbers) - 1 / 9).abs().max() < 0.03
    # Written down: a seed means the same text on every machine and in every later version.
    assert uniform(1, 2, 3) == 0.40279172247187955


# --- generate -------------------------------------------------------------------------------------


@pytest.fixture
def forwards(monkeypatch):
    """Every result of `Transformer.logits`, in order."""
    calls = []
    logits = Transformer.logits

    def record(self, features):
        calls.append(logits(self, features))
        return calls[-1]

    monkeypatch.setattr(Transformer, "logits", record)
    return calls


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_each_row_of_a_mixed_batch_draws_from_its_solo_logits(position, use_cache, forwards):
    model = build(position)
    prompts = [prompt(n, seed=n) for n in (7, 2, 19, 1)]
    drawn_from = [[] for _ in prompts]

    def on_token(row, token):
        drawn_from[row].append(forwards[-1][row])
        return False

    together = generate(
        model, prompts, GREEDY, max_new_tokens=5, use_cache=use_cache, on_token=on_token
    )
    for row, ids in enumerate(prompts):
        assert together[row] == generate(model, [ids], GREEDY, max_new_tokens=5)[0]
        alone = model(torch.tensor([ids + together[row]]))[0, len(ids) - 1 : -1]
        assert (torch.stack(drawn_from[row]) - alone).abs().max() <= 1e-5


def test_forwards_are_as_few_as_the_prompts_allow(forwards):
    model = build()
    generate(model, [prompt(7)], GREEDY, max_new_tokens=4)
    assert [call.shape for call in forwards] == [(1, V)] * 4  # one position each, no more
    forwards.clear()
    # Three tokens of the short row, the rest of the long prompt at once, two more tokens.
    generate(model, [prompt(5), prompt(40)], GREEDY, max_new_tokens=3)
    assert [call.shape for call in forwards] == [(2, V)] * (3 + 1 + 2)


def test_sampled_rows_are_the_same_alone_and_in_any_batch():
    model = build()
    sampling = Sampling(temperature=1.0, top_k=50, top_p=0.95, repetition_penalty=1.1)
    prompts = [prompt(7), prompt(11), prompt(3)]
    new = {"max_new_tokens": 17, "seed": 9}
    together = generate(model, prompts, sampling, num_samples=2, **new)
    one_by_one = [generate(model, [ids], sampling, num_samples=2, **new) for ids in prompts]
    assert together == sum(one_by_one, [])
    assert len(set(map(tuple, together))) == 6  # samples differ
    assert generate(model, prompts[::-1], sampling, **new) == together[4::-2]
    assert generate(model, prompts[:1], sampling, num_samples=5, **new)[:2] == together[:2]
    assert generate(model, prompts, sampling, num_samples=2, use_cache=False, **new) == together
    longer = generate(model, prompts, sampling, num_samples=2, max_new_tokens=23, seed=9)
    assert [row[:17] for row in longer] == together
    assert generate(model, prompts, sampling, max_new_tokens=17, seed=8) != together[::2]


def test_each_token_is_drawn_with_the_number_at_its_address():
    model = build()
    sampling, none = Sampling(temperature=1.0), torch.zeros(1, V, dtype=torch.bool)
    prompts = [prompt(7), prompt(12)]
    rows = generate(model, prompts, sampling, max_new_tokens=5, num_samples=2, seed=9)
    for row, new in enumerate(rows):
        ids = prompts[row // 2]
        for number, token in enumerate(new):
            u = torch.tensor([uniform(9, row % 2, number)], dtype=torch.float64)
            logits = model(torch.tensor([ids + new[:number]]))[:, -1]
            assert sample(logits, sampling, u, none).item() == token


def test_the_largest_uniform_number_is_not_rounded_to_1(monkeypatch):
    monkeypatch.setattr("model.generation.uniform", lambda *address: 1 - 2**-53)
    (new,) = generate(build(), [prompt(7)], Sampling(temperature=1.0), max_new_tokens=3)
    assert max(new) < V


def test_the_repetition_penalty_counts_each_rows_own_prompt_and_tokens():
    model = build()
    prompts, penalty = [prompt(7), prompt(12)], 3.0
    sampling = Sampling(temperature=0, repetition_penalty=penalty)
    rows = generate(model, prompts, sampling, max_new_tokens=15)
    for ids, new in zip(prompts, rows, strict=True):
        for number, token in enumerate(new):
            logits = model(torch.tensor([ids + new[:number]]))[0, -1].tolist()
            for i in {*ids, *new[:number]}:
                logits[i] = logits[i] / penalty if logits[i] > 0 else logits[i] * penalty
            assert token == max(range(V), key=logits.__getitem__)
    assert rows != generate(model, prompts, GREEDY, max_new_tokens=15)


def test_a_row_ends_at_eos_or_on_request_and_leaves_the_others_alone():
    model = build()
    prompts = [prompt(7, seed=7), prompt(4, seed=4), prompt(9, seed=9)]
    free = generate(model, prompts, GREEDY, max_new_tokens=12)
    eos = free[0][3]
    assert [row.count(eos) for row in (free[0][:3], free[1][:5], free[2])] == [0, 0, 0]
    calls = [[], [], []]

    def on_token(row, token):
        calls[row].append(token)
        return row == 1 and len(calls[row]) == 5

    expected = [free[0][:3], free[1][:5], free[2]]
    rows = generate(model, prompts, GREEDY, max_new_tokens=12, eos_id=eos, on_token=on_token)
    assert rows == calls == expected


@pytest.mark.parametrize("position", POSITIONS)
def test_the_context_ends_where_it_says(position, monkeypatch):
    model = build(position)
    ids = prompt(7)
    for total in (LIMIT - 1, LIMIT):
        new = generate(model, [prompt(3), ids], GREEDY, max_new_tokens=total - 7)[1]
        logits = model(torch.tensor([ids + new]))[0, 6:-1]
        assert new == logits.argmax(-1).tolist() and len(new) == total - 7

    monkeypatch.setattr(model, "features", None)  # no compute
    for total in (LIMIT + 1, 10 * LIMIT):
        words = f"7 tokens and {total - 7} new ones make {total}, past the context of {LIMIT} "
        with pytest.raises(ValueError, match=words + r"\(model.max_positions\)"):
            generate(model, [prompt(3), ids], GREEDY, max_new_tokens=total - 7)


@pytest.mark.parametrize(
    ("prompts", "changes", "words"),
    [
        ([], {}, "prompt is empty"),
        ([[5], []], {}, "prompt is empty"),
        ([[5]], {"max_new_tokens": 0}, "max_new_tokens must be at least 1, not 0"),
        ([[5]], {"num_samples": 0}, "num_samples must be at least 1, not 0"),
    ],
)
def test_generate_refuses_what_it_cannot_do(prompts, changes, words):
    with pytest.raises(ValueError, match=words):
        generate(build(), prompts, GREEDY, **{"max_new_tokens": 3, **changes})


def test_a_training_model_is_left_as_it_was():
    model = build(dropout=0.5)
    expected = generate(model, [prompt(7)], GREEDY, max_new_tokens=20)
    model.train()
    state = torch.get_rng_state()
    assert generate(model, [prompt(7)], GREEDY, max_new_tokens=20) == expected
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)

    def interrupt(row, token):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(model, [prompt(7)], GREEDY, max_new_tokens=20, on_token=interrupt)
    assert model.training
    model(tokens(2, 7)).sum().backward()  # nothing of inference mode is left behind
