"""Which parameter is trained how: AdamW or Muon, decay, and the learning rate over time."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from data.sources import Fitted
from errors import Range, UserError, check_ranges
from gyre.parallel import gather_tensor, is_sharded, local_part, shard_like


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer and its learning rates."""

    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw for everything, or muon for the hidden matrices beside adamw for the rest."""
    lr: Annotated[float, Range(ge=0, le=1e6)] = 1e-3
    """Peak learning rate of AdamW."""
    muon_lr: Annotated[float | None, Range(ge=0, le=1e6)] = None
    """Peak learning rate of Muon, whose update has the rms of an AdamW step. Unset: lr."""
    weight_decay: Annotated[float, Range(ge=0, le=1e6)] = 0.1
    """Decoupled weight decay, on the hidden matrices only."""
    beta1: Annotated[float, Range(ge=0, lt=1)] = 0.9
    """Decay of AdamW's first moment."""
    beta2: Annotated[float, Range(ge=0, lt=1)] = 0.95
    """Decay of AdamW's second moment."""
    grad_clip: Annotated[float, Range(ge=0)] = 1.0
    """Largest norm of the whole gradient; 0: no clipping."""
    warmup_steps: Annotated[Fitted, Range(ge=0)] = 100
    """Steps over which the learning rate rises linearly from 0. auto: a tenth of the steps, at most
    the number of the configuration file, or the default."""
    schedule: Literal["cosine", "linear", "wsd"] = "cosine"
    """How the learning rate falls after the warm-up. wsd (warm-up, stable, decay): it is constant
    until the cooldown, and then falls linearly."""
    cooldown: Annotated[float | None, Range(gt=0, le=1)] = None
    """Share of the steps, the last ones, in which wsd's learning rate falls. Unset: 0.2."""
    final_lr: Annotated[float, Range(ge=0, le=1)] = 0.1
    """Learning rate at the last step, as a fraction of the peak. Not reached if the warm-up takes
    all steps, or if the cooldown rounds to none."""

    def __post_init__(self) -> None:
        if self.cooldown is None and self.schedule == "wsd":
            object.__setattr__(self, "cooldown", 0.2)  # it is frozen from now on

    def check(self) -> None:
        """Raise UserError for values without a meaning or an effect."""
        if self.muon_lr is not None and self.optimizer != "muon":
            raise UserError(f"optim.muon_lr has no effect with optim.optimizer {self.optimizer}")
        if self.cooldown is not None and self.schedule != "wsd":
            raise UserError(f"optim.cooldown has no effect with optim.schedule {self.schedule}")
        check_ranges(self, "optim.")

    def rates(self) -> dict[str, float]:
        """Return the peak learning rates by option: of those that are set, and are not 0."""
        rates = {"optim.lr": self.lr, "optim.muon_lr": self.muon_lr}
        return {option: rate for option, rate in rates.items() if rate}

    def describe_rates(self) -> str:
        """Return the options of the learning rates with their values, for a message."""
        return " or ".join(f"{option} (now {rate:g})" for option, rate in self.rates().items())


