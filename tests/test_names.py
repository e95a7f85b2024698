"""Names in GGUF, the permutation, and what has no counterpart. That the names of Hugging Face
are right is seen in test_hf.py, where transformers computes what we do."""

from contextlib import nullcontext

import gguf
import pytest
import torch
from builders import model_config
from saved_models import assert_refused, make_new_run, their_folder

from formats import names
from model.config import RopeScaling
from model.encodings import POSITIONS
from model.transformer import Attention


def test_the_names_of_gguf_are_those_of_its_package():
    config = model_config(tie_embeddings=False)
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.n_layers)
    theirs = names.tensor_names(config, "gguf")
    in_hf = names.tensor_names(config, "hf")
    for name in names.tensor_shapes(config):
        assert known.get_name(in_hf[name], (".weight",)) == theirs[name]


def test_the_layouts_are_each_others_inverse():
    """Channels 2i and 2i+1 of a head go to i and i + D/2, in the same head."""
    weight = torch.arange(2.0 * 6 * 5).view(2 * 6, 5)
    name = "layers.0.attention.wk.weight"
    halves = names.relayout(name, weight, 6, "halves")
    assert (halves[:, 0] / 5).tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert torch.equal(names.relayout(name, halves, 6, "pairs"), weight)


@pytest.mark.parametrize("changes, targets, words", [
    *(({"position": position}, {"hf", "gguf"}, f"model.position {position}: .*only rope")
      for position in sorted(set(POSITIONS) - {"rope"})),
    ({"partial": 0.5}, {"gguf"}, "model.partial 0.5"),
    ({"partial": 0.5, "rope_scaling": RopeScaling("linear", 2, 16)}, {"hf", "gguf"}, "partial 0.5"),
    ({"partial": 0.5, "rope_scaling": RopeScaling("ntk", 2, 16)}, {"gguf"}, "model.partial 0.5"),
    ({"dim": 50, "head_dim": 8}, {"hf"}, "dim 50 is not divisible by model.n_heads 6"),
    ({"rope_scaling": RopeScaling("dynamic", 2, 16)}, {"gguf"}, "type dynamic.*llama.cpp")])
def test_what_a_target_cannot_express_is_refused_by_name(changes, targets, words):
    config = model_config(**changes)
    for to in ("hf", "gguf"):
        with pytest.raises(ValueError, match=words) if to in targets else nullcontext():
            names.refuse_without_counterpart(config, to)


@pytest.fixture
def no_known_shapes():
    """For a test of another model of the same configuration: neither sees the other's shapes."""
    names.tensor_shapes.cache_clear()
    yield
    names.tensor_shapes.cache_clear()


@pytest.mark.usefixtures("no_known_shapes")
def test_a_weight_without_a_name_elsewhere_is_refused(tmp_path, capsys, monkeypatch):
    """Such as that of QK-norm: without it, the exported model would be another one."""
    build = Attention.__init__

    def build_with_norm(self, config, *rest):
        build(self, config, *rest)
        self.q_norm = torch.nn.RMSNorm(config.head_dim)

    monkeypatch.setattr(Attention, "__init__", build_with_norm)
    run = make_new_run(tmp_path, "ours")
    assert "layers.0.attention.q_norm.weight" in run.checkpoints.load_weights()
    words = "layers.0.attention.q_norm.weight", "has no name"
    for to in ("hf", "gguf"):
        assert_refused(capsys, to, run.path, tmp_path / "out", *words)
    assert_refused(capsys, "run", their_folder(tmp_path), tmp_path / "new", *words)
