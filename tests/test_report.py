"""The report of a made-up study says what was put into it, and no more; and the committed report
says what the committed records do."""

import json
import math
import re
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
from builders import ROOT, exit_code
from made_up_study import HORIZONS, change, make_pair, make_study
from matplotlib.image import imread
from scipy.special import stdtrit

from ablation import plots, report, stats
from ablation.plan import ARMS, add_seeds, read_plan, write_plan
from ablation.report import UNDEFINED, compose, mirror_in_wandb, write_report
from ablation.study import Study
from errors import UserError
from files import read_json, read_sealed
from gyre.wandb_log import LogConfig

COMMITTED = ["five", "bases", "english", "wide", "qk", "causes", "qk-long", "qk-english",
             "qk-wide", "qk-mechanism", "qk-tuned", "qk-retuned", "what-where",
             "what-where-four", "what-where-long", "what-where-english", "interleaved",
             "interleaved-long", "partial-long", "length-32", "length-512", "lines-apart",
             "lines-near"]


def table(page: str, *header: str) -> dict[str, list[str]]:
    """{first cell: the other cells} of the table of a report whose header starts like this.

    A list, because each length has a column "minus sin".
    """
    _, *after = page.split(f"| {' | '.join(header)} |")
    assert len(after) == 1
    lines = after[0].partition("\n\n")[0].splitlines()[2:]
    rows = [re.split(r" (?<!\\)\| ", line[2:-2].replace("\\*", "*")) for line in lines]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("data, names", [
    ({"files": ["a/b.txt", "c.txt"], "source": "files"}, ["a/b.txt", "c.txt"]),
    ({"url": "https://example.org/d.txt", "source": "url"}, ["https://example.org/d.txt"]),
    ({"files": None, "hub": "owner/name", "source": "hub"}, ["owner/name"]),
    ({"source": "stdlib"}, ["stdlib"]), ({}, [""])])
def test_a_text_is_named_by_what_it_comes_from(data, names):
    assert report.name_texts(data) == names


def test_arms_that_share_a_part_of_the_initial_weights_are_named(pair):
    for seed in (0, 1):
        change(pair, f"rope-s{seed}", init_sha256="c", init_kind="wide")
    assert (" In rope, weights of another shape, or that the encoding starts in its own way, "
            "started from other values.\n") in compose(Study.load(pair))


def test_no_arm_is_named_if_all_initial_weights_are_shared(pair):
    assert "if text or tokenizer differ between any two runs.\n" in compose(Study.load(pair))


@pytest.mark.parametrize("folder, expected", [
    (ROOT / "studies" / "five", "studies/five"), (ROOT / "runs" / "my study", "'runs/my study'"),
    (Path("/elsewhere/s1"), "/elsewhere/s1")])
def test_a_report_names_its_folder_for_a_shell(folder, expected):
    assert report.name_folder(folder) == expected


def test_the_page_has_the_numbers_of_the_records(tmp_path):
    """A loss ± its sd over the seeds 2.0 and 3.0, and a difference of -0.5 and 1.0."""
    path = make_pair(tmp_path / "pair", 2)
    change_losses(path, "rope-s0", 2.0)
    change_losses(path, "rope-s1", 3.0)
    change_losses(path, "sin-s0", 2.5)
    change_losses(path, "sin-s1", 2.0)
    rows = table(compose(Study.load(path)), "arm", "learning rate")
    assert list(rows) == ["rope", "sin"]
    # t of one degree of freedom is 12.706, and the standard error of the mean 0.75.
    rate, n, loss, minus_sin, *_ = rows["rope"]
    assert (rate, n) == ("0.002", "2")
    assert (loss, minus_sin) == ("2.500 ± 0.707", "+0.250 [−9.280, +9.780]")
    rate, n, loss, minus_sin, *_ = rows["sin"]
    assert (rate, n) == ("0.002", "2")
    assert (loss, minus_sin) == ("2.250 ± 0.354", "–")


def change_losses(path, run: str, loss: float) -> None:
    """Let a run have ended with this loss at every length."""
    ends = read_sealed(path / "results" / f"{run}.json", "")["horizons"]
    change(path, run, horizons=[end | {"loss": loss} for end in ends])


@pytest.fixture
def pair(tmp_path):
    """Two seeds of rope and sin."""
    return make_pair(tmp_path / "pair", 2)


