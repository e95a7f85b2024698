#!/usr/bin/env bash
# In TensorLy-Torch, tensor trains start with far smaller weights than asked for.
#
# Versions: tensorly-torch 0.5.0, tensorly 0.10.0, torch 2.13.0.
# Guess before the run: `normal_(0, std)` makes the factors such that the reconstruction has the
#     standard deviation `std`, as the docstring says, for each factorization, and so
#     FactorizedEmbedding has that of its paper, 1 / sqrt(3 n). (That tensor trains have not was
#     suspected after reading the source.)
# Seen: CP and Tucker tensors have it. For a tensor train, the product of the ranks is divided by
#     where its root is due: with two ranks of 8 the weights are 8 times too small, with two of 32
#     32 times. A BlockTT takes the root of order 2 for any number of factors as well: a
#     FactorizedEmbedding(4096, 64), by default a BlockTT of rank 8, starts at 1.3e-5 for 0.009,
#     and with 4 factors at 1e-8. More factors or a larger rank make it smaller.
# For gyre: it factorizes no weights. There, multiply the factors of a tensor train by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 tensorly-torch==0.5.0 \
    tensorly==0.10.0 numpy==2.4.6 scipy==1.17.1 opt-einsum==3.4.0 packaging==26.4
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from tltorch import FactorizedEmbedding, FactorizedTensor

STD, N_DRAWS = 0.02, 40
torch.set_num_threads(1)
torch.manual_seed(0)


def measure_tensor(factorization, rank):
    """Return the root mean square of full tensors over many draws."""
    squares = []
    for _ in range(N_DRAWS):
        tensor = FactorizedTensor.new((16, 16, 16), rank=rank, factorization=factorization)
        tensor.normal_(0, STD)
        squares.append(tensor.to_tensor().square().mean().item())
    return (sum(squares) / N_DRAWS)**0.5


def measure_embedding(**options):
    squares = []
    for _ in range(N_DRAWS):
        embedding = FactorizedEmbedding(4096, 64, **options)
        squares.append(embedding(torch.arange(4096)).square().mean().item())
    return (sum(squares) / N_DRAWS)**0.5


print(f"normal_(0, {STD})")
for factorization, rank, ratio in [("cp", 16, 1), ("tucker", (8, 8, 8), 1),
                                   ("tt", (1, 8, 8, 1), 8), ("tt", (1, 32, 32, 1), 32)]:
    std = measure_tensor(factorization, rank)
    print(f"    {factorization} of rank {rank}: {std:.5f}, {STD / std:.2f} times too small")
    assert 0.7 < STD / std / ratio < 1.4

due = (3 * 4096)**-0.5
for name, options, ratio in [
        ("CP", {"factorization": "cp"}, 1), ("BlockTT, the default", {}, 670),
        ("BlockTT with 4 factors", {"n_tensorized_modes": 4}, 1e6)]:
    std = measure_embedding(**options)
    print(f"FactorizedEmbedding(4096, 64), {name}: {std:.2g}, due {due:.2g}")
    assert due / std < 1.4 if ratio == 1 else due / std > ratio / 2
PYTHON
