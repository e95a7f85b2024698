"""The report of a made-up study says what was put into it, and no more; and the committed reports
say what the committed records do."""

import base64
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import ROOT
from made_up_study import EFFECT, TOKENS, change, losses, make_pair, make_study, write

from ablation import plots, report
from ablation.report import compose, mirror_in_wandb, to_html, wandb_runs, write_report
from ablation.study import Study
from errors import UserError
from files import read_json
from gyre.wandb_log import LogConfig


class Page(HTMLParser):
    """Text, tables and images; fails on a tag that is not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words, self.tables, self.images = [], [], [], []
        self.feed(text)
        assert not self.open
        self.text = " ".join(self.words)
        self.claim = re.search(r"</h1>\n<p><strong>(.*)</strong></p>", text)[1]

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link")  # one file, opens anywhere
        if tag == "img":
            self.images.append(dict(attrs)["src"])
        if tag not in ("img", "meta"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if self.open[-1:] in (["td"], ["th"]):
            self.tables[-1][-1][-1] += data

    def table(self, *header):
        """{first cell: row} of the table whose header starts like this."""
        (rows,) = [t for t in self.tables if t[0][: len(header)] == list(header)]
        return {row[0]: row[1:] for row in rows[1:]}


def page(path):
    """The report, without its figures."""
    return Page(to_html(compose(Study.load(path), [], path), path))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("runs") / "made-up")


@pytest.fixture(scope="module")
def seen(study):
    return page(study)


def text(value, form="+.4f"):
    return format(value, form).replace("-", "−")


def test_the_numbers_in_the_page_are_those_of_the_records(seen):
    rows = seen.table("arm", "parameters")
    assert list(rows) == list(EFFECT)
    own, d = losses("rope", range(6)), losses("rope", range(6)) - losses("sin", range(6))
    half = 2.570582 * d.std(ddof=1) / math.sqrt(6)  # t(5 degrees of freedom, 0.975)
    ends = f"[{text(d.mean() - half)}, {text(d.mean() + half)}]"
    mean = f"{own.mean():.4f} ± {own.std(ddof=1):.4f}"
    assert rows["rope"][:5] == ["820,000", "15,000", "0.002", "6", mean]
    assert rows["rope"][6:8] == [f"{text(d.mean())} {ends}", "0.0312"]
    assert d.mean() == pytest.approx(-0.06, abs=0.01)
    assert ends in seen.claim and seen.claim.startswith("rope has the lower validation loss")
    assert rows["sin"][6:8] == ["–", "–"]
    # three seeds: 2/8 at best, times four secondary arms
    assert {rows[arm][7] for arm in ("sin_naive", "learned", "alibi", "nope")} == {"1"}
    # the baseline reaches its own final loss with its last token, a worse arm never does
    assert rows["sin"][8] == "1.00 (200 k), 6/6" and rows["nope"][8] == "never, 0/3"
    reached = -40_000 * math.log(math.exp(-5) - d.mean() / 2.5)
    share = float(rows["rope"][8].split()[0])
    assert share == pytest.approx(reached / TOKENS, abs=0.02) and rows["rope"][8].endswith("6/6")


def test_every_seed_is_shown(seen):
    rows = seen.table("arm", "seed 0")
    for arm in EFFECT:
        seeds = range(6 if arm in ("rope", "sin") else 3)
        shown = [f"{loss:.4f}" for loss in losses(arm, seeds)]
        assert rows[arm] == shown + ["–"] * (6 - len(shown))


@pytest.mark.slow
def test_both_files_hold_the_same_and_the_page_has_its_figures_inside(study):
    write_report(study)
    seen = Page((study / "report.html").read_text(encoding="utf-8"))
    markdown = (study / "RESULTS.md").read_text(encoding="utf-8")
    cells = [
        [cell.replace("\\", "").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in markdown.splitlines()
        if line.startswith("|") and not line.startswith("| ---")
    ]
    assert cells == [row for table in seen.tables for row in table]
    assert seen.claim in markdown
    assert re.findall(r"\]\((.*)\.png\)", markdown) == list(plots.FIGURES)
    inline = [base64.b64decode(source.partition("base64,")[2]) for source in seen.images]
    assert inline == [(study / f"{name}.png").read_bytes() for name in plots.FIGURES]


def test_each_table_says_what_was_put_in(seen):
    assert seen.table("arm", "+0")["learned"] == ["+0.0e+00"] + ["–"] * 7
    (contexts,) = [t for t in seen.tables if t[0][:2] == ["arm", "windows"]]
    for row in contexts[1:]:
        assert ("–" in row) == (row[0] == "learned"), row
    assert seen.table("arm", "loss at T+1 … 2T minus loss at 1 … T")["learned"] == ["–"]
    assert seen.table("arm", "rms of positions")["sin_naive"][:3] == ["0.7071", "0.02", "35.4"]
    rows = seen.table("", "what", "predicted")
    d = losses("alibi", range(3)) - losses("rope", range(3))
    assert f"{text(d.mean(), '.4f')} (held)" in rows["H4"][2]
    assert rows["H4"][3] == "held" and "10 held, 0 not held, 1 not measured." in seen.text
    rows = seen.table("seed", "initial values")
    assert rows["4"] == ["init40000000", "batch4000000", "rope, sin"]
    assert rows["1"][2] == ", ".join(EFFECT)
    # the rate that was chosen is marked, and the way to the same study comes from the plan
    assert seen.table("arm", "0.001")["rope"] == ["2.2000", "2.1000 *", "2.1500"]
    for fact in ("python ablate.py --config ablation.yaml", "43.2 spent", "Example CPU",
                 "torch 2.13.0", "0123abcd", "dddddddddddd"):
        assert fact in seen.text, fact


@pytest.mark.parametrize("effect, noise, expected", [
    (-0.004, 0.001, "No difference of the size that matters here: rope − sin = "),
    (0.0, 0.05, "Undecided: rope − sin = "),
    (0.06, 0.002, "rope has the higher validation loss: rope − sin = +"),
])
def test_the_claim_is_no_stronger_than_its_interval(tmp_path, effect, noise, expected):
    path = make_pair(tmp_path / "s", 6, 6, effect={"rope": effect, "sin": 0.0}, noise=noise)
    assert report.claim(Study.load(path)).startswith(expected)


def test_one_seed_has_no_interval_and_no_claim(tmp_path):
    path = make_study(
        tmp_path / "one", seeds={"rope": range(3), "sin": [0, 1, 2], "nope": [0]}, probes=()
    )
    for seed in (1, 2):
        (path / "results" / f"rope-s{seed}.json").unlink()
    seen = page(path)
    assert "no interval" in seen.claim and "one seed" in seen.claim and "[" not in seen.claim
    rows = seen.table("arm", "parameters")
    d = losses("rope", [0]) - losses("sin", [0])
    assert rows["rope"][6:8] == [f"{text(d[0])} (no interval)", "–"]
    assert rows["nope"][6].endswith("(no interval)")
    assert "2 planned runs missing (rope-s1, rope-s2)" in seen.text
    assert seen.table("", "what", "predicted")["H1"][-1] == "not measured"
    assert "median over seeds, ≤ 0.90: " in seen.text


def test_without_the_baseline_there_is_still_a_table(tmp_path):
    path = make_pair(tmp_path / "half", 2, 2)
    for seed in (0, 1):
        (path / "results" / f"sin-s{seed}.json").unlink()
    seen = page(path)
    assert "no seed in common" in seen.claim and list(seen.table("arm", "seed 0")) == ["rope"]


def test_a_diverged_run_is_shown_and_not_averaged(tmp_path):
    path = make_pair(tmp_path / "nan", 3, 3)
    change(path, "rope-s1", loss=None, bpb=None, curve=[[0, None], [TOKENS, None]])
    seen = page(path)
    rows = seen.table("arm", "seed 0")
    assert rows["rope"][1] == "–" and rows["rope"][0] != "–"
    assert seen.table("arm", "parameters")["rope"][3] == "2"
    assert "Without a final loss, and so in no mean and no difference: rope-s1." in seen.text


def test_names_are_text_and_no_markup(tmp_path):
    path = make_pair(tmp_path / "odd")
    write(path / "plan.json", read_json(path / "plan.json") | {"name": "<b>*a*|`b`"})
    assert "Position encodings: <b>*a*|`b`" in page(path).text


@pytest.mark.slow
def test_the_command_says_where_the_report_is_and_refuses_before_it_writes(tmp_path, capsys):
    path = make_pair(tmp_path / "s")
    markdown = tmp_path / "other" / "text.md"
    markdown.parent.mkdir()
    report.main([str(path), str(markdown)])
    assert capsys.readouterr().out.strip() == str(path / "report.html")
    assert "](../s/fig_curves.png)" in markdown.read_text(encoding="utf-8")
    assert not (path / "fig_probes.png").exists() and not (path / "RESULTS.md").exists()
    with pytest.raises(UserError, match="usage"):
        report.main([])
    (path / "report.html").unlink()
    change(path, "rope-s0", tokens=1)
    with pytest.raises(UserError, match="tokens differs"):
        report.main([str(path)])
    assert not (path / "report.html").exists()


# --- the committed studies ------------------------------------------------------------------------


@pytest.mark.parametrize("folder, file", [
    ("docs/results", "docs/results.md"), ("docs/results/scale", "docs/results/scale/RESULTS.md"),
])
def test_a_committed_report_and_its_notes_are_what_the_records_give(folder, file):
    study = Study.load(ROOT / folder)
    figures = [name for name in plots.FIGURES if (study.path / f"{name}.png").exists()]
    written = (ROOT / file).read_text(encoding="utf-8")
    assert compose(study, figures, (ROOT / file).parent) == written
    notes = " ".join((Path(study.path) / "NOTES.md").read_text(encoding="utf-8").split())
    start, end = study.mean("sin", "rms_ratio"), study.mean("sin", "rms_ratio_trained")
    assert f"begin at {start:.2f} of the embeddings' rms and end at {end:.2f}." in notes
    if "sin_naive" in study.arms:
        for arm, base, before in (("sin_naive", "sin", "sin_naive − sin ="),
                                  ("rope", "sin_naive", "rope − sin_naive ="),
                                  ("rope", "sin", "it is")):
            assert f"{before} {report.difference(study.paired(arm, base))}" in notes
        assert f"{study.mean('sin_naive', 'rms_ratio'):.0f} times as large" in notes
        assert -study.paired("rope", "sin").mean > 0.3 and "larger than 0.3 nats" in notes


# --- wandb ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wandb_gets_tables_and_figures(tmp_path, capfd, nobody_is_logged_in):
    study = make_study(tmp_path / "made-up")
    figures = plots.draw(Study.load(study))
    mirror_in_wandb(study, LogConfig(runs=str(tmp_path), tags=["x"]))
    assert capfd.readouterr() == ("", "")
    (folder,) = (tmp_path / "wandb").glob("offline-run-*made-up-report*")
    media = folder / "files" / "media"
    tables = {
        file.name.split("_")[0]: json.loads(file.read_text(encoding="utf-8"))
        for file in (media / "table").iterdir()
    }
    runs, differences = tables["runs"], tables["differences"]
    loss = runs["columns"].index("loss")
    assert len(runs["data"]) == 24
    shown = [row[loss] for row in runs["data"] if row[0] == "rope"]
    assert shown == losses("rope", range(6)).tolist()
    rope = dict(zip(differences["columns"], differences["data"][0], strict=True))
    d = losses("rope", range(6)) - losses("sin", range(6))
    assert (rope["arm"], rope["n"], rope["p"]) == ("rope", 6, 2 / 64)
    assert rope["mean"] == pytest.approx(d.mean()) and rope["high"] < 0
    assert len(list((media / "images").iterdir())) == len(figures)


def test_wandb_gets_every_measurement_and_probe_in_the_group_of_its_arm(study):
    loaded = Study.load(study)
    jobs = {name: (log, points) for log, name, _, points in wandb_runs(loaded, LogConfig())}
    assert len(jobs) == len(loaded.records) + len(loaded.probes) + 1
    log, points = jobs["rope-s0-eval"]
    assert log.job_type == "eval" and log.group == "rope"
    written = loaded.records["rope", 0]
    series = [(p["offset"], p["shift/dloss"]) for p in points if "shift/dloss" in p]
    assert series == [(r["delta"], r["dloss"]) for r in written["shift"] if r["dloss"] is not None]
    contexts = {row["context"] for row in written["context"]}
    assert {p["context_length"] for p in points if "context_length" in p} == contexts
    log, points = jobs["rope-s0-P1"]
    assert log.job_type == "probe" and len(points) == len(loaded.probes["P1", "rope", 0]["curve"])


def test_a_broken_wandb_costs_one_warning(study, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    mirror_in_wandb(study, LogConfig(runs=str(tmp_path)))
    err = capfd.readouterr().err
    assert re.fullmatch("warning: going on without wandb .*the files have everything\n", err)
    mirror_in_wandb(study, LogConfig(runs=str(tmp_path), wandb="disabled"))
    assert capfd.readouterr().err == ""
