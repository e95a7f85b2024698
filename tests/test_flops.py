"""FLOPs, counted by hand."""

from conftest import model_config

from gyre.flops import flops_per_token, matrix_parameters


def test_flops_count_products_and_scores():
    """Tied or not: the output matrix is one product, and looking up an embedding is none."""
    for tie in (True, False):
        config = model_config(tie_embeddings=tie, position="learned")
        layer = 48 * 48 + 2 * 48 * 16 + 48 * 48 + 3 * 48 * 80  # wq, wk and wv, wo, w1 to w3
        assert matrix_parameters(config) == 3 * layer + 97 * 48
        assert flops_per_token(config, 10) == 6 * (3 * layer + 97 * 48) + 12 * 10 * 3 * 6 * 8
