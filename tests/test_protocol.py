"""What the studies compare: models of one size that differ in how they know order only."""

from dataclasses import asdict

import pytest

from ablation.plan import ARMS
from gyre.options import make_config
from gyre.yaml_files import read_yaml
from model.transformer import Transformer


def arm_config(name):
    """The configuration of an arm, as dictionaries."""
    return asdict(make_config(read_yaml("ablation.yaml"), ARMS[name]))


def test_the_model_is_the_one_of_the_protocol():
    model = make_config(read_yaml("ablation.yaml"), ARMS["rope"]).model
    assert model.dim == 128
    assert model.n_layers == 4
    assert model.n_heads == 4
    assert model.head_dim == 32
    assert sum(weight.numel() for weight in Transformer(model).parameters()) == 857216


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_differs_from_rope_in_its_overlay_only(arm):
    """How far tables reach follows from the encoding; the rows of training are equally long."""
    config = arm_config(arm)
    reference = arm_config("rope")
    model = config.pop("model")
    reference_model = reference.pop("model")
    changed = {f"model.{key}" for key in model if model[key] != reference_model[key]}
    assert changed <= {*ARMS[arm], "model.position", "model.max_positions"}
    assert config == reference


@pytest.mark.parametrize("arm, option, value", [
    ("rope_b100", "theta", 100.0), ("rope_b1k", "theta", 1000.0),
    ("rope_b500k", "theta", 500000.0), ("p_rope_50", "partial", 0.5),
    ("p_rope_75", "partial", 0.75), ("sin_vaswani", "sinusoid", "vaswani"),
    ("sin", "position", "sinusoidal"), ("nope", "position", "none")])
def test_an_arm_is_what_its_name_says(arm, option, value):
    assert arm_config(arm)["model"][option] == value
