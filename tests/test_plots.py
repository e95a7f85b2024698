"""The figures show what was put into the study, and can be told apart in greyscale."""

import io

import numpy as np
import pytest
from made_up_study import EFFECT, T, losses, make_study
from matplotlib import image

from ablation import plots
from ablation.plan import ARMS
from ablation.study import Study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return Study.load(make_study(tmp_path_factory.mktemp("runs") / "made-up"))


def lines(figure):
    every = {line.get_label(): line for line in figure.axes[0].lines}
    return {label: line for label, line in every.items() if not label.startswith("_")}


@pytest.mark.slow
def test_figures_are_pictures(study):
    assert plots.draw(study) == list(plots.FIGURES)
    for name in plots.FIGURES:
        png = (study.path / f"{name}.png").read_bytes()
        pixels = image.imread(io.BytesIO(png), format="png")[..., :3]
        assert min(pixels.shape[:2]) > 300
        assert pixels.min() < 0.2 and (pixels < 0.9).any(axis=2).mean() > 0.005


def test_arms_differ_without_colour():
    for mark in ("linestyle", "marker"):
        assert len({str(style[mark]) for style in plots.STYLES}) == len(ARMS)


@pytest.mark.parametrize("figure, arms", [
    (plots.curves, EFFECT), (plots.position, EFFECT), (plots.shift, EFFECT),
    (plots.probes, ["rope", "sin", "alibi", "nope"]),
])
def test_every_arm_is_drawn_once(study, figure, arms):
    drawn = lines(figure(study))
    assert set(drawn) == set(arms)
    assert len({line.get_marker() for line in drawn.values()}) == len(arms)


def test_the_forest_has_every_seed_of_every_difference(study):
    forest = plots.forest(study).axes[0]
    labels = [label.get_text() for label in forest.get_yticklabels()[::-1]]
    assert labels == [arm for arm in EFFECT if arm != "sin"]
    dots = [x.get_xdata() for x in forest.lines if x.get_marker() == "o"]
    np.testing.assert_allclose(dots[-1], losses("rope", range(6)) - losses("sin", range(6)))


def test_a_line_ends_where_the_encoding_does(study):
    assert max(lines(plots.position(study))["learned"].get_xdata()) <= T
