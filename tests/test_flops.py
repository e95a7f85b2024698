"""FLOPs are those of the matrices that a model has."""

import pytest
from conftest import model_config, random_model

from gyre.flops import flops_per_token, matrix_parameters


@pytest.mark.parametrize("tied", [True, False])
def test_flops_are_those_of_the_matrices_and_of_attention(tied):
    config = model_config(n_layers=2, head_dim=10, tie_embeddings=tied)
    layers = random_model(n_layers=2, head_dim=10, tie_embeddings=tied).layers
    matrices = sum(p.numel() for p in layers.parameters() if p.ndim == 2) + 97 * 48
    assert matrix_parameters(config) == matrices
    assert flops_per_token(config, 20) == 6 * matrices + 12 * 20 * 2 * 6 * 10
