#!/usr/bin/env bash
# goldcrest's tensor train compresses each matrix to rank 4 or less, whatever ranks are asked for.
#
# Versions: goldcrest 0.1.0, tensorly 0.10.0, torch 2.13.0.
# Guess before the run: with larger `tensor_ranks`, which the strategy requires, the error of a
#     matrix is smaller, and with full ranks 0; what is decompressed has the shape of the matrix.
#     (That the ranks of matrices are fixed was suspected after reading the source.)
# Seen: a matrix is cut into a tensor of three dimensions, one of which is 2, and has ranks of
#     min(4, dimension): 4 and 2. So a tall matrix becomes one of rank 2, and a wide one of rank 4.
#     A random matrix of 64 x 48 has an error of 0.95 for ranks from 2 to 64; one of rank 3, which
#     has an exact train with ranks of 6 and 3, an error of 0.50. What is decompressed is
#     32 x 2 x 48. Tensors of three dimensions have the ranks that are asked for, but the layers
#     that it compresses have matrices. Tucker of the same package is exact with full ranks.
# For gyre: it compresses no weights. There, take SVD, or reshape matrices before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 scipy==1.17.1 \
    tensorly==0.10.0 psutil==7.2.2 PyYAML==6.0.3 packaging==25.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps goldcrest==0.1.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
from goldcrest.plugins.compression.tensor_train import TensorTrain
from goldcrest.plugins.compression.tucker import Tucker

torch.set_num_threads(1)
torch.manual_seed(0)


def error(actual, expected):
    return ((actual.reshape(expected.shape) - expected).norm() / expected.norm()).item()


def train_error(matrix, first, second):
    """Return the error of a tensor train of 32 x 2 x 48, by two singular value decompositions."""
    left, values, right = torch.linalg.svd(matrix.reshape(32, 96), full_matrices=False)
    rest = (values[:first, None] * right[:first]).reshape(-1, 48)
    u, values, v = torch.linalg.svd(rest, full_matrices=False)
    rest = (u[:, :second] * values[:second]) @ v[:second]
    return error(left[:, :first] @ rest.reshape(-1, 96), matrix)


full = torch.randn(64, 48)
low = torch.randn(64, 3) @ torch.randn(3, 48)
for name, matrix in [("random", full), ("of rank 3", low)]:
    errors = []
    for ranks in [[1, 2, 2, 1], [1, 6, 3, 1], [1, 16, 16, 1], [1, 64, 64, 1]]:
        plugin = TensorTrain(tensor_ranks=ranks)
        compressed = plugin.compress(matrix)
        restored = plugin.decompress(compressed)
        errors.append(error(restored, matrix))
        used = [factor.shape[0] for factor in compressed.factors] + [1]
        print(f"{name}, ranks {ranks}: used {used}, error {errors[-1]:.4f}, due "
              f"{train_error(matrix, *ranks[1:3]):.4f}, shape {tuple(restored.shape)}")
        assert used == [1, 4, 2, 1] and tuple(restored.shape) == (32, 2, 48)
    assert np.ptp(errors) < 1e-4
    assert abs(errors[0] - train_error(matrix, 4, 2)) < 1e-3
    assert errors[0] > (0.9 if name == "random" else 0.3)
    assert train_error(matrix, 64, 64) < 1e-5
assert train_error(low, 6, 3) < 1e-5

wide = TensorTrain(tensor_ranks=[1, 64, 64, 1])
rank = torch.linalg.matrix_rank(wide.decompress(wide.compress(full.T)).reshape(48, 64)).item()
print(f"48 x 64: what is decompressed has rank {rank}")
assert rank == 4

cube = torch.randn(8, 8, 8)
errors = [error(plugin.decompress(plugin.compress(cube)), cube)
          for plugin in [TensorTrain(tensor_ranks=[1, rank, rank, 1]) for rank in [2, 8]]]
print(f"8 x 8 x 8, ranks 2 and 8: errors {errors[0]:.4f} and {errors[1]:.1e}")
assert errors[0] > 0.5 and errors[1] < 1e-4
tucker = Tucker(tucker_ranks=[64, 48])
print(f"Tucker with full ranks: error {error(tucker.decompress(tucker.compress(full)), full):.1e}")
assert error(tucker.decompress(tucker.compress(full)), full) < 1e-4
PYTHON
