"""Groups, schedule, and both optimizers' agreement with what they claim."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from builders import randn, random_model
from torch.utils._python_dispatch import TorchDispatchMode

from gyre.optim import AdamW, Muon, OptimConfig, Optimizers, lr_factor, orthogonalize
from model.encodings import POSITIONS


def list_roles(optimizers):
    """The optimizer, the weight decay and the rate of every parameter, by name."""
    roles = {}
    for optimizer in optimizers.optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = optimizers.names[parameter]
                assert name not in roles, name
                roles[name] = (type(optimizer), group["weight_decay"], group["lr"])
    return roles


@pytest.mark.parametrize("position, optimizer, muon_lr, of_hidden", [
    *((position, "muon", 4.0, (Muon, 0.1, 4.0)) for position in POSITIONS),
    ("learned_qk", "adamw", None, (AdamW, 0.1, 2.0)),
    ("learned_qk", "muon", None, (Muon, 0.1, 2.0)),
    ("learned_qk", "muon", 0.0, (Muon, 0.1, 0.0))])  # 0 is a rate
def test_only_hidden_matrices_decay_and_may_have_muon(position, optimizer, muon_lr, of_hidden):
    model = random_model(position=position, tie_embeddings=False)
    roles = list_roles(Optimizers(
        model, OptimConfig(optimizer=optimizer, lr=2.0, muon_lr=muon_lr, weight_decay=0.1)))
    assert set(roles) == {name for name, _ in model.named_parameters()}
    for name, role in roles.items():
        is_hidden = name.startswith("layers.") and "norm" not in name
        assert role == (of_hidden if is_hidden else (AdamW, 0.0, 2.0)), name


def test_peaks_stay_what_they_were_when_rates_change():
    optimizers = Optimizers(random_model(), OptimConfig(lr=2.0))
    for group, _ in optimizers.peaks:
        group["lr"] = 0.5
    assert [peak for _, peak in optimizers.peaks] == [2.0, 2.0]


@pytest.mark.parametrize("schedule, warmup, final, steps, factors", [
    ("linear", 2, 0.1, 6, [0.5, 1, 0.775, 0.55, 0.325, 0.1]),
    ("cosine", 2, 0.1, 6, [0.5, 1, 0.8681981, 0.55, 0.2318019, 0.1]),  # cos 45 degrees
    ("cosine", 0, 0.0, 1, [0]), ("linear", 3, 0.1, 3, [1 / 3, 2 / 3, 1]),
    ("wsd", 2, 0.0, 10, [0.5, 1, 1, 1, 1, 1, 1, 1, 0.5, 0]),  # its cooldown is a fifth
    # A fifth of 15 is 3 steps. The warm-up takes the first of them, so it falls in 2.
    ("wsd", 13, 0.0, 15, [1 / 13, 2 / 13, 3 / 13, 4 / 13, 5 / 13, 6 / 13, 7 / 13, 8 / 13, 9 / 13,
                          10 / 13, 11 / 13, 12 / 13, 1, 0.5, 0])])
def test_the_rate_rises_to_its_peak_and_then_falls(schedule, warmup, final, steps, factors):
    config = OptimConfig(warmup_steps=warmup, schedule=schedule, final_lr=final)
    config.check()
    assert [lr_factor(config, step, steps) for step in range(steps)] == pytest.approx(factors)


@pytest.mark.parametrize("fused", [True, False])
def test_adamw_computes_bit_for_bit_as_pytorchs(fused):
    """With and without decay, and with a parameter that has no gradient in the first step."""
    start = [randn(5, 3, seed=1), randn(4, seed=2), randn(2, 2, seed=3)]
    ours = [torch.nn.Parameter(tensor.clone()) for tensor in start]
    theirs = [torch.nn.Parameter(tensor.clone()) for tensor in start]
    our_adamw = AdamW([{"params": ours[:1], "lr": 0.1, "weight_decay": 0.3},
                       {"params": ours[1:], "lr": 0.2, "weight_decay": 0.0}], (0.8, 0.9), fused)
    their_adamw = torch.optim.AdamW([{"params": theirs[:1], "lr": 0.1, "weight_decay": 0.3},
                                     {"params": theirs[1:], "lr": 0.2, "weight_decay": 0.0}],
                                    betas=(0.8, 0.9), fused=fused)
    for number, without in enumerate([2, None, None]):
        draw_gradients(ours, theirs, 10 * number, without)
        our_adamw.step()
        their_adamw.step()
    for a, b, was in zip(ours, theirs, start, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, was)


def test_adamw_changes_nothing_where_infinity_was_found():
    parameters = [torch.nn.Parameter(randn(5, 3, seed=1))]
    adamw = AdamW([{"params": parameters, "lr": 0.1, "weight_decay": 0.3}], (0.8, 0.9), fused=True)
    parameters[0].grad = randn(5, 3, seed=2)
    adamw.step()
    expected = copy.deepcopy([parameters[0].detach(), *adamw.state[parameters[0]].values()])
    parameters[0].grad = torch.full((5, 3), math.inf)
    adamw.found_inf = torch.tensor(1.0)
    adamw.step()
    for tensor, was in zip([parameters[0], *adamw.state[parameters[0]].values()], expected,
                           strict=True):
        assert torch.equal(tensor, was)


# Every kind of shape, several of each.
SHAPES = [(24, 24), (24, 56), (56, 24), (40, 24), (24, 24), (56, 24), (24, 56)]


def make_muons(start):
    """Our Muon and PyTorch's, each with parameters that begin with these values."""
    ours = [torch.nn.Parameter(tensor.clone()) for tensor in start]
    theirs = [torch.nn.Parameter(tensor.clone()) for tensor in start]
    our_muon = Muon(ours, lr=0.1, weight_decay=0.3)
    their_muon = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
    return ours, theirs, our_muon, their_muon


