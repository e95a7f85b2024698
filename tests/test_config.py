"""Numbers that follow from the configuration of a model."""

from builders import random_model


def test_flops_follow_from_the_configuration():
    """Of a row of 20: 6 for each weight, and 12 T n_layers n_heads head_dim = 28,800."""
    model = random_model(n_layers=2, head_dim=10)
    in_layers = sum(p.numel() for p in model.layers.parameters() if p.ndim == 2)
    assert in_layers == 2 * (2 * 48 * 60 + 2 * 48 * 20 + 3 * 48 * 80)
    assert model.config.flops_per_token(20) == 6 * (in_layers + 97 * 48) + 28800
