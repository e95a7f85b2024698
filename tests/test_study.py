"""What is read off a study's files, and which studies are refused."""

import shutil

import pytest
from made_up_study import change, make_pair, record, write

from ablation.study import Study, past_the_end
from errors import UserError


def test_past_the_end_weighs_positions_not_buckets():
    loss = [9.0, 3.0, 2.0, 1.0]  # positions 1; 2 ... 4; 5 ... 8 = 2T; beyond
    made = {"seq_len": 4, "by_position": {"position": [1, 2, 5, 9], "loss": loss}}
    assert past_the_end(made) == pytest.approx(2.0 - (9 + 3 * 3) / 4)
    made["by_position"]["loss"][2] = None
    assert past_the_end(made) is None
    assert past_the_end({"seq_len": 4}) is None


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("data_sha256", "a" * 64, "rope-s1, sin-s0, sin-s1"),
        ("tokenizer_sha256", "b" * 64, "rope-s1, sin-s0, sin-s1"),
        ("seq_len", 64, "rope-s1, sin-s0, sin-s1"),
        ("tokens", 1, "rope-s1, sin-s0, sin-s1"),
        ("init_sha256", "c" * 64, "sin-s0"),
        ("batches_sha256", "d" * 64, "sin-s0"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(tmp_path, key, value, named):
    path = make_pair(tmp_path / "mixed", 2, 2)
    change(path, "rope-s0", **{key: value})
    with pytest.raises(UserError, match=rf"{key} differs .* in rope-s0; .* in {named}\)"):
        Study.load(path)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda p: shutil.rmtree(p / "results"), "no results"),
        (lambda p: (p / "plan.json").unlink(), "not a study"),
        (lambda p: (p / "results" / "rope-s0.json").write_text("{", encoding="utf-8"), "damaged"),
        (lambda p: write(p / "results" / "rope-s0.json", {"arm": "rope"}), "seed"),
        (lambda p: write(p / "results" / "x.json", record("nope", 0, 0.1)), "arm 'nope'"),
        (lambda p: write(p / "results" / "x.json", record("rope", 0, 0.1)), "second record"),
    ],
)
def test_bad_input_in_words(tmp_path, break_it, words):
    path = make_pair(tmp_path / "bad")
    break_it(path)
    with pytest.raises(UserError, match=words):
        Study.load(path)
