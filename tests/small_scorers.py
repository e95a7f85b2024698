"""Scorers of small random models on a random stream of tokens."""

from typing import Any

import torch
from builders import CPU, random_model

from data.text import Encoded
from gyre.compute import Compute
from gyre.measure import Scorer

T = 8  # tokens of a window
V = 23  # ids


def scorer(position: str = "rope", length: int = 300, **changes: Any) -> Scorer:
    """A random model whose weights are large enough for attention to have its preferences."""
    model = random_model(3, dim=24, n_layers=2, hidden_dim=64, vocab_size=V, max_positions=T,
                         position=position, dropout=0.5, **changes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 or name == "position.alpha":
                parameter *= 8
    stream = torch.randint(V, (length,), generator=torch.Generator().manual_seed(0))
    text = Encoded(stream, torch.ones(length, dtype=torch.bool), n_bytes=2 * length)
    return Scorer(model, text, T, Compute(CPU, torch.float32))
