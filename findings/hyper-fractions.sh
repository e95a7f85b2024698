#!/usr/bin/env bash
# With fractions, hyper-connections copy parts of the residual over other parts in each layer.
#
# Versions: hyper-connections 0.4.11, torch 2.13.0.
# Guess before the run: with any `num_fracs`, a new layer gives the whole residual to its branch and
#     keeps it, so that a branch that returns zeros changes nothing, as without fractions. (That it
#     does not was suspected after reading the source: the columns of the mixing matrix are made as
#     inputs, then streams, and read fraction by fraction.)
# Seen: with one stream and 4 fractions, quarters 0, 1, 2, 3 of the residual become 0, 0, 1, 3, and
#     the branch sees 0, 0, 0, 2: behind three layers only quarters 0 and 3 are left. With 4 streams
#     and 2 fractions, the branch sees the first half twice, and the second half in no layer.
# For gyre: its residuals are sums. There, take `num_fracs=1`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile hyper-connections==0.4.11 einops==0.8.2 \
    torch-einops-utils==0.2.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from hyper_connections import get_init_and_expand_reduce_stream_functions

DIM = 8

torch.set_num_threads(1)


class Branch(torch.nn.Module):
    """A branch that keeps its input and adds nothing."""

    def forward(self, tokens):
        self.seen = tokens
        return torch.zeros_like(tokens)


@torch.no_grad()
def parts(tokens, reference, n):
    """Return which part of the reference each of n parts is."""
    found = []
    for part in tokens.chunk(n, dim=-1):
        for i, candidate in enumerate(reference.chunk(n, dim=-1)):
            if torch.allclose(part, candidate, atol=0.05):
                found.append(i)
    return found


@torch.no_grad()
def run(n_streams, n_fractions, n_layers):
    """Return the parts that the branches see, and those of the residual behind the layers."""
    torch.manual_seed(0)
    initialize, expand, reduce = get_init_and_expand_reduce_stream_functions(
        n_streams, num_fracs=n_fractions)
    start = torch.randn(1, 3, DIM)
    tokens = expand(start)
    seen = []
    for i in range(n_layers):
        branch = Branch()
        layer = initialize(dim=DIM, branch=branch, layer_index=i)
        tokens = layer(tokens)
        seen.append(parts(branch.seen, start, n_fractions))
    return seen, parts(reduce(tokens) / n_streams, start, n_fractions)


seen = {}
left = {}
for n_streams, n_fractions in ((4, 1), (4, 2), (1, 4)):
    key = (n_streams, n_fractions)
    seen[key], left[key] = run(n_streams, n_fractions, 3)
    print(f"{n_streams} streams, {n_fractions} fractions: branches see parts {seen[key]}; the "
          f"residual behind 3 layers has {left[key]}")
assert seen[4, 1] == [[0], [0], [0]] and left[4, 1] == [0]
assert seen[4, 2] == [[0, 0], [0, 0], [0, 0]]
assert seen[1, 4][0] == [0, 0, 0, 2] and left[1, 4] == [0, 0, 0, 3]
PYTHON
