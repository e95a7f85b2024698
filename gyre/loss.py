"""The loss of a batch, and of a whole split."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from data.dataset import TokenDataset
from gyre.device import autocast, uncompiled
from model.transformer import Transformer


def summed_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Logits (B, T, V) and targets (B, T) -> cross entropy in nats, summed over all targets but
    those that are -100, in float32."""
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten(), reduction="sum")


@torch.no_grad()
def evaluate(
    model: Transformer, data: TokenDataset, batch_size: int, device: torch.device,
    dtype: torch.dtype,
) -> tuple[float, int]:
    """Nats and number of the tokens in this process's share of all windows of a split.

    The mode of the model is restored, and no random number is drawn. A model that is compiled is
    not, here: other shapes, and no gradients, would cost a second compilation. Every process calls
    it equally often.
    """
    was_training = model.training
    model.eval()
    nats, tokens = 0.0, 0
    batches = math.ceil(data.n_tokens / data.seq_len / data.size / batch_size)
    for x, y in tqdm(data.windows(batch_size), "validate", batches, leave=False, delay=2,
                     disable=data.rank > 0):
        x, y = x.to(device), y.to(device)
        with autocast(device, dtype), uncompiled():
            logits = model(x)
        nats += summed_loss(logits, y).item()
        tokens += int((y != -100).sum())
    model.train(was_training)
    return nats, tokens
