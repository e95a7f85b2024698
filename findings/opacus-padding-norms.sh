#!/usr/bin/env bash
# In Opacus, padding counts in the norms by which gradients are clipped, and padding is trained.
#
# Versions: opacus 1.6.0, torch 2.13.0.
# Guess before the run: an Embedding with a `padding_idx` has no gradient for the padding, with
#     Opacus as in torch, so that a text is clipped alike however long its padding is. (That
#     `padding_idx` is ignored was suspected after reading the source.)
# Seen: the gradients per sample have a row for the padding. For a model that adds its embeddings,
#     a text of 4 tokens has 30 times its norm with 60 tokens of padding behind it, and so is
#     clipped 30 times as much: its own tokens move by a thirtieth. The padding's row, which torch
#     leaves at zero, moves most of all. Ghost clipping has the same norms. The noise stays the
#     same, so that short texts in long batches drown in it.
# For gyre: it has no private training. There, mask the padding behind the embedding.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile opacus==1.6.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.embedding import compute_embedding_norm_sample
from opacus.optimizers import DPOptimizer
from torch import nn

N_TOKENS, WIDTH, PAD, CLIP = 8, 4, 0, 0.1
TEXT = [1, 2, 3, 4]
torch.set_num_threads(1)


class Bag(nn.Module):
    """Add the embeddings of a text, and leave out the padding if asked to."""

    def __init__(self, masked):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(N_TOKENS, WIDTH, padding_idx=PAD)
        self.masked = masked

    def forward(self, tokens):
        rows = self.embedding(tokens)
        return (rows * (tokens != PAD)[..., None] if self.masked else rows).sum(1)


def step(n_padding, masked):
    """Return torch's and Opacus's norm of one text, and how far its rows and the padding's move."""
    tokens = torch.tensor([TEXT + [PAD] * n_padding])
    plain = Bag(masked)
    plain(tokens).sum().backward()
    bag = Bag(masked)
    before = bag.embedding.weight.detach().clone()
    private = GradSampleModule(bag)
    optimizer = DPOptimizer(torch.optim.SGD(private.parameters(), 1.0), noise_multiplier=0.0,
                            max_grad_norm=CLIP, expected_batch_size=1)
    private(tokens).sum().backward()
    norm = bag.embedding.weight.grad_sample[0].norm().item()
    optimizer.step()
    moved = (bag.embedding.weight.detach() - before).norm(dim=1)
    return plain.embedding.weight.grad.norm().item(), norm, moved[1].item(), moved[PAD].item()


for masked in (False, True):
    print("with a mask behind the embedding" if masked else "padding_idx alone")
    base = None
    for n_padding in (0, 4, 60):
        due, norm, moved, padding = step(n_padding, masked)
        base = base or (norm, moved)
        print(f"    {n_padding:2} of padding: norm {norm:6.2f} (torch {due:.2f}), a token of the "
              f"text moves by {moved:.4f}, the padding by {padding:.4f}")
        assert abs(due - base[0]) < 1e-4
        if masked or not n_padding:
            assert abs(norm - due) < 1e-4 and padding == 0
        else:
            wrong = (len(TEXT) + n_padding**2) ** 0.5 / len(TEXT)**0.5
            assert abs(norm / base[0] - wrong) < 1e-3 and abs(base[1] / moved - wrong) < 0.01
            assert padding > moved
tokens = torch.tensor([TEXT + [PAD] * 60])
ghost = compute_embedding_norm_sample(Bag(False).embedding, [tokens], torch.ones(1, 64, WIDTH))
print(f"norm by ghost clipping with 60 of padding: {list(ghost.values())[0].item():.2f}")
assert list(ghost.values())[0].item() > 100
PYTHON