@pytest.fixture
def made_up(tmp_path):
    """Six seeds of five arms."""
    return make_study(tmp_path / "made-up")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The same, for fixtures of the module: each takes a copy."""
    return make_study(tmp_path_factory.mktemp("shared") / "made-up")


@pytest.fixture(scope="module")
def made_up_page(shared):
    """The report of that study."""
    return compose(Study.load(shared))


def test_the_headline_has_the_first_and_the_last_length(made_up_page):
    """The study has -0.06 after the last length, and 2**2 times as much after the first one. Both
    with some noise in the third decimal."""
    header = ("nats per token, 95 % interval over paired seeds", "after 102 k tokens",
              "after 410 k tokens")
    rows = table(made_up_page, *header)
    assert list(rows) == ["rope − sin", "nope − sin", "learned − sin", "alibi − sin"]
    assert [cell[:5] for cell in rows["rope − sin"]] == ["−0.24", "−0.06"]


@pytest.mark.parametrize("arm, used", [
    ("rope", "60 k"), ("sin", "150 k"), ("nope", "200 k"), ("alibi", "70 k")])
def test_the_page_says_when_an_encoding_was_used(made_up_page, arm, used):
    """As USED of made_up_study.py has it."""
    *_, last_column = table(made_up_page, "arm", "learning rate")[arm]
    assert last_column == used


def test_the_page_has_the_fewest_targets_of_all_runs(made_up_page):
    """The run of a seed has 50,176 + seed targets."""
    assert "(50,176 or more)" in made_up_page


@pytest.mark.parametrize("final_lr, words", [(0.0, "0, with"), (0.1, "0.1 of the rate, with")])
def test_the_page_says_to_which_rate_a_run_cools_down(pair, final_lr, words):
    plan = read_plan(pair)
    for arm in ("sin", "rope"):
        plan.config[arm]["optim"]["final_lr"] = final_lr
    write_plan(pair, plan)
    assert f"after a cooldown to {words}" in compose(Study.load(pair))


def test_the_page_says_which_arms_warm_up_and_cool_down_otherwise(pair):
    """A step has 256 tokens: sin warms up for 50 steps, and rope for 20."""
    plan = read_plan(pair)
    plan.config["rope"]["optim"] = {"warmup_steps": 20, "final_lr": 0.5}
    write_plan(pair, plan)
    page = compose(Study.load(pair))
    assert "of which the first 12.8 k (5.12 k for rope) tokens are warm-up" in page
    assert "after a cooldown to 0 (0.5 of the rate for rope), with 95 % intervals" in page


def test_one_seed_has_no_interval(tmp_path):
    page = compose(Study.load(make_pair(tmp_path / "one")))
    (row,) = table(page, "nats per token, one seed").values()
    assert not any("[" in cell for cell in row)
    assert "95 %" not in page


def test_a_study_that_was_grown_is_said_to_be(pair):
    assert "and grown to" not in compose(Study.load(pair))
    write_plan(pair, add_seeds(read_plan(pair), [0, 1, 2, 3], ""))
    write_plan(pair, add_seeds(read_plan(pair), [0, 1, 2, 3, 4, 5], ""))
    page = compose(Study.load(pair))
    assert "texts. Planned with 2, then 4 seeds, and grown to 6: if the results of" in page
    assert "by chance in more than one of ten such studies" in page


@pytest.mark.parametrize("looks, percent", [
    ([5, 6], 7.1), ([3, 6], 8.9), ([2, 6], 9.5), ([2, 4, 6], 12.1)])
def test_so_many_grown_studies_find_a_difference_by_chance(looks, percent):
    """As the report says. 200,000 studies without a true difference; three standard errors."""
    differences = np.random.default_rng(0).standard_normal((200_000, max(looks)))
    excludes_0 = np.zeros(200_000, dtype=bool)
    for n in looks:
        first = differences[:, :n]
        half = stdtrit(n - 1, 0.975) * first.std(axis=1, ddof=1) / np.sqrt(n)
        excludes_0[abs(first.mean(axis=1)) > half] = True
    assert 100 * excludes_0.mean() == pytest.approx(percent, abs=0.22)


def test_one_seed_that_was_grown_had_no_interval_to_choose_by(pair):
    plan = read_plan(pair)
    plan.grown_from = [1]
    write_plan(pair, plan)
    assert "texts. Planned with 1 seed, and grown to 2. The standard" in compose(Study.load(pair))


def test_an_encoding_that_was_changed_between_seeds_is_named(pair):
    change(pair, "rope-s0", encoding_sha256="2-python3.11:a")
    change(pair, "rope-s1", encoding_sha256="2-python3.11:b")
    assert ("The encoding of rope was changed between seeds, and its row mixes several: 0; 1."
            in compose(Study.load(pair)))


def test_seeds_of_one_encoding_are_not_remarked_on(pair):
    change(pair, "rope-s0", encoding_sha256="a")
    change(pair, "rope-s1", encoding_sha256="a")
    assert "was changed between seeds" not in compose(Study.load(pair))


def test_a_report_says_of_which_models_it_is(pair):
    assert ("Model of sin: 4 layers of width 128, 4 heads, a vocabulary of 512. Training: rows of "
            "32 tokens, 256 tokens a step, adamw, float32. Text: stdlib.\n"
            in compose(Study.load(pair)))


def test_beside_a_study_that_was_grown_this_is_said(tmp_path):
    path = make_pair(tmp_path / "of-three", seeds=3)
    plan = read_plan(path)
    plan.committed_grown_from = [2]
    write_plan(path, plan)
    assert ("The study of the committed arms was planned with 2 seeds, and grown later: if the "
            "results of the first seeds decided that") in compose(Study.load(path))


def test_beside_the_first_seeds_of_a_study_its_growth_does_not_matter(tmp_path):
    path = make_pair(tmp_path / "of-three", seeds=3)
    plan = read_plan(path)
    plan.committed_grown_from = [3]
    write_plan(path, plan)
    assert "grown later" not in compose(Study.load(path))


def test_a_study_of_one_encoding_is_not_called_one_of_encodings(pair):
    assert compose(Study.load(pair)).startswith("# Position encodings: pair\n")
    plan = read_plan(pair)
    plan.config["sin"] = plan.config["rope"]
    write_plan(pair, plan)
    assert compose(Study.load(pair)).startswith("# Study: pair\n")


def test_one_seed_says_nothing_about_the_encodings(tmp_path):
    page = compose(Study.load(make_pair(tmp_path / "one")))
    assert page.splitlines()[2] == (
        "One seed and 410 k tokens of training: this shows that a study runs, and nothing about "
        "the encodings.")


def test_the_headline_says_one_seed_where_one_can_be_paired(pair):
    (pair / "results" / "sin-s1.json").unlink()
    (row,) = table(compose(Study.load(pair)), "nats per token, one seed").values()
    # As with all seeds.
    assert [cell[:5] for cell in row] == ["−0.24", "−0.06"]


def test_a_second_seed_of_the_baseline_alone_has_no_interval(pair):
    (pair / "results" / "sin-s1.json").unlink()
    page = compose(Study.load(pair))
    assert "95 %" not in page
    assert "One seed says nothing of other seeds, models and texts." in page


def test_seeds_of_the_baseline_alone_are_not_called_one(tmp_path):
    path = make_pair(tmp_path / "alone", 3)
    for record in (path / "results").glob("sin-*.json"):
        record.unlink()
    assert "One seed" not in compose(Study.load(path))


def test_no_record_is_no_report(tmp_path):
    path = make_pair(tmp_path / "none", 0)
    with pytest.raises(UserError, match="has no record of a run yet"):
        write_report(path)
    assert not (path / "RESULTS.md").exists()


def test_a_study_that_diverged_as_a_whole_is_said_to(tmp_path):
    path = make_pair(tmp_path / "none", 0)
    plan = read_plan(path)
    plan.diverged = ["rope-s0", "sin-s0"]
    write_plan(path, plan)
    with pytest.raises(UserError, match="none has no run to report: rope-s0, sin-s0 diverged"):
        write_report(path)


@pytest.mark.parametrize("argv", [[], ["a", "b"]])
def test_the_command_wants_one_folder(argv, capsys):
    assert exit_code(report.main, *argv) == 2
    assert "usage: python -m ablation.report" in capsys.readouterr().err


def test_the_command_writes_the_report_of_a_folder(pair, capsys, monkeypatch):
    monkeypatch.setattr(plots, "draw", lambda study: {})
    assert exit_code(report.main, pair) == 0
    assert capsys.readouterr().out == f"{pair / 'RESULTS.md'}\n"


def with_differences(path, *by_length: tuple[float, float]) -> str:
    """The report of `pair`. Given for its two seeds at each length: the loss of rope minus that of
    sin."""
    for seed in (0, 1):
        ends = read_sealed(path / "results" / f"sin-s{seed}.json", "")["horizons"]
        change(path, f"sin-s{seed}", horizons=[end | {"loss": 3.0} for end in ends])
        change(path, f"rope-s{seed}", horizons=[
            end | {"loss": 3.0 + differences[seed]}
            for end, differences in zip(ends, by_length, strict=True)])
    return compose(Study.load(path))


def test_a_difference_that_holds_alone_only_is_marked(pair):
    """-0.20 and -0.22: t is -21, p 0.03 and three times that more than 0.05. Their mean is -0.21,
    and 12.706 standard errors 0.127."""
    page = with_differences(pair, (-0.20, -0.22), (1.0, -1.0), (1.0, -1.0))
    rows = table(page, "arm", "learning rate")
    _, n, _, minus_sin, *_ = rows["sin"]
    assert (n, minus_sin) == ("2", "–")
    _, n, _, minus_sin, *_ = rows["rope"]
    assert (n, minus_sin) == ("2", "−0.210 [−0.337, −0.083] †")
    assert "†: it excludes 0, but no longer if it is corrected for the 3 differences" in page
    (headline,) = table(page, "nats per token, 95 % interval over paired seeds").values()
    assert headline[0] == "−0.210 [−0.337, −0.083] †"


def test_differences_that_hold_together_are_said_to(pair):
    page = with_differences(pair, (-0.200, -0.201), (-0.200, -0.201), (-0.200, -0.201))
    assert "; those that exclude 0 still do if they are corrected for the 3 differences" in page
    assert "†" not in page


def test_differences_that_include_0_need_no_correction(pair):
    page = with_differences(pair, (1.0, -1.0), (1.0, -1.0), (1.0, -1.0))
    assert "each for itself. Used:" in page


@pytest.mark.parametrize("values, words", [
    ([2.0], "2.000"), ([1.0, 2.0], "1.500 ± 0.707"), ([], "–")])
def test_a_spread_needs_two_values(values, words):
    assert report.with_sd(values) == words


def test_a_study_whose_arms_all_say_their_rate_has_tuned_none(pair):
    plan = read_plan(pair)
    plan.tuned.arms = {}
    write_plan(pair, plan)
    assert plan.grid, "rates to choose from, if an arm had not said its own"
    assert "This study tuned no learning rate." in compose(Study.load(pair))


@pytest.fixture(scope="module")
def half_run(shared, tmp_path_factory):
    """The report of three seeds of rope, two of nope and sin, and none of the others."""
    path = shutil.copytree(shared, tmp_path_factory.mktemp("half-run") / "made-up")
    for file in (path / "results").iterdir():
        arm, seed = file.stem.split("-s")
        if arm in ("learned", "alibi") or int(seed) > (2 if arm == "rope" else 1):
            file.unlink()
    return compose(Study.load(path))


def test_a_study_that_is_half_run_counts_its_pairs(half_run):
    rows = table(half_run, "arm", "learning rate")
    *_, minus_sin, _ = rows["rope"]
    assert "(2 of them)" in minus_sin
    *_, minus_sin, _ = rows["nope"]
    assert "of them" not in minus_sin


def test_a_study_that_is_half_run_is_called_unfinished(half_run):
    assert half_run.splitlines()[2] == (
        "Unfinished: 23 of the 30 planned runs have no record.")


def test_a_study_that_lacks_one_record_is_called_unfinished(made_up):
    (made_up / "results" / "nope-s0.json").unlink()
    assert compose(Study.load(made_up)).splitlines()[2] == (
        "Unfinished: 1 of the 30 planned runs has no record.")


def test_the_headline_says_where_seeds_are_missing(half_run):
    rows = table(half_run, "nats per token, 95 % interval over paired seeds")
    assert list(rows) == ["rope − sin, 2 of 6 seeds", "nope − sin, 2 of 6 seeds"]


def test_a_finished_study_is_not_called_unfinished(made_up_page):
    assert "Unfinished" not in made_up_page


@pytest.mark.parametrize("mean, low, high, words", [
    (-0.0001, -0.002, 0.0018, "+0.000 [−0.002, +0.002]"),
    (0.0001, -0.0002, 0.0004, "+0.000 [+0.000, +0.000]"),
    (-0.001, -0.0016, -0.0004, "−0.001 [−0.002, −0.0004]"),
    (0.002, 0.0003, 0.0037, "+0.002 [+0.0003, +0.004]")])
def test_no_zero_has_a_minus_and_no_interval_without_0_shows_it(mean, low, high, words):
    assert report.difference(stats.Paired(3, mean, (low, high))) == words


def test_an_arm_without_records_has_no_difference(half_run):
    assert "nope − sin" in half_run
    assert "alibi − sin" not in half_run


@pytest.fixture(scope="module")
def diverged(shared, tmp_path_factory):
    """The report where a seed of nope diverged, and two of rope's tuning runs; two seeds are no
    longer planned."""
    path = shutil.copytree(shared, tmp_path_factory.mktemp("diverged") / "made-up")
    (path / "results" / "nope-s3.json").unlink()
    plan = read_plan(path)
    plan.diverged = ["nope-s3"]
    plan.seeds = [0, 1, 2, 3]
    plan.tuned.arms["rope"] = {"0.001": {"1000": 2.5, "1001": None}, "0.002": {"1000": None}}
    write_plan(path, plan)
    return compose(Study.load(path))


def test_a_seed_that_diverged_is_named(diverged):
    assert "Diverged, and left out: nope-s3." in diverged


def test_a_seed_that_diverged_is_not_called_unfinished(diverged):
    assert "Unfinished" not in diverged


def test_the_headline_says_where_a_seed_diverged(diverged):
    rows = table(diverged, "nats per token, 95 % interval over paired seeds")
    assert list(rows)[:2] == ["rope − sin", "nope − sin, 3 of 4 seeds"]


def test_a_rate_that_diverged_is_not_one_that_is_missing(diverged):
    assert "| rope | 2.500, diverged \\* | diverged |" in diverged


def test_records_of_seeds_that_are_not_planned_do_not_count(diverged):
    _, n, *_ = table(diverged, "arm", "learning rate")["rope"]
    assert n == "4"


@pytest.mark.parametrize("times, words", [
    ([150, 160, 170], "160 (150 – 170)"), ([150, 160], "155 (150 – 160)"),
    ([150, math.inf], "more than 325 (150 – more than 500)"), ([math.inf] * 2, "more than 500"),
    ([150, 160, math.inf], "160 (150 – more than 500)"),
    ([150, math.inf, math.inf], "more than 500 (150 – more than 500)")])
def test_what_never_happened_is_longer_than_was_looked(times, words):
    assert report.show_median(times, 500) == words


@pytest.mark.parametrize("tokens, words", [
    (999, "999"), (1000, "1 k"), (999_499, "999 k"), (999_500, "1 M"),
    (999_500_000, "1 G"), (1.5e9, "1.5 G")])
def test_an_amount_has_three_digits_and_a_unit(tokens, words):
    assert report.amount(tokens) == words


def test_notes_that_say_not_measured_are_put_in(pair):
    """Other sections are left out if they have nothing. Notes are not, whatever they say."""
    (pair / "notes.md").write_text("## Predictions\n\n1. Not measured.\n", encoding="utf-8")
    assert "\n\n## Predictions\n\n1. Not measured.\n\n## " in compose(Study.load(pair))


def test_empty_lines_of_notes_are_kept(pair):
    code = "```python\nfirst()\n\n\nsecond()\n```"
    (pair / "notes.md").write_text(code, encoding="utf-8")
    assert f"\n\n{code}\n\n## " in compose(Study.load(pair))


def test_notes_that_are_not_utf8_are_an_error(pair):
    (pair / "notes.md").write_bytes(b"## \xdcber\n")
    with pytest.raises(UserError, match=r"notes\.md is not UTF-8 .*: save it as UTF-8"):
        compose(Study.load(pair))


def test_a_byte_order_mark_of_notes_is_no_text(pair):
    (pair / "notes.md").write_bytes("\ufeff## Predictions\n".encode())
    assert "\n\n## Predictions\n" in compose(Study.load(pair))


def test_a_section_without_a_table_is_left_out(pair):
    plan = read_plan(pair)
    plan.tuned.arms = {}
    write_plan(pair, plan)
    page = compose(Study.load(pair))
    assert "## Loss against learning rate" not in page
    assert "## Less and more context than in training" in page


# --- what the documents say of the committed studies ----------------------------------------------


@pytest.fixture(scope="module")
def studies():
    return {name: Study.load(ROOT / "studies" / name) for name in COMMITTED}


def words(name: str) -> str:
    """The text of a document in one line, with plain minus signs."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split()).replace("\u2212", "-")


