"""One step and the loss of a split: exact under any split of a batch. They leave nothing
behind: no gradient, no graph, no mode of the model and no state of random numbers."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from builders import CPU, build_setup, quick_for

from gyre.parallel import World
from gyre.step import Progress, micro_batches, start_step, summed_loss, token_losses, train_step

DROPOUT = ["--model.dropout", "0.2"]


# --- the loss -------------------------------------------------------------------------------------


def test_the_loss_is_the_sum_of_cross_entropies():
    """ln 4 of four equal logits, and ln(1 + 3/e) of one that is larger by 1."""
    logits = torch.zeros(1, 2, 4)
    logits[0, 1, 3] = 1.0
    loss = summed_loss(logits, torch.tensor([[2, 3]]))
    assert loss.item() == pytest.approx(1.3862944 + 0.7436684)


@pytest.mark.parametrize("targets, expected", [([2, -100], 1.3862944), ([-100, 3], 0.7436684)])
def test_masked_targets_have_no_loss(targets, expected):
    """Of the two losses above, one is left."""
    logits = torch.zeros(1, 2, 4)
    logits[0, 1, 3] = 1.0
    loss = summed_loss(logits, torch.tensor([targets]))
    assert loss.item() == pytest.approx(expected)


def test_the_loss_of_bfloat16_logits_is_summed_in_float32():
    """1000 ln 4. The next numbers in bfloat16 are 1384 and 1392, and ln 4 itself is 1.3828 there.
    """
    logits = torch.zeros(1, 1000, 4, dtype=torch.bfloat16)
    loss = summed_loss(logits, torch.zeros(1, 1000, dtype=torch.int64))
    assert loss.item() == pytest.approx(1386.2944, rel=1e-5)


# --- a step ---------------------------------------------------------------------------------------


def test_steps_are_those_of_a_loop_written_by_hand(workdir):
    """Mean loss, AdamW with its groups, warm-up and cosine, and a gradient that is clipped."""
    argv = ["--optim.grad_clip", "0.5", "--optim.lr", "1e-2", "--optim.warmup_steps", "2",
            "--optim.weight_decay", "0.3", "--train.steps", "5", "--train.batch_size", "6"]
    setup = build_setup(workdir, *argv)
    model = build_setup(workdir, *argv).model
    decayed = []
    rest = []
    for name, parameter in model.named_parameters():
        if name.startswith("layers.") and "norm" not in name:
            decayed.append(parameter)
        else:
            rest.append(parameter)
    adamw = torch.optim.AdamW([{"params": decayed}, {"params": rest, "weight_decay": 0.0}],
                              betas=(0.9, 0.95), weight_decay=0.3)
    # Two steps of warm-up, then a cosine from 1 to 0.1 in three steps.
    for step, rate in enumerate([0.5e-2, 1e-2, 0.775e-2, 0.325e-2, 0.1e-2]):
        x, y = setup.train_data.batch(step)
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        adamw.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
        assert norm > 0.55  # so that it is clipped
        for group in adamw.param_groups:
            group["lr"] = rate
        adamw.step()
        result = train_step(setup, step)
        assert result.loss == pytest.approx(loss.item(), rel=1e-4)
        assert result.grad_norm == pytest.approx(norm, rel=1e-4)
        assert result.lr == pytest.approx(rate, rel=1e-4)
        assert result.finite
    for mine, theirs in zip(setup.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_a_step_leaves_no_gradient(workdir):
    setup = build_setup(workdir)
    train_step(setup, 0)
    assert all(parameter.grad is None for parameter in setup.model.parameters())


def test_one_process_trains_the_model_without_a_wrapper(workdir):
    setup = build_setup(workdir)
    assert setup.wrapped is setup.model


@pytest.mark.parametrize("rows", quick_for(["10"], ["10", "3"]))
def test_a_step_does_not_depend_on_how_its_batch_is_cut(workdir, rows):
    """The batch has 27 rows, cut into 10 + 10 + 7 or into 9 x 3. Each row draws its own dropout."""
    options = [*DROPOUT, "--train.batch_size=27"]
    whole = build_setup(workdir, *options, "--train.micro_batch_size", "27")
    parts = build_setup(workdir, *options, "--train.micro_batch_size", rows)
    for step in (0, 1):
        expected = train_step(whole, step)
        result = train_step(parts, step)
        assert result.loss == pytest.approx(expected.loss, rel=1e-6)
        assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-6)


@pytest.mark.parametrize("rows, sizes", [
    ("27", [27]), ("10", [10, 10, 7]), ("1", [1] * 27)])
def test_a_batch_is_cut_into_rows_of_a_micro_batch(workdir, rows, sizes):
    setup = build_setup(workdir, "--train.batch_size=27", "--train.micro_batch_size", rows)
    assert [len(x) for x, _, _ in micro_batches(setup, 0)] == sizes


def test_what_a_step_has_measured_keeps_no_graph(workdir):
    assert not start_step(build_setup(workdir), 0).measured.requires_grad


def test_dropout_changes_the_loss(workdir):
    with_dropout = train_step(build_setup(workdir, *DROPOUT), 0)
    without = train_step(build_setup(workdir), 0)
    assert abs(with_dropout.loss - without.loss) > 1e-3


def test_each_row_step_and_seed_has_its_own_dropout_key(workdir):
    """Of two seeds, two steps each, of 27 rows: 108 keys."""
    drawn = set()
    for seed in ("1", "2"):
        setup = build_setup(workdir, *DROPOUT, "--seed", seed, "--train.batch_size=27",
                            "--train.micro_batch_size=10")
        for step in (0, 1):
            for _, _, keys in micro_batches(setup, step):
                drawn.update(keys.tolist())
    assert len(drawn) == 108


# --- several processes ----------------------------------------------------------------------------


def test_the_loss_is_summed_over_the_ranks(workdir, monkeypatch):
    """As if three ranks had the same loss: the sum is three times that of one process."""
    alone = train_step(build_setup(workdir), 0)
    monkeypatch.setattr(World, "sum_tensor", lambda self, values: 3 * values)
    assert train_step(build_setup(workdir), 0).loss == pytest.approx(3 * alone.loss, rel=1e-6)


def test_a_signal_to_another_rank_asks_this_one_to_stop(workdir, monkeypatch):
    """As if the other rank had 1 of everything that is summed: of nats, and of signals."""
    monkeypatch.setattr(World, "sum_tensor", lambda self, values: values + 1)
    assert train_step(build_setup(workdir), 0).is_asked_to_stop


def test_the_loss_is_divided_by_the_tokens_of_all_ranks(workdir, monkeypatch):
    """27 rows of 20 tokens are 540 tokens, of which one of three ranks has 180. The sum of its
    losses is 1080, and the sum over ranks is patched to add nothing. Divided by 180, it would be 6.
    """
    monkeypatch.setattr(World, "sum_tensor", lambda self, values: values)
    setup = build_setup(workdir, "--train.batch_size=27")
    data = setup.data.dataset("train", seq_len=20, batch_size=27, seed=1, rank=0, world_size=3)
    rank = replace(setup, world=World(0, 3, CPU), train_data=data,
                   loss_function=lambda logits, y: 0 * logits.sum() + 2.0 * 540)
    assert train_step(rank, 0).loss == 2.0


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_are_scaled_for_an_average_over_ranks(workdir, monkeypatch, size):
    """DDP and FSDP divide the sum of all gradients by the number of ranks, `size`.

    So each rank multiplies its gradient by `size` first. Here nothing is divided, which shows it.
    """
    alone = build_setup(workdir, "--optim.grad_clip", "0")
    setup = build_setup(workdir, "--optim.grad_clip", "0")
    ranks = replace(setup, world=World(0, size, CPU))
    monkeypatch.setattr(World, "sum_tensor", lambda self, values: values)
    norm = train_step(ranks, 0).grad_norm
    assert norm == pytest.approx(size * train_step(alone, 0).grad_norm, rel=1e-5)


def batches_of_rank(setup, rank, pads):
    """The micro-batches of step 3 on one of four ranks. With `pads`, all have equally many."""
    data = setup.data.dataset("train", seq_len=20, batch_size=27, seed=1, rank=rank, world_size=4)
    parallelism = SimpleNamespace(pads_micro_batches=pads)
    part = replace(setup, world=World(rank, 4, CPU), train_data=data, parallelism=parallelism)
    return micro_batches(part, 3)


def test_all_ranks_of_a_sharded_model_take_equally_many_passes(workdir):
    """They gather weights together. 27 rows are 6 + 7 + 7 + 7, in micro-batches of 6."""
    setup = build_setup(workdir, "--train.batch_size=27", "--train.micro_batch_size=6")
    assert [len(batches_of_rank(setup, rank, pads=True)) for rank in range(4)] == [2, 2, 2, 2]


def test_no_rank_of_a_replicated_model_takes_an_added_pass(workdir):
    """27 rows are 6 + 7 + 7 + 7, in micro-batches of 6."""
    setup = build_setup(workdir, "--train.batch_size=27", "--train.micro_batch_size=6")
    assert [len(batches_of_rank(setup, rank, pads=False)) for rank in range(4)] == [1, 2, 2, 2]


def test_no_target_of_an_added_pass_counts(workdir):
    setup = build_setup(workdir, "--train.batch_size=27", "--train.micro_batch_size=6")
    _, y, _ = batches_of_rank(setup, 0, pads=True)[1]
    assert (y == -100).all()


@pytest.mark.parametrize("pads", [False, True])
@pytest.mark.parametrize("part", [0, 1, 2], ids=["x", "y", "keys"])
def test_ranks_share_the_rows_and_keys_of_one_process(workdir, pads, part):
    setup = build_setup(workdir, *DROPOUT, "--train.batch_size=27", "--train.micro_batch_size=6")
    shared = []
    for rank in range(4):
        for batch in batches_of_rank(setup, rank, pads):
            if (batch[1] != -100).all():
                shared.append(batch[part])
    whole = [batch[part] for batch in micro_batches(setup, 3)]
    assert torch.equal(torch.cat(shared), torch.cat(whole))


# --- steps that are skipped -----------------------------------------------------------------------


@pytest.mark.parametrize("added_to_loss, gradient_factor", [(math.nan, 1.0), (0.0, math.inf)])
def test_a_step_that_is_not_finite_changes_no_weight(workdir, added_to_loss, gradient_factor):
    """Be it the loss alone, to which a constant is added, or the gradient alone."""
    setup = build_setup(workdir, "--optim.grad_clip", "0")
    before = [weight.detach().clone() for weight in setup.model.parameters()]
    setup.model.norm.weight.register_hook(lambda grad: grad * gradient_factor)
    broken = replace(setup, loss_function=lambda *args: summed_loss(*args) + added_to_loss)
    assert not train_step(broken, 0).finite
    assert all(map(torch.equal, before, setup.model.parameters()))


def test_the_step_after_a_skipped_one_changes_every_weight(workdir):
    setup = build_setup(workdir, "--optim.grad_clip", "0")
    before = [weight.detach().clone() for weight in setup.model.parameters()]
    broken = replace(setup, loss_function=lambda *args: summed_loss(*args) * math.nan)
    train_step(broken, 0)
    result = train_step(setup, 1)
    assert result.finite
    assert math.isfinite(result.loss)
    assert not any(map(torch.equal, before, setup.model.parameters()))


# --- what a seed decides --------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["rope", "learned", "alibi"])
def test_encodings_of_one_seed_have_the_same_weights(workdir, position):
    """They are those of a model without positions."""
    weights = build_setup(workdir, "--model.position", position, "--seed", "2").model.state_dict()
    plain = build_setup(workdir, "--model.position", "none", "--seed", "2").model.state_dict()
    shared = {name: weights[name] for name in plain}
    torch.testing.assert_close(shared, dict(plain), rtol=0, atol=0)


def test_the_seed_of_a_run_is_that_of_its_weights(workdir):
    """The first weights of wq that are drawn for seed 2."""
    weight = build_setup(workdir, "--seed", "2").model.layers[0].attention.wq.weight
    assert weight[0, :3].tolist() == pytest.approx([-0.00219196, 0.01359668, -0.00017951], abs=1e-6)


def test_runs_of_other_seeds_see_other_batches(workdir):
    x, _ = build_setup(workdir, "--seed", "1").train_data.batch(0)
    other, _ = build_setup(workdir, "--seed", "2").train_data.batch(0)
    assert not torch.equal(x, other)


# --- Muon -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, expected", [
    ("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float32)])
def test_muon_computes_in_the_dtype_of_the_rest_but_not_in_float16(workdir, dtype, expected):
    setup = build_setup(workdir, "--optim.optimizer", "muon", "--train.dtype", dtype)
    muon, _ = setup.optimizers.optimizers
    assert muon.dtype == expected


def test_muon_and_adamw_have_rates_of_their_own(workdir):
    """Step 0 is the first of two steps of warm-up, so both rates are halved."""
    setup = build_setup(workdir, "--optim.optimizer", "muon", "--optim.muon_lr", "0.3",
                        "--optim.lr", "0.002", "--optim.warmup_steps", "2")
    train_step(setup, 0)
    muon, adamw = setup.optimizers.optimizers
    assert muon.param_groups[0]["lr"] == pytest.approx(0.15)
    assert adamw.param_groups[0]["lr"] == pytest.approx(0.001)


# --- the loss of a split --------------------------------------------------------------------------


def losses_of(setup, rows, training=False):
    """The losses of the validation split, with so many rows at a time."""
    setup.model.train(training)
    pairs = token_losses(setup.model, setup.val_data, rows, setup.compute)
    return torch.cat([nats for nats, _ in pairs])


def test_validation_does_not_depend_on_the_rows_of_a_batch(workdir):
    setup = build_setup(workdir, *DROPOUT)
    torch.testing.assert_close(losses_of(setup, 4), losses_of(setup, 27), rtol=1e-5, atol=1e-8)


def test_validation_has_no_dropout(workdir):
    setup = build_setup(workdir, *DROPOUT)
    assert torch.equal(losses_of(setup, 27, training=True), losses_of(setup, 27))


@pytest.mark.parametrize("training", [True, False])
def test_validation_restores_the_mode_of_the_model(workdir, training):
    setup = build_setup(workdir, *DROPOUT)
    losses_of(setup, 27, training)
    assert setup.model.training == training


def test_validation_that_is_broken_off_restores_the_mode_of_the_model(workdir):
    setup = build_setup(workdir)
    losses = token_losses(setup.model, setup.val_data, 1, setup.compute)
    next(losses)
    losses.close()
    assert setup.model.training


def test_validation_draws_no_random_number(workdir):
    setup = build_setup(workdir, *DROPOUT)
    before = torch.get_rng_state()
    losses_of(setup, 27, training=True)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def build_short(workdir, tmp_path):
    """`build_setup` for a text of 2000 characters whose last tenth is "a bé" on forty lines.

    Its tokenizer is that of the module's text, because so short a text has too few pieces.
    """
    (tmp_path / "text.txt").write_text("ab" * 900 + "a bé\n" * 40, encoding="utf-8")
    tokenizer = build_setup(workdir).data.folder
    options = ["--data.val_fraction=0.1", f"--data.tokenizer={tokenizer}"]
    return partial(build_setup, tmp_path, *options)


def test_every_token_of_the_split_is_a_target(build_short):
    setup = build_short()
    pairs = token_losses(setup.model, setup.val_data, 4, setup.compute)
    targets = torch.cat([targets for _, targets in pairs])
    assert setup.data.tokenizer.decode(targets.tolist()) == "a bé\n" * 40


def test_the_losses_of_a_split_are_those_of_its_windows(build_short):
    """Of 19 tokens each; the last window is shorter."""
    setup = build_short("--data.seq_len", "19")
    tokenizer = setup.data.tokenizer
    stream = torch.tensor([[tokenizer.eos_id, *tokenizer.encode("a bé\n" * 40)]])
    n_targets = stream.shape[1] - 1
    assert n_targets % 19 > 0
    nats = []
    for first in range(0, n_targets, 19):
        window = stream[:, first : first + 20]
        logits = setup.model.eval()(window[:, :-1])
        log_p = logits.log_softmax(dim=-1)
        nats.append(-log_p.gather(-1, window[:, 1:, None]).flatten())
    expected = torch.cat(nats).detach().double()
    torch.testing.assert_close(losses_of(setup, 27), expected, rtol=1e-4, atol=1e-5)


def test_a_checkpoint_has_the_lowest_loss_by_the_name_that_it_always_had():
    progress = Progress(step=3, best_loss=2.5)
    saved = progress.to_saved()
    assert saved["best"] == 2.5
    assert Progress.from_saved(saved) == progress
