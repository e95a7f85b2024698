"""The report of a made-up study says what was put into it, and no more; and the committed report
says what the committed records do."""

import json
import math
import re
import statistics

import numpy as np
import pytest
from conftest import ROOT
from made_up_study import EFFECT, HORIZONS, USED, make_pair, make_study

from ablation import plots, report, stats
from ablation.plan import read_plan
from ablation.report import compose, mirror_in_wandb, write_report
from ablation.study import Study
from errors import UserError
from files import read_json, write_sealed
from gyre.wandb_log import LogConfig


class Text(str):
    """A report in Markdown."""

    def table(self, *header: str) -> dict[str, list[str]]:
        """{first cell: row} of the table whose header starts like this."""
        _, *after = self.split(f"| {' | '.join(header)} |")
        assert len(after) == 1
        lines = after[0].partition("\n\n")[0].splitlines()[2:]
        rows = [re.split(r" (?<!\\)\| ", line[2:-2].replace("\\*", "*")) for line in lines]
        return {row[0]: row[1:] for row in rows}


def composed(path) -> Text:
    return Text(compose(Study.load(path)))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("runs") / "made-up")


@pytest.fixture(scope="module")
def page(study):
    return composed(study)


def text(value, form="+.3f"):
    return format(value, form).replace("-", "−")


def test_the_numbers_in_the_page_are_those_of_the_records(study, page):
    loaded, rows = Study.load(study), page.table("arm", "learning rate")
    assert list(rows) == list(EFFECT)
    for arm in ("rope", "alibi"):
        values = list(loaded.losses(arm, HORIZONS[-1]).values())
        d = loaded.paired(arm, HORIZONS[-1])
        mean = f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
        ends = f"[{text(d.interval[0])}, {text(d.interval[1])}]"
        assert rows[arm][:2] == ["0.002", "6"]
        assert rows[arm][-3] == mean and rows[arm][-2].startswith(f"{text(d.mean)} {ends}, p ")
        assert rows[arm][-1] == f"{USED[arm] / 1000:g} k"
    head = page.table("nats per token, 95 % interval over paired seeds", "after 102 k tokens")
    for arm in ("rope", "alibi"):
        for column, tokens in enumerate((HORIZONS[0], HORIZONS[-1])):
            d = loaded.paired(arm, tokens)
            ends = f"[{text(d.interval[0])}, {text(d.interval[1])}]"
            assert head[f"{arm} − sin"][column] == f"{text(d.mean)} {ends}"
    assert rows["sin"][-2] == "–"
    p = float(rows["alibi"][-2].split("p ")[1])
    raw = {arm: loaded.paired(arm, HORIZONS[-1]).p for arm in ("nope", "learned", "alibi")}
    assert p == pytest.approx(stats.holm(raw)["alibi"], rel=0.06) and p > raw["alibi"]


def test_one_seed_has_no_interval_and_notes_are_put_in_as_they_are(tmp_path):
    path = make_pair(tmp_path / "one")
    (path / "notes.md").write_text("## Predicted\n\n*so*\n", encoding="utf-8")
    page = composed(path)
    assert "\n\n## Predicted\n\n*so*\n\n## What speaks" in page
    (row,) = page.table("nats per token, 95 % interval over paired seeds").values()
    assert not any("[" in cell for cell in row)
    assert "Holm" not in page
    (path / "results" / "sin-s0.json").unlink()
    page = composed(path)
    assert "rope − sin" not in page


def test_a_study_that_is_half_run_corrects_for_all_that_is_planned(tmp_path):
    path = make_study(tmp_path / "half")
    for file in (path / "results").iterdir():
        arm, seed = file.stem.split("-s")
        if arm in ("learned", "alibi") or int(seed) > (2 if arm == "rope" else 1):
            file.unlink()
    page, study = composed(path), Study.load(path)
    rows = page.table("arm", "learning rate")
    assert "(2 of them)" in rows["rope"][-2] and "of them" not in rows["nope"][-2]
    p = study.paired("nope", HORIZONS[-1]).p
    assert float(rows["nope"][-2].split("p ")[1]) == pytest.approx(min(1, 3 * p), rel=0.06)