def rows(name: str, label: str) -> list[list[str]]:
    """The cells of the rows of a document's tables whose first cell begins with `label`, a regular
    expression. Without that cell, and with plain minus signs."""
    lines = (ROOT / name).read_text(encoding="utf-8").replace("\u2212", "-").splitlines()
    tables = [line.strip()[2:-2].split(" | ") for line in lines if line.strip().startswith("| ")]
    return [cells for first, *cells in tables if re.match(label, first)]


def read_lines(path):
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def share_of_repeated_pairs(name: str) -> float:
    """Which share of the targets are repeated pairs, by split.jsonl of a study."""
    line, *_ = read_lines(ROOT / "studies" / name / "split.jsonl")
    pairs = line["repeated pair"]["targets"]
    return pairs / (pairs + line["repeated token"]["targets"] + line["new"]["targets"])


def interval(study, arm, tokens, minus=None, *, of=None, sign="+"):
    """The difference of two arms, and its interval: `arm` of a study minus another one.

    minus: the other arm, or else the baseline of the study
    of: the study of the other arm, or else the same one
    """
    result = stats.paired(study.losses(arm, tokens),
                          (of or study).losses(minus or study.baseline, tokens))
    mean, low, high = (f"{value:{sign}.3f}" for value in (result.mean, *result.interval))
    return f"{mean} [{low}, {high}]"


@pytest.mark.parametrize("number, unit", [(0, " nats per token"), (-1, "")])
def test_the_readme_says_how_far_rope_leads(studies, number, unit):
    long = studies["qk-long"]
    tokens = long.horizons[number]
    lead = stats.paired(long.losses("sin", tokens), long.losses("rope_2e3", tokens)).mean
    assert f"{lead:.2f}{unit} lower after {tokens / 1e6:.2f} M" in words("README.md")


def test_the_readme_says_of_how_many_seeds_numbers_are(studies):
    full = studies["five"]
    assert [len(full.records_of(arm)) for arm in full.plan.arms] == [6] * 5
    assert "Differences are means over 6 seeds of models" in words("README.md")


def test_the_readme_says_how_near_sinusoids_at_queries_are(studies):
    full = studies["five"]
    qk = studies["qk"]
    tokens = qk.horizons[1]
    difference = stats.paired(qk.losses("sin_qk", tokens), qk.losses("rope", tokens))
    behind = stats.paired(full.losses("sin", tokens), qk.losses("rope", tokens)).mean
    readme = words("README.md")
    low, high = difference.interval
    assert low < 0 < high
    assert "the loss is level with RoPE's after 2.10 M tokens" in readme
    assert f"the loss is {behind:.2f} above RoPE's after 2.10 M" in readme


def change_at_twice_the_length(study, arm, mode="nonoverlapping"):
    """By how much the loss of windows changes from T to 2T."""
    return statistics.mean(rises(study, arm, 2, mode))


@pytest.mark.parametrize("windows, mode", [("whole", "nonoverlapping"), ("sliding", "sliding")])
def test_positions_md_says_what_longer_windows_cost(studies, windows, mode):
    full = studies["qk-long"]
    changes = [f"{change_at_twice_the_length(full, arm, mode):+.2f}"
               for arm in ("rope_2e3", "sin", "alibi")]
    assert [windows, *changes] in rows("docs/positions.md", "128, here")
    assert len(full.plan.seeds) == 6
    slow = change_at_twice_the_length(full, "rope")
    assert f"rises by [{slow:+.2f}](../studies/five/RESULTS.md)" in words("docs/positions.md")


def test_the_guide_says_what_yarn_gains(studies):
    full = studies["five"]
    raw = statistics.mean(row.loss for row in full.contexts("rope", 512, "sliding").values())
    row = statistics.mean(row.loss for row in full.contexts("rope", 128, "sliding").values())
    scaled = []
    for path in sorted((full.path / "results").glob("rope-s*.json")):
        for entry in read_sealed(path, "")["rope_scaling"]:
            if (entry["scaling"], entry["context"]) == ("yarn", 512):
                scaled.append(entry["loss"])
    guide = words("docs/guide.md")
    assert f"{raw:.2f} without scaling, and {statistics.mean(scaled):.2f} with YaRN" in guide
    assert f"the loss was {row:.2f} without scaling" in guide


@pytest.mark.parametrize("arm", ["rope", "sin", "alibi", "nope"])
def test_the_notes_say_what_the_first_probe_found(arm):
    probes = ROOT / "studies" / "five" / "probes"
    excess = [read_json(probes / f"P1-{arm}-s{seed}.json")["excess"] for seed in range(3)]
    means = []
    for length in ("T", "2T", "4T"):
        values = [record[length] for record in excess]
        means.append(f"{statistics.fmean(values):.4f}")
    found = []
    for cells in rows("studies/five/notes.md", f"{arm}$"):
        found.append([cell.split(" ")[0] for cell in cells[:3]])
    assert means in found


