"""The figures show what was put into the study, and can be told apart in greyscale."""

import pytest
from builders import error_lines
from made_up_study import HORIZONS, change, make_pair, make_study

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


@pytest.mark.parametrize("name, panel", [
    ("fig_gap", 0), ("fig_mechanism", 1), ("fig_context", 0)])
def test_every_arm_is_drawn_once_with_its_own_marker(figures, name, panel):
    drawn = lines(figures[name].axes[panel])
    assert drawn.keys() == {"rope", "sin", "nope", "learned", "alibi"}
    assert len({line.get_marker() for line in drawn.values()}) == 5


@pytest.mark.parametrize("name", ["fig_gap", "fig_mechanism", "fig_context"])
def test_every_arm_is_in_the_legend(figures, name):
    (legend,) = figures[name].legends
    texts = {text.get_text() for text in legend.get_texts()}
    assert texts == {"rope", "sin", "nope", "learned", "alibi"}


@pytest.fixture
def pair(tmp_path):
    """Two seeds of rope and sin."""
    return make_pair(tmp_path / "pair", 2)


def test_a_line_is_the_mean_over_the_seeds(pair):
    change_context(pair, "rope-s0", 2.0)
    change_context(pair, "rope-s1", 3.0)
    drawn = lines(plots.draw(Study.load(pair))["fig_context"].axes[0])["rope"]
    assert [list(values) for values in drawn.get_data()] == [[32], [2.5]]


def test_a_band_goes_from_the_lowest_to_the_highest_seed(pair):
    change_context(pair, "rope-s0", 2.0)
    change_context(pair, "rope-s1", 3.0)
    band = plots.draw(Study.load(pair))["fig_context"].axes[0].collections[0]
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (2.0, 3.0)


def test_a_line_has_the_points_that_all_seeds_have(pair):
    change_context(pair, "rope-s0", 2.0)
    drawn = lines(plots.draw(Study.load(pair))["fig_context"].axes[0])["rope"]
    assert list(drawn.get_xdata()) == [32]


def change_context(study, run, loss):
    """Let a run have been measured in sliding windows of 32 tokens alone."""
    row = {"context": 32, "mode": "sliding", "loss": loss, "se": 0.02}
    change(study, run, context=[row])


def test_the_cost_of_a_shift_is_drawn(figures):
    left, _ = figures["fig_mechanism"].axes
    assert max(lines(left)["sin"].get_ydata()) == 0.5


def test_attention_is_that_of_the_strongest_head(figures):
    _, right = figures["fig_mechanism"].axes
    # The heads of the first layer have 0.1 and 0.2, those of the second 0.05 and up to 0.9.
    drawn = lines(right)["rope"].get_ydata()
    assert (min(drawn), max(drawn)) == pytest.approx((0.2, 0.9))


def test_even_attention_is_drawn_for_comparison(figures):
    _, right = figures["fig_mechanism"].axes
    # (1/2 + 1/3 + ... + 1/32) / 31
    assert right.lines[-1].get_ydata()[0] == pytest.approx(0.0986611, abs=1e-6)


@pytest.mark.parametrize("name, arms", [
    ("an_arm_of_name_", 6), ("a" * 60, 3),
    pytest.param("an_arm_of_a_very_long_name_", 13, marks=pytest.mark.slow)])
def test_a_legend_of_long_names_fits_into_the_figure(tmp_path, monkeypatch, name, arms):
    monkeypatch.setattr(plots, "FIGURES", {"fig_gap": plots.gap})  # the others take as long
    names = [f"{name}{i}" for i in range(arms)]
    study = Study.load(make_study(tmp_path / "long", 1, dict.fromkeys(names, 0.0)))
    fig = plots.draw(study)["fig_gap"]
    fig.draw_without_rendering()
    for box in (fig.legends[0].get_window_extent(), fig.axes[1].title.get_window_extent()):
        assert fig.bbox.x0 <= box.x0
        assert box.x1 <= fig.bbox.x1


def test_many_arms_have_a_style_of_their_own(tmp_path):
    effect = {f"arm{number}": 0.0 for number in range(40)}
    study = Study.load(make_study(tmp_path / "many", 0, effect))
    looks = {tuple(plots.style(study, arm).values()) for arm in effect}
    assert len(looks) == 40