def test_a_rate_or_a_seed_that_diverged_is_not_one_that_is_missing(tmp_path):
    path = make_study(tmp_path / "diverged")
    (path / "results" / "nope-s3.json").unlink()
    plan = read_plan(path) | {"diverged": ["nope-s3"]}
    plan["tuned"]["arms"]["rope"] = {"0.001": {"1000": 2.5, "1001": None}, "0.002": {"1000": None}}
    write_sealed(path / "plan.json", plan)
    page = composed(path)
    assert "Diverged, and left out: nope-s3." in page
    assert "| rope | 2.500, diverged \\* | diverged |" in page


@pytest.mark.parametrize("times, words", [
    ([150, 160, 170], "160 (150 – 170)"), ([150, 160], "155 (150 – 160)"),
    ([150, math.inf], "more than 325 (150 – more than 500)"),
    ([150, 160, math.inf], "160 (150 – more than 500)"), ([math.inf], "more than 500"),
    ([150, math.inf, math.inf], "more than 500 (150 – more than 500)"),
    ([math.inf, math.inf], "more than 500"),
])
def test_what_never_happened_is_longer_than_was_looked(times, words):
    assert report.span(times, 500) == words


def mean(by_seed: dict[int, float]) -> float:
    return statistics.fmean(by_seed.values())


