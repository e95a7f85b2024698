"""One step and the loss of a split: exact under any split of a batch, and without a trace."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import CPU, points, setup_of, trained

from gyre.parallel import World
from gyre.step import evaluate, micro_batches, summed_loss, train_step
from model.position import POSITIONS

DRAWN = ["--model.dropout", "0.2"]  # drawn for the row, and so the same however rows are shared


def test_the_loss_is_summed_in_float32_over_what_is_not_masked():
    logits = torch.randn(2, 7, 97, generator=torch.Generator().manual_seed(0)).bfloat16()
    y = torch.randint(97, (2, 7), generator=torch.Generator().manual_seed(1))
    y[1, 3:] = -100
    log_p = logits.float().log_softmax(-1)
    expected = -sum(log_p[b, t, y[b, t]] for b in range(2) for t in range(7) if y[b, t] >= 0)
    torch.testing.assert_close(summed_loss(logits, y), expected)


def test_a_step_does_not_depend_on_how_its_batch_is_cut(world):
    """27 rows as 27, as 10 + 10 + 7 and as 27 x 1."""
    results = []
    for rows in ("27", "10", "1"):
        setup = setup_of(world, *DRAWN, "--train.micro_batch_size", rows)
        assert [len(x) for x, _, _ in micro_batches(setup, 0)][0] == int(rows)
        results.append([train_step(setup, step) for step in range(2)])
    dry = train_step(setup_of(world), 0)
    whole = results[0]
    assert dry.loss != pytest.approx(whole[0].loss, abs=1e-3)  # dropout drops something
    for other in results[1:]:
        for mine, theirs in zip(other, whole, strict=True):
            assert mine.loss == pytest.approx(theirs.loss, abs=1e-6)
            assert mine.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-5)


def test_rows_have_their_own_dropout_at_every_step(world):
    setup = setup_of(world, *DRAWN, "--train.micro_batch_size", "10")
    keys = [torch.cat([keys for *_, keys in micro_batches(setup, step)]) for step in (0, 1)]
    assert len(set(torch.cat(keys).tolist())) == 2 * 27
    again = torch.cat([keys for *_, keys in micro_batches(setup_of(world, *DRAWN), 1)])
    assert torch.equal(again, keys[1])


@pytest.mark.parametrize("loss, gradient", [(math.nan, 1.0), (1.0, math.inf)])
def test_a_step_that_is_not_finite_changes_no_weight(world, loss, gradient):
    """A finite loss with an infinite gradient, too."""
    setup = setup_of(world, "--optim.grad_clip", "0")
    before = [weight.detach().clone() for weight in setup.model.parameters()]
    if math.isnan(loss):
        hook = setup.model.norm.register_forward_hook(lambda module, x, out: out * loss)
    else:
        hook = setup.model.norm.weight.register_hook(lambda grad: grad * gradient)
    assert not train_step(setup, 0).finite
    assert all(map(torch.equal, before, setup.model.parameters()))
    hook.remove()
    result = train_step(setup, 1)
    assert result.finite and math.isfinite(result.loss)
    assert not all(map(torch.equal, before, setup.model.parameters()))


def test_the_scaler_unscales_before_the_norm_and_steps_after(world):
    """A loss that is scaled by 1024 has the norm and the weights of one that is not."""
    calls = []

    class Scaler(torch.amp.GradScaler):
        def unscale_(self, optimizer):
            calls.append("unscale")
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad.div_(1024)

        def scale(self, loss):
            calls.append("scale")
            return loss * 1024

        def step(self, optimizer):
            calls.append("step")
            optimizer.step()

        def update(self):
            calls.append("update")

    plain, scaled = setup_of(world), setup_of(world)
    object.__setattr__(scaled, "scaler", Scaler("cpu", enabled=False))
    expected, result = train_step(plain, 0), train_step(scaled, 0)
    assert calls == ["scale", "unscale", "step", "update"]
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-6)
    for mine, theirs in zip(scaled.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)


def test_ranks_that_gather_together_take_equally_many_passes(world):
    """27 rows over 2 ranks in micro-batches of 13: rank 0 has one pass less, and pads it."""
    setup = setup_of(world, *DRAWN, "--train.micro_batch_size", "13")
    object.__setattr__(setup, "world", World(0, 2, CPU))
    setup.train_data.size = 2
    for rank, rows in ((0, 13), (1, 14)):
        setup.train_data.rank = rank
        for pads in (False, True):
            setup.parallelism.pads_micro_batches = pads
            batches = micro_batches(setup, 0)
            assert sum(len(x) for x, _, _ in batches) == rows + (pads and rank == 0)
            if pads:
                assert len(batches) == 2
                x, y, keys = batches[-1]
                assert rank == 1 or (len(x) == len(keys) == 1 and (y == -100).all())


@pytest.mark.slow
def test_encodings_of_one_seed_see_the_same_weights_and_batches(world):
    setups = {p: setup_of(world, "--model.position", p) for p in POSITIONS}
    weights = {p: setup.model.state_dict() for p, setup in setups.items()}
    for position, setup in setups.items():
        for name, weight in weights["none"].items():
            assert torch.equal(weights[position][name], weight)
        for step in (0, 5, 11):
            batch, expected = (s.train_data.batch(step) for s in (setup, setups["none"]))
            torch.testing.assert_close(batch, expected, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
def test_every_encoding_learns(world, position):
    losses = points(trained(world, f"learns-{position}", "--model.position", position,
                            "--optim.lr", "1e-2", "--train.steps", "30"))
    assert losses[30] < losses[1] - 1.5


def test_validation_is_over_every_byte_and_leaves_no_trace(world):
    setup = setup_of(world)
    data, model, val_data = setup.data, setup.model, setup.val_data
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, smaller = (evaluate(model, val_data, n, CPU, torch.float32) for n in (27, 27, 4))
    assert torch.equal(torch.get_rng_state(), before) and model.training
    assert first == again  # bit for bit
    assert smaller[1] == first[1] and smaller[0] == pytest.approx(first[0], rel=1e-6)

    text = (world / "text.txt").read_text(encoding="utf-8")
    held_out = text[int(len(text) * 0.9) :]
    assert data.manifest["val"]["bytes"] == len(held_out.encode()) > len(held_out)
    stream = torch.tensor([data.tokenizer.eos_id, *data.tokenizer.encode(held_out)])
    assert first[1] == len(stream) - 1
    nats = 0.0
    for start in range(0, len(stream) - 1, 20):
        row = stream[start : start + 21]
        logits = model.eval()(row[None, :-1])[0]
        nats += F.cross_entropy(logits, row[1:], reduction="sum").item()
    assert first[0] == pytest.approx(nats, rel=1e-5)
