"""docs/positions.md, its figures, and every name it mentions: none may go stale."""

import re
import typing

import numpy as np
import pytest
import torch
from conftest import ROOT
from matplotlib.image import imread

from docs import draw_figures
from gyre.options import OPTIONS
from model import config, kernels, position, rope, transformer

TEXT = (ROOT / "docs" / "positions.md").read_text(encoding="utf-8")


def test_the_document_shows_every_figure_and_no_other():
    shown = re.findall(r"\]\(figures/([\w.-]+)\)", TEXT)
    assert sorted(shown) == sorted(f"{name}.png" for name in draw_figures.FIGURES)
    assert sorted(shown) == sorted(file.name for file in draw_figures.FOLDER.iterdir())


@pytest.mark.slow
def test_the_figures_are_what_the_code_draws(tmp_path):
    for drawn in draw_figures.draw_all(tmp_path):
        here, there = imread(drawn), imread(draw_figures.FOLDER / drawn.name)
        assert here.shape == there.shape, f"{drawn.name}: run python -m docs.draw_figures"
        # Another processor may round a pixel differently; another curve moves many.
        changed = (np.abs(here - there) > 0.1).any(axis=-1).mean()
        assert changed < 1e-4, f"{drawn.name}: run python -m docs.draw_figures"


def known_names() -> set[str]:
    """What the document may call by name: code, knobs and their values."""
    names = {"embed", "attach", "bias"} & set(vars(position.PositionEncoding))
    for module in (config, kernels, position, rope, transformer):
        for name, value in vars(module).items():
            names |= {name, *(f"{name}.{x}" for x in dir(value) if isinstance(value, type))}
    for part in (config.ModelConfig, config.RopeScaling):
        for hint in typing.get_type_hints(part).values():
            if typing.get_origin(hint) is typing.Literal:
                names |= set(typing.get_args(hint))
    return names | set(position.POSITIONS) | set(OPTIONS)


def test_every_name_in_the_document_exists():
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    spans = set(re.findall(r"`([^`\n]+)`", prose))
    assert not {span for span in spans - known_names()
                if not (ROOT / span).exists() and not hasattr(torch, span.removeprefix("torch."))}
    assert "apply_rotary_emb" in spans
