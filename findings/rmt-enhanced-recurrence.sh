#!/usr/bin/env bash
# The enhanced recurrence of a recurrent memory transformer is the plain one, bit for bit.
#
# Versions: recurrent-memory-transformer-pytorch 0.7.0, hyper-connections 0.4.11, torch 2.13.0.
# Guess before the run: with `enhanced_xl_recurrence`, a layer gets the cached keys and values of
#     the layer above it, as in ERNIE-Doc: the logits of a second segment change, and so does what a
#     training learns. (That it has no effect was suspected after reading the source.)
# Seen: all logits of the second segment and all gradients are equal in every bit with and without
#     the option: the list of memories is shifted after the iterator over it was made. With the list
#     shifted by hand between the segments, logits change by up to 0.09 and gradients too.
# For gyre: it has no memories. There, shift the list by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile recurrent-memory-transformer-pytorch==0.7.0 \
    hyper-connections==0.4.11 torch-einops-utils==0.2.0 einops==0.8.2 packaging==26.4 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from recurrent_memory_transformer_pytorch import RecurrentMemoryTransformer

N_TOKENS = 50
LENGTH = 16


def second_segment(enhanced, by_hand):
    """Return the logits of a second segment, and the gradient of the embedding for its loss."""
    torch.manual_seed(0)
    model = RecurrentMemoryTransformer(
        dim=32, num_tokens=N_TOKENS, depth=3, num_memory_tokens=4, seq_len=LENGTH, dim_head=8,
        heads=4, num_residual_streams=1, enhanced_xl_recurrence=enhanced)
    generator = torch.Generator().manual_seed(1)
    first, second, labels = torch.randint(0, N_TOKENS, (3, 1, LENGTH), generator=generator)
    _, memories, cached = model(first)
    assert len(cached) == 3
    if by_hand:
        cached = [*cached[1:], cached[0]]
    logits, _, _ = model(second, memories, xl_memories=cached)
    torch.nn.functional.cross_entropy(logits[0], labels[0]).backward()
    return logits.detach(), model.token_emb.weight.grad


torch.set_num_threads(1)
plain = second_segment(False, False)
enhanced = second_segment(True, False)
by_hand = second_segment(False, True)
for name, values in (("with the option", enhanced), ("shifted by hand", by_hand)):
    logits = (values[0] - plain[0]).abs().max().item()
    gradient = (values[1] - plain[1]).norm().item() / plain[1].norm().item()
    print(f"{name}: logits change by up to {logits:.3g}, the gradient by {gradient:.1%}")
    if values is enhanced:
        assert logits == 0 and gradient == 0
    else:
        assert logits > 0.02 and gradient > 0.01
PYTHON
