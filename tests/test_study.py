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


FROM_ALL = r"differs .* in rope-s0; .* in rope-s1, sin-s0, sin-s1\)"
FROM_ITS_SEED = r"differs .* in rope-s0; .* in sin-s0\)"


@pytest.mark.parametrize("break_it, words", [
    (lambda p: change(p, "rope-s0", data_sha256="a" * 64), f"data_sha256 {FROM_ALL}"),
    (lambda p: change(p, "rope-s0", tokenizer_sha256="b" * 64), f"tokenizer_sha256 {FROM_ALL}"),
    (lambda p: change(p, "rope-s0", seq_len=64), f"seq_len {FROM_ALL}"),
    (lambda p: change(p, "rope-s0", tokens=1), f"tokens {FROM_ALL}"),
    (lambda p: change(p, "rope-s0", init_sha256="c" * 64), f"init_sha256 {FROM_ITS_SEED}"),
    (lambda p: change(p, "rope-s0", batches_sha256="d" * 64), f"batches_sha256 {FROM_ITS_SEED}"),
    (lambda p: shutil.rmtree(p / "results"), "no results"),
    (lambda p: (p / "plan.json").unlink(), "not a study"),
    (lambda p: (p / "results" / "rope-s0.json").write_text("{", encoding="utf-8"), "damaged"),
    (lambda p: write(p / "results" / "rope-s0.json", {"arm": "rope"}), "seed"),
    (lambda p: write(p / "results" / "x.json", record("nope", 0, 0.1)), "arm 'nope'"),
    (lambda p: write(p / "results" / "x.json", record("rope", 0, 0.1)), "second record"),
])
def test_what_is_broken_or_cannot_be_compared_is_refused_in_words(tmp_path, break_it, words):
    path = make_pair(tmp_path / "bad", 2, 2)
    break_it(path)
    with pytest.raises(UserError, match=words):
        Study.load(path)
