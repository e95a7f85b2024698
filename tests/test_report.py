"""The report of a made-up study says what was put into it, and no more."""

import base64
import io
import json
import math
import re
import shutil
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib import image

from ablation import plots, report
from ablation.predictions import PREDICTIONS
from ablation.report import log_to_wandb, write_report
from ablation.study import Study, past_the_end
from errors import UserError
from gyre.wandb_log import LogConfig

T = 32
TOKENS = 200_000
# Δ of the final loss from sin, and what the loss gains by position past T
EFFECT = {
    "rope": -0.06,
    "sin": 0.0,
    "sin_naive": 0.25,
    "learned": 0.03,
    "alibi": -0.03,
    "nope": 0.1,
}
BEYOND = {"rope": 0.1, "sin": 0.6, "sin_naive": 0.7, "learned": None, "alibi": -0.01, "nope": 0.3}
FIGURES = ["fig_curves", "fig_forest", "fig_position", "fig_shift", "fig_probes"]


def record(arm, seed, effect, noise=0.004):
    """One run; arms of a seed share most of what the seed does to them."""
    rng = np.random.default_rng([seed, sum(map(ord, arm))])
    final = 2.0 + effect + 0.03 * math.sin(9 * seed) + noise * float(rng.standard_normal())
    at = np.linspace(0, TOKENS, 11)
    curve = [[int(x), final + 2.5 * math.exp(-x / 40_000) - 2.5 * math.exp(-5)] for x in at]
    edges = [1, 2, 5, 9, 17, 33, 46, 65, 129]
    beyond = BEYOND[arm]
    by_position = [
        final + 1 / low if low <= T else None if beyond is None else final + beyond for low in edges
    ]
    slope = {"rope": 1e-6, "alibi": 0.0, "nope": 0.0}.get(arm, 0.5)
    long = [None if beyond is None else final + beyond * k for k in (1, 1.5, 2)]
    naive, added = arm == "sin_naive", arm.startswith("sin")
    return {
        "arm": arm, "seed": seed, "lr": 2e-3, "parameters": 820_001 if arm == "sin" else 820_000,
        "flops_per_token": 5_000_000, "tokens": TOKENS, "tokens_per_second": 15_000.0,
        "train_seconds": 13.3, "init_sha256": f"init{seed}" + "0" * 59,
        "batches_sha256": f"batch{seed}" + "0" * 58, "data_sha256": "d" * 64,
        "tokenizer_sha256": "e" * 64, "seq_len": T,
        "config": {"model": {"head_dim": 32, "theta": 10000.0}},
        "position_rms": (0.7071 if naive else 0.02) if added else None,
        "embedding_rms": 0.02, "rms_ratio": (35.4 if naive else 1.0) if added else None,
        "curve": curve, "loss": final, "bpb": final / math.log(2) / 3,
        "by_position": {"position": edges, "loss": by_position},
        "context": [
            {"context": c, "mode": mode, "loss": loss}
            for mode in ("nonoverlapping", "sliding")
            for c, loss in zip(
                [T // 2, T, 2 * T, 4 * T, 8 * T], [final + 0.1, final, *long], strict=True
            )
        ],
        "shift": [
            {"delta": d, "dloss": None if arm == "learned" and d else slope * d / T,
             "dlogit_max": None if arm == "learned" and d else slope * d}
            for d in [0, T // 4, T // 2, T, 2 * T, 4 * T, 16 * T]
        ],
        "attention_distance": [[1.0, 5.5, 9.0, 14.0], [2.0, 3.0, 8.0, 15.5]],
        "rope_scaling": [
            {"scaling": s, "context": k * T, "loss": final + bump * k}
            for s, bump in {"raw": 0.1, "linear": 0.2, "ntk": 0.02, "dynamic": 0.02, "yarn": 0.01,
                            "llama3": 0.05}.items()
            for k in (2, 4, 8)
        ] if arm == "rope" else None,
    }  # fmt: skip


def probe(name, arm, seed):
    excess = {"rope": 0.01, "sin": 0.05, "alibi": 0.08, "nope": 0.9}[arm] + 0.001 * seed
    grows = {"rope": 1.0, "sin": 20.0, "alibi": 1.2, "nope": 1.0}[arm]
    steps = range(0, 501, 50)
    return {
        "probe": name, "arm": arm, "seed": seed, "entropy_floor": 1.9606 if name == "P1" else 0.0,
        "curve": [[s, excess + (0.8 * math.exp(-s / 90))] for s in steps],
        "excess": {"T": excess, "2T": excess * (1 + grows) / 2, "4T": excess * grows},
        "steps_to_90": None if arm == "nope" else 150 + 10 * seed,
    }  # fmt: skip


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def make_study(path, seeds=None, effect=EFFECT, probes=("rope", "sin", "alibi", "nope"), **record_):
    """A study with the seeds of each arm in `seeds`."""
    seeds = seeds or {arm: range(6 if arm in ("rope", "sin") else 3) for arm in effect}
    write(
        path / "plan.json",
        {
            "name": path.name, "command": "python ablate.py --config ablation.yaml", "tier": "cpu",
            "arms": {a: {"overrides": {}, "seeds": list(s), "lr": 2e-3} for a, s in seeds.items()},
            "tokens": TOKENS, "steps": 98, "seq_len": T, "budget_minutes": 45.0,
            "expected_minutes": 41.0, "minutes": 43.21, "baseline": "sin",
            "headline": ["rope", "sin"], "machine": {"processor": "Example CPU", "cores": 2},
            "versions": {"torch": "2.13.0", "python": "3.11.9"},
            "git": {"revision": "0123abcd", "dirty": False},
            "tuning": {"rope": {"0.001": 2.2, "0.002": 2.1, "0.004": 2.15},
                       "sin": {"0.001": 2.3, "0.002": 2.25, "0.004": 2.2001}},
        },
    )  # fmt: skip
    for arm, each in seeds.items():
        for seed in each:
            write(
                path / "results" / f"{arm}-s{seed}.json", record(arm, seed, effect[arm], **record_)
            )
    for name in ("P1", "P2"):
        for arm in probes:
            for seed in range(3):
                write(path / "probes" / f"{name}-{arm}-s{seed}.json", probe(name, arm, seed))
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = make_study(tmp_path_factory.mktemp("runs") / "made-up")
    write_report(path)
    return path


class Page(HTMLParser):
    """Text, tables and images; fails on a tag that is not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words, self.tables, self.images = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.images.append(dict(attributes)["src"])
        if tag not in ("img", "meta"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        assert tag not in ("script", "link")  # one file, opens anywhere

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if self.open[-1:] in (["td"], ["th"]):
            self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return " ".join(self.words)

    def table(self, *header):
        """{first cell: row} of the table whose header starts like this."""
        (rows,) = [t for t in self.tables if t[0][: len(header)] == list(header)]
        return {row[0]: row[1:] for row in rows[1:]}


def page(path):
    return Page((path / "report.html").read_text(encoding="utf-8"))


def claim(path):
    return re.search(
        '<p class="claim">(.*)</p>', (path / "report.html").read_text(encoding="utf-8")
    )[1]


def losses(arm, seeds):
    return np.array([record(arm, seed, EFFECT[arm])["loss"] for seed in seeds])


def text(value, form="+.4f"):
    return format(value, form).replace("-", "−")


def test_the_numbers_in_the_page_are_those_of_the_records(study):
    rows = page(study).table("arm", "parameters")
    assert list(rows) == list(EFFECT)
    d = losses("rope", range(6)) - losses("sin", range(6))
    half = 2.570582 * d.std(ddof=1) / math.sqrt(6)  # t(5 degrees of freedom, 0.975)
    ends = f"[{text(d.mean() - half)}, {text(d.mean() + half)}]"
    own = losses("rope", range(6))
    assert rows["rope"][:5] == [
        "820,000", "15,000", "0.002", "6", f"{own.mean():.4f} ± {own.std(ddof=1):.4f}"
    ]  # fmt: skip
    assert rows["rope"][6:8] == [f"{text(d.mean())} {ends}", "0.0312"]
    assert d.mean() == pytest.approx(-0.06, abs=0.01)
    assert ends in claim(study) and claim(study).startswith("rope has the lower validation loss")
    assert rows["sin"][6:8] == ["–", "–"]
    # three seeds: 2/8 at best, times four secondary arms
    assert {rows[arm][7] for arm in ("sin_naive", "learned", "alibi", "nope")} == {"1"}
    # the baseline reaches its own final loss with its last token, a worse arm never does
    assert rows["sin"][8] == "1.00 (200 k), 6/6" and rows["nope"][8] == "never, 0/3"
    reached = -40_000 * math.log(math.exp(-5) - d.mean() / 2.5)
    share = float(rows["rope"][8].split()[0])
    assert share == pytest.approx(reached / TOKENS, abs=0.02) and rows["rope"][8].endswith("6/6")


def test_every_seed_is_shown_in_both_files(study):
    rows = page(study).table("arm", "seed 0")
    markdown = (study / "RESULTS.md").read_text(encoding="utf-8")
    for arm in EFFECT:
        seeds = range(6 if arm in ("rope", "sin") else 3)
        shown = [f"{loss:.4f}" for loss in losses(arm, seeds)]
        assert rows[arm] == shown + ["–"] * (6 - len(shown))
        assert f"| {arm} | {' | '.join(rows[arm])} |" in markdown


def test_both_files_hold_the_same(study):
    seen = page(study)
    markdown = (study / "RESULTS.md").read_text(encoding="utf-8")
    cells = [
        [cell.replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in markdown.splitlines()
        if line.startswith("|") and not line.startswith("| ---")
    ]
    assert [[c.strip() for c in row] for row in cells] == [
        r for table in seen.tables for r in table
    ]
    assert claim(study) in markdown
    for name in FIGURES:
        assert f"]({name}.png)" in markdown


def test_figures_are_pictures_and_in_the_page(study):
    inline = [
        base64.b64decode(source.removeprefix("data:image/png;base64,"))
        for source in page(study).images
    ]
    assert inline == [(study / f"{name}.png").read_bytes() for name in FIGURES]
    for png in inline:
        pixels = image.imread(io.BytesIO(png), format="png")[..., :3]
        assert min(pixels.shape[:2]) > 300
        assert pixels.min() < 0.2 and (pixels < 0.9).any(axis=2).mean() > 0.005


def test_arms_differ_without_colour():
    styles = plots.styles(map(str, range(11))).values()  # as many as there are arms
    assert len({str(style["linestyle"]) for style in styles}) == 11
    assert len({style["marker"] for style in styles}) == 11


def test_every_arm_is_drawn_once_in_each_figure(study):
    loaded = Study.load(study)
    for figure, arms in [(plots.curves, EFFECT), (plots.position, EFFECT), (plots.shift, EFFECT),
                         (plots.probes, ["rope", "sin", "alibi", "nope"])]:  # fmt: skip
        ax = figure(loaded).axes[0]
        lines = {x.get_label(): x for x in ax.lines if not x.get_label().startswith("_")}
        assert set(lines) == set(arms), figure
        assert len({line.get_marker() for line in lines.values()}) == len(arms)
    forest = plots.forest(loaded).axes[0]
    assert [label.get_text() for label in forest.get_yticklabels()[::-1]] == [
        arm for arm in EFFECT if arm != "sin"
    ]
    dots = [x.get_xdata() for x in forest.lines if x.get_marker() == "o"]
    np.testing.assert_allclose(dots[-1], losses("rope", range(6)) - losses("sin", range(6)))


def test_undefined_stays_undefined(study):
    seen = page(study)
    assert seen.table("arm", "+0")["learned"] == ["+0.0e+00"] + ["–"] * 7
    (contexts,) = [t for t in seen.tables if t[0][:2] == ["arm", "windows"]]
    for row in contexts[1:]:
        assert ("–" in row) == (row[0] == "learned"), row
    assert seen.table("arm", "loss at T+1 … 2T minus loss at 1 … T")["learned"] == ["–"]
    line = next(x for x in plots.position(Study.load(study)).axes[0].lines
                if x.get_label() == "learned")  # fmt: skip
    assert max(line.get_xdata()) <= T


def test_the_trap_is_priced(study):
    seen = page(study)
    assert seen.table("arm", "rms of positions")["sin_naive"][:3] == ["0.7071", "0.02", "35.4"]
    d = losses("rope", range(3)) - losses("sin_naive", range(3))
    assert f"rope − sin_naive = {text(d.mean())}" in seen.text


def outcomes(path):
    return {name: row[-1] for name, row in page(path).table("", "what", "predicted").items()}


def test_predictions_are_marked_each_with_its_number(study):
    assert outcomes(study) == {f"H{i}": "held" for i in range(1, 11)} | {"H11": "not measured"}
    rows = page(study).table("", "what", "predicted")
    d = losses("alibi", range(3)) - losses("rope", range(3))
    assert f"{text(d.mean(), '.4f')} (held)" in rows["H4"][2]


def test_predictions_fail_where_rope_loses(tmp_path):
    lost = EFFECT | {"rope": 0.08, "sin_naive": 0.05}
    path = make_study(tmp_path / "lost", effect=lost, probes=())
    write_report(path)
    assert claim(path).startswith("rope has the higher validation loss: rope − sin = +0.0")
    marks = outcomes(path)
    assert [marks[h] for h in ("H1", "H2", "H3", "H4", "H5", "H9")] == ["not held"] * 6
    assert marks["H7"] == "held" and marks["H8"] == "not measured"
    assert "median over seeds, ≤ 0.90: never" in page(path).text


@pytest.mark.parametrize(("arm", "value", "beyond"), [("rope", -1e-4, 1e-5), ("sin", 0.1, -1e-3)])
def test_a_check_turns_at_its_bound(tmp_path, arm, value, beyond):
    """H7: |rope| <= 1e-4 and sin >= 0.1 when all positions are shifted by T."""
    path = make_study(tmp_path / "bound", seeds={"rope": [0], "sin": [0]}, probes=())
    (h7,) = [p for p in PREDICTIONS if p.name == "H7"]
    for extra, expected in ((0.0, "held"), (math.copysign(beyond, value) if arm == "rope"
                                            else beyond, "not held")):  # fmt: skip
        file = path / "results" / f"{arm}-s0.json"
        changed = json.loads(file.read_text(encoding="utf-8"))
        for row in changed["shift"]:
            row["dloss"] = value + extra if row["delta"] == T else 5.0
        write(file, changed)
        assert h7.outcome(Study.load(path))[0] == expected


def test_past_the_end_weighs_positions_not_buckets():
    loss = [9.0, 3.0, 2.0, 1.0]  # positions 1; 2 ... 4; 5 ... 8 = 2T; beyond
    made = {"seq_len": 4, "by_position": {"position": [1, 2, 5, 9], "loss": loss}}
    assert past_the_end(made) == pytest.approx(2.0 - (9 + 3 * 3) / 4)
    made["by_position"]["loss"][2] = None
    assert past_the_end(made) is None
    assert past_the_end({"seq_len": 4}) is None


@pytest.mark.parametrize(
    ("effect", "noise", "expected"),
    [
        (0.0, 0.001, "No difference of the size that matters here: rope − sin = "),
        (-0.004, 0.001, "No difference of the size that matters here: rope − sin = "),
        (0.0, 0.05, "Undecided: rope − sin = "),
        (0.06, 0.002, "rope has the higher validation loss: rope − sin = +"),
    ],
)
def test_the_claim_is_no_stronger_than_its_interval(tmp_path, effect, noise, expected):
    path = make_study(
        tmp_path / "s", seeds={"rope": range(6), "sin": range(6)},
        effect={"rope": effect, "sin": 0.0}, noise=noise,
    )  # fmt: skip
    assert report.claim(Study.load(path)).startswith(expected)


def test_one_seed_has_no_interval_and_no_claim(tmp_path):
    path = make_study(
        tmp_path / "one", seeds={"rope": range(3), "sin": [0, 1, 2], "nope": [0]}, probes=()
    )
    for seed in (1, 2):
        (path / "results" / f"rope-s{seed}.json").unlink()
    write_report(path)
    assert "no interval" in claim(path) and "one seed" in claim(path) and "[" not in claim(path)
    rows = page(path).table("arm", "parameters")
    d = losses("rope", [0]) - losses("sin", [0])
    assert rows["rope"][6:8] == [f"{text(d[0])} (no interval)", "–"]
    assert rows["nope"][6].endswith("(no interval)")
    seen = page(path)
    assert "2 planned runs missing (rope-s1, rope-s2)" in seen.text
    assert len(seen.images) == 4 and not (path / "fig_probes.png").exists()
    assert outcomes(path)["H1"] == "not measured"


def test_without_the_baseline_there_is_still_a_table(tmp_path):
    path = make_study(tmp_path / "half", seeds={"rope": [0, 1], "sin": [0, 1]}, probes=())
    for seed in (0, 1):
        (path / "results" / f"sin-s{seed}.json").unlink()
    write_report(path)
    assert "no seed in common" in claim(path)
    assert list(page(path).table("arm", "seed 0")) == ["rope"]


def test_a_diverged_run_is_shown_and_not_averaged(tmp_path):
    path = make_study(tmp_path / "nan", seeds={"rope": range(3), "sin": range(3)}, probes=())
    file = path / "results" / "rope-s1.json"
    diverged = json.loads(file.read_text(encoding="utf-8"))
    diverged |= {"loss": None, "bpb": None, "curve": [[t, None] for t, _ in diverged["curve"]]}
    write(file, diverged)
    write_report(path)
    rows = page(path).table("arm", "seed 0")
    assert rows["rope"][1] == "–" and rows["rope"][0] != "–"
    assert page(path).table("arm", "parameters")["rope"][3] == "2"
    assert "Without a final loss, and so in no mean and no difference: rope-s1." in page(path).text


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
    path = make_study(tmp_path / "mixed", seeds={"rope": [0, 1], "sin": [0, 1]}, probes=())
    file = path / "results" / "rope-s0.json"
    write(file, json.loads(file.read_text(encoding="utf-8")) | {key: value})
    with pytest.raises(UserError, match=rf"{key} differs .* in rope-s0; .* in {named}\)"):
        write_report(path)
    assert not (path / "report.html").exists()


def test_the_proof_of_fairness_is_shown(study):
    rows = page(study).table("seed", "initial values")
    assert rows["4"] == ["init40000000", "batch4000000", "rope, sin"]
    assert rows["1"][2] == ", ".join(EFFECT)


def test_tuning_marks_the_choice_and_reproduction_comes_from_the_plan(study):
    seen = page(study)
    assert seen.table("arm", "0.001")["rope"] == ["2.2000", "2.1000 *", "2.1500"]
    for fact in ("python ablate.py --config ablation.yaml", "43.2 spent", "Example CPU",
                 "torch 2.13.0", "0123abcd", "dddddddddddd"):  # fmt: skip
        assert fact in seen.text, fact


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
def test_bad_input_in_words(tmp_path, break_it, words, monkeypatch, capsys):
    path = make_study(tmp_path / "bad", seeds={"rope": [0], "sin": [0]}, probes=())
    break_it(path)
    monkeypatch.setattr(sys, "argv", ["report", str(path)])
    with pytest.raises(UserError, match=words):
        report.main()


def test_the_command_says_where_the_report_is(tmp_path, capsys):
    path = make_study(tmp_path / "s", seeds={"rope": [0], "sin": [0]}, probes=())
    report.main([str(path)])
    assert capsys.readouterr().out.strip() == str(path / "report.html")
    with pytest.raises(UserError, match="usage"):
        report.main([])


@pytest.fixture
def nobody_is_logged_in(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    if wandb := sys.modules.get("wandb"):
        wandb.teardown()


def test_wandb_gets_tables_and_figures(study, tmp_path, capfd, nobody_is_logged_in):
    log_to_wandb(study, LogConfig(runs=str(tmp_path), tags=["x"]))
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
    assert [row[loss] for row in runs["data"] if row[0] == "rope"] == losses(
        "rope", range(6)
    ).tolist()
    rope = dict(zip(differences["columns"], differences["data"][0], strict=True))
    d = losses("rope", range(6)) - losses("sin", range(6))
    assert (rope["arm"], rope["n"], rope["p"]) == ("rope", 6, 2 / 64)
    assert rope["mean"] == pytest.approx(d.mean()) and rope["high"] < 0
    assert len(list((media / "images").iterdir())) == len(FIGURES)


def test_scales_that_were_equal_at_the_start_only_are_said_below_the_claim(study):
    from ablation.report import scale_that_did_not_last
    from ablation.study import Study

    loaded = Study.load(study)
    assert scale_that_did_not_last(loaded) == []  # not measured: nothing is made up
    for (arm, _), record in loaded.records.items():
        record["rms_ratio_trained"] = 0.13 if arm == "sin" else 1.0
    (text,) = scale_that_did_not_last(loaded)
    assert "begin at 1.00" in text and "end at 0.13" in text
    for record in loaded.records.values():
        record["rms_ratio_trained"] = 0.9
    assert scale_that_did_not_last(loaded) == []


def test_wandb_gets_every_measurement_and_probe_in_the_group_of_its_arm(study, tmp_path):
    from ablation.report import wandb_runs
    from ablation.study import Study

    loaded = Study.load(study)
    jobs = {name: (log, points) for log, name, _, points in wandb_runs(loaded, LogConfig())}
    assert len(jobs) == len(loaded.records) + len(loaded.probes) + 1
    log, points = jobs["rope-s0-eval"]
    assert log.job_type == "eval" and log.group == "rope"
    written = loaded.records["rope", 0]
    series = [(p["offset"], p["shift/dloss"]) for p in points if "shift/dloss" in p]
    assert series == [(r["delta"], r["dloss"]) for r in written["shift"] if r["dloss"] is not None]
    assert {p["context_length"] for p in points if "context_length" in p} == {
        row["context"] for row in written["context"]
    }
    log, points = jobs["rope-s0-P1"]
    assert log.job_type == "probe" and len(points) == len(loaded.probes["P1", "rope", 0]["curve"])


def test_a_broken_wandb_costs_one_warning(study, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    log_to_wandb(study, LogConfig(runs=str(tmp_path)))
    err = capfd.readouterr().err
    assert re.fullmatch("warning: going on without wandb .*the files have everything\n", err)
    log_to_wandb(study, LogConfig(runs=str(tmp_path), wandb="disabled"))
    assert capfd.readouterr().err == ""
