"""Which parameters are trained how: groups, AdamW or Muon, and the learning rate over time."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from errors import UserError


@dataclass
class OptimConfig:
    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw for everything, or muon for the hidden matrices beside adamw for the rest."""
    lr: float = 1e-3
    """Peak learning rate of AdamW."""
    muon_lr: float | None = None
    """Peak learning rate of Muon, whose update has the rms of an AdamW step. Unset: lr."""
    weight_decay: float = 0.1
    """Decoupled weight decay, on the hidden matrices only."""
    beta1: float = 0.9
    """AdamW's first moment."""
    beta2: float = 0.95
    """AdamW's second moment."""
    grad_clip: float = 1.0
    """Largest norm of the whole gradient; 0: no clipping."""
    warmup_steps: int = 100
    """Steps over which the learning rate rises linearly from 0."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """How the learning rate falls after the warm-up."""
    final_lr: float = 0.1
    """Learning rate at the last step, as a fraction of the peak."""

    def __post_init__(self):
        if self.muon_lr is not None and self.optimizer != "muon":
            raise UserError(f"optim.muon_lr has no effect with optim.optimizer {self.optimizer}")
        for name in ("lr", "muon_lr", "weight_decay", "grad_clip", "warmup_steps"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise UserError(f"optim.{name} must be finite and not negative, not {value}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"optim.{name} must be in [0, 1), not {getattr(self, name)}")
        if not 0 <= self.final_lr <= 1:
            raise UserError(f"optim.final_lr is a fraction of optim.lr, not {self.final_lr}")


def lr_factor(config: OptimConfig, step: int, steps: int) -> float:
    """Learning rate of update `step` (0 .. steps-1) as a fraction of the peak.

    Rises to 1 over the warm-up, then falls to `final_lr` at the last update.
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps + 1) / max(1, steps - config.warmup_steps)
    fall = 0.5 * (1 + math.cos(math.pi * progress)) if config.schedule == "cosine" else 1 - progress
    return config.final_lr + (1 - config.final_lr) * fall


def parameter_groups(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """(hidden, rest): the matrices inside the blocks, and everything else.

    Decay and Muon are for the former. Embeddings, the output matrix, norms and whatever a position
    encoding learns are in the latter, in every arm of an ablation alike: "decay what is 2-D" would
    decay a learned position table and so change two things at once.
    """
    hidden, rest = [], []
    for name, parameter in model.named_parameters():
        is_hidden = name.startswith("layers.") and parameter.ndim == 2
        (hidden if is_hidden else rest).append(parameter)
    return hidden, rest


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised: every matrix moves alike in all its directions.

    Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; the update has the rms of an
    AdamW step, 0.2 (Liu et al. 2025, arXiv 2502.16982). What torch.optim.Muon does, with matrices
    of one shape stacked and orthogonalised together: a model has few shapes and many layers.
    """

    def __init__(
        self, params: list[nn.Parameter], lr: float, weight_decay: float, momentum: float = 0.95
    ):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            same: dict[tuple, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    key = (*sorted(parameter.shape), parameter.device)  # a tall one lies down
                    same.setdefault(key, []).append(parameter)
            for parameters in same.values():
                self._step(parameters, group["lr"], group["weight_decay"], group["momentum"])

    def _step(
        self, parameters: list[nn.Parameter], lr: float, weight_decay: float, momentum: float
    ) -> None:
        moves = []
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter.grad)
            mean = state["momentum_buffer"].lerp_(parameter.grad, 1 - momentum)
            move = parameter.grad.lerp(mean, momentum).bfloat16()  # Nesterov's look ahead
            moves.append(move if move.size(0) <= move.size(1) else move.T)
        moves = torch.stack(moves)  # on a line of its own, so that the single ones are freed
        moves = orthogonalize(moves)
        for parameter, move in zip(parameters, moves, strict=True):
            parameter.mul_(1 - lr * weight_decay)
            move = move if move.shape == parameter.shape else move.T
            parameter.add_(move, alpha=-0.2 * lr * math.sqrt(max(parameter.shape)))


def orthogonalize(x: Tensor) -> Tensor:
    """U V^T of every matrix U S V^T in x (N, R, C), R <= C, roughly: singular values of 0.7 to 1.2.

    Five Newton-Schulz steps with coefficients that favour speed over precision (Jordan et al.).
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class Optimizers:
    """One or two torch optimizers behind one step. Learning rates are set as a fraction of the
    peak."""

    def __init__(self, model: nn.Module, config: OptimConfig):
        hidden, rest = parameter_groups(model)
        decayed = {"params": hidden, "lr": config.lr, "weight_decay": config.weight_decay}
        adamw = [{"params": rest, "lr": config.lr, "weight_decay": 0.0}]
        self.optimizers: list[torch.optim.Optimizer] = []
        if config.optimizer == "muon":
            decayed["lr"] = config.lr if config.muon_lr is None else config.muon_lr
            self.optimizers.append(Muon(**decayed))
        else:
            adamw.append(decayed)
        fused = rest[0].device.type in ("cpu", "cuda")
        betas = (config.beta1, config.beta2)
        self.optimizers.append(torch.optim.AdamW(adamw, betas=betas, fused=fused))
        self._peaks = [g["lr"] for o in self.optimizers for g in o.param_groups]

    def set_lr(self, factor: float) -> None:
        groups = [g for o in self.optimizers for g in o.param_groups]
        for group, peak in zip(groups, self._peaks, strict=True):
            group["lr"] = peak * factor

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict:
        return {str(i): o.state_dict() for i, o in enumerate(self.optimizers)}

    def load_state_dict(self, state: dict) -> None:
        for i, optimizer in enumerate(self.optimizers):
            optimizer.load_state_dict(state[str(i)])