def draw_gradients(ours, theirs, seed, without=None):
    """Give both the same gradients, and none to the parameter of number `without`."""
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        a.grad = None
        b.grad = None
        if number != without:
            a.grad = randn(*a.shape, seed=seed + number)
            b.grad = a.grad.clone()


def assert_same_step(ours, theirs, before):
    """Steps differ by at most 2 %, because both round to bfloat16, in different orders."""
    for a, b, was in zip(ours, theirs, before, strict=True):
        moved = (a - was).norm()
        assert moved > 0 and (a - b).norm() <= 0.02 * moved, a.shape


def test_muon_takes_the_steps_of_pytorchs():
    ours, theirs, our_muon, their_muon = make_muons([randn(*shape, seed=7) for shape in SHAPES])
    for number in range(3):
        draw_gradients(ours, theirs, seed=10 * number)
        before = [parameter.detach().clone() for parameter in ours]
        our_muon.step()
        their_muon.step()
        assert_same_step(ours, theirs, before)
        with torch.no_grad():  # so that differences do not add up
            for a, b in zip(ours, theirs, strict=True):
                b.copy_(a)


def test_muon_computes_bit_for_bit_as_one_matrix_at_a_time():
    """Momentum, Nesterov's look ahead, decay and the update, in operations of one tensor each."""
    ours, one_by_one, our_muon, _ = make_muons([randn(*shape, seed=7) for shape in SHAPES[:2]])
    means = [torch.zeros(24, 24), torch.zeros(24, 56)]
    for number in range(2):
        draw_gradients(ours, one_by_one, seed=10 * number)
        our_muon.step()
        for parameter, mean in zip(one_by_one, means, strict=True):
            mean.lerp_(parameter.grad, 0.05)
            ahead = parameter.grad.lerp(mean, 0.95).bfloat16()
            (update,) = orthogonalize(ahead[None])
            longest = max(parameter.shape)
            with torch.no_grad():
                parameter.mul_(1 - 0.1 * 0.3)
                parameter.add_(update, alpha=-0.2 * 0.1 * math.sqrt(longest))
    for parameter, expected in zip(ours, one_by_one, strict=True):
        assert torch.equal(parameter, expected)


