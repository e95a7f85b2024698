"""The report of a made-up study says what was put into it, and no more; and the committed report
says what the committed records do."""

import base64
import json
import math
import re
import statistics
import sys

import numpy as np
import pytest
from conftest import ROOT
from made_up_study import EFFECT, HORIZONS, USED, change, make_pair, make_study

from ablation import plots, report, stats
from ablation.plan import PROBED, read_plan
from ablation.report import compose, mirror_in_wandb, to_html, write_report
from ablation.study import Study, at_horizon, cell
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
    return Text(compose(Study.load(path), list(plots.FIGURES)))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("runs") / "made-up")


@pytest.fixture(scope="module")
def seen(study):
    return composed(study)


def text(value, form="+.3f"):
    return format(value, form).replace("-", "−")


def test_the_numbers_in_the_page_are_those_of_the_records(study, seen):
    loaded, rows = Study.load(study), seen.table("arm", "learning rate")
    assert list(rows) == list(EFFECT)
    for arm in ("rope", "alibi"):
        own = list(loaded.values(arm, at_horizon(HORIZONS[-1], "loss")).values())
        d = loaded.paired(arm, HORIZONS[-1])
        mean = f"{np.mean(own):.3f} ± {np.std(own, ddof=1):.3f}"
        ends = f"[{text(d.interval[0])}, {text(d.interval[1])}]"
        assert rows[arm][:2] == ["0.002", "6"]
        assert rows[arm][-3] == mean and rows[arm][-2].startswith(f"{text(d.mean)} {ends}, p ")
        assert rows[arm][-1] == f"{USED[arm] / 1000:g} k"
    head = seen.table("nats per token, 95 % interval over paired seeds", "after 102 k tokens")
    for arm in ("rope", "alibi"):
        for column, tokens in enumerate((HORIZONS[0], HORIZONS[-1])):
            d = loaded.paired(arm, tokens)
            ends = f"[{text(d.interval[0])}, {text(d.interval[1])}]"
            assert head[f"{arm} − sin"][column] == f"{text(d.mean)} {ends}"
    assert "Run so far" not in seen and rows["sin"][-2] == "–"
    p = float(rows["alibi"][-2].split("p ")[1])
    raw = {arm: loaded.paired(arm, HORIZONS[-1]).p for arm in ("nope", "learned", "alibi")}
    assert p == pytest.approx(stats.holm(raw)["alibi"], rel=0.06) and p > raw["alibi"]


@pytest.mark.slow
def test_the_page_needs_no_other_file(study):
    write_report(study)
    page = (study / "report.html").read_text(encoding="utf-8")
    markdown = Text((study / "RESULTS.md").read_text(encoding="utf-8"))
    assert page.count("<tr>") == len(re.findall(r"^\|(?! ---)", markdown, re.MULTILINE))
    assert re.findall(r"\]\((.*)\.png\)", markdown) == list(plots.FIGURES)
    inline = re.findall('src="data:image/png;base64,(.*?)"', page)
    assert [base64.b64decode(image) for image in inline] == [
        (study / f"{name}.png").read_bytes() for name in plots.FIGURES]
    assert not re.search("<(script|link)|src=\"(?!data:)", page)


def test_each_table_says_what_was_put_in(seen):
    contexts = seen.table("arm", "T/2", "T")
    assert [cell == "–" for cell in contexts["learned"]] == [False, False, True, True, True]
    assert contexts["rope, YaRN"][:2] == ["–", "–"] and "(se 0.020)" in contexts["rope"][0]
    assert seen.table("arm", "P1 at T")["nope"][-1] == "more than 500"
    assert seen.table("arm", "P1 at T")["rope"][-1] == "160 (150 – 170)"
    # the rate that was chosen is marked
    rates = seen.table("arms, 205 k tokens", "0.001")
    assert rates["rope"] == ["2.200", "2.100, 2.120 *", "2.150, 2.160"]
    for fact in ("python ablate.py --tier full", "minutes: 43", "Example CPU", "torch 2.13.0",
                 "0123abcd", "50,176 or more"):
        assert fact in seen, fact


def test_one_seed_has_no_interval(tmp_path):
    path = make_pair(tmp_path / "one")
    seen = composed(path)
    (row,) = seen.table("nats per token, 95 % interval over paired seeds").values()
    assert not any("[" in cell for cell in row) and "Run so far" not in seen
    assert "Holm" not in seen
    (path / "results" / "sin-s0.json").unlink()
    seen = composed(path)
    assert "rope − sin" not in seen
    assert "Run so far, of 1 seeds: rope 1, sin 0; and 0 of 0 probes." in seen


def test_notes_beside_the_records_are_put_in_as_they_are(tmp_path):
    path = make_pair(tmp_path / "noted")
    (path / "notes.md").write_text("## Predicted\n\n*so*\n", encoding="utf-8")
    assert "\n\n## Predicted\n\n*so*\n\n## What speaks" in composed(path)


