"""Measure whether runs copy: find where a token stood before, and predict what followed it there.

    python -m tools.copy_probe RUN... > probe.jsonl

The tokens of the validation text, in random order, make windows of T = data.seq_len. The last 2n
tokens of each are n tokens and the same n again, so that nothing but the first n tells the second.
A line for each run: by n, the mean loss in nats of the first and of the second n, where the first
token of each does not count; and the gain, which is their difference.
"""

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from errors import report_errors
from gyre import measure
from gyre.parser import Parser
from gyre.rundir import RunDir

N_WINDOWS = 256
AT_ONCE = 8  # in a forward pass
SHARES = (16, 8, 4, 2)  # n is T divided by one of them, if it is more than 1
SEED = 1


def main(paths: list[str]) -> None:
    """Print what each run copies."""
    for path in paths:
        print(json.dumps({"run": Path(path).name, **probe(RunDir.open(path))}), flush=True)


@torch.inference_mode()
def probe(run: RunDir) -> dict[str, dict[str, float]]:
    """Return, by n, the loss of n random tokens, of their copy, and the gain, for the last
    checkpoint of a run."""
    trained, _, scorer = measure.open_scorer(run, "last", "auto")
    length = trained.config.data.seq_len
    results = {}
    for share in SHARES:
        n = length // share
        if n < 2:
            continue
        nats = token_nats(scorer, make_windows(scorer.stream, length, n))
        second = nats[:, -(n - 1) :].mean().item()
        first = nats[:, -(2 * n - 1) : -n].mean().item()
        results[f"{n}"] = {"first": first, "second": second, "gain": first - second}
    return results


def token_nats(scorer: measure.Scorer, windows: Tensor) -> Tensor:
    """Return the loss of each token of windows (N, T) but the first, float64 (N, T - 1)."""
    losses = []
    with scorer.compute.active():
        for part in windows.split(AT_ONCE):
            logits = scorer.model(part.to(scorer.compute.device))[:, :-1].float().cpu()
            targets = part[:, 1:]
            nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            losses.append(nats.double().view_as(targets))
    return torch.cat(losses)


def make_windows(stream: Tensor, length: int, n: int) -> Tensor:
    """Return N_WINDOWS windows of `length` tokens of `stream` (N,), in random order, whose last n
    tokens are a copy of the n before them."""
    generator = np.random.Generator(np.random.Philox(SEED))
    chosen = torch.from_numpy(generator.integers(len(stream), size=(N_WINDOWS, length)))
    windows = stream[chosen]
    windows[:, -n:] = windows[:, -2 * n : -n]
    return windows


if __name__ == "__main__":
    with report_errors():
        parser = Parser(__doc__)
        parser.add_argument("runs", metavar="RUN", nargs="+")
        main(parser.parse_args().runs)