# --- docs/results.md ---


@pytest.mark.parametrize("number", [0, 2, 3])
def test_results_md_has_the_lead_of_rope(studies, number):
    long = studies["qk-long"]
    tokens = long.horizons[number]
    row = f"| {tokens / 1e6:.2f} M | {interval(long, 'rope_2e3', tokens, 'sin', sign='')} |"
    assert row in words("docs/results.md")


def tokens_ratio(study, arm: str, other: str, tokens: int) -> tuple[float, float, float]:
    """How many times `tokens` an arm needs for the loss that another has after `tokens`.

    Geometric mean over seeds, and the ends of its interval.
    """
    logs = {}
    for seed, target in study.losses(other, tokens).items():
        curve = {length: study.losses(arm, length)[seed] for length in study.horizons}
        logs[seed] = math.log(stats.tokens_to_target(curve, target) / tokens)
    result = stats.paired(logs, dict.fromkeys(logs, 0.0))
    assert result is not None and result.interval is not None
    low, high = result.interval
    return math.exp(result.mean), math.exp(low), math.exp(high)


def inverse(mean: float, low: float, high: float) -> tuple[float, float, float]:
    """Of a ratio of an arm that needs fewer tokens: how many times as many the other one needs."""
    return 1 / mean, 1 / high, 1 / low


def format_ratio(mean: float, low: float, high: float) -> str:
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"


@pytest.mark.parametrize("number", [2, 3])
def test_results_md_has_how_much_longer_sinusoids_need(studies, number):
    long = studies["qk-long"]
    ratio = inverse(*tokens_ratio(long, "rope_2e3", "sin", long.horizons[number]))
    assert f"| {format_ratio(*ratio)}, for the loss of sinusoids |" in words("docs/results.md")


def test_results_md_has_how_much_longer_sinusoids_need_for_ropes_first_loss(studies):
    """On the sinusoids' curve, because RoPE's begins at this length."""
    long = studies["qk-long"]
    ratio = tokens_ratio(long, "sin", "rope_2e3", long.horizons[0])
    assert f"| {format_ratio(*ratio)}, for the loss of RoPE |" in words("docs/results.md")


def test_the_readme_says_how_many_times_the_tokens_sinusoids_need(studies):
    long = studies["qk-long"]
    _, low, high = inverse(*tokens_ratio(long, "rope_2e3", "sin", long.horizons[-1]))
    assert f"need {low:.1f} to {high:.1f} times the tokens" in words("README.md")


def test_results_md_has_the_studies_of_other_settings(studies):
    page = words("docs/results.md")
    tokens = studies["five"].horizons[2]
    english = interval(studies["english"], "rope", tokens, sign="")
    wide = interval(studies["wide"], "rope", tokens, sign="")
    assert f"[the King James Bible](../studies/english/RESULTS.md) | {english}" in page
    assert f"sinusoids at 0.002 | {wide}" in page


def test_results_md_has_the_bases_of_rope(studies):
    page = words("docs/results.md")
    bases = studies["bases"]
    tokens = studies["five"].horizons[2]
    assert f"500,000 is {interval(bases, 'rope_b1k', tokens, 'rope_b500k')}." in page
    assert f"is {interval(bases, 'p_rope_50', tokens)} from base 10,000." in page


@pytest.mark.parametrize("arm, label", [("rope", "RoPE at 0.001$"), ("alibi", "ALiBi$")])
def test_results_md_has_rope_at_its_best_rate(studies, arm, label):
    long = studies["qk-long"]
    cells = [interval(long, "rope_2e3", tokens, arm) for tokens in long.horizons]
    assert rows("docs/results.md", label) == [cells]


def test_results_md_has_sinusoids_at_queries_in_the_long_run(studies):
    long = studies["qk-long"]
    for tokens in long.horizons[2:]:
        (cells,) = rows("docs/results.md", rf"\[{tokens / 1e6:.2f} M tokens\]")
        assert cells[1] == interval(long, "sin_qk_2e3", tokens, "rope_2e3")


@pytest.mark.parametrize("name, arm", [
    ("five", "sin"), ("qk", "sin_qk_first"), ("qk", "sin_qk")])
def test_results_md_has_where_position_enters(studies, name, arm):
    qk = studies["qk"]
    cells = [interval(studies[name], arm, tokens, "rope", of=qk) for tokens in qk.horizons]
    assert cells in rows("docs/results.md", f"`{arm}`: ")


@pytest.mark.parametrize("name", ["qk-long", "qk-english", "qk-wide"])
def test_results_md_has_studies_beside_others(studies, name):
    study = studies[name]
    (arm,) = (arm for arm in study.plan.arms if arm.startswith("sin_qk"))
    rope, sin, *_ = study.plan.committed
    lengths = [tokens for tokens in study.horizons if tokens > studies["qk"].horizons[-1]]
    assert lengths
    for tokens in lengths:
        label = rf"\[.*/{name}/.*{tokens / 1e6:.2f} M tokens"
        if name == "qk-long":
            label = rf"\[{tokens / 1e6:.2f} M tokens\].*/{name}/"
        (cells,) = rows("docs/results.md", label)
        assert cells[0] == interval(study, arm, tokens, rope)
        assert cells[-1] == interval(study, arm, tokens, sin)


def test_results_md_has_the_causes(studies):
    causes = studies["causes"]
    twice = studies["qk-retuned"]
    later = {"learned_qk": interval(twice, "learned_qk_2e3", twice.horizons[1])}
    for arm in causes.others:
        first = interval(causes, arm, studies["qk"].horizons[0])
        cells = [first, later.get(arm, UNDEFINED)]
        assert rows("docs/results.md", f"`{arm.removesuffix('_4e3')}`: ") == [cells]


def rises(study, arm: str, multiple: int, mode: str = "nonoverlapping") -> list[float]:
    """By how much the loss of an arm rises in windows of a multiple of T, by seed."""
    within = study.contexts(arm, study.plan.seq_len, mode)
    past = study.contexts(arm, multiple * study.plan.seq_len, mode)
    return [past[seed].loss - within[seed].loss for seed in past]


def rise(study, arm: str, multiple: int, mode: str = "nonoverlapping") -> str:
    """The mean of `rises`."""
    return f"{statistics.mean(rises(study, arm, multiple, mode)):+.3f}"


# The encodings of the first table of docs/results.md: the study of their records and its arm.
ENCODINGS = {
    "rope_sin_qk": ("what-where-long", "rope_sin_qk"),
    "rope_nope": ("interleaved-long", "rope_nope"),
    "sin_qk": ("qk-long", "sin_qk_2e3"),
    "pope": ("what-where-long", "pope_4e3"),
    "alibi": ("qk-long", "alibi"),
    "rope": ("qk-long", "rope_2e3"),
    "partial_10": ("partial-long", "partial_10_4e3"),
    "sin": ("qk-long", "sin"),
    "learned": ("qk-long", "learned"),
    "nope": ("qk-long", "nope"),
}


def minus_rope(studies, label: str, tokens: int) -> str:
    """The interval of one of `ENCODINGS` on Python minus RoPE at 0.002."""
    name, arm = ENCODINGS[label]
    if name in ("interleaved-long", "partial-long"):
        return interval(studies[name], arm, tokens)
    return interval(studies[name], arm, tokens, "rope_2e3", of=studies["qk-long"])


@pytest.mark.parametrize("label", ENCODINGS)
def test_results_md_has_which_encoding_is_ahead(studies, label):
    name, arm = ENCODINGS[label]
    last = studies[name].horizons[-1]
    english = UNDEFINED
    if label == "rope_nope":
        study = Study.load(ROOT / "studies" / "nope-english")
        english = f"{interval(study, 'rope_nope', last)}, three seeds"
        assert len(study.records_of("rope_nope")) == 3
    elif label in ("rope_sin_qk", "sin_qk"):
        arm_there = "sin_qk_4e3" if label == "sin_qk" else label
        english = interval(studies["what-where-english"], arm_there, last)
    python = UNDEFINED if label == "rope" else minus_rope(studies, label, last)
    past = [UNDEFINED] * 2  # learned positions have none
    if label != "learned":
        past = [rise(studies[name], arm, 4, mode) for mode in ("nonoverlapping", "sliding")]
    assert [python, english, *past] in rows("docs/results.md", f"`{label}`: ")
    assert len(studies[name].records_of(arm)) == 6


@pytest.mark.parametrize("label, arm", [
    ("rope_sin_qk", "rope_sin_qk"), ("rope_nope", "rope_nope"), ("pope", "pope_4e3"),
    ("pope_nophase", "pope_nophase_4e3"), ("sin_qk_rope_last", "sin_qk_rope_last"),
    ("partial_25", "partial_25_4e3"), ("partial_10", "partial_10_4e3")])
