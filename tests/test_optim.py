"""Groups, schedule, and both optimizers' agreement with what they claim."""

import copy
from dataclasses import replace

import pytest
import torch
from conftest import draw, random_model
from torch import nn

from errors import UserError
from gyre.optim import Muon, OptimConfig, Optimizers, lr_factor, parameter_groups
from model.position import POSITIONS


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_groups_cover_every_parameter_once_and_decay_hidden_matrices_only(position, tie, optimizer):
    model = random_model(position=position, tie_embeddings=tie)
    optimizers = Optimizers(model, OptimConfig(optimizer=optimizer)).optimizers
    groups = [g for o in optimizers for g in o.param_groups]
    seen = [id(p) for g in groups for p in g["params"]]
    assert sorted(seen) == sorted(id(p) for p in model.parameters())
    decayed = {id(p) for g in groups if g["weight_decay"] > 0 for p in g["params"]}
    names = {n for n, p in model.named_parameters() if id(p) in decayed}
    assert names == {n for n in model.state_dict() if n.startswith("layers.") and "norm" not in n}
    hidden, rest = parameter_groups(model)
    assert len(hidden) == 3 * 7 and all(p.ndim == 2 for p in hidden)
    if optimizer == "muon":
        muon = [p for o in optimizers if isinstance(o, Muon) for p in o.param_groups[0]["params"]]
        assert {id(p) for p in muon} == {id(p) for p in hidden}


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_schedule_rises_to_one_and_ends_at_its_final_value(schedule):
    config = OptimConfig(warmup_steps=10, schedule=schedule, final_lr=0.1)
    factors = [lr_factor(config, step, 100) for step in range(100)]
    assert factors[0] == pytest.approx(0.1) and factors[4] == pytest.approx(0.5)
    assert factors[9] == 1.0 == max(factors)
    assert all(a > b for a, b in zip(factors[9:], factors[10:], strict=False))
    assert factors[-1] == pytest.approx(0.1)
    middle = factors[9 + 45]  # half of the fall
    assert middle == pytest.approx(0.55)
    quarter = factors[9 + 22] + (factors[9 + 23] - factors[9 + 22]) / 2
    straight = 1 - 0.9 / 4
    if schedule == "cosine":
        assert quarter > straight + 0.05
    else:
        assert quarter == pytest.approx(straight)


def test_wsd_is_constant_up_to_the_cooldown_whatever_the_length():
    config = OptimConfig(warmup_steps=10, schedule="wsd", final_lr=0.0)
    config.check()
    short, long = ([lr_factor(config, step, steps) for step in range(steps)] for steps in (50, 200))
    assert short[:40] == long[:40] and set(long[9:160]) == {1.0}
    assert short[40:] == pytest.approx([0.9 - 0.1 * i for i in range(10)], abs=1e-12)
    assert long[-1] == 0.0
    with pytest.raises(UserError, match="cooldown has no effect"):
        OptimConfig(cooldown=0.5).check()


def test_schedule_without_warm_up_and_with_nothing_else():
    assert lr_factor(OptimConfig(warmup_steps=0, final_lr=0.0), 0, 1) == pytest.approx(0.0)
    assert lr_factor(OptimConfig(warmup_steps=5), 4, 5) == 1.0


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_zero_gradient_moves_decayed_parameters_only(optimizer):
    model = random_model(position="learned")
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizers = Optimizers(model, OptimConfig(optimizer=optimizer, lr=0.5, weight_decay=0.2))
    optimizers.set_lr(0.5)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for o in optimizers.optimizers:
        o.step()
    hidden = {id(p) for p in parameter_groups(model)[0]}
    for name, p in model.named_parameters():
        expected = before[name] * (1 - 0.25 * 0.2) if id(p) in hidden else before[name]
        torch.testing.assert_close(p.detach(), expected)


def step_randomly(model: nn.Module, optimizers: Optimizers, seed: int = 0) -> None:
    """One step with gradients drawn at random, the same for one seed."""
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = draw(*parameter.shape, seed=1000 * seed + number)
    for optimizer in optimizers.optimizers:
        optimizer.step()


