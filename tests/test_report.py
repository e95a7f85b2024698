"""The report of a made-up study says what was put into it, and no more; and the committed report
says what the committed records do."""

import math
import re
import statistics

import numpy as np
import pytest
from conftest import ROOT
from made_up_study import EFFECT, HORIZONS, USED, make_pair, make_study

from ablation import plots, report, stats
from ablation.plan import ARMS, read_plan, tier_beside
from ablation.report import compose, mirror_in_wandb, write_report
from ablation.study import Study
from errors import UserError
from files import read_json, write_sealed
from gyre.wandb_log import LogConfig

COMMITTED = ["five", "bases", "english", "wide", "qk", "causes", "qk-long", "qk-english",
             "qk-wide", "qk-mechanism", "qk-tuned", "qk-retuned"]


def table(page: str, *header: str) -> dict[str, list[str]]:
    """{first cell: row} of the table of a report whose header starts like this."""
    _, *after = page.split(f"| {' | '.join(header)} |")
    assert len(after) == 1
    lines = after[0].partition("\n\n")[0].splitlines()[2:]
    rows = [re.split(r" (?<!\\)\| ", line[2:-2].replace("\\*", "*")) for line in lines]
    return {row[0]: row[1:] for row in rows}


def test_the_numbers_in_the_page_are_those_of_the_records(tmp_path):
    loaded = Study.load(make_study(tmp_path / "made-up"))
    page = compose(loaded)
    rows = table(page, "arm", "learning rate")
    head = table(page, "nats per token, 95 % interval over paired seeds", "after 102 k tokens")
    assert list(rows) == list(EFFECT)
    for arm in ("rope", "alibi"):
        values = list(loaded.losses(arm, HORIZONS[-1]).values())
        first, last = (interval(loaded, arm, tokens).replace("-", "−") for tokens in HORIZONS[::2])
        mean = f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
        assert head[f"{arm} − sin"] == [first, last] and rows[arm][:2] == ["0.002", "6"]
        assert rows[arm][-3:] == [mean, last, f"{USED[arm] / 1000:g} k"]
    assert rows["sin"][-2] == "–" and "(50,176 or more)" in page  # the least of all seeds


def test_one_seed_has_no_interval_and_none_no_report(tmp_path):
    page = compose(Study.load(make_pair(tmp_path / "one")))
    (row,) = table(page, "nats per token, one seed").values()
    assert not any("[" in cell for cell in row)
    assert "95 %" not in page
    first = page.splitlines()[2]
    assert first.startswith("One seed and ") and first.endswith("nothing about the encodings.")
    assert report.with_sd([2.0, None], ".1f") == "2.0"
    assert report.with_sd([1.0, 2.0], ".1f") == "1.5 ± 0.7"
    path = make_pair(tmp_path / "none", 0)
    with pytest.raises(UserError, match="has no record of a run yet"):
        write_report(path)
    assert not (path / "RESULTS.md").exists()


def test_a_study_that_is_half_run_says_how_many_seeds_are_paired(tmp_path):
    path = make_study(tmp_path / "half")
    for file in (path / "results").iterdir():
        arm, seed = file.stem.split("-s")
        if arm in ("learned", "alibi") or int(seed) > (2 if arm == "rope" else 1):
            file.unlink()
    page = compose(Study.load(path))
    rows = table(page, "arm", "learning rate")
    assert "(2 of them)" in rows["rope"][-2] and "of them" not in rows["nope"][-2]
    assert "nope − sin" in page and "alibi − sin" not in page


def test_a_rate_or_a_seed_that_diverged_is_not_one_that_is_missing(tmp_path):
    path = make_study(tmp_path / "diverged")
    (path / "results" / "nope-s3.json").unlink()
    plan = read_plan(path) | {"diverged": ["nope-s3"], "seeds": [0, 1, 2, 3]}
    plan["tuned"]["arms"]["rope"] = {"0.001": {"1000": 2.5, "1001": None}, "0.002": {"1000": None}}
    write_sealed(path / "plan.json", plan)
    page = compose(Study.load(path))
    assert "Diverged, and left out: nope-s3." in page
    assert "| rope | 2.500, diverged \\* | diverged |" in page
    assert table(page, "arm", "learning rate")["rope"][1] == "4"  # records of the planned seeds


