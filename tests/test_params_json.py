"""How far the positions of Meta's models reach, which params.json never says."""

import pytest

from formats import meta

PARAMS = {"dim": 48, "n_layers": 1, "n_heads": 6, "norm_eps": 1e-5}
SHAPES = {"tok_embeddings.weight": (97, 48), "output.weight": (97, 48),
          "layers.0.feed_forward.w1.weight": (80, 48)}
SCALED = {"use_scaled_rope": True, "rope_scaling_factor": 8}


@pytest.mark.parametrize("fields, reach", [
    ({}, 4096),  # Llama 2
    ({"rope_theta": 10000.0}, 4096),
    ({"rope_theta": 500000.0}, 8192),  # Llama 3
    ({"rope_theta": 500000.0, **SCALED}, 131072)],  # Llama 3.1
    ids=["llama-2", "llama-2-stated", "llama-3", "llama-3.1"])
def test_theta_and_scaling_tell_how_far_positions_reach(fields, reach):
    model = meta.to_model(PARAMS | fields, SHAPES)
    assert model.max_positions == reach
