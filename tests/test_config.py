"""What one part of a configuration takes from another, and what does not fit together."""

import dataclasses

import pytest
from conftest import load

from errors import UserError
from gyre.options import CONFIGS, load_file
from model.position import POSITIONS


def test_derived_values_follow_what_was_given_and_not_the_defaults():
    config = load("--model.dim", "96", "--model.n_heads", "3", "--data.seq_len", "50")
    assert config.model.head_dim == 32 and config.model.n_kv_heads == 3
    assert config.model.hidden_dim == 256 and config.model.max_positions == 200
    assert load("--data.vocab_size", "1000").model.vocab_size == 1000
    assert load("--model.position", "learned").model.max_positions == 256


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.name)
def test_every_config_of_ours_loads_with_every_encoding(path):
    for position in POSITIONS:
        assert load("--config", path.name, "--model.position", position).model.position == position


@pytest.mark.slow
@pytest.mark.parametrize("argv", [
    [],
    ["--config", "small", "--data.source", "url", "--data.url", "https://example.org/a.txt"],
    ["--model.position", "learned", "--optim.lr", "1e-7", "--data.files", "[a.txt, b/*.jsonl]",
     "--data.column", "story", "--train.sample_prompt", "é: \n 'x' # no\t🙂",
     "--log.tags", "[a, '1']", "--name", "1e3"],
    ["--model.rope_scaling", "{type: yarn, factor: 2.5}", "--data.seq_len", "50", "--data.source",
     "hub", "--data.hub", "a/b", "--data.hub_revision", "abc", "--data.hub_split", "test"],
])
def test_a_configuration_that_was_written_is_read_back_equal(tmp_path, argv):
    """From its file, and as the base of a command line, of which a word changes what it says."""
    config, file = load(*argv), tmp_path / "config.yaml"
    file.write_text(config.to_yaml(), encoding="utf-8")
    assert load_file(file) == load(base=dataclasses.asdict(config)) == config
    longer = load("--train.steps", "2000", base=dataclasses.asdict(config))
    config.train.steps = 2000
    assert longer == config


@pytest.mark.parametrize("argv, words", [
    (["--model.n_heads", "3"], "model.dim 256 is not divisible by model.n_heads 3"),
    (["--model.norm_eps", "0"], "model.norm_eps must be above 0 and finite, not 0"),
    (["--model.vocab_size", "99"], "model.vocab_size 99 and data.vocab_size 4096 differ"),
    (["--data.seq_len", "99", "--model.max_positions", "98"], "seq_len 99 is longer .* 98"),
    (["--model.position", "learned", "--model.max_positions", "999"], "would never be trained"),
    (["--model.partial", "0.5", "--model.position", "none"], "model.partial has no effect"),
    (["--optim.warmup_steps", "2000"], "warmup_steps 2000 is longer than train.steps 1000"),
    (["--train.steps", "0"], "train.steps must be at least 1, not 0"),
    (["--train.micro_batch_size", "-1"], "train.micro_batch_size must be at least 1, not -1"),
    (["--train.sample_tokens", "-1"], "train.sample_tokens must be at least 0, not -1"),
    (["--seed", "-1"], r"seed must be in \[0, 2\^63\), not -1"),
])
def test_what_does_not_fit_together_is_refused_in_a_sentence(argv, words):
    with pytest.raises(UserError, match=words) as caught:
        load(*argv)
    assert "\n" not in str(caught.value)