def test_marks_of_many_arms_stay_at_their_length(tmp_path):
    effect = {f"arm{number}": 0.0 for number in range(20)}
    study = Study.load(make_study(tmp_path / "many", 1, effect))
    _, right = plots.gap(study).axes
    places = [line.get_xdata()[0] for line in right.lines if len(line.get_xdata()) == 1]
    last = [place for place in places if place > 300_000]  # lengths are 102,400 to 409,600
    assert len(last) == 19
    assert max(last) < 1.3 * 409_600


def test_the_floors_of_ngrams_are_drawn_and_named(figures):
    left, _ = figures["fig_gap"].axes
    floors = [line.get_ydata()[0] for line in left.lines if len(set(line.get_ydata())) == 1]
    assert floors == [5.0, 3.5, 2.9]
    assert [(text.get_text(), text.xy[1]) for text in left.texts] == [
        ("unigrams", 5.0), ("bigrams", 3.5), ("trigrams", 2.9)]


def test_the_gap_is_drawn_along_the_constant_rate(figures):
    _, right = figures["fig_gap"].axes
    # 1.2 / ln 4 * ln(60,000 / 150,000) at every point; see made_up_study.py.
    assert lines(right)["rope"].get_ydata() == pytest.approx([-0.793157] * 13, abs=1e-6)
    assert right.get_title() == "Each arm − sin, same seed"


def test_the_gap_is_marked_after_each_cooldown(study, figures):
    _, right = figures["fig_gap"].axes
    marker = plots.style(study, "rope")["marker"]
    ends = [line.get_ydata()[0] for line in right.lines
            if line.get_marker() == marker and len(line.get_xdata()) == 1]
    # -0.06 after the last length and twice as much after each shorter one, and the seeds' noise.
    assert ends == pytest.approx([-0.24, -0.12, -0.06], abs=0.01)


def test_no_mark_of_the_gap_hides_another(figures):
    _, right = figures["fig_gap"].axes
    places = [line.get_xdata()[0] for line in right.lines if len(line.get_xdata()) == 1]
    assert len(set(places)) == len(places) == 12  # four arms, three lengths


def test_the_bars_of_the_gap_are_its_intervals(study, figures):
    _, right = figures["fig_gap"].axes
    segments = right.containers[0].lines[2][0].get_segments()  # of the first arm and length
    (_, low), (_, high) = segments[0]
    assert (low, high) == pytest.approx(study.paired("rope", HORIZONS[0]).interval)


def test_losses_of_runs_are_drawn_against_tokens(new_run, monkeypatch):
    run = new_run("a")
    figure = plots.Figure()
    run.log({"step": 1, "tokens": 96, "train/loss": 3.0})
    run.log({"step": 2, "tokens": 192, "train/loss": None, "val/loss": 2.5})
    monkeypatch.setattr(plots, "Figure", lambda **_: figure)
    assert plots.draw_losses([run]).startswith(b"\x89PNG")
    drawn = [(*line.get_xdata(), *line.get_ydata()) for line in figure.axes[0].lines]
    assert drawn == [(96, 3.0), (192, 2.5)]
    assert lines(figure.axes[0]).keys() == {"a"}


@pytest.mark.parametrize("in_bits, on_own_text, title, label", [
    (False, False, "validation (markers) and training (pale)", "loss (nats per token)"),
    (False, True, "validation (markers) and training (pale), on each run's own text",
     "loss (nats per token)"),
    (True, True, "validation, on each run's own text", "bits per byte")])
def test_the_title_of_a_plot_says_on_which_text_runs_were_measured(
        new_run, monkeypatch, in_bits, on_own_text, title, label):
    figure = plots.Figure()
    monkeypatch.setattr(plots, "Figure", lambda **_: figure)
    monkeypatch.setattr(figure, "savefig", lambda *args, **options: None)
    plots.draw_losses([new_run("a")], in_bits=in_bits, on_own_text=on_own_text)
    (ax,) = figure.axes
    assert (ax.get_title(), ax.get_ylabel()) == (title, label)


# The test of what is drawn draws a PNG.
@pytest.mark.parametrize("format, start", [
    pytest.param("png", b"\x89PNG", marks=pytest.mark.slow), ("pdf", b"%PDF-1"),
    ("svg", b"<?xml")])
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
    (line,) = error_lines(capsys, evaluate.main, "no-such-run", "--plot", path)
    assert line == f"error: --plot {path} must end in .png, .pdf or .svg"
