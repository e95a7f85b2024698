"""Split the validation loss of runs by whether a window has shown the target before.

    python -m tools.split_losses RUN... > split.jsonl

A line for each run: the mean loss in nats and the number of the targets of each kind, in windows of
data.seq_len tokens that do not overlap. A target is a repeated pair if it has followed the token
before it earlier in its window; a repeated token if it has occurred there, but not so; else new.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from errors import report_errors
from gyre import measure
from gyre.parser import Parser
from gyre.rundir import RunDir

WINDOWS = 256  # in a forward pass


def main(paths: list[str]) -> None:
    """Print the split of each run."""
    for path in paths:
        print(json.dumps({"run": Path(path).name, **split(RunDir.open(path))}), flush=True)


@torch.inference_mode()
def split(run: RunDir) -> dict[str, object]:
    """Return, by kind, the mean loss and the number of targets of the last checkpoint of a run."""
    trained, _, scorer = measure.open_scorer(run, "last", "auto")
    length = trained.config.data.seq_len
    n_windows = (len(scorer.stream) - 1) // length
    x = scorer.stream[: n_windows * length].view(n_windows, length)
    y = scorer.stream[1 : n_windows * length + 1].view(n_windows, length)
    losses = []
    with scorer.compute.active():
        for part, targets in zip(x.split(WINDOWS), y.split(WINDOWS), strict=True):
            logits = scorer.model(part.to(scorer.compute.device)).float()
            nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten().to(logits.device),
                                   reduction="none")
            losses.append(nats.cpu().double().view_as(part))
    nats = torch.cat(losses)
    token, pair = find_repeated(x, y)
    kinds = {"repeated pair": pair, "repeated token": token & ~pair, "new": ~token}
    figures: dict[str, object] = {"loss": nats.mean().item()}
    for name, kind in kinds.items():
        targets = int(kind.sum())
        loss = nats[kind].mean().item() if targets else None
        figures[name] = {"loss": loss, "targets": targets}
    return figures


def find_repeated(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return which targets y (N, T) of tokens x (N, T) have occurred in their window; and which
    have followed the same token there."""
    length = x.shape[1]
    # [t, s]: whether token s is known when the target of token t is predicted.
    earlier = torch.ones(length, length, dtype=torch.bool).tril()
    token = torch.zeros_like(x, dtype=torch.bool)
    pair = torch.zeros_like(token)
    for tokens, targets, has_token, has_pair in zip(
            x.split(WINDOWS), y.split(WINDOWS), token.split(WINDOWS), pair.split(WINDOWS),
            strict=True):
        is_target = (targets[:, :, None] == tokens[:, None, :]) & earlier
        has_token.copy_(is_target.any(-1))
        follows = (targets[:, :, None] == targets[:, None, :]) & earlier.tril(-1)
        same_before = tokens[:, :, None] == tokens[:, None, :]
        has_pair.copy_((follows & same_before).any(-1))
    return token, pair


if __name__ == "__main__":
    with report_errors():
        parser = Parser(__doc__)
        parser.add_argument("runs", metavar="RUN", nargs="+")
        main(parser.parse_args().runs)
