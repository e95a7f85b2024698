"""The figures show what was put into the study, and can be told apart in greyscale."""

import numpy as np
import pytest
from conftest import refusal
from made_up_study import EFFECT, HORIZONS, NGRAMS, make_study

import evaluate
from ablation import plots
from ablation.study import Study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return Study.load(make_study(tmp_path_factory.mktemp("runs") / "made-up"))


@pytest.fixture(scope="module")
def figures(study):
    return plots.draw(study)


def lines(axes):
    return {line.get_label(): line for line in axes.lines if line.get_label()[0] != "_"}


def test_every_arm_is_drawn_once_and_in_the_legend(figures):
    for name, panel in (("gap", 0), ("mechanism", 1), ("context", 0)):
        drawn = lines(figures[f"fig_{name}"].axes[panel])
        assert drawn.keys() == {*EFFECT}
        assert len({line.get_marker() for line in drawn.values()}) == len(drawn)
        (legend,) = figures[f"fig_{name}"].legends
        assert {text.get_text() for text in legend.get_texts()} == drawn.keys()


def test_lines_are_means_over_seeds_of_the_strongest_head(study, figures):
    drawn = lines(figures["fig_context"].axes[0])["rope"]
    for context, loss in zip(*drawn.get_data(), strict=True):
        losses = study.values("rope", "context", "loss", mode="sliding", context=context)
        assert loss == pytest.approx(np.mean([*losses.values()]))
    band = figures["fig_context"].axes[0].collections[0].get_paths()[0].vertices  # of the first arm
    at = band[band[:, 0] == context, 1]
    assert (at.min(), at.max()) == (min(losses.values()), max(losses.values()))
    left, right = figures["fig_mechanism"].axes
    assert max(lines(left)["sin"].get_ydata()) == 0.5  # the made-up cost of a shift
    assert max(lines(right)["rope"].get_ydata()) == 0.9  # the made-up heads: up to 0.2, up to 0.9
    assert right.lines[-1].get_ydata()[0] == pytest.approx(sum(1 / n for n in range(2, 33)) / 31)


def test_a_legend_of_many_long_names_fits_into_the_figure(tmp_path):
    names = [f"an_arm_of_name_{i}" for i in range(6)]
    study = Study.load(make_study(tmp_path / "long", 1, dict.fromkeys(names, 0.0)))
    fig = plots.draw(study)["fig_gap"]
    fig.draw_without_rendering()
    box = fig.legends[0].get_window_extent()
    assert fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1


def test_the_gap_has_the_floors_and_the_cooled_ends(study, figures):
    left, right = figures["fig_gap"].axes
    floors = [line.get_ydata()[0] for line in left.lines if len(set(line.get_ydata())) == 1]
    assert floors == [text.xy[1] for text in left.texts] == NGRAMS
    assert [text.get_text() for text in left.texts] == ["unigrams", "bigrams", "trigrams"]
    gaps = [list(gap.values()) for gap in study.gaps("rope")]
    assert lines(right)["rope"].get_ydata() == pytest.approx(np.mean(gaps, axis=0))
    assert right.get_title() == "Each arm − sin, same seed"
    ends = {(line.get_marker(), line.get_xdata()[0]): line.get_ydata()[0] for line in right.lines
            if len(line.get_xdata()) == 1}
    markers = {plots.style(study, arm)["marker"]: arm for arm in study.others}
    assert len({x for _, x in ends}) == len(ends) == len(markers) * len(HORIZONS)  # none hides one
    for (marker, x), y in ends.items():
        tokens = min(HORIZONS, key=lambda tokens: abs(tokens - x))
        assert y == study.paired(markers[marker], tokens).mean
    bars = [bar for container in right.containers for bar in container.lines[2][0].get_segments()]
    drawn = [(low, high) for (_, low), (_, high) in bars]
    paired = [study.paired(arm, tokens) for arm in study.others for tokens in HORIZONS]
    assert np.allclose(drawn, [result.interval for result in paired])


def test_losses_of_runs_are_drawn_against_tokens(new_run, monkeypatch):
    run, figure = new_run("a"), plots.Figure()
    run.log({"step": 1, "tokens": 96, "train/loss": 3.0})
    run.log({"step": 2, "tokens": 192, "train/loss": None, "val/loss": 2.5})
    monkeypatch.setattr(plots, "Figure", lambda **_: figure)
    assert plots.draw_losses([run]).startswith(b"\x89PNG")
    drawn = [(*line.get_xdata(), *line.get_ydata()) for line in figure.axes[0].lines]
    assert drawn == [(96, 3.0), (192, 2.5)] and lines(figure.axes[0]).keys() == {"a"}


@pytest.mark.parametrize("format, start", [
    ("png", b"\x89PNG"), ("pdf", b"%PDF-1"), ("svg", b"<?xml")])
def test_losses_of_runs_are_drawn_in_each_format(new_run, format, start):
    run = new_run("a")
    run.log({"step": 1, "tokens": 96, "val/loss": 2.5})
    assert plots.draw_losses([run], format=format).startswith(start)


@pytest.mark.parametrize("path, format", [
    ("loss.pdf", "pdf"), ("a.b/loss.SVG", "svg"), ("loss.png", "png")])
def test_the_suffix_of_a_plot_is_its_format(path, format):
    assert evaluate.plot_format(path) == format


@pytest.mark.parametrize("path", ["loss.jpg", "loss", ".pdf"])
def test_another_format_is_refused_before_runs_are_opened(path, capsys):
    (line,) = refusal(capsys, evaluate.main, "no-such-run", "--plot", path)
    assert line == f"error: --plot {path} must end in .png, .pdf or .svg"