def lr_factor(config: OptimConfig, step: int, steps: int) -> float:
    """Learning rate of step number `step` (0 .. steps-1) of all `steps`, as a fraction of the peak.

    It rises to 1 over the warm-up and then falls to `final_lr` at the last step. With wsd the fall
    takes the last `round(cooldown * steps)` steps only, and before it the rate stays at 1. So runs
    of different lengths are one run up to the cooldown of the shorter (Hägele et al. 2024,
    arXiv:2405.18392). If no step is left for the fall, the rate of the last step is the peak.
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    start = config.warmup_steps
    if config.schedule == "wsd":
        assert config.cooldown is not None, "wsd has one"
        start = max(start, steps - round(config.cooldown * steps))
    steps_of_fall = max(1, steps - start)  # a cooldown that rounds to no step has 0
    progress = max(0, step - start + 1) / steps_of_fall
    fall = 1 - progress
    if config.schedule == "cosine":
        fall = 0.5 * (1 + math.cos(math.pi * progress))
    return config.final_lr + (1 - config.final_lr) * fall


class Optimizer:
    """Parameters in groups, each with its own learning rate, and what is kept of every parameter.

    It has the attributes of torch.optim.Optimizer that a training and torch.amp.GradScaler use. It
    is no subclass, because that class imports the compiler, which takes a second and 75 MiB, even
    if nothing is compiled.
    """

    def __init__(self, groups: list[dict[str, Any]]):
        self.param_groups = groups
        self.state: defaultdict[nn.Parameter, dict[str, Tensor]] = defaultdict(dict)
        self.found_inf: Tensor | None = None

    def step(self) -> None:
        """Move every parameter that has a gradient; none if `found_inf` is 1."""
        raise NotImplementedError


class AdamW(Optimizer):
    """torch.optim.AdamW, by the function that computes it.

    Loshchilov and Hutter 2019, arXiv:1711.05101. A group has `params`, `lr` and `weight_decay`.
    """

    def __init__(self, groups: list[dict[str, Any]], betas: tuple[float, float], fused: bool):
        super().__init__([{**group, "betas": betas} for group in groups])
        self.fused = fused

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            states = [self._moments(parameter) for parameter in parameters]
            beta1, beta2 = group["betas"]
            adamw(
                parameters, [p.grad for p in parameters], [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states], [], [state["step"] for state in states],
                fused=self.fused, found_inf=self.found_inf, amsgrad=False, maximize=False,
                lr=group["lr"], weight_decay=group["weight_decay"], beta1=beta1, beta2=beta2,
                eps=1e-8,
            )

    def _moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Return the two moments of a parameter and the number of its steps, at first 0."""
        state = self.state[parameter]
        if not state:
            # The plain form does arithmetic with the number on the CPU, and the fused one where the
            # parameter is.
            device = parameter.device if self.fused else torch.device("cpu")
            state["step"] = torch.zeros((), device=device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


class Muon(Optimizer):
    """Momentum whose update is made orthogonal: a matrix moves equally far in all its directions.

    Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; the update has the rms of an
    AdamW step, 0.2 (Liu et al. 2025, arXiv:2502.16982). It computes the updates of
    torch.optim.Muon, and is faster where many matrices have one shape, as in a transformer: it
    stacks them and makes their updates orthogonal together, in `dtype`. bfloat16 is precise enough;
    float32 is for processors on which it is faster.
    """

    def __init__(self, params: list[nn.Parameter], lr: float, weight_decay: float,
                 dtype: torch.dtype = torch.bfloat16):
        group = {"params": params, "lr": lr, "weight_decay": weight_decay, "momentum": 0.95}
        super().__init__([group])
        self.dtype = dtype

    @torch.no_grad()
    def step(self) -> None:
        skipped = None
        if self.found_inf is not None:
            skipped = self.found_inf > 0
        for group in self.param_groups:
            stacks: dict[tuple, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                key = (parameter.shape, parameter.device)
                if is_sharded(parameter):  # a rank gathers one matrix at a time
                    key += (id(parameter),)
                stacks.setdefault(key, []).append(parameter)
            for parameters in stacks.values():
                self._step(parameters, group, skipped)

    def _momentum(self, parameter: nn.Parameter) -> Tensor:
        """Return the momentum of a parameter, at first 0."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return state["momentum_buffer"]

    def _step(
        self, parameters: list[nn.Parameter], group: dict[str, Any], skipped: Tensor | None
    ) -> None:
        """Move matrices that have one shape and one device; a sharded one comes alone.

        If `skipped`, a bool scalar on the device, is true, nothing changes. Operations on a stack,
        and those of `torch._foreach_`, take one kernel on a GPU for many matrices.
        """
        gradients: list[Tensor] = []
        for parameter in parameters:
            assert parameter.grad is not None
            gradients.append(parameter.grad)
        # Views of this rank's parts: changing one changes a gradient, a momentum or a weight.
        weights = [local_part(parameter) for parameter in parameters]
        momenta = [local_part(self._momentum(parameter)) for parameter in parameters]
        gradient_parts = [local_part(gradient) for gradient in gradients]
        if skipped is not None:
            # If skipped, each gradient becomes a copy of its momentum. In the next line the
            # momentum then moves towards itself, and stays.
            replace_if(skipped, gradient_parts, momenta)
        torch._foreach_lerp_(momenta, gradient_parts, 1 - group["momentum"])
        # Nesterov's look-ahead. It overwrites `gradients`, which nothing else reads after the step.
        torch._foreach_lerp_(gradient_parts, momenta, group["momentum"])
        updates = self._orthogonalize(gradients)  # which are the look-ahead now
        decay_factor = 1 - group["lr"] * group["weight_decay"]
        if skipped is not None:
            updates.masked_fill_(skipped, 0)
            decay_factor = torch.full((), decay_factor, device=skipped.device)
            decay_factor.masked_fill_(skipped, 1)
        parts: list[Tensor] = []
        for update, parameter in zip(updates.unbind(), parameters, strict=True):
            parts.append(local_part(shard_like(update, parameter)))
        scale = 0.2 * group["lr"] * math.sqrt(max(parameters[0].shape))
        torch._foreach_mul_(weights, decay_factor)
        torch._foreach_add_(weights, parts, alpha=-scale)

    def _orthogonalize(self, gradients: list[Tensor]) -> Tensor:
        """Return the updates (N, R, C) of N gradients (R, C), in the gradients' dtype.

        The update of a sharded gradient is whole: every rank computes all of it.
        """
        first = gradients[0]
        if is_sharded(first):  # rounded before it is gathered: that is less to send
            stacked = gather_tensor(first.to(self.dtype))[None]
        else:  # rounded together
            stacked = torch.stack(gradients).to(self.dtype)
        tall = stacked.size(1) > stacked.size(2)
        if tall:
            stacked = stacked.mT.contiguous()
        updates = orthogonalize(stacked).to(first.dtype)
        # In the layout of the weights: otherwise adding them would take a kernel for each.
        return updates.mT.contiguous() if tall else updates


def replace_if(condition: Tensor, tensors: list[Tensor], values: list[Tensor]) -> None:
    """Set tensors to values, all of one shape, if `condition`, a bool scalar, is true.

    That is decided on the device, and the CPU does not wait.
    """
    stacked = torch.stack(tensors)
    torch.where(condition, torch.stack(values), stacked, out=stacked)
    torch._foreach_copy_(tensors, stacked.unbind())


def orthogonalize(x: Tensor) -> Tensor:
    """Roughly U V^T for every matrix U S V^T in x (N, R, C), R <= C.

    Five Newton-Schulz steps with coefficients that favour speed over precision (Jordan et al.).
    Singular values of at least 0.0015 times the norm of their matrix become 0.68 to 1.2. Smaller
    ones grow up to 485 times, and stay below 0.68.
    """
    a = 3.4445
    b = -4.7750
    c = 2.0315
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)  # b G + c G G
        x = torch.baddbmm(x, factor, x, beta=a)  # a X + (b G + c G G) X
    return x


class Optimizers:
    """All parameters of a model in one or two optimizers, in `optimizers`: AdamW, and before it
    Muon if the configuration says so. Each learning rate is set as a fraction of its peak.

    Matrices inside the blocks have weight decay and may have Muon. All else has neither: the
    embeddings, the output matrix, the norms, and whatever a position encoding learns, for every
    encoding alike. To decay all matrices would decay a learned position table too, and an ablation
    would compare two differences at once. `dtype` is that of Muon's products.
    """

    def __init__(self, model: nn.Module, config: OptimConfig, dtype: torch.dtype = torch.bfloat16):
        self.names: dict[Any, str] = {p: name for name, p in model.named_parameters()}
        hidden: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for parameter, name in self.names.items():
            if name.startswith("layers.") and parameter.ndim == 2:
                hidden.append(parameter)
            else:
                rest.append(parameter)
        groups: list[dict[str, Any]] = [{"params": rest, "lr": config.lr, "weight_decay": 0.0}]
        self.optimizers: list[Optimizer] = []
        if config.optimizer == "muon":
            muon_lr = config.lr if config.muon_lr is None else config.muon_lr
            self.optimizers.append(Muon(hidden, muon_lr, config.weight_decay, dtype=dtype))
        else:
            groups.append({"params": hidden, "lr": config.lr, "weight_decay": config.weight_decay})
        fused = rest[0].device.type in ("cpu", "cuda")
        betas = (config.beta1, config.beta2)
        self.optimizers.append(AdamW(groups, betas, fused))
        # (parameter group, peak learning rate): each step sets a fraction of the peak.
        self.peaks: list[tuple[dict[str, Any], float]] = []
        for optimizer in self.optimizers:
            self.peaks += [(group, group["lr"]) for group in optimizer.param_groups]

    def step(self, found_inf: Tensor | None = None) -> None:
        """Move the parameters by their gradients.

        If `found_inf`, a float32 scalar on their device, is 1, no parameter and no state changes.
        The CPU does not wait for it.
        """
        for optimizer in self.optimizers:
            optimizer.found_inf = found_inf
            optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        """Return what the optimizers keep, by name, such as state.norm.weight.exp_avg."""
        tensors: dict[str, Tensor] = {}
        for optimizer in self.optimizers:
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    tensors[f"state.{self.names[parameter]}.{key}"] = value
        return tensors

    def load_tensors(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Go on from what `tensors` returned, with the rates of this configuration: a branch may
        have others than the run that it comes from. A parameter without any tensor begins anew: it
        is frozen, or no step has moved it yet."""
        owners: dict[str, tuple[Optimizer, nn.Parameter]] = {}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    owners[self.names[parameter]] = (optimizer, parameter)
        for key, tensor in tensors:
            name, _, kind = key.removeprefix("state.").rpartition(".")
            optimizer, parameter = owners[name]
            optimizer.state[parameter][kind] = shard_like(tensor.to(parameter.device), parameter)