@pytest.mark.parametrize("times, words", [
    ([150, 160, 170], "160 (150 – 170)"), ([150, 160], "155 (150 – 160)"),
    ([150, math.inf], "more than 325 (150 – more than 500)"), ([math.inf] * 2, "more than 500"),
    ([150, 160, math.inf], "160 (150 – more than 500)"),
    ([150, math.inf, math.inf], "more than 500 (150 – more than 500)")])
def test_what_never_happened_is_longer_than_was_looked(times, words):
    assert report.span(times, 500) == words
    assert (report.amount(999_499), report.amount(999_500)) == ("999 k", "1 M")


# --- what the documents say of the committed studies ----------------------------------------------


@pytest.fixture(scope="module")
def committed():
    return {name: Study.load(ROOT / "studies" / name) for name in COMMITTED}


def words(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split()).replace("\u2212", "-")


def interval(study, arm, tokens, baseline=None, base=None, sign="+"):
    """The difference from an arm of the same or of another study (`base`), and its interval."""
    result = stats.paired(study.losses(arm, tokens),
                          (base or study).losses(baseline or study.baseline, tokens))
    mean, low, high = (f"{value:{sign}.3f}" for value in (result.mean, *result.interval))
    return f"{mean} [{low}, {high}]"


def test_the_readme_says_what_the_records_hold(committed):
    full, qk, readme = committed["five"], committed["qk"], words("README.md")
    for tokens, unit in ((full.horizons[0], " nats per token"), (full.horizons[-1], "")):
        lead, after = -full.paired("rope", tokens).mean, f"{tokens / 1e6:.2f} M"
        assert f"{lead:.2f}{unit} lower after {after}" in readme
    planned = len(full.plan["seeds"])
    assert all(len(full.runs(arm)) == planned for arm in full.plan["arms"])
    assert f"Each number is a mean over {planned} seeds of models" in readme
    within, behind = (float(interval(study, arm, qk.horizons[1], "rope", qk).split()[0])
                      for study, arm in ((qk, "sin_qk"), (full, "sin")))
    assert f"within {abs(within):.2f} nats of RoPE" in readme and f"{behind:.2f} higher" in readme


def test_positions_md_says_what_the_records_hold(committed):
    full, page = committed["five"], words("docs/positions.md")
    rope, sin, alibi = (
        stats.paired(*(full.values(arm, "context", "loss", context=length * full.plan["seq_len"],
                                   mode="nonoverlapping") for length in (2, 1))).mean
        for arm in ("rope", "sin", "alibi"))
    assert f"on {full.horizons[-1] / 1e6:.2f} M tokens, the loss of whole windows" in page
    assert (f"{rope:+.2f} for RoPE and by {sin:+.2f} for sinusoids, and changes by {alibi:+.2f} "
            f"for ALiBi (means of {len(full.plan['seeds'])} seeds;") in page
    records = {arm: [read_json(ROOT / f"studies/five/probes/P1-{arm}-s{seed}.json")["excess"]
                     for seed in range(3)] for arm in ("rope", "sin", "alibi", "nope")}
    once, twice = ({arm: statistics.fmean(excess[length] for excess in by_seed)
                    for arm, by_seed in records.items()} for length in ("T", "2T"))
    assert ("{rope:.3f} nats above the optimum with RoPE, {sin:.3f} with matched sinusoids, and "
            "{alibi:.3f} with ALiBi and {nope:.3f} without positions").format(**once) in page
    assert ("{rope:.3f} above the optimum with RoPE and {sin:.3f} with matched sinusoids"
            ).format(**twice) in page


