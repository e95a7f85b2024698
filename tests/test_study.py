"""What is read off a study's files, and which studies are refused."""


import pytest
from builders import ROOT, quick_for
from made_up_study import EFFECT, HORIZONS, USED, change, make_pair, make_study

from ablation.study import Study
from errors import UserError
from files import read_sealed, write_sealed


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    return Study.load(make_study(tmp_path_factory.mktemp("runs") / "made-up"))


def change_loss(path, run: str, loss: float) -> None:
    """Let a run have ended with this loss at the first length."""
    ends = read_sealed(path / "results" / f"{run}.json", "")["horizons"]
    ends[0]["loss"] = loss
    change(path, run, horizons=ends)


def test_a_difference_is_the_mean_over_paired_seeds(tmp_path):
    path = make_pair(tmp_path / "pair", 2)
    for run, loss in (("rope-s0", 2.0), ("rope-s1", 2.5), ("sin-s0", 3.0), ("sin-s1", 4.0)):
        change_loss(path, run, loss)
    result = Study.load(path).paired("rope", HORIZONS[0])
    assert (result.n, result.mean) == (2, -1.25)


def test_a_length_that_was_not_trained_has_no_difference(study):
    assert study.paired("rope", 12345) is None


def test_an_encoding_is_used_where_its_curve_passes_the_bigrams(study):
    for arm in EFFECT:
        tokens = [*study.tokens_until_used(arm).values()]
        assert tokens == pytest.approx([USED[arm]] * 6, rel=1e-4)


def test_gaps_are_taken_at_equal_seeds_and_tokens(study):
    gaps = study.gaps("rope")
    assert len(gaps) == 6
    # 1.2 / ln 4 * ln(60,000 / 150,000) at every point; see made_up_study.py.
    assert list(gaps[0].values()) == pytest.approx([-0.793157] * 13, abs=1e-6)


def test_a_cost_of_zero_is_a_value(study):
    assert [*study.curves("rope", "shift")[0].values()] == [0.0] * 13


def test_points_without_a_value_are_left_out_of_a_curve(study):
    assert study.curves("learned", "shift")[0] == {}


def test_losses_without_a_value_are_left_out_of_the_contexts(study):
    assert len(study.contexts("rope", 64, "sliding")) == 6
    assert study.contexts("learned", 64, "sliding") == {}


def test_seeds_without_a_record_are_not_paired(tmp_path):
    path = make_pair(tmp_path / "half", 2)
    (path / "results" / "sin-s1.json").unlink()
    half = Study.load(path)
    assert list(half.records_of("sin")) == [0]
    assert half.paired("rope", HORIZONS[0]).n == 1
    assert len(half.gaps("rope")) == 1


def test_initial_weights_of_other_shapes_may_differ(tmp_path):
    path = make_pair(tmp_path / "wide", 2)
    change(path, "rope-s0", init_sha256="c" * 64, init_kind="wide")
    assert len(Study.load(path).records) == 4


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


@pytest.mark.parametrize("other", ["sin-s0", "rope-s1"])
def test_a_record_under_another_name_is_refused(tmp_path, other):
    results = make_pair(tmp_path / "bad", 2) / "results"
    (results / f"{other}.json").write_bytes((results / "rope-s0.json").read_bytes())
    with pytest.raises(UserError, match=f"{other}.json is the record of rope, seed 0: remove it"):
        Study.load(tmp_path / "bad")


def test_seeds_are_told_apart_by_the_code_of_their_encoding(tmp_path):
    path = make_pair(tmp_path / "edited", 3)
    change(path, "rope-s0", encoding_sha256="a")
    change(path, "rope-s1", encoding_sha256="a")
    change(path, "rope-s2", encoding_sha256="b")
    assert Study.load(path).code_of_encoding("rope") == {"a": [0, 1], "b": [2]}


def test_a_record_of_an_older_version_has_no_code(tmp_path):
    assert Study.load(make_pair(tmp_path / "old")).code_of_encoding("rope") == {}


@pytest.mark.parametrize("name, words", [
    ("results/rope-s0.json", "hash differs.* remove it and the folders .*bad/rope-s0-[*], if"),
    ("plan.json", "its hash differs.* start another study")])
def test_a_file_that_was_changed_is_refused(tmp_path, name, words):
    path = make_pair(tmp_path / "bad", 2)
    (path / name).write_text('{"loss": 1}', encoding="utf-8")
    with pytest.raises(UserError, match=words):
        Study.load(path)


@pytest.mark.parametrize("name, words", [
    ("results/rope-s0.json", "rope-s0.json is not a record of a run .*`arm`.*: remove it"),
    ("plan.json", "plan.json is not the plan of a study .*`name`.*: restore it")])
def test_a_file_without_its_fields_is_refused(tmp_path, name, words):
    path = make_pair(tmp_path / "bad", 2)
    write_sealed(path / name, {"loss": 1})
    with pytest.raises(UserError, match=words):
        Study.load(path)


def test_a_folder_without_a_plan_is_no_study(tmp_path):
    with pytest.raises(UserError, match="is not a study: it has no plan.json"):
        Study.load(tmp_path)


# The reports of the others are compared with their records in test_report.py.
WITHOUT_REPORT = ["context/c32", "context/c128", "context/c512", "interleaved-english", "qk-rates",
                  "what-where-english-rates", "what-where-rates"]


@pytest.mark.parametrize("name", quick_for(WITHOUT_REPORT, [
    "bases", "causes", "context/c32", "context/c128", "context/c512", "english", "five",
    "interleaved", "interleaved-english", "interleaved-long", "length-32", "length-512",
    "lines-apart", "lines-near", "nope-english", "qk",
    "qk-english", "qk-long", "qk-mechanism", "qk-rates", "qk-retuned", "qk-tuned", "qk-wide",
    "what-where", "what-where-english", "what-where-english-rates", "what-where-four",
    "what-where-long", "what-where-rates", "wide"]))
def test_every_committed_study_can_be_read(name):
    study = Study.load(ROOT / "studies" / name)
    files = [*(study.path / "results").glob("*.json")]
    assert len(study.records) == len(files)
    for record in study.records.values():
        assert [end.tokens for end in record.horizons] == study.horizons
