"""Two tasks that need positions, with an optimum that is known exactly.

P1  noisy lag-k copy. Token t repeats token t-k with probability 1 - rho, else it is any of the V.
    The content of earlier tokens says nothing, only how far back they stand does. One layer.
    (Barbero et al. 2024, arXiv:2410.06205, theorem 5.3: one rotary head can look exactly k back;
    proposition 5.2: one without positions cannot)
P2  variable-length repeat. A segment without repeats, a separator, the segment again: its second
    copy can be predicted by finding the token before in the first copy, and copying what follows
    (an induction head). Two layers.

Data are a function of (seed, step). Only the tokens that can be known are learned, by AdamW in
float32, at the same rate in every arm.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablation.plan import ARMS
from gyre.device import resolve_device
from gyre.optim import OptimConfig, Optimizers, lr_factor
from model import kernels
from model.config import ModelConfig, derive_seed
from model.position import POSITIONS
from model.transformer import Transformer

LENGTHS = (1, 2, 4)  # P1 is tested at T, 2T and 4T
SEPARATOR = 0


@dataclass(frozen=True)
class Probe:
    """The size of a task, and of its model."""

    vocab_size: int
    layers: int
    steps: int
    lr: float
    lag: int = 0
    """Of P1 only."""
    seq_len: int = 64
    batch_size: int = 64
    dim: int = 64
    heads: int = 1
    eval_interval: int = 25
    rho: float = 0.5


P1 = Probe(vocab_size=16, layers=1, steps=300, lr=1e-2, lag=7, heads=4)
P2 = Probe(vocab_size=65, layers=2, steps=3000, lr=5e-3, batch_size=32)
SOLVED = 0.9  # share of the second copies that are right, at which P2 ends
PROBES = {"P1": P1, "P2": P2}


def generator(*parts: object) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed("probe", *parts))


# --- P1: noisy lag-k copy ---


def lag_copy(
    probe: Probe, seed: int, step: int | str, rows: int, lengths: int = 1
) -> tuple[Tensor, Tensor]:
    """Tokens (rows, S), of which the first k are uniform, and which of them can be known, bool
    (rows, S): all others. S is `lengths` times T."""
    length = lengths * probe.seq_len
    g = generator("P1", seed, step)
    tokens = torch.randint(probe.vocab_size, (rows, length), generator=g)
    kept = torch.rand(rows, length, generator=g) >= probe.rho
    for t in range(probe.lag, length):
        tokens[:, t] = torch.where(kept[:, t], tokens[:, t - probe.lag], tokens[:, t])
    return tokens, (torch.arange(length) >= probe.lag).expand(rows, -1)


def lag_copy_entropy(probe: Probe) -> float:
    """Nats per token from t = k on, the least that any model can reach.

    H = -p ln p - (V-1) q ln q, with p = 1 - rho + rho/V for the token k back and q = rho/V for
    every other: 1.9606 for V = 16, rho = 0.5.
    """
    q = probe.rho / probe.vocab_size
    p = 1 - probe.rho + q
    return -p * math.log(p) - (probe.vocab_size - 1) * q * math.log(q)


def lag_copy_score(probe: Probe, model: Transformer, tokens: Tensor) -> tuple[float, float]:
    """Mean nats above the entropy, over the last T positions that can be known (t >= k); and nan,
    because right predictions are not counted.

    The expectation over what each next token could have been is taken exactly, from the
    probabilities it was drawn with: a mean over the drawn ones would be off by more than the 0.02
    nats in question.
    """
    length = tokens.shape[1]
    first = max(probe.lag, length - probe.seq_len)  # the first scored target
    logits = model(tokens[:, :-1])[:, first - 1 :]
    source = F.one_hot(tokens[:, first - probe.lag : length - probe.lag], probe.vocab_size)
    truth = (1 - probe.rho) * source.double() + probe.rho / probe.vocab_size
    loss = -(truth * logits.double().log_softmax(-1)).sum(-1).mean().item()
    return loss - lag_copy_entropy(probe), math.nan


# --- P2: variable-length repeat ---


def repeats(probe: Probe, seed: int, step: int | str, rows: int) -> tuple[Tensor, Tensor]:
    """Tokens (rows, T), and which of them can be known, bool (rows, T): the second copies.

    Segments have 8 .. T/2 - 1 tokens, all different; what follows the second copy are separators.
    """
    g = generator("P2", seed, step)
    n = torch.randint(8, probe.seq_len // 2, (rows, 1), generator=g)
    order = torch.rand(rows, probe.vocab_size - 1, generator=g).argsort(-1) + 1
    at = torch.arange(probe.seq_len).expand(rows, -1)
    second = (at > n) & (at <= 2 * n)
    place = torch.where(second, at - n - 1, at).clamp(max=order.shape[1] - 1)
    tokens = order.gather(1, place)
    return tokens.masked_fill((at == n) | (at > 2 * n), SEPARATOR), second


def repeat_score(
    probe: Probe, model: Transformer, tokens: Tensor, second: Tensor
) -> tuple[float, float]:
    """Mean nats, and share of right predictions, over the second copies."""
    logits, targets, scored = model(tokens[:, :-1]), tokens[:, 1:], second[:, 1:]
    nats = F.cross_entropy(logits[scored].double(), targets[scored]).item()
    return nats, (logits.argmax(-1) == targets)[scored].double().mean().item()


# --- training ---


def build(probe: Probe, arm: str, device: torch.device) -> Transformer:
    """The model of an arm, without values yet."""
    fields = {key.removeprefix("model."): value for key, value in ARMS[arm].items()}
    longest = LENGTHS[-1] if POSITIONS[fields["position"]].extrapolates else 1
    config = ModelConfig(
        dim=probe.dim, n_layers=probe.layers, n_heads=probe.heads, vocab_size=probe.vocab_size,
        max_positions=longest * probe.seq_len, **fields,
    )
    return Transformer(config).to(device)


def train(
    probe: Probe, model: Transformer, steps: int, batch: Callable[[int], tuple[Tensor, Tensor]]
) -> Iterator[int]:
    """AdamW on batches of (tokens, which of them are learned). Yields the number of steps done,
    before training, then every `eval_interval` steps, and at the end."""
    config = OptimConfig(lr=probe.lr, warmup_steps=min(20, steps))
    optimizers = Optimizers(model, config)
    device = model.tok_embeddings.weight.device
    yield 0
    for step in range(steps):
        tokens, learned = (part.to(device) for part in batch(step))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits[learned[:, 1:]], tokens[:, 1:][learned[:, 1:]])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizers.set_lr(lr_factor(config, step, steps))
        for optimizer in optimizers.optimizers:
            optimizer.step()
        model.zero_grad()
        if (step + 1) % probe.eval_interval == 0 or step + 1 == steps:
            yield step + 1


def run_probe(
    name: str, arm: str, seed: int, steps: int | None, device: str, onednn: bool
) -> dict[str, Any]:
    """Train a small model of an arm on "P1" or "P2", and return its record, ready for JSON.

    `curve` holds [step, nats above the floor]; the floor of P2 is 0, on the second copies. `excess`
    is what is left at T and, for P1, at 2T and 4T, over their last T positions; null where the
    encoding ends. P2 ends with the first evaluation at which 90 % of the second copies are right,
    after `steps_to_90` steps, or after `steps`, and `steps_to_90` is null.
    """
    probe, where = PROBES[name], resolve_device(device)
    kernels.onednn_is_faster = onednn and where.type == "cpu"  # as the plan has it
    steps = steps or probe.steps
    model = build(probe, arm, where)
    model.init_weights(derive_seed("probe", seed))
    if name == "P1":
        sample, score, reach = lag_copy, lag_copy_score, model.config.max_positions
        tests = {n: lag_copy(probe, seed, f"test {n}T", 128 // n, n)[:1] for n in LENGTHS
                 if n * probe.seq_len <= reach}
    else:  # rows of another length would be another task
        sample, score, tests = repeats, repeat_score, {1: repeats(probe, seed, "test", 128)}

    @torch.inference_mode()
    def evaluate(lengths: int) -> tuple[float, float]:
        return score(probe, model, *(part.to(where) for part in tests[lengths]))

    curve, steps_to_90 = [], None
    for step in train(probe, model, steps, lambda at: sample(probe, seed, at, probe.batch_size)):
        nats, right = evaluate(1)
        curve.append([step, nats])
        if right >= SOLVED:
            steps_to_90 = step
            break
    longer = {f"{n}T": evaluate(n)[0] if n in tests else None for n in LENGTHS[1:]}
    return {
        "probe": name, "arm": arm, "seed": seed, "steps": steps, "curve": curve,
        "excess": {"T": curve[-1][1], **longer}, "steps_to_90": steps_to_90,
    }
