"""What is read off a study's files, and which studies are refused."""

import math

import pytest
from made_up_study import EFFECT, HORIZONS, USED, change, final, make_pair, make_study

from ablation.study import Study
from errors import UserError


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    return Study.load(make_study(tmp_path_factory.mktemp("runs") / "made-up"))


def test_differences_are_those_of_each_length(study):
    rope, sin = (sum(final(arm, s, EFFECT[arm]) for s in range(6)) / 6 for arm in ("rope", "sin"))
    for k, tokens in zip((2, 1, 0), HORIZONS, strict=True):
        result = study.paired("rope", tokens)
        assert result.n == 6
        assert result.mean == pytest.approx(rope - sin + EFFECT["rope"] * (2**k - 1), abs=1e-9)
    assert study.paired("rope", 12345) is None


def test_an_encoding_is_used_where_the_curve_passes_below_the_bigrams(study):
    for arm in EFFECT:
        assert [*study.tokens_until_used(arm).values()] == pytest.approx([USED[arm]] * 6, rel=1e-4)


def test_gaps_are_taken_at_equal_seeds_and_tokens(study):
    gaps, steepness = study.gaps("rope"), 1.2 / math.log(4)
    expected = [steepness * math.log(USED["rope"] / USED["sin"])] * 13
    assert len(gaps) == 6 and list(gaps[0].values()) == pytest.approx(expected)
    assert {*study.curves("rope", "shift")[0].values()} == {0}  # which is a value


def test_seeds_without_a_record_and_other_shapes_are_no_contradiction(tmp_path):
    path = make_pair(tmp_path / "half", 2)
    (path / "results" / "sin-s1.json").unlink()
    change(path, "rope-s0", init_sha256="c" * 64, init_kind="wide")
    half = Study.load(path)
    assert list(half.runs("sin")) == [0] and half.paired("rope", HORIZONS[0]).n == 1
    assert len(half.gaps("rope")) == 1


@pytest.mark.parametrize("run, fields, words", [
    ("rope-s0", {"data_sha256": "a"}, "data_sha256 differs between rope-s0 and rope-s1"),
    ("rope-s0", {"tokenizer_sha256": "b"}, "tokenizer_sha256 differs"),
    ("rope-s0", {"init_sha256": "c"}, "init_sha256 differs between rope-s0 and sin-s0"),
    ("rope-s0", {"embeddings_kind": "large"}, "embeddings_sha256 differs"),
    ("rope-s1", {"lr": 4e-3}, "lr differs .*an arm has one learning rate"),
    ("rope-s0", {"batches_sha256": "d"}, "batches_sha256 differs between rope-s0 and sin-s0")])
def test_records_that_cannot_be_compared_are_refused(tmp_path, run, fields, words):
    path = make_pair(tmp_path / "bad", 2)
    change(path, run, **fields)
    with pytest.raises(UserError, match=words):
        Study.load(path)


def test_files_that_are_damaged_are_refused(tmp_path):
    path = make_pair(tmp_path / "bad", 2)
    for name, text, words in (
        ("results/rope-s0.json", '{"loss": 1}', "hash differs.* remove it"),
        ("plan.json", '{"arms": 1}', "its hash differs.* start another study")):
        (path / name).write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=words):
            Study.load(path)
    (path / "plan.json").unlink()
    with pytest.raises(UserError, match="not a study"):
        Study.load(path)