def test_results_md_has_the_rivals(studies, label, arm):
    short = studies["interleaved"]  # with all arms of what-where
    four = studies["what-where-four"]
    (tokens,) = four.horizons
    cells = [interval(short, arm, length) for length in short.horizons]
    if arm in four.plan.arms:
        cells.append(interval(four, arm, tokens))
    else:
        cells.append(minus_rope(studies, label, tokens))
    if label == "partial_10":
        cells[-1] += f"; on another processor {minus_rope(studies, label, tokens)}"
    assert cells in rows("docs/results.md", f"`{label}`")


def test_the_notes_say_what_a_larger_input_gains(studies):
    """A control on four seeds, whose records stand beside those of the study."""
    study = studies["what-where"]
    gains = []
    shares = []
    for place, tokens in enumerate(study.horizons):
        rope = {seed: study.losses("rope", tokens)[seed] for seed in range(4)}
        control = {}
        for seed in rope:
            file = ROOT / "studies" / "what-where" / "root2" / f"rope_root2-s{seed}.json"
            control[seed] = read_sealed(file, "")["horizons"][place]["loss"]
        gain = stats.paired(rope, control)
        low, high = gain.interval
        gains.append(f"{gain.mean:.3f} [{low:.3f}, {high:.3f}]")
        lead = stats.paired(rope, study.losses("rope_sin_qk", tokens)).mean
        shares.append((f"{lead:.3f}", f"{100 * gain.mean / lead:.0f}"))
    (first_lead, first), (second_lead, second) = shares
    said = words("studies/what-where/notes.md")
    assert (f"is ahead of RoPE by {gains[0]} after 1.05 M tokens and by {gains[1]} after 2.10 M, "
            f"on seeds 0 to 3. On these, `rope_sin_qk` leads by {first_lead} and {second_lead}, so "
            f"the larger input has {first} and {second} % of that") in said


def test_results_md_says_that_the_two_best_are_not_told_apart(studies):
    both, nope = studies["what-where-long"], studies["interleaved-long"]
    tokens = both.horizons[-1]
    lead = stats.paired(both.losses("rope_sin_qk", tokens), nope.losses("rope_nope", tokens))
    low, high = lead.interval
    assert lead.mean < 0
    assert low < 0 < high
    assert ("On Python the interval of its lead over `rope_nope` contains 0."
            in words("docs/results.md"))


@pytest.mark.parametrize("arm", ["rope_sin_qk", "sin_qk_4e3"])
def test_results_md_has_the_rivals_in_english(studies, arm):
    study = studies["what-where-english"]
    cells = [interval(study, arm, tokens) for tokens in study.horizons[:-1]]
    assert rows("docs/results.md", f"`{arm.removesuffix('_4e3')}` in English") == [cells]


def test_results_md_has_how_far_both_together_lead_sinusoids(studies):
    study = studies["what-where-long"]
    long = studies["qk-long"]
    first, last = [interval(study, "rope_sin_qk", tokens, "sin_qk_2e3", of=long)
                   for tokens in study.horizons]
    assert (f"ahead of `sin_qk`, too: {first} after 4.19 M tokens and {last} after 8.39 M."
            in words("docs/results.md"))


def test_the_readme_says_how_far_a_layer_without_positions_leads(studies):
    study = studies["interleaved-long"]
    lead = -study.paired("rope_nope", study.horizons[-1]).mean
    assert f"`rope_nope`, leads RoPE by {lead:.2f} after 8.39 M (six seeds)" in words("README.md")


def test_the_notes_say_what_two_processors_made_of_the_same_seeds(studies):
    before, here = [studies[name].losses("partial_10_4e3", 4_194_304)
                    for name in ("what-where-four", "partial-long")]
    page = words("studies/partial-long/notes.md")
    assert (f"`partial_10` ended at {before[2]:.3f} after 4.19 M tokens in what-where-four and "
            f"ends at {here[2]:.3f} here") in page
    first, second = before[0] - here[0], before[1] - here[1]
    assert f"on seeds 0 and 1 by {first:.3f} and {second:.3f}" in page


def test_the_notes_have_where_few_rotating_channels_differ():
    studies = ROOT / "studies"
    few = {row["run"]: row for row in read_lines(studies / "partial-long" / "split.jsonl")}
    rope = {row["run"]: row for row in read_lines(studies / "interleaved-long" / "split.jsonl")}
    cells = []
    for kind in ("repeated pair", "repeated token", "new"):
        differences = [few[f"partial_10_4e3-s{seed}-8M"][kind]["loss"]
                       - rope[f"rope-s{seed}-8M"][kind]["loss"] for seed in range(6)]
        cells.append(", ".join(f"{value:+.3f}" for value in differences))
    assert f"| {' | '.join(cells)} |" in words("studies/partial-long/notes.md")


def test_the_notes_have_how_few_rotating_channels_copy():
    lines = read_lines(ROOT / "studies" / "partial-long" / "copying.jsonl")
    gains = ", ".join(f"{line['32']['gain']:.2f}" for line in lines)
    assert f"[{gains}](copying.jsonl)" in words("studies/partial-long/notes.md")


@pytest.mark.parametrize("name", ["lines-apart", "lines-near"])
def test_results_md_has_what_repetition_is_worth(studies, name):
    study = studies[name]
    first, last = [interval(study, "rope_nope", tokens) for tokens in study.horizons]
    page = words("docs/results.md")
    cells = re.escape(f"{first} | {last}")
    assert re.search(rf"/{name}/RESULTS\.md\) \| \d+ % \| {cells} \|", page)


def test_results_md_has_what_is_left_of_both_together(studies):
    apart, near = [interval(studies[name], "rope_sin_qk", studies[name].horizons[-1])
                   for name in ("lines-apart", "lines-near")]
    text = f"after 4.19 M tokens it is {apart}, on every kind of token, and {near} if"
    assert text in words("docs/results.md")


def test_results_md_has_how_much_is_left_on_the_same_seeds(studies):
    apart = studies["lines-apart"]
    plain = studies["what-where-long"]
    seeds = apart.losses("rope", FOUR_M)
    leads = []
    for study in (apart, plain):
        rope = study.losses("rope", FOUR_M)
        both = study.losses("rope_sin_qk", FOUR_M)
        leads.append(statistics.mean(both[seed] - rope[seed] for seed in seeds))
    text = f"{leads[0] / leads[1]:.0%} is left (of {leads[1]:.3f} on the same three seeds)"
    assert text.replace("%", " %") in words("docs/results.md")


def text_error(first: Study, arm: str, second: Study, other: str, tokens: int) -> float:
    """The standard error over the text of the mean difference of two arms."""
    ends = first.ends(arm, tokens)
    other_ends = second.ends(other, tokens)
    differences = [np.subtract(ends[seed].stretches, other_ends[seed].stretches)
                   for seed in ends.keys() & other_ends]
    by_stretch = np.mean(differences, axis=0)
    return by_stretch.std(ddof=1) / len(by_stretch) ** 0.5


def both_errors(studies, label: str, tokens: int) -> list[float]:
    """The standard errors of one of `ENCODINGS` minus RoPE at 0.002: over seeds, over the text, and
    over both."""
    name, arm = ENCODINGS[label]
    long = studies["qk-long"]
    losses = studies[name].losses(arm, tokens)
    rope = long.losses("rope_2e3", tokens)
    differences = [losses[seed] - rope[seed] for seed in losses]
    over_seeds = statistics.stdev(differences) / len(differences) ** 0.5
    over_text = text_error(studies[name], arm, long, "rope_2e3", tokens)
    return [over_seeds, over_text, math.hypot(over_seeds, over_text)]


def test_results_md_has_the_errors_over_seeds_and_text(studies):
    first, *_, last = studies["qk-long"].horizons
    leads = [both_errors(studies, label, last) for label in ("rope_sin_qk", "rope_nope", "sin_qk")]
    over_seeds, over_text, over_both = zip(*leads, strict=True)
    assert {f"{error:.3f}" for error in over_text} == {"0.014"}
    said = (f"are {min(over_seeds):.3f} to {max(over_seeds):.3f} over seeds, 0.014 over the text, "
            f"and {min(over_both):.3f} to {max(over_both):.3f} over both.")
    assert said in words("docs/results.md")
    of_sin = [*both_errors(studies, "sin", last), *both_errors(studies, "sin", first)]
    said = ("That of RoPE over `sin` has {:.3f}, {:.3f} and {:.3f}, and after 1.05 M {:.3f}, "
            "{:.3f} and {:.3f}.")
    assert said.format(*of_sin) in words("docs/results.md")


