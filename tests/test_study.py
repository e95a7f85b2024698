"""What is read off a study's files, and which studies are refused."""

import math

import pytest
from made_up_study import (
    EFFECT,
    HORIZONS,
    USED,
    change,
    losses,
    make_pair,
    make_study,
    record,
    write,
)

from ablation.study import Study
from errors import UserError


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    return Study.load(make_study(tmp_path_factory.mktemp("runs") / "made-up"))


def test_differences_are_those_of_each_length(study):
    expected = losses("rope", range(6)) - losses("sin", range(6))
    for k, tokens in zip((2, 1, 0), HORIZONS, strict=True):
        result = study.paired("rope", tokens)
        assert result.n == 6
        assert result.mean == pytest.approx(expected.mean() + EFFECT["rope"] * (2**k - 1), abs=1e-9)
    assert study.paired("rope", 12345) is None


def test_an_encoding_is_used_where_the_curve_passes_below_the_bigrams(study):
    for arm in EFFECT:
        used = list(study.tokens_until_used(arm).values())
        assert used == pytest.approx([USED[arm]] * 6, rel=1e-4)


def test_gaps_are_taken_at_equal_seeds_and_tokens(study):
    gaps, steepness = study.gaps("rope"), 1.2 / math.log(4)
    expected = [steepness * math.log(USED["rope"] / USED["sin"])] * 13
    assert len(gaps) == 6 and list(gaps[0].values()) == pytest.approx(expected)


def test_seeds_without_a_record_are_left_out(tmp_path):
    path = make_pair(tmp_path / "half", 2)
    (path / "results" / "rope-s1.json").unlink()
    half = Study.load(path)
    assert list(half.runs("rope")) == [0] and half.paired("rope", HORIZONS[0]).n == 1


FROM_ALL = r"differs .* in rope-s0; .* in rope-s1, sin-s0, sin-s1\)"
FROM_ITS_SEED = r"differs .* in rope-s0; .* in sin-s0\)"


@pytest.mark.parametrize("break_it, words", [
    (lambda p: change(p, "rope-s0", data_sha256="a" * 64), f"data_sha256 {FROM_ALL}"),
    (lambda p: change(p, "rope-s0", tokenizer_sha256="b" * 64), f"tokenizer_sha256 {FROM_ALL}"),
    (lambda p: change(p, "rope-s0", init_sha256="c" * 64), f"init_sha256 {FROM_ITS_SEED}"),
    (lambda p: change(p, "rope-s0", embeddings_kind="large"), "embeddings_sha256 differs"),
    (lambda p: change(p, "rope-s1", lr=4e-3), "lr differs .*an arm has one learning rate"),
    (lambda p: change(p, "rope-s0", batches_sha256="d" * 64), f"batches_sha256 {FROM_ITS_SEED}"),
    (lambda p: (p / "plan.json").unlink(), "not a study"),
    (lambda p: (p / "results" / "rope-s0.json").write_text("{", encoding="utf-8"), "damaged"),
    (lambda p: write(p / "results" / "rope-s0.json", record("rope", 0, 0.1)), "its hash differs"),
    (lambda p: write(p / "plan.json", [1]), "plan.json is damaged .*it holds no object"),
    (lambda p: write(p / "plan.json", {"arms": 1}), "its hash differs.* start another study"),
])
def test_what_is_broken_or_cannot_be_compared_is_refused_in_words(tmp_path, break_it, words):
    path = make_pair(tmp_path / "bad", 2)
    break_it(path)
    with pytest.raises(UserError, match=words):
        Study.load(path)


def test_an_arm_of_another_shape_may_start_otherwise(tmp_path):
    path = make_pair(tmp_path / "wide", 2)
    change(path, "rope-s0", init_sha256="c" * 64, init_kind="wide")
    Study.load(path)
