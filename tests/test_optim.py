"""Groups, schedule, and both optimizers' agreement with what they claim."""

import copy
from dataclasses import replace

import pytest
import torch
from conftest import draw, random_model
from torch import nn

from errors import UserError
from gyre.optim import Muon, OptimConfig, Optimizers, lr_factor
from model.position import POSITIONS


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_hidden_matrices_decay_and_may_have_muon_and_nothing_else_does(position, tie, optimizer):
    model = random_model(position=position, tie_embeddings=tie)
    config = OptimConfig(optimizer=optimizer, lr=2.0, muon_lr=4.0 if optimizer == "muon" else None)
    optimizers = Optimizers(model, config)
    for factor in (0.5, 0.25):
        optimizers.set_lr(factor)
    roles = [(id(parameter), (type(o), group["weight_decay"], group["lr"]))
             for o in optimizers.optimizers for group in o.param_groups
             for parameter in group["params"]]
    assert len(roles) == len(dict(roles)) == len(list(model.parameters()))
    hidden = (Muon, 0.1, 1.0) if optimizer == "muon" else (torch.optim.AdamW, 0.1, 0.5)
    for name, parameter in model.named_parameters():
        is_hidden = name.startswith("layers.") and "norm" not in name
        assert dict(roles)[id(parameter)] == (hidden if is_hidden else (torch.optim.AdamW, 0, 0.5))


@pytest.mark.parametrize("schedule, warmup, final, steps, factors", [
    ("linear", 2, 0.1, 6, [0.5, 1, 0.775, 0.55, 0.325, 0.1]),
    ("cosine", 2, 0.1, 6, [0.5, 1, 0.1 + 0.45 * (1 + 0.5**0.5), 0.55,
                           0.1 + 0.45 * (1 - 0.5**0.5), 0.1]),
    ("cosine", 0, 0.0, 1, [0]),
    ("linear", 3, 0.1, 3, [1 / 3, 2 / 3, 1]),
    ("wsd", 2, 0.0, 10, [0.5, 1, 1, 1, 1, 1, 1, 1, 0.5, 0]),  # its cooldown is a fifth
    ("wsd", 4, 0.0, 5, [0.25, 0.5, 0.75, 1, 0]),  # not before the warm-up is over
])
def test_the_rate_rises_to_its_peak_and_falls_to_its_end(schedule, warmup, final, steps, factors):
    config = OptimConfig(warmup_steps=warmup, schedule=schedule, final_lr=final)
    config.check()
    assert [lr_factor(config, step, steps) for step in range(steps)] == pytest.approx(factors)


def test_wsd_is_constant_up_to_the_cooldown_whatever_the_length():
    config = OptimConfig(warmup_steps=10, schedule="wsd", cooldown=0.2)
    short, long = ([lr_factor(config, step, steps) for step in range(steps)] for steps in (50, 200))
    assert short[:40] == long[:40] and set(long[9:160]) == {1.0} and long[160] < 1


def step_randomly(model: nn.Module, optimizers: Optimizers, seed: int = 0) -> None:
    """One step with gradients drawn at random, the same for one seed."""
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = draw(*parameter.shape, seed=1000 * seed + number)
    for optimizer in optimizers.optimizers:
        optimizer.step()


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
    ({"cooldown": 0.5}, "optim.cooldown has no effect with optim.schedule cosine"),
    ({"lr": -1.0}, "optim.lr must be at least 0, not -1.0"),
    ({"beta2": 1.0}, r"optim.beta2 must be in \[0, 1\), not 1.0"),
])
def test_values_without_a_meaning_are_refused(changes, words):
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