def test_results_md_says_what_phases_do_within_the_training_length(studies):
    short = studies["what-where"]
    changes = [stats.paired(short.losses("pope_4e3", tokens),
                            short.losses("pope_nophase_4e3", tokens)) for tokens in short.horizons]
    changes.append(stats.paired(studies["what-where-long"].losses("pope_4e3", FOUR_M),
                                studies["what-where-four"].losses("pope_nophase_4e3", FOUR_M)))
    assert all(change.interval[0] < 0 < change.interval[1] for change in changes)
    one, two, three = (f"{-change.mean:.3f}" for change in changes)
    said = f"Its phases lower the mean loss within T by {one}, {two} and {three} after 1.05, 2.10"
    assert said in words("docs/results.md")


def test_results_md_says_what_phases_cost_past_the_training_length(studies):
    study = studies["what-where"]
    costs = []
    for mode in ("nonoverlapping", "sliding"):
        for multiple in (4, 8):
            length = multiple * study.plan.seq_len
            plain = study.contexts("pope_nophase_4e3", length, mode)
            with_phases = study.contexts("pope_4e3", length, mode)
            cost = statistics.mean(with_phases[seed].loss - plain[seed].loss for seed in plain)
            costs.append(f"{cost:.2f}")
    said = "{} at 4T and {} at 8T in whole windows, and {} and {} in sliding ones"
    assert said.format(*costs) in words("docs/results.md")


def test_results_md_says_which_arms_degrade_least(studies):
    study = studies["causes"]
    found = []
    for arms in (("rope", "rope_first", "rope_sinscale"),
                 ("sin_qkv", "sin_qk_aligned", "sin_residual_4e3", "sin_aligned_4e3")):
        means = [statistics.mean(rises(study, arm, 2)) for arm in arms]
        found.append(f"by {min(means):.2f} to {max(means):.2f}")
    said = "rotated arms of causes rises {}, and that of its four arms with sinusoids {}."
    assert said.format(*found) in words("docs/results.md")


def test_results_md_says_how_far_sin_qk_lags_at_the_lower_rate(studies):
    english = studies["qk-english"]
    lag = stats.paired(english.losses("sin_qk_2e3", FOUR_M), english.losses("rope_2e3", FOUR_M))
    assert (f"at 0.002 the loss is [{lag.mean:+.3f}](#where-position-enters) behind that of RoPE "
            f"({'three' if lag.n == 3 else lag.n} seeds)") in words("docs/results.md")


@pytest.mark.parametrize("name, row", [
    ("lines-apart", "apart: the lines of all files mixed"),
    ("lines-near", "near: every eight lines mixed")])
def test_the_page_on_repetition_has_its_seeds(studies, name, row):
    study = studies[name]
    cells = []
    for tokens in study.horizons:
        rope = study.losses("rope", tokens)
        arm = study.losses("rope_nope", tokens)
        cells.append(", ".join(f"{arm[seed] - rope[seed]:+.3f}" for seed in sorted(arm)))
    copying = read_lines(study.path / "copying.jsonl")
    for arm in ("rope", "rope_nope"):
        gains = [line["32"]["gain"] for line in copying if line["run"].startswith(f"{arm}-s")]
        cells.append(", ".join(f"{gain:+.2f}" for gain in gains))
    expected = f"| {row} | {share_of_repeated_pairs(name):.0%} | {' | '.join(cells)} |"
    assert expected.replace("%", " %") in words("studies/lines-apart/RESULTS.md")


FOUR_M = 4 * 2**20  # tokens


def on_two_seeds(arm: dict[int, float], rope: dict[int, float]) -> str:
    """The difference of two arms on seeds 0 and 1."""
    return f"{arm[0] - rope[0]:+.3f}, {arm[1] - rope[1]:+.3f}"


def check_row_of_windows(length: int, share: float, rope: dict[int, float], *leads: str) -> None:
    """Both pages have this share of repeated pairs, loss of RoPE and leads over it."""
    cells = [f"{100 * share:.0f} %", f"{rope[0]:.3f}, {rope[1]:.3f}", *leads]
    assert rows("docs/results.md", f"{length}$") == [cells]
    assert cells in rows("studies/length-512/RESULTS.md", rf"\[?{length}\b")


@pytest.mark.parametrize("length", [32, 512])
def test_results_md_has_what_other_lengths_of_the_window_are_worth(studies, length):
    name = f"length-{length}"
    rope, nope, both = (studies[name].losses(arm, FOUR_M)
                        for arm in ("rope", "rope_nope", "rope_sin_qk"))
    share = share_of_repeated_pairs(name)
    check_row_of_windows(length, share, rope, on_two_seeds(nope, rope), on_two_seeds(both, rope))


def test_results_md_has_what_the_usual_length_of_the_window_is_worth(studies):
    """`rope_sin_qk` is compared with RoPE of qk-long, as elsewhere on this page."""
    rope = studies["interleaved-long"].losses("rope", FOUR_M)
    nope = studies["interleaved-long"].losses("rope_nope", FOUR_M)
    rope_beside_both = studies["qk-long"].losses("rope_2e3", FOUR_M)
    both = studies["what-where-long"].losses("rope_sin_qk", FOUR_M)
    share = share_of_repeated_pairs("what-where-long")
    check_row_of_windows(128, share, rope, on_two_seeds(nope, rope),
                         on_two_seeds(both, rope_beside_both))


def test_the_readme_has_how_the_lead_grows_with_the_window(studies):
    leads = []
    for name in ("length-32", "interleaved-long", "length-512"):
        rope = studies[name].losses("rope", FOUR_M)
        found = studies[name].losses("rope_nope", FOUR_M)
        leads.append((rope[0] - found[0] + rope[1] - found[1]) / 2)
    text = "{:.2f}, {:.2f} and {:.2f} in windows of 32, 128 and 512 tokens".format(*leads)
    assert text in words("README.md")


@pytest.mark.parametrize("length, copied", [(32, "16"), (512, "32")])
def test_the_page_on_windows_has_what_is_copied(length, copied):
    folder = ROOT / "studies" / f"length-{length}"
    page = words("studies/length-512/RESULTS.md")
    gains = {line["run"]: line[copied]["gain"] for line in read_lines(folder / "copying.jsonl")}
    cells = [f"{gains[f'{arm}-s0-4M']:+.2f}, {gains[f'{arm}-s1-4M']:+.2f}"
             for arm in ("rope", "rope_nope", "rope_sin_qk")]
    assert f"| {length} | {' | '.join(cells)} |" in page


def differences_by_kind(length: int, arm: str) -> list[str]:
    """Loss of an arm minus that of RoPE on repeated pairs, repeated tokens and new ones, in windows
    of this length. Each as text of two seeds."""
    split = {line["run"]: line
             for line in read_lines(ROOT / "studies" / f"length-{length}" / "split.jsonl")}
    kinds = []
    for kind in ("repeated pair", "repeated token", "new"):
        first, second = [split[f"{arm}-s{seed}-4M"][kind]["loss"]
                         - split[f"rope-s{seed}-4M"][kind]["loss"] for seed in (0, 1)]
        kinds.append(f"{first:+.3f}, {second:+.3f}")
    return kinds


def test_the_page_on_windows_has_where_the_lead_is_in_long_ones():
    by_kind = zip(differences_by_kind(512, "rope_nope"), differences_by_kind(512, "rope_sin_qk"),
                  strict=True)
    for label, differences in zip(("repeated pairs", "repeated tokens", "new tokens"), by_kind,
                                  strict=True):
        ((_, *cells),) = rows("studies/length-512/RESULTS.md", f"{label}$")
        assert cells == [*differences]


def test_the_page_on_windows_has_where_the_lead_is_in_short_ones():
    pairs, repeated, new = differences_by_kind(32, "rope_nope")
    both = differences_by_kind(32, "rope_sin_qk")
    assert (f"At T = 32 it is {pairs} for `rope_nope` on repeated pairs, {repeated} on repeated "
            f"tokens and {new} on new ones. `rope_sin_qk` leads there on every kind: "
            f"{'; '.join(both)}.") in words("studies/length-512/RESULTS.md")


def test_the_page_on_a_layer_without_positions_has_its_english_seed(studies):
    mine = Study.load(ROOT / "studies" / "interleaved-english")
    rope = studies["what-where-english"]
    lags = [mine.losses("rope_nope", tokens)[3] - rope.losses("rope", tokens)[3]
            for tokens in mine.horizons]
    page = words("studies/interleaved-long/RESULTS.md")
    assert "is {:+.3f} after 1.05 M tokens, {:+.3f} after 2.10 M and {:+.3f}".format(*lags) in page


def test_results_md_has_where_pope_ends(studies):
    study = studies["what-where-long"]
    long = studies["qk-long"]
    tokens = study.horizons[-1]
    lag = interval(study, "pope_4e3", tokens, "sin_qk_2e3", of=long, sign="")
    assert f"It stays behind `sin_qk` by {lag}." in words("docs/results.md")


