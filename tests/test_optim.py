"""Groups, schedule, and both optimizers' agreement with what they claim."""

import copy
from dataclasses import replace

import pytest
import torch
from conftest import draw, random_model

from gyre.optim import Muon, OptimConfig, Optimizers, lr_factor
from model.encodings import POSITIONS


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_hidden_matrices_decay_and_may_have_muon_and_nothing_else_does(position, optimizer):
    model = random_model(position=position, tie_embeddings=False)
    muon_lr = (4.0 if position == "rope" else 0.0) if optimizer == "muon" else None  # 0 is a rate
    config = OptimConfig(optimizer=optimizer, lr=2.0, muon_lr=muon_lr)
    optimizers = Optimizers(model, config)
    for factor in (0.5, 0.25):
        for group, peak in optimizers.peaks:
            group["lr"] = factor * peak
    roles = [(id(parameter), (type(o), group["weight_decay"], group["lr"]))
             for o in optimizers.optimizers for group in o.param_groups
             for parameter in group["params"]]
    assert len(roles) == len(dict(roles)) == len(list(model.parameters()))
    hidden = (Muon, 0.1, muon_lr / 4) if muon_lr is not None else (torch.optim.AdamW, 0.1, 0.5)
    for name, parameter in model.named_parameters():
        is_hidden = name.startswith("layers.") and "norm" not in name
        assert dict(roles)[id(parameter)] == (hidden if is_hidden else (torch.optim.AdamW, 0, 0.5))


@pytest.mark.parametrize("schedule, warmup, final, steps, factors", [
    ("linear", 2, 0.1, 6, [0.5, 1, 0.775, 0.55, 0.325, 0.1]),
    ("cosine", 2, 0.1, 6, [0.5, 1, 0.1 + 0.45 * (1 + 0.5**0.5), 0.55,
                           0.1 + 0.45 * (1 - 0.5**0.5), 0.1]),
    ("cosine", 0, 0.0, 1, [0]), ("linear", 3, 0.1, 3, [1 / 3, 2 / 3, 1]),
    ("wsd", 2, 0.0, 10, [0.5, 1, 1, 1, 1, 1, 1, 1, 0.5, 0]),  # its cooldown is a fifth
    # Its cooldown, of 3 steps, waits for the end of the warm-up.
    ("wsd", 13, 0.0, 15, [*((step + 1) / 13 for step in range(13)), 0.5, 0])])
def test_the_rate_rises_to_its_peak_and_falls_to_its_end(schedule, warmup, final, steps, factors):
    config = OptimConfig(warmup_steps=warmup, schedule=schedule, final_lr=final)
    config.check()
    assert [lr_factor(config, step, steps) for step in range(steps)] == pytest.approx(factors)


def test_muon_takes_the_steps_of_pytorchs():
    """Every kind of shape, several of each, and one that had no gradient."""
    shapes = [(24, 24), (24, 56), (56, 24), (40, 24), (24, 24), (56, 24), (24, 56)]
    start = [draw(*shape, seed=number) for number, shape in enumerate(shapes)]
    ours, theirs = ([torch.nn.Parameter(t.clone()) for t in start] for _ in range(2))
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
def test_a_loaded_state_keeps_the_rates_of_its_own_configuration(optimizer):
    """As of a branch. That steps go on as they were is in test_train.py."""
    model, config = random_model(), OptimConfig(optimizer=optimizer)
    optimizers = Optimizers(model, config)
    changed = Optimizers(model, replace(config, lr=7.0, weight_decay=3.0, beta1=0.5))
    assert not optimizers.tensors()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for each in optimizers.optimizers:
        each.step()
    tensors = optimizers.tensors()
    changed.load_tensors(tensors.items())
    groups = [group for o in changed.optimizers for group in o.param_groups]
    assert {group["lr"] for group in groups} == {7.0}
    assert {group["weight_decay"] for group in groups} == {0.0, 3.0}
    assert groups[-1]["betas"] == (0.5, 0.95)
    without = [(name, tensor) for name, tensor in tensors.items() if ".1." not in name]
    with pytest.raises(KeyError, match="no state of layers.1"):
        optimizers.load_tensors(without)