def test_a_muon_step_is_orthogonal_and_has_the_size_of_an_adamw_step():
    model = random_model()
    config = OptimConfig(optimizer="muon", lr=0.01, muon_lr=0.1, weight_decay=0.0)
    w1 = model.layers[0].feed_forward.w1.weight  # (80, 48)
    before = w1.detach().clone()
    step_randomly(model, Optimizers(model, config))
    update = before - w1.detach()
    singular = torch.linalg.svdvals(update)
    assert singular.max() / singular.min() < 2  # a random matrix of this shape: about 8
    assert 0.1 < update.square().mean().sqrt().item() / 0.1 < 0.3  # 0.2: AdamW's typical rms


def test_muon_takes_the_steps_of_pytorchs():
    """Every kind of shape, several of each, and one that had no gradient."""
    shapes = [(24, 24), (24, 56), (56, 24), (40, 24), (24, 24), (56, 24), (24, 56)]
    start = [draw(*shape, seed=number) for number, shape in enumerate(shapes)]
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    stacked = Muon(ours, lr=0.1, weight_decay=0.3)
    single = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
    for number in range(5):
        if number == 4:  # a state of PyTorch's goes on in ours
            stacked = Muon(ours, lr=0.1, weight_decay=0.3)
            stacked.load_state_dict(copy.deepcopy(single.state_dict()))  # else they share buffers
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            has_none = number == 1 and index == 4
            a.grad = None if has_none else draw(*a.shape, seed=10 * number + index)
            b.grad = None if has_none else a.grad.clone()
        before = [p.detach().clone() for p in ours]
        stacked.step()
        single.step()
        for a, b, was in zip(ours, theirs, before, strict=True):
            moved = (a - was).norm()
            assert (moved > 0) == (a.grad is not None)
            assert (a - b).norm() <= 0.02 * moved, (number, a.shape)  # bfloat16 inside
            with torch.no_grad():
                b.copy_(a)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_state_survives_a_round_trip(optimizer):
    config = OptimConfig(optimizer=optimizer)
    models = random_model(), random_model()
    first, second = (Optimizers(model, config) for model in models)
    for number in range(4):
        step_randomly(models[0], first, number)
        step_randomly(models[1], second, number)
        if number == 1:
            replaced = Optimizers(models[1], config)
            replaced.load_tensors(models[1], second.tensors(models[1]))
            second = replaced
            # A branch has the rates and the decay of its own configuration.
            changed = Optimizers(models[1], replace(config, lr=7.0, weight_decay=3.0))
            changed.load_tensors(models[1], second.tensors(models[1]))
            groups = [group for o in changed.optimizers for group in o.param_groups]
            assert {group["lr"] for group in groups} == {7.0}
            assert {group["weight_decay"] for group in groups} == {0.0, 3.0}
    torch.testing.assert_close(*(list(model.parameters()) for model in models), rtol=0, atol=0)


@pytest.mark.parametrize("changes, words", [
    ({"muon_lr": 0.1}, "optim.muon_lr has no effect with optim.optimizer adamw"),
    ({"lr": -1.0}, "optim.lr must be at least 0, not -1.0"),
    ({"grad_clip": float("inf")}, r"optim.grad_clip must be in \[0, inf\), not inf"),
    ({"warmup_steps": -1}, "optim.warmup_steps must be at least 0, not -1"),
    ({"beta2": 1.0}, r"optim.beta2 must be in \[0, 1\), not 1.0"),
    ({"final_lr": 2.0}, r"optim.final_lr must be in \[0, 1\], not 2.0"),
])
def test_bad_values_are_refused_in_words(changes, words):
    with pytest.raises(UserError, match=words):
        OptimConfig(**changes).check()


def test_a_state_of_another_optimizer_or_model_is_refused():
    model = random_model()
    muon, adamw = (Optimizers(model, OptimConfig(optimizer=name)) for name in ("muon", "adamw"))
    step_randomly(model, muon)
    without = {name: tensor for name, tensor in muon.tensors(model).items() if ".1." not in name}
    with pytest.raises(KeyError, match="no state of layers.1"):
        muon.load_tensors(model, without)
    assert not adamw.tensors(model)
