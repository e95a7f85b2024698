"""FLOPs are those of the matrices that a model has."""

import pytest
from conftest import random_model

from gyre.flops import flops_per_token, matrix_parameters


@pytest.mark.parametrize("tied", [True, False])
def test_flops_are_those_of_the_matrices_and_of_attention(tied):
    model = random_model(n_layers=2, head_dim=10, tie_embeddings=tied)
    matrices = sum(p.numel() for p in model.layers.parameters() if p.ndim == 2) + 97 * 48
    assert matrix_parameters(model.config) == matrices
    assert flops_per_token(model.config, 20) == 6 * matrices + 12 * 20 * 2 * 6 * 10