def test_a_study_that_is_half_run_says_so_and_corrects_for_all_that_is_planned(tmp_path):
    path = make_study(tmp_path / "half")
    for file in (path / "results").iterdir():
        arm, seed = file.stem.split("-s")
        if arm in ("learned", "alibi") or int(seed) > (2 if arm == "rope" else 1):
            file.unlink()
    seen, study = composed(path), Study.load(path)
    rows = seen.table("arm", "learning rate")
    assert "(2 of them)" in rows["rope"][-2] and "of them" not in rows["nope"][-2]
    p = study.paired("nope", HORIZONS[-1]).p
    assert float(rows["nope"][-2].split("p ")[1]) == pytest.approx(min(1, 3 * p), rel=0.06)
    assert "of 6 seeds: rope 3, sin 2, nope 2, learned 0, alibi 0; and 24 of 24 probes." in seen


def test_a_rate_that_diverged_is_not_one_that_was_not_tried(tmp_path):
    path = make_study(tmp_path / "rates")
    plan = read_plan(path)
    plan["tuned"]["arms"]["rope"] = {"0.001": {"1000": 2.5, "1001": None}, "0.002": {"1000": None}}
    write_sealed(path / "plan.json", plan)
    assert "| rope | 2.500, diverged" in report.tuning_table(Study.load(path))
    assert "| diverged |" in report.tuning_table(Study.load(path))


def test_a_diverged_seed_is_awaited_no_more(tmp_path):
    path = make_study(tmp_path / "diverged")
    (path / "results" / "nope-s3.json").unlink()
    plan = read_plan(path) | {"diverged": ["nope-s3"]}
    write_sealed(path / "plan.json", plan)
    seen = composed(path)
    assert "Diverged, and left out: nope-s3." in seen and "so far" not in seen


@pytest.mark.parametrize("times, words", [
    ([150, 160, 170], "160 (150 – 170)"), ([150, 160], "155 (150 – 160)"),
    ([150, math.inf], "more than 150 (150 – more than 500)"),
    ([150, 160, math.inf], "160 (150 – more than 500)"), ([math.inf], "more than 500"),
    ([150, math.inf, math.inf], "more than 500 (150 – more than 500)"),
    ([math.inf, math.inf], "more than 500"),
])
def test_what_never_happened_is_longer_than_was_looked(times, words):
    assert report.span(times, 500) == words


def test_the_documents_say_what_the_committed_records_hold():
    """README's lead of RoPE, and what docs/positions.md says of twice the training length."""
    study = Study.load(ROOT / "docs" / "results")
    readme, positions = (" ".join((ROOT / name).read_text(encoding="utf-8").split())
                         for name in ("README.md", "docs/positions.md"))
    first, last = study.horizons[0], study.horizons[-1]
    leads = {tokens: study.paired("rope", tokens) for tokens in (first, last)}
    assert (f"RoPE leads by {-leads[first].mean:.2f} nats a token after {first / 1e6:.2f} M "
            f"training tokens, and by {-leads[last].mean:.2f} after {last / 1e6:.2f} M") in readme
    planned = len(study.plan["seeds"])
    assert leads[last].n == len(study.runs("rope")) == len(study.runs("sin")) == planned
    assert all(len(study.runs(arm)) == planned for arm in study.plan["arms"])
    assert f"{planned} seeds of each of {len(study.arms)} encodings" in readme
    seeds = f"means of {planned} seeds"
    rises = [statistics.fmean(
        cell("context", "loss", context=2 * study.seq_len, mode="nonoverlapping")(record)
        - cell("context", "loss", context=study.seq_len, mode="nonoverlapping")(record)
        for record in study.runs(arm).values()) for arm in ("rope", "sin", "alibi")]
    assert (f"on {last / 1e6:.2f} M tokens, the loss of whole windows of twice that length rises "
            f"by {rises[0]:+.2f} for RoPE and by {rises[1]:+.2f} for sinusoids, and changes by "
            f"{rises[2]:+.2f} for ALiBi ({seeds};") in positions
    excess = {(arm, at): statistics.fmean(r["excess"][at] for r in study.probe("P1", arm).values())
              for arm in PROBED for at in ("T", "2T")}
    assert ("ends {rope:.3f} nats above the optimum with RoPE, {sin:.3f} with matched sinusoids, "
            "and {alibi:.3f} with ALiBi and {nope:.3f} without positions"
            ).format(**{arm: excess[arm, "T"] for arm in PROBED}) in positions
    assert (f"in rows of twice the length, {excess['rope', '2T']:.3f} with RoPE and "
            f"{excess['sin', '2T']:.3f} with matched sinusoids "
            f"(means of {len(study.probe('P1', 'rope'))} seeds)") in positions


