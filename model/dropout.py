"""Dropout without a random stream: a hash of its address decides whether a number is dropped.

The address is the key of the row, the place in the model, the position and the channel. The mask is
therefore the same however a batch is split, on any number of processes, on any device, and compiled
or not.
"""

from collections.abc import Callable

import torch
from torch import Tensor

# Odd constants of well-tested mixing functions: three are splitmix64's without the highest bit, and
# the last is the first one of a 32-bit hash beside triple32 (hash-prospector).
MIX_1 = 0x3F58476D1CE4E5B9
MIX_2 = 0x14D049BB133111EB
STEP = 0x1E3779B97F4A7C15
MIX_32 = 0x2C1B3C6D

# Dropout of x (B, T, C) at a place of the model. Places are numbered from 0.
Drop = Callable[[Tensor, int], Tensor]


def mix(x: Tensor) -> Tensor:
    """Hash int64 -> int64: every bit of x changes every bit. Products wrap around."""
    x = (x ^ (x >> 30)) * MIX_1
    x = (x ^ (x >> 27)) * MIX_2
    return x ^ (x >> 31)


def compute_mask(keys: Tensor, place: int, shape: tuple[int, int], p: float) -> Tensor:
    """Return which numbers stay, bool (B, T, C): each with probability 1 - p, to 2**-32.

    `keys`, int64 (B,), has one key for each row, such as a hash of (seed, step, row). `shape` is
    (T, C). The hash of each token is multiplied by an odd number for each channel and mixed again.
    That is four cheap operations per number, which the compiler fuses into one loop.
    """
    length, width = shape
    offset = place * STEP % 2**62
    rows = mix(keys + offset)[:, None]  # (B, 1)
    tokens = mix(rows + torch.arange(length, device=keys.device)).int()[..., None]  # (B, T, 1)
    # On CUDA, torch.compile would compute `arange + offset` in int32, for which the offset is too
    # large (tried with torch 2.11). So make it an int64 tensor, whose value is hidden from it.
    offset_tensor = (keys[:1] & 0) | offset
    channels = mix(torch.arange(width, device=keys.device) + offset_tensor).int() | 1  # (C,), odd
    hashed = tokens * channels  # (B, T, C)
    hashed = (hashed ^ (hashed >> 15)) * MIX_32
    threshold = round(p * 2**32) - 2**31  # a hash is at least -2**31
    return hashed >= min(threshold, 2**31 - 1)


def make_dropout(p: float, tokens: Tensor, keys: Tensor | None = None) -> Drop:
    """Return the dropout of one forward pass over tokens (B, T).

    It zeroes numbers with probability p and divides the others by 1 - p. `keys` (B,) are those of
    `compute_mask`. If unset, they are drawn at random, so that every pass drops other numbers.
    """
    if keys is None:
        keys = torch.randint(2**62, tokens.shape[:1], device=tokens.device)

    def drop(x: Tensor, place: int) -> Tensor:
        stays = compute_mask(keys, place, (x.shape[1], x.shape[2]), p)
        return torch.where(stays, x / (1 - p), 0)

    return drop
