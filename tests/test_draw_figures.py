"""The figures of docs/positions.md: none may go stale."""

import re

import numpy as np
import pytest
from builders import ROOT
from matplotlib.image import imread

from tools import draw_figures

TEXT = (ROOT / "docs" / "positions.md").read_text(encoding="utf-8")


def test_the_document_shows_every_figure_and_no_other():
    shown = re.findall(r"\]\(figures/([\w.-]+)\)", TEXT)
    assert sorted(shown) == sorted(f"{name}.png" for name in draw_figures.FIGURES)
    assert sorted(shown) == sorted(file.name for file in draw_figures.FOLDER.iterdir())


@pytest.mark.slow
def test_the_figures_are_what_the_code_draws(tmp_path):
    for drawn in draw_figures.draw_all(tmp_path):
        here = imread(drawn)
        there = imread(draw_figures.FOLDER / drawn.name)
        assert here.shape == there.shape, f"{drawn.name}: run python -m tools.draw_figures"
        # Another processor may round a pixel differently; another curve moves many.
        changed = (np.abs(here - there) > 0.1).any(axis=-1).mean()
        assert changed < 1e-4, f"{drawn.name}: run python -m tools.draw_figures"