def test_the_readme_says_how_far_both_together_lead(studies):
    python = studies["what-where"]
    long = studies["what-where-long"]
    english = studies["what-where-english"]
    early = -python.paired("rope_sin_qk", python.horizons[0]).mean
    late = -stats.paired(long.losses("rope_sin_qk", long.horizons[-1]),
                         studies["qk-long"].losses("rope_2e3", long.horizons[-1])).mean
    first, *_, last = [-english.paired("rope_sin_qk", tokens).mean for tokens in english.horizons]
    assert (f"is {early:.2f} below RoPE's after 1.05 M tokens and {late:.2f} after 8.39 M (six "
            f"seeds), and in English {first:.2f} and {last:.2f}.") in words("README.md")


def test_the_readme_says_what_past_the_training_length_costs(studies):
    alibi = -statistics.mean(rises(studies["five"], "alibi", 4, "sliding"))
    rope = statistics.mean(rises(studies["qk-long"], "rope_2e3", 4, "sliding"))
    assert (f"In sliding windows of four times the training length T, its loss is {alibi:.2f} "
            f"below that at T, and RoPE's {rope:.2f} above") in words("README.md")


def count_intervals() -> int:
    """How many intervals are on the page, as the page says."""
    return int(re.findall(r"This page has (\d+) intervals", words("docs/results.md"))[0])


def widening(seeds: int) -> float:
    """How many times as wide an interval is when it is corrected for all of the page."""
    corrected = stdtrit(seeds - 1, 1 - 0.025 / count_intervals())
    return corrected / stdtrit(seeds - 1, 0.975)


def holds(difference: stats.Paired | None) -> bool:
    """Whether an interval excludes 0 when it is corrected for all intervals of the page."""
    assert difference is not None
    assert difference.interval is not None
    half = difference.interval[1] - difference.mean
    return abs(difference.mean) > widening(difference.n) * half


def test_results_md_says_what_holds_for_all_its_comparisons(studies):
    long = studies["qk-long"]
    both = studies["what-where-long"]
    pope = studies["what-where"]
    nope = studies["interleaved-long"]
    *_, third, last = long.horizons
    rope = long.losses("rope_2e3", last)
    for lead in (
        stats.paired(long.losses("rope_2e3", third), long.losses("sin", third)),
        stats.paired(both.losses("rope_sin_qk", last), rope),
        stats.paired(nope.losses("rope_nope", last), rope),
        stats.paired(long.losses("sin_qk_2e3", last), rope),
    ):
        assert lead.mean < 0
        assert holds(lead)
    for lead in (
        stats.paired(rope, long.losses("sin", last)),
        stats.paired(both.losses("rope_sin_qk", third), long.losses("sin_qk_2e3", third)),
        stats.paired(both.losses("rope_sin_qk", last), long.losses("sin_qk_2e3", last)),
        pope.paired("pope_4e3", pope.horizons[0]),
        pope.paired("pope_nophase_4e3", pope.horizons[0]),
    ):
        assert lead.mean < 0
        assert not holds(lead)
    page = words("docs/results.md")
    assert ("That of RoPE's lead over `sin` then still excludes 0 after 4.19 M tokens, but not "
            "after 8.39 M. Those of the leads of `rope_sin_qk`, `rope_nope` and `sin_qk` over RoPE "
            "after 8.39 M still do. That of `rope_sin_qk` over `sin_qk` does not.") in page
    assert f"over six seeds is {widening(6):.1f} times as wide" in page
    assert f"one over three seeds {widening(3):.1f} times" in page


def test_of_three_seeds_one_lead_holds_for_all_of_results_md(studies):
    """Those that do not hold are the largest other ones."""
    leads = []
    for name, arm, other in (
        ("qk-english", "sin_qk_2e3", "sin_4e3"), ("qk-english", "rope", "sin_4e3"),
        ("qk-wide", "sin_qk_1e3", "sin_2e3"), ("lines-near", "rope_nope", "rope"),
        ("lines-near", "rope_sin_qk", "rope"),
    ):
        study = studies[name]
        tokens = study.horizons[-1]
        leads.append(stats.paired(study.losses(arm, tokens), study.losses(other, tokens)))
    assert list(map(holds, leads)) == [True, False, False, False, False]
    assert "Of three seeds, only the lead of `sin_qk` over `sin` in English does." in words(
        "docs/results.md")


def test_two_differences_of_the_committed_reports_hold_alone_only(studies):
    uncertain = [key for study in studies.values() for key in report.find_uncertain(study)]
    assert len(uncertain) == 2
    assert "what no longer excludes 0: two intervals in all" in words("docs/results.md")


def test_results_md_counts_its_intervals():
    intervals = re.findall(r" \[[+-]?\d\.\d+, [+-]?\d\.\d+\]", words("docs/results.md"))
    assert len(intervals) == count_intervals()


def test_alibi_and_partial_10_fall_at_twice_the_length_in_sliding_windows(studies):
    falling = set()
    for name, study in studies.items():
        for arm in study.plan.arms:
            changes = rises(study, arm, 2, "sliding")
            if changes and statistics.mean(changes) < 0:
                falling.add((name, arm))
    assert falling == {("five", "alibi"), ("qk-long", "alibi"),
                       ("what-where-four", "partial_10_4e3"), ("partial-long", "partial_10_4e3")}


def test_the_notes_say_how_far_partial_10_falls_at_twice_the_length(studies):
    changes = rises(studies["what-where-four"], "partial_10_4e3", 2, "sliding")
    assert [change < 0 for change in changes].count(True) == 3
    changes = rises(studies["partial-long"], "partial_10_4e3", 2, "sliding")
    assert [change < 0 for change in changes].count(True) == 5
    said = f"falls by {-statistics.mean(changes):.2f} in the mean, and on five of six seeds"
    assert said in words("studies/partial-long/notes.md")


def test_the_pages_say_what_2t_costs_with_few_rotating_channels(studies):
    study = studies["what-where-four"]
    changes = []
    for arm in ("partial_10_4e3", "partial_25_4e3"):
        for mode in ("nonoverlapping", "sliding"):
            changes.append(statistics.mean(rises(study, arm, 2, mode)))
    said = ("changes by {:+.2f} in whole windows and by {:+.2f} in sliding ones (on three of six "
            "seeds it falls), and that of `partial_25` by {:+.2f} and {:+.2f}")
    assert said.format(*changes) in words("studies/what-where-four/notes.md")


@pytest.mark.parametrize("arm", [
    "sin_qk_rope_last", "pope_nophase_4e3", "partial_25_4e3", "partial_10_4e3"])
def test_the_notes_have_the_seeds_that_were_added(studies, arm):
    study = studies["what-where-four"]
    (tokens,) = study.horizons
    losses = study.losses(arm, tokens)
    base = study.losses("rope", tokens)
    added = ", ".join(f"{losses[seed] - base[seed]:+.3f}" for seed in (3, 4, 5))
    cell = f"| {added}; {interval(study, arm, tokens)} |"
    assert cell in words("studies/what-where-four/notes.md")


@pytest.mark.parametrize("arm", [
    "sin_qk_rope_last", "pope_nophase_4e3", "partial_25_4e3", "partial_10_4e3"])
def test_the_notes_have_where_other_arms_differ(arm):
    folder = ROOT / "studies" / "what-where-four"
    split = {row["run"]: row for row in read_lines(folder / "split.jsonl")}
    copying = {row["run"]: row for row in read_lines(folder / "copying.jsonl")}
    cells = []
    for kind in ("repeated pair", "repeated token", "new"):
        differences = [split[f"{arm}-s{seed}-4M"][kind]["loss"]
                       - split[f"rope-s{seed}-4M"][kind]["loss"] for seed in range(3)]
        cells.append(", ".join(f"{value:+.3f}" for value in differences))
    cells.append(", ".join(f"{copying[f'{arm}-s{seed}-4M']['32']['gain']:.2f}"
                           for seed in range(3)))
    assert f"| `{arm}` | {' | '.join(cells)} |" in words("studies/what-where-four/notes.md")


@pytest.mark.parametrize("arm", ["rope", "sin_qk", "rope_sin_qk", "pope_4e3"])
def test_the_long_study_says_what_past_the_training_length_costs(studies, arm):
    study = studies["what-where-long"]
    cells = [", ".join(f"{value:+.3f}" for value in rises(study, arm, multiple))
             for multiple in (2, 4, 8)]
    assert f"| `{arm}` | {' | '.join(cells)} |" in words("studies/what-where-long/notes.md")


