"""What a decoder remembers of the tokens so far.

Shapes: B batch, T new tokens, S cached tokens, H_kv key/value heads, D head width.
"""

import torch
from torch import Tensor

from model.config import ModelConfig


class KVCache:
    """The keys and values of the tokens so far, one pair of (B, H_kv, S, D) tensors per layer.

    The keys and values of a head lie side by side in memory, which is how attention reads them.
    `length` counts the tokens that are held; `Transformer.hidden_states` moves it on once all
    layers have written. It is a Python int, so that nobody has to ask the device.
    """

    def __init__(
        self, config: ModelConfig, batch_size: int, max_length: int,
        device: torch.device | str | None = None, dtype: torch.dtype = torch.float32,
    ):
        shape = (batch_size, config.n_kv_heads, max_length, config.head_dim)
        self.keys, self.values = (
            [torch.empty(shape, device=device, dtype=dtype) for _ in range(config.n_layers)]
            for _ in range(2)
        )
        self.length = 0

    def update(self, layer: int, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor]:
        """Write xk, xv (B, H_kv, T, D) behind what is there; return all of it, (B, H_kv, S + T, D).

        Raises ValueError, with nothing written, if there is no room, and for a batch or a dtype
        not the cache's: one would broadcast, the other convert all the keys at every step.
        """
        keys, values = self.keys[layer], self.values[layer]
        stop = self.length + xk.shape[2]
        if stop > keys.shape[2]:
            raise ValueError(
                f"the cache is full: {self.length} + {xk.shape[2]} tokens, room for {keys.shape[2]}"
            )
        if xk.shape[0] != keys.shape[0] or xk.dtype != keys.dtype:
            raise ValueError(
                f"the cache holds {keys.shape[0]} rows of {keys.dtype}, "
                f"not {xk.shape[0]} of {xk.dtype}"
            )
        keys[:, :, self.length : stop] = xk
        values[:, :, self.length : stop] = xv
        return keys[:, :, :stop], values[:, :, :stop]