def words(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_readme_and_positions_say_what_the_records_hold():
    study, positions = Study.load(ROOT / "docs" / "results"), words("docs/positions.md")
    first, last = study.horizons[0], study.horizons[-1]
    leads = [-study.paired("rope", tokens).mean for tokens in (first, last)]
    assert (f"The validation loss of RoPE is {leads[0]:.2f} nats per token lower after "
            f"{first / 1e6:.2f} M training tokens, and {leads[1]:.2f} lower after "
            f"{last / 1e6:.2f} M") in words("README.md")
    planned = len(study.plan["seeds"])
    assert all(len(study.runs(arm)) == planned for arm in study.plan["arms"])
    assert f"Each number is a mean over {planned} seeds of models" in words("README.md")
    rope, sin, alibi = (twice - once for once, twice in (
        [mean(study.values(arm, "context", "loss", context=length * study.plan["seq_len"],
                           mode="nonoverlapping")) for length in (1, 2)]
        for arm in ("rope", "sin", "alibi")))
    assert (f"on {last / 1e6:.2f} M tokens, the loss of whole windows of twice that length rises "
            f"by {rope:+.2f} for RoPE and by {sin:+.2f} for sinusoids, and changes by {alibi:+.2f} "
            f"for ALiBi (means of {planned} seeds;") in positions
    excess = {(arm, length): statistics.fmean(
        read_json(ROOT / f"docs/results/probes/P1-{arm}-s{seed}.json")["excess"][length]
        for seed in range(3)) for arm in ("rope", "sin", "alibi", "nope") for length in ("T", "2T")}
    assert ("ends {rope:.3f} nats above the optimum with RoPE, {sin:.3f} with matched sinusoids, "
            "and {alibi:.3f} with ALiBi and {nope:.3f} without positions"
            ).format(**{arm: share for (arm, at), share in excess.items() if at == "T"}
                     ) in positions
    assert (f"In rows of twice the length, its loss is {excess['rope', '2T']:.3f} above the "
            f"optimum with RoPE and {excess['sin', '2T']:.3f} with matched sinusoids") in positions


def test_results_md_says_what_the_records_hold():
    full, bases, english, wide = (Study.load(ROOT / "docs" / name)
                                  for name in ("results", "bases", "english", "wide"))
    page = words("docs/results.md").replace("\u2212", "-")
    loss = {arm: [mean(full.losses(arm, tokens)) for tokens in full.horizons]
            for arm in full.plan["arms"]}

    def show(study, tokens, arm, baseline=None, plus=""):
        result = stats.paired(study.losses(arm, tokens),
                              study.losses(baseline or study.baseline, tokens))
        low, high = result.interval
        return f"{result.mean:{plus}.3f} [{low:{plus}.3f}, {high:{plus}.3f}]"

    for number in (0, 2, 3):
        tokens = full.horizons[number]
        assert f"| {tokens / 1e6:.2f} M | {show(full, tokens, 'rope')} |" in page
        if number:  # RoPE's curve between its horizons, which double, in the logarithm of tokens
            before, after = loss["rope"][number - 1 : number + 1]
            share = (before - loss["sin"][number]) / (before - after)
            assert f"| {2 ** (1 - share):.1f} |" in page
    tokens = full.horizons[2]
    assert f"not tuned for it | {show(english, tokens, 'rope')}" in page
    assert f"three seeds, 4.19 M tokens | {show(wide, tokens, 'rope')}" in page
    assert f"500,000: {show(bases, tokens, 'rope_b1k', 'rope_b500k', plus='+')}" in page
    assert f"{show(bases, tokens, 'p_rope_50', plus='+')} against base 10,000" in page
    faster = [read_json(file) for file in sorted((ROOT / "docs/results/rope_at_2e-3").iterdir())]
    lower, ahead = ([statistics.fmean(record["horizons"][number]["loss"]
                                      - full.losses(arm, tokens)[record["seed"]]
                                      for record in faster)
                     for number, tokens in enumerate(full.horizons)] for arm in ("rope", "alibi"))
    assert f"ended {-max(lower):.2f} to {-min(lower):.2f} nats lower after every length" in page
    first, second, third, last = (f"{value:+.3f}" for value in ahead)
    assert f"RoPE - ALiBi is {first}, {second}, {third} and {last}" in page


def test_results_md_and_readme_say_where_position_enters():
    full, qk = Study.load(ROOT / "docs" / "results"), Study.load(ROOT / "docs" / "qk")
    page, readme = (words(name).replace("\u2212", "-") for name in ("docs/results.md", "README.md"))
    arms = {"sin": full, "sin_qk_first": qk, "sin_qk": qk}
    for arm, study in arms.items():
        cells, means = [], []
        for tokens in qk.horizons:
            result = stats.paired(study.losses(arm, tokens), qk.losses("rope", tokens))
            low, high = result.interval
            cells.append(f"{result.mean:+.3f} [{low:+.3f}, {high:+.3f}]")
            means.append(result.mean)
        assert f" | {cells[0]} | {cells[1]} |" in page
        if arm == "sin_qk":
            assert f"within {abs(means[1]):.2f} nats of RoPE" in readme
        elif arm == "sin":
            assert f"{means[1]:.2f} behind" in readme
    causes = Study.load(ROOT / "docs" / "causes")
    for arm in causes.others:
        result = causes.paired(arm, qk.horizons[0])
        low, high = result.interval
        assert f" | {result.mean:+.3f} [{low:+.3f}, {high:+.3f}] | \u2013 |" in page
    notes = words("docs/causes/notes.md").replace("\u2212", "-")
    for study, arm, other, against in (
        (causes, "sin_qkv", qk, "sin_qk"), (causes, "learned_qk", qk, "sin_qk"),
        (causes, "rope_sinscale", causes, "rope"), (causes, "sin_aligned_4e3", full, "sin"),
    ):
        result = stats.paired(*(s.losses(a, qk.horizons[0]) for s, a in (
            (study, arm), (other, against))))
        assert f" {result.mean:+.3f} [{result.interval[0]:+.3f}, " in notes
    for study, arm, rate in ((full, "rope", 1e-3), (qk, "rope", 2e-3), (full, "sin", 4e-3)):
        assert {record["lr"] for record in study.runs(arm).values()} == {rate}


def test_a_study_without_runs_has_no_report(tmp_path):
    path = make_pair(tmp_path / "s", 0)
    with pytest.raises(UserError, match="has no record of a run yet"):
        write_report(path)
    assert not (path / "RESULTS.md").exists()


@pytest.mark.parametrize("name", ["results", "bases", "english", "wide", "qk", "causes"])
def test_the_committed_report_is_what_the_records_give(name):
    folder = ROOT / "docs" / name
    page = (folder / "RESULTS.md").read_text(encoding="utf-8")
    assert composed(folder) == page
    shown = {file for _, file in re.findall(r"!\[(.*?)\]\((.*?)\)", page)}
    assert shown == {file.name for file in folder.glob("fig_*.png")}


@pytest.mark.slow
def test_wandb_gets_a_table_and_the_figures(tmp_path, capfd, nobody_is_logged_in):
    study = make_study(tmp_path / "made-up")
    write_report(study)
    capfd.readouterr()
    mirror_in_wandb(study, LogConfig())
    assert capfd.readouterr() == ("", "")
    (folder,) = (study / "wandb").glob("offline-run-*made-up-report*")
    media = folder / "files" / "media"
    (file,) = (media / "table").iterdir()
    runs = json.loads(file.read_text(encoding="utf-8"))
    assert len(runs["data"]) == len(Study.load(study).records) * len(HORIZONS)
    assert len(list((media / "images").iterdir())) == len(plots.FIGURES)