@pytest.mark.parametrize("arm", ["sin_qk", "rope_sin_qk", "pope_4e3"])
@pytest.mark.parametrize("length", ["4M", "8M"])
def test_the_long_study_says_where_the_lead_is(arm, length):
    folder = ROOT / "studies" / "what-where-long"
    split = {row["run"]: row for row in read_lines(folder / "split.jsonl")}
    runs = [(f"{arm}-s{seed}-{length}", f"rope-s{seed}-{length}") for seed in range(6)]
    cells = []
    for kind in ("repeated pair", "repeated token", "new"):
        differences = [split[run][kind]["loss"] - split[rope][kind]["loss"]
                       for run, rope in runs if run in split]
        cells.append(", ".join(f"{value:+.3f}" for value in differences))
    assert f"| `{arm}` | {' | '.join(cells)} |" in words("studies/what-where-long/notes.md")


KINDS = {"repeated pairs": "repeated pair", "repeated tokens": "repeated token",
         "new tokens": "new"}  # in docs/results.md, and in split.jsonl


@pytest.mark.parametrize("kind", KINDS)
def test_results_md_has_where_the_leads_come_from(kind):
    cells = []
    for name, arm in (("what-where-long", "sin_qk"), ("interleaved-long", "rope_nope"),
                      ("what-where-long", "rope_sin_qk")):
        lines = read_lines(ROOT / "studies" / name / "split.jsonl")
        split = {line["run"]: line[KINDS[kind]]["loss"] for line in lines}
        differences = [split[f"{arm}-s{seed}-8M"] - split[f"rope-s{seed}-8M"] for seed in range(6)]
        cells.append(f"{min(differences):+.3f} to {max(differences):+.3f}")
    ((_, *found),) = rows("docs/results.md", rf"\*{kind}\*")
    assert found == cells


@pytest.mark.parametrize("name", ["qk-mechanism", "what-where"])
def test_the_notes_say_what_each_layer_does(studies, name):
    study = studies[name]
    page = words(f"studies/{name}/notes.md")
    for arm in study.plan.arms:
        last = [record.trajectory[-1] for record in study.records_of(arm).values()]
        cells = []
        for key in ("permuted", "shift"):
            cells.append(f"{statistics.mean(getattr(point, key) for point in last):.2f}")
        for key in ("by_distance", "previous"):
            layers = zip(*(map(max, getattr(point, key)) for point in last), strict=True)
            cells.append(" ".join(f"{statistics.mean(layer):.2f}" for layer in layers))
        assert f"| `{arm}` | {' | '.join(cells)} |".replace("-0.00", "0.00") in page


@pytest.mark.parametrize("name", ["qk-rates", "what-where-rates", "what-where-english-rates"])
def test_the_page_of_rates_has_what_tuning_found(name):
    path = ROOT / "studies" / name
    study = Study.load(path)
    text = (path / "RATES.md").read_text(encoding="utf-8")
    assert f"\n\n{report.tuning_table(study)}\n\n" in text
    assert f"\n{study.plan.command}\n" in text


def test_results_md_has_the_arms_at_their_best_rates(studies):
    page = words("docs/results.md")
    twice = studies["qk-retuned"]
    everywhere = [interval(twice, "sin_qk_4e3", tokens) for tokens in twice.horizons]
    first = [interval(twice, "sin_qk_first_4e3", tokens) for tokens in twice.horizons]
    assert (f"`sin_qk` - RoPE is {' and '.join(everywhere)}, "
            f"`sin_qk_first` - RoPE {' and '.join(first)}.") in page


def test_results_md_links_to_the_tuned_study(studies):
    page = words("docs/results.md")
    tuned = studies["qk-tuned"]
    for arm in ("sin_matched_2e3", "sin_qk_aligned_4e3"):
        mean, bounds = interval(tuned, arm, tuned.horizons[0]).split(" ", 1)
        assert f"{mean}](../studies/qk-tuned/RESULTS.md) {bounds}" in page
    scaled = tuned.paired("rope_sinscale_8e3", tuned.horizons[0]).mean
    assert f"and {scaled:.2f} at its" in page


def test_the_page_on_context_has_the_table_that_its_code_prints(capsys, monkeypatch):
    page = (ROOT / "studies" / "context" / "RESULTS.md").read_text(encoding="utf-8")
    (code,) = re.findall("```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(code, {})
    assert capsys.readouterr().out in page


@pytest.mark.parametrize("name", [*COMMITTED, "nope-english"])
def test_the_committed_report_is_what_the_records_give(name):
    study = Study.load(ROOT / "studies" / name)
    assert compose(study) == (study.path / "RESULTS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*COMMITTED, "nope-english"])
def test_the_committed_report_shows_the_figures_in_its_folder(name):
    folder = ROOT / "studies" / name
    page = (folder / "RESULTS.md").read_text(encoding="utf-8")
    shown = {file for _, file in re.findall(r"!\[(.*?)\]\((.*?)\)", page)}
    assert shown == {file.name for file in folder.glob("fig_*.png")}


@pytest.mark.slow
def test_the_figure_of_the_readme_is_what_its_code_draws(tmp_path, monkeypatch):
    page = (ROOT / "studies" / "qk-long" / "notes.md").read_text(encoding="utf-8")
    (code,) = re.findall("```python\n(.*?)```", page, re.DOTALL)
    drawn = tmp_path / "fig_five.png"
    monkeypatch.chdir(ROOT)
    assert code.count("studies/qk-long/fig_five.png") == 1  # which is not to be written over
    exec(code.replace("studies/qk-long/fig_five.png", str(drawn)), {})
    here, there = (imread(file) for file in (drawn, ROOT / "studies/qk-long/fig_five.png"))
    assert here.shape == there.shape
    # Another processor may round a pixel differently; another curve moves many.
    assert (np.abs(here - there) > 0.1).any(axis=-1).mean() < 1e-4


def test_results_md_says_how_far_rope_leads_early(studies):
    study = studies["qk-long"]
    leads = []
    for arm in ("rope_2e3", "nope", "rope"):
        curves = study.curves(arm, "loss")
        leads.append(statistics.mean(curve[147456] - curves[seed][147456]
                                     for seed, curve in study.curves("sin", "loss").items()))
    page = words("docs/results.md")
    assert f"RoPE leads sinusoids by {leads[0]:.2f} after 147 thousand tokens." in page
    assert (f"At a rate of 0.001, RoPE and the model without positions both lead them by "
            f"{leads[1]:.2f} there.") in page
    assert leads[1] == pytest.approx(leads[2], abs=0.005)


@pytest.mark.parametrize("tuned, sentence", [
    ({}, ""), ({"rope": {0.001: {1: 2.0}}}, ""),
    ({"rope": {0.001: {1: 2.0}, 0.002: {1: 1.0}, 0.004: {1: 3.0}}}, ""),
    ({"rope": {0.001: {1: 2.0}, 0.002: {1: 1.0}, 0.004: {1: math.inf}}}, ""),
    ({"rope": {0.001: {1: 2.0}, 0.002: {1: 1.0}}, "sin": {0.001: {1: 1.0}, 0.002: {1: 2.0}},
      "nope": {0.001: {1: 2.0}, 0.002: {1: 1.0}}},
     " Of the rates that were tried, the best is the lowest for sin and the highest for rope, "
     "nope: one beyond it may be better.")])
def test_a_best_rate_at_the_edge_of_those_tried_is_named(tuned, sentence):
    assert report.describe_edges(tuned) == sentence


def test_the_typical_spread_is_that_of_the_committed_studies(studies):
    spreads = []
    for study in studies.values():
        for arm, tokens in study.p_values():
            differences = study.losses(arm, tokens)
            base = study.losses(study.baseline, tokens)
            spreads.append(statistics.stdev(differences[seed] - base[seed]
                                            for seed in differences.keys() & base))
    tenths = statistics.quantiles(spreads, n=10)
    assert [tenths[0], tenths[4], tenths[8]] == pytest.approx(stats.TYPICAL_SD, rel=0.1)


def test_the_arms_of_committed_studies_are_those_of_their_names(studies):
    """As far as ARMS has these names: others end in a rate, such as `_2e3`."""
    named = [(name, arm) for name, study in studies.items()
             for arm in study.plan.arms if arm in ARMS]
    assert len(named) > len(COMMITTED)
    for name, arm in named:
        assert studies[name].plan.arms[arm] == ARMS[arm], name


@pytest.mark.slow
def test_wandb_gets_a_table_and_the_figures(tmp_path, capfd, nobody_is_logged_in):
    study = make_study(tmp_path / "made-up")
    write_report(study)
    capfd.readouterr()
    mirror_in_wandb(study, LogConfig())
    assert capfd.readouterr() == ("", "")
    (media,) = study.glob("wandb/offline-run-*made-up-report*/files/media")
    (file,) = media.glob("table/*")
    assert len(read_json(file)["data"]) == len(Study.load(study).records) * len(HORIZONS)
    assert len([*media.glob("images/*")]) == len(plots.FIGURES)