def test_results_md_says_what_the_records_hold(committed):
    full, bases, english, wide, qk, causes, *beside = (committed[name] for name in COMMITTED[:-3])
    page = words("docs/results.md")
    for number in (0, 2, 3):
        tokens = full.horizons[number]
        assert f"| {tokens / 1e6:.2f} M | {interval(full, 'rope', tokens, sign='')} |" in page
        if number:  # RoPE's curve between its horizons, which double, in the logarithm of tokens
            before, after = (full.losses("rope", full.horizons[k]) for k in (number - 1, number))
            share = (stats.paired(before, full.losses("sin", tokens)).mean
                     / stats.paired(before, after).mean)
            assert f"| {2 ** (1 - share):.1f} |" in page
    tokens = full.horizons[2]
    assert f"not tuned for it | {interval(english, 'rope', tokens, sign='')}" in page
    assert f"three seeds, 4.19 M tokens | {interval(wide, 'rope', tokens, sign='')}" in page
    assert f"500,000: {interval(bases, 'rope_b1k', tokens, 'rope_b500k')}" in page
    assert f"{interval(bases, 'p_rope_50', tokens)} against base 10,000" in page
    long = committed["qk-long"]
    for arm in ("rope", "alibi", "sin"):
        row = (interval(long, "rope_2e3", tokens, arm) for tokens in long.horizons)
        assert f" | {' | '.join(row)} |" in page
    for tokens in long.horizons[2:]:
        assert f" | {interval(long, 'sin_qk_2e3', tokens, 'rope_2e3')} | " in page
    for study, arm in ((full, "sin"), (qk, "sin_qk_first"), (qk, "sin_qk")):
        short, long = (interval(study, arm, tokens, "rope", qk) for tokens in qk.horizons)
        assert f" | {short} | {long} |" in page
    for study in beside:
        for tokens in (tokens for tokens in study.horizons if tokens > qk.horizons[-1]):
            (arm,) = (arm for arm in study.plan["arms"] if arm.startswith("sin_qk"))
            rope, sin = (interval(study, arm, tokens, study.plan["committed"][k]) for k in (0, 1))
            assert f" | {rope} | " in page and f" | {sin} |" in page
    twice = committed["qk-retuned"]
    later = {"learned_qk": interval(twice, "learned_qk_2e3", twice.horizons[1])}
    for arm in causes.others:
        first, second = interval(causes, arm, qk.horizons[0]), later.get(arm, "\u2013")
        assert f" | {first} | {second} |" in page


def test_the_page_of_rates_says_what_tuning_found(committed):
    path, page = ROOT / "studies" / "qk-rates", words("docs/results.md")
    study, text = Study.load(path), (path / "RATES.md").read_text(encoding="utf-8")
    for part in (f"\n{report.tuning_table(study)}\n", study.plan["command"]):
        assert f"\n{part}\n" in text
    at_best, twice = committed["qk-tuned"], committed["qk-retuned"]
    near, later = (" and ".join(interval(twice, arm, tokens) for tokens in twice.horizons)
                   for arm in ("sin_qk_4e3", "sin_qk_first_4e3"))
    assert f"`sin_qk` - RoPE is {near}, `sin_qk_first` - RoPE {later}." in page
    scaled, *linked = (interval(at_best, arm, at_best.horizons[0]) for arm in (
        "rope_sinscale_8e3", "sin_matched_2e3", "sin_qk_aligned_4e3"))
    link = "](../studies/qk-tuned/RESULTS.md) "
    assert all(found.replace(" ", link, 1) in page for found in linked)
    assert f"and {float(scaled.split()[0]):.2f} at its" in page


def test_the_page_on_context_has_the_table_that_its_code_prints(capsys, monkeypatch):
    page = (ROOT / "studies" / "context" / "RESULTS.md").read_text(encoding="utf-8")
    (code,) = re.findall("```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(code, {})
    assert capsys.readouterr().out in page


@pytest.mark.parametrize("name", COMMITTED)
def test_the_committed_report_is_what_the_records_give(committed, name):
    folder = ROOT / "studies" / name
    page = (folder / "RESULTS.md").read_text(encoding="utf-8")
    assert compose(committed[name]) == page
    plan, tier = committed[name].plan, tier_beside(committed[name].plan, seeds=99)
    assert (len(plan["seeds"]), plan["grid"]) == (tier.seeds, [*tier.grid])
    assert ARMS | plan["arms"] == plan["arms"] | ARMS  # an arm is the one of its name
    shown = {file for _, file in re.findall(r"!\[(.*?)\]\((.*?)\)", page)}
    assert shown == {file.name for file in folder.glob("fig_*.png")}


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