class CountedOperations(TorchDispatchMode):
    """Counts the operations that are dispatched meanwhile, those that make views left out."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view:
            self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("found_inf", [None, torch.tensor(0.0), torch.tensor(1.0)])
def test_a_step_of_more_matrices_takes_as_many_operations(found_inf):
    """On a GPU each is a kernel to launch."""
    counts = []
    for times in (1, 5):
        ours, theirs, muon, _ = make_muons([randn(*shape) for shape in SHAPES[:3] * times])
        muon.found_inf = found_inf
        for number in range(2):  # in the first, every momentum is made
            draw_gradients(ours, theirs, seed=number)
            with CountedOperations() as operations:
                muon.step()
        counts.append(operations.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("found_inf, moved", [(0.0, True), (1.0, False)])
def test_muon_moves_unless_infinity_was_found(found_inf, moved):
    """`usual` is a Muon without `found_inf`. With 0, both take the second step, bit for bit alike.
    With 1, ours stays where `usual` is after the first."""
    start = [randn(*shape, seed=7) for shape in SHAPES]
    ours, theirs, muon, _ = make_muons(start)
    usual, _, usual_muon, _ = make_muons(start)
    draw_gradients(ours, theirs, seed=0)
    draw_gradients(usual, theirs, seed=0)
    muon.step()
    usual_muon.step()
    draw_gradients(ours, theirs, seed=50)
    if moved:
        draw_gradients(usual, theirs, seed=50)
        usual_muon.step()
    else:
        ours[3].grad[2, 4] = math.nan
    muon.found_inf = torch.tensor(found_inf)
    muon.step()
    for a, b in zip(ours, usual, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(muon.state[a]["momentum_buffer"],
                           usual_muon.state[b]["momentum_buffer"])


def test_singular_values_from_a_thousandth_and_a_half_on_become_about_1():
    # They are divided by their norm, 1.12: the smallest becomes 0.0018.
    values = torch.tensor([1, 0.5, 0.1, 0.02, 0.005, 0.002])
    (result,) = orthogonalize(torch.diag(values)[None]).diagonal(dim1=1, dim2=2)
    assert result.min() > 0.67
    assert result.max() < 1.21


def test_tiny_singular_values_are_multiplied_and_stay_small():
    (result,) = orthogonalize(torch.diag(torch.tensor([1, 1e-4, 1e-5]))[None])
    torch.testing.assert_close(result.diagonal()[1:], torch.tensor([0.0485, 0.00485]), rtol=0.01,
                               atol=0)


def test_muon_leaves_a_parameter_without_a_gradient_alone():
    ours, theirs, our_muon, _ = make_muons([randn(*shape, seed=7) for shape in SHAPES])
    draw_gradients(ours, theirs, seed=0, without=4)
    before = [parameter.detach().clone() for parameter in ours]
    our_muon.step()
    moved = [not torch.equal(a, was) for a, was in zip(ours, before, strict=True)]
    assert moved == [True, True, True, True, False, True, True]


def test_muon_goes_on_from_a_state_of_pytorchs():
    ours, theirs, _, their_muon = make_muons([randn(*shape, seed=7) for shape in SHAPES])
    draw_gradients(ours, theirs, seed=0)
    their_muon.step()
    with torch.no_grad():
        for a, b in zip(ours, theirs, strict=True):
            a.copy_(b)
    our_muon = Muon(ours, lr=0.1, weight_decay=0.3)
    for a, b in zip(ours, theirs, strict=True):
        our_muon.state[a] = copy.deepcopy(their_muon.state[b])  # else they share buffers
    draw_gradients(ours, theirs, seed=10)
    before = [parameter.detach().clone() for parameter in ours]
    our_muon.step()
    their_muon.step()
    assert_same_step(ours, theirs, before)


def take_step(model, config):
    """Optimizers that have taken one step."""
    optimizers = Optimizers(model, config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    for optimizer in optimizers.optimizers:
        optimizer.step()
    return optimizers


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_loaded_state_keeps_the_rates_of_its_own_configuration(optimizer):
    """As of a branch. That steps go on as they were is in test_resume.py."""
    model = random_model()
    config = OptimConfig(optimizer=optimizer)
    state = take_step(model, config).tensors()
    changed = Optimizers(model, replace(config, lr=7.0, weight_decay=3.0, beta1=0.5))
    changed.load_tensors(state.items())
    groups = [group for group, _ in changed.peaks]
    assert {group["lr"] for group in groups} == {7.0}
    assert {group["weight_decay"] for group in groups} == {0.0, 3.0}
    assert groups[-1]["betas"] == (0.5, 0.95)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_optimizers_have_no_state_before_their_first_step(optimizer):
    assert Optimizers(random_model(), OptimConfig(optimizer=optimizer)).tensors() == {}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_frozen_parameter_has_no_state_to_load(optimizer):
    """An encoding of the user's own may have one."""
    model = random_model()
    model.norm.weight.requires_grad_(False)
    config = OptimConfig(optimizer=optimizer)
    saved = take_step(model, config).tensors()
    resumed = Optimizers(model, config)
    resumed.load_tensors(saved.items())
    assert set(resumed.tensors()) == set(saved)
    assert "state.norm.weight.exp_avg" not in saved


def test_a_checkpoint_without_any_state_begins_anew():
    """As that of a run whose steps were all skipped, because no loss was finite."""
    optimizers = Optimizers(random_model(), OptimConfig())
    optimizers.load_tensors([])
    assert not optimizers.optimizers[0].state
