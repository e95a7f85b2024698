"""One step and the loss of a split: exact under any split of a batch, and without a trace."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import CPU, draw, points, random_tokens, setup_of, trained

from gyre import build
from gyre.parallel import Replicated, World
from gyre.sharding import Sharded
from gyre.step import micro_batches, summed_loss, token_losses, train_step
from model.encodings import POSITIONS
from model.transformer import Transformer

DRAWN = ["--model.dropout", "0.2"]  # drawn for the row, and so the same however rows are shared


def test_the_loss_is_summed_in_float32_over_what_is_not_masked():
    logits, y = draw(2, 7, 97).bfloat16(), random_tokens(2, 7)
    y[1, 3:] = -100
    log_p = logits.float().log_softmax(-1)
    expected = -sum(log_p[b, t, y[b, t]] for b in range(2) for t in range(7) if y[b, t] >= 0)
    torch.testing.assert_close(summed_loss(logits, y), expected)


def test_steps_are_those_of_a_loop_written_by_hand(world):
    """Mean loss, AdamW with its groups, warm-up and cosine, and a gradient that is clipped."""
    argv = ["--optim.grad_clip", "0.5", "--optim.lr", "1e-2", "--optim.warmup_steps", "2",
            "--optim.weight_decay", "0.3", "--train.steps", "5", "--train.batch_size", "6"]
    model, setup = setup_of(world, *argv).model, setup_of(world, *argv)
    hidden = [p for n, p in model.named_parameters() if n.startswith("layers.") and "norm" not in n]
    rest = [p for n, p in model.named_parameters() if not n.startswith("layers.") or "norm" in n]
    adamw = torch.optim.AdamW([{"params": hidden}, {"params": rest, "weight_decay": 0.0}],
                              betas=(0.9, 0.95), weight_decay=0.3)
    rates = [0.5, 1.0, *(0.1 + 0.45 * (1 + math.cos(math.pi * i / 3)) for i in (1, 2, 3))]
    for step, rate in enumerate(rates):
        x, y = setup.train_data.batch(step)
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        adamw.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
        for group in adamw.param_groups:
            group["lr"] = 1e-2 * rate
        adamw.step()
        result = train_step(setup, step)
        assert result == pytest.approx((loss.item(), norm, 1e-2 * rate, True), rel=1e-4)
        assert norm > 0.55  # it is clipped
    for mine, theirs in zip(setup.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
        assert mine.grad is None


def test_a_step_does_not_depend_on_how_its_batch_is_cut(world, monkeypatch):
    """27 rows as 27, as 10 + 10 + 7 and as 27 x 1. Each row has its own dropout at every step of a
    seed.
    Where its rows are on several ranks, its loss is summed over them."""
    results = []
    for rows in (27, 10, 1):
        setup = setup_of(world, *DRAWN, "--train.micro_batch_size", str(rows))
        assert setup.module is setup.model  # in one process
        assert len(micro_batches(setup, 0)[0][0]) == rows
        results += [result for step in range(2) for result in train_step(setup, step)]
        seeds = [replace(setup, config=replace(setup.config, seed=seed)) for seed in (1, 2)]
        keys = [keys for each in seeds for n in range(2) for *_, keys in micro_batches(each, n)]
        assert len(set(torch.cat(keys).tolist())) == 2 * 2 * 27
    assert results[8:] == pytest.approx(2 * results[:8], rel=1e-6)
    assert train_step(setup_of(world), 0).loss != pytest.approx(results[0], abs=1e-3)
    monkeypatch.setattr(World, "sum", lambda self, *values: [3 * value for value in values])
    assert train_step(setup_of(world, *DRAWN), 0).loss == pytest.approx(3 * results[0], rel=1e-6)


@pytest.mark.parametrize("kind", [Replicated, Sharded])
def test_ranks_share_the_rows_and_keys_of_one_process(world, kind):
    """27 rows on four ranks, in micro-batches of 6: one rank needs a pass less than the others.
    Sharded, it takes one more, of which no target counts, or the others would wait for it."""
    one, ranks = setup_of(world, *DRAWN, "--train.micro_batch_size", "6"), []
    for rank in range(4):
        data = one.data.dataset("train", seq_len=20, batch_size=27, seed=1, rank=rank, world_size=4)
        part = replace(one, world=World(rank, 4, CPU), train_data=data, parallelism=kind)
        ranks.append(micro_batches(part, 3))
    rows = [batch for batches in ranks for batch in batches if (batch[1] >= 0).all()]
    for found, expected in zip(*(map(torch.cat, zip(*batches, strict=True))
                                 for batches in (rows, micro_batches(one, 3))), strict=True):
        assert torch.equal(found, expected)
    assert [*map(len, ranks)] == [1 + (kind is Sharded), 2, 2, 2]


@pytest.mark.parametrize("loss, gradient", [(math.nan, 1.0), (0.0, math.inf)])
def test_a_step_that_is_not_finite_changes_no_weight(world, loss, gradient):
    """Be it the loss or the gradient alone. The next step changes all, without a clip too."""
    setup = setup_of(world, "--optim.grad_clip", "0")
    before = [weight.detach().clone() for weight in setup.model.parameters()]
    hook = setup.model.norm.weight.register_hook(lambda grad: grad * gradient)
    broken = replace(setup, loss=lambda *args: summed_loss(*args) + loss)
    assert not train_step(broken, 0).finite
    assert all(map(torch.equal, before, setup.model.parameters()))
    hook.remove()
    result = train_step(setup, 1)
    assert result.finite and math.isfinite(result.loss)
    assert not any(map(torch.equal, before, setup.model.parameters()))


def test_encodings_of_one_seed_see_the_same_weights_and_batches(world):
    """And other ones than those of another seed."""
    other, drawn = setup_of(world), Transformer(setup_of(world).config.model)
    drawn.init_weights(2)
    first, *setups = (setup_of(world, "--model.position", position, "--seed", "2")
                      for position in ("none", "rope", "learned", "alibi"))
    for setup in setups:
        for name, weight in first.model.state_dict().items():
            assert torch.equal(setup.model.state_dict()[name], weight)
            assert torch.equal(drawn.state_dict()[name], weight)
        for step in (0, 5, 11):
            batch, expected = (each.train_data.batch(step) for each in (setup, first))
            torch.testing.assert_close(batch, expected, rtol=0, atol=0)
    assert not torch.equal(other.train_data.batch(0)[0], first.train_data.batch(0)[0])


def test_muon_computes_in_the_dtype_of_the_rest_at_a_rate_of_its_own(world, monkeypatch):
    for dtype in (torch.float32, torch.bfloat16):
        monkeypatch.setattr(build, "resolve_dtype", lambda *_, dtype=dtype: (dtype, ""))
        setup = setup_of(world, "--optim.optimizer", "muon", "--optim.muon_lr", "0.3")
        train_step(setup, 4)
        muon, adamw = setup.optimizers.optimizers
        assert muon.dtype == dtype
        assert muon.param_groups[0]["lr"] > 50 * adamw.param_groups[0]["lr"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
def test_every_encoding_learns(world, position):
    losses = points(trained(world, f"learns-{position}", "--model.position", position,
                            "--optim.lr", "1e-2", "--train.steps", "30"))
    assert losses[30] < losses[1] - 1.5


def test_validation_is_over_every_byte_and_leaves_no_trace(world):
    setup = setup_of(world, *DRAWN, "--data.seq_len", "19")
    data, model = setup.data, setup.model
    torch.manual_seed(5)
    before, evaluations = torch.get_rng_state(), []
    for rows, training in ((27, True), (27, False), (4, True)):
        model.train(training)
        pairs = list(token_losses(model, setup.val_data, rows, setup.compute))
        evaluations.append(torch.cat([nats for nats, _ in pairs]))
        assert model.training == training
    assert torch.equal(torch.get_rng_state(), before)
    first, again, smaller = evaluations
    assert torch.equal(first, again) and smaller.allclose(first, rtol=1e-5)

    text = (world / "text.txt").read_text(encoding="utf-8")
    held_out = text[int(len(text) * 0.9) :]
    assert data.manifest["val"]["bytes"] == len(held_out.encode()) > len(held_out)
    stream = torch.tensor([data.tokenizer.eos_id, *data.tokenizer.encode(held_out)])
    assert len(first) == len(stream) - 1 and len(first) % 19  # the last window is short
    assert torch.equal(torch.cat([targets for _, targets in pairs]), stream[1:])
    model.eval()
    rows = [stream[start : start + 20] for start in range(0, len(stream) - 1, 19)]
    nats = sum(summed_loss(model(row[None, :-1]), row[None, 1:]).item() for row in rows)
    assert first.sum().item() == pytest.approx(nats, rel=1e-5)