def test_results_md_says_what_the_records_hold():
    full, bases, english, wide = (Study.load(ROOT / "docs" / name)
                                  for name in ("results", "bases", "english", "wide"))
    text = " ".join((ROOT / "docs" / "results.md").read_text(encoding="utf-8").split())
    loss = {arm: [statistics.fmean(map(at_horizon(tokens, "loss"), full.runs(arm).values()))
                  for tokens in full.horizons] for arm in full.arms}

    def show(difference, plus=""):
        low, high = (f"{value:{plus}.3f}".replace("-", "\u2212") for value in difference.interval)
        return f"{difference.mean:{plus}.3f}".replace("-", "\u2212") + f" [{low}, {high}]"

    for number in (0, 2, 3):
        tokens = full.horizons[number]
        assert f"| {tokens / 1e6:.2f} M | {show(full.paired('rope', tokens))} |" in text
        if number:  # RoPE's curve between its horizons, which double, in the logarithm of tokens
            before, after = loss["rope"][number - 1 : number + 1]
            share = (before - loss["sin"][number]) / (before - after)
            assert f"| {2 ** (1 - share):.1f} |" in text
    for study, words in ((english, "not tuned for it"), (wide, "three seeds, 4.19 M tokens")):
        assert f"{words} | {show(study.paired('rope', full.horizons[2]))}" in text
    base = bases.paired("rope_b1k", full.horizons[2], "rope_b500k")
    assert f"base 500,000: {show(base, '+')}" in text
    assert f"{show(bases.paired('p_rope_50', full.horizons[2]), '+')} against base 10,000" in text
    faster = [read_json(file) for file in sorted((ROOT / "docs/results/rope_at_2e-3").iterdir())]
    lower, behind = ([statistics.fmean(at_horizon(tokens, "loss")(full.runs(arm)[record["seed"]])
                                       - at_horizon(tokens, "loss")(record) for record in faster)
                      for tokens in full.horizons] for arm in ("rope", "alibi"))
    assert f"ended {min(lower):.2f} to {max(lower):.2f} nats lower after every length" in text
    first, second, third, last = (f"{-value:+.3f}".replace("-", "\u2212") for value in behind)
    assert f"RoPE \u2212 ALiBi is {first}, {second}, {third} and {last}" in text
    learned = [statistics.median(at_horizon(tokens, "loss")(full.runs("learned")[seed])
                                 - at_horizon(tokens, "loss")(record)
                                 for seed, record in full.runs("sin").items())
               for tokens in full.horizons]
    assert ", ".join(f"{value:.2f}" for value in learned).replace("-", "\u2212") in text


def test_names_are_text_and_no_markup(tmp_path):
    path = make_pair(tmp_path / "odd")
    write_sealed(path / "plan.json", read_plan(path) | {"name": "<b>*a*|`b`"})
    page = to_html(compose(Study.load(path), []), path)
    assert "<h1>Position encodings: &lt;b&gt;*a*|`b`</h1>" in page


def test_a_study_that_does_not_compare_has_no_report(tmp_path):
    path = make_pair(tmp_path / "s")
    change(path, "rope-s0", data_sha256="f" * 64)
    with pytest.raises(UserError, match="data_sha256 differs"):
        write_report(path)
    assert not (path / "report.html").exists()


# --- the committed study --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["results", "bases", "english", "wide"])
def test_the_committed_report_is_what_the_records_give(name):
    folder = ROOT / "docs" / name
    study = Study.load(folder)
    figures = [name for name in plots.FIGURES if (study.path / f"{name}.png").exists()]
    page = (folder / "RESULTS.md").read_text(encoding="utf-8")
    assert compose(study, figures) == page


# --- wandb ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wandb_gets_a_table_and_the_figures(
    tmp_path, capfd, nobody_is_logged_in
):
    study = make_study(tmp_path / "made-up")
    loaded = Study.load(study)
    figures = plots.draw(loaded)
    assert mirror_in_wandb(study, LogConfig(runs=str(tmp_path), tags=["x"]))
    assert capfd.readouterr() == ("", "")
    (folder,) = (tmp_path / "wandb").glob("offline-run-*made-up-report*")
    media = folder / "files" / "media"
    (file,) = (media / "table").iterdir()
    runs = json.loads(file.read_text(encoding="utf-8"))
    assert len(runs["data"]) == len(loaded.records) * len(HORIZONS)
    assert len(list((media / "images").iterdir())) == len(figures)


def test_a_broken_wandb_costs_one_warning(study, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert not mirror_in_wandb(study, LogConfig(runs=str(tmp_path)))
    err = capfd.readouterr().err
    assert re.fullmatch("warning: going on without wandb, the files have everything.*\n", err)
    mirror_in_wandb(study, LogConfig(runs=str(tmp_path), wandb="disabled"))
    assert capfd.readouterr().err == ""
