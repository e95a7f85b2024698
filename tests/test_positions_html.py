"""docs/positions.html: one file that needs no network, and whose numbers are the project's."""

import json
import math
import re
import subprocess
from typing import Any, get_args

import pytest
import torch
from builders import ROOT, require_program
from torch import Tensor

from model import rope
from model.config import RopeScaling, ScalingType
from model.position import alibi_slopes, sinusoid

PAGE = (ROOT / "docs" / "positions.html").read_text(encoding="utf-8")

# What is set, in this order. "theta" is an exponent of 10, and "trained" one of 2.
SETTINGS: list[dict[str, Any]] = [
    {"D": 4}, {"D": 64, "theta": 2.5, "pair": 9, "head": 3, "distance": 77},
    {"trained": 6, "distance": 200},
    *({"trained": 6, "distance": 200, "scaling": type, "factor": 6}
      for type in get_args(ScalingType)),
    {"scaling": "llama3", "D": 128, "theta": math.log10(5e5), "trained": 13, "factor": 8,
     "pair": 31, "distance": 20000}]
DRIVE = (ROOT / "tests" / "drive_positions.js").read_text(encoding="utf-8")


def test_the_page_is_one_file_that_needs_no_network():
    assert not re.search(r"https?:|src=|href=|@import|import\(|fetch|XMLHttp|url\((?!#)", PAGE)


def close(numbers: Any, expected: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(torch.tensor(numbers, dtype=torch.float64), expected.double(),
                               rtol=1e-5, atol=atol)


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> list[dict[str, Any]]:
    """What the page shows when it is opened, and then with each of SETTINGS."""
    browser = require_program("chromium", "chromium-browser")
    tmp_path = tmp_path_factory.mktemp("browser")
    page = tmp_path / "page.html"
    drive = DRIVE.replace("SETTINGS", json.dumps(SETTINGS), 1)
    page.write_text(PAGE.replace("</body>", f"<script>{drive}</script></body>"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    dom = subprocess.run(
        [browser, *options, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()],
        capture_output=True, text=True, encoding="utf-8", timeout=120, check=True).stdout
    (text,) = re.findall(r'<pre id="answers">(.*)</pre>', dom)
    return json.loads(text)


@pytest.fixture(params=range(len(SETTINGS)), ids=[str(changes) for changes in SETTINGS])
def shown(answers, request) -> dict[str, Any]:
    """What the page shows with one of SETTINGS, its "changes"."""
    return {**answers[1 + request.param], "changes": SETTINGS[request.param]}


def scaling_of(settings: dict[str, Any]) -> RopeScaling | None:
    if settings["scaling"] == "none":
        return None
    return RopeScaling(settings["scaling"], settings["factor"], settings["trained"])


def frequencies_of(settings: dict[str, Any]) -> Tensor:
    """Radians a token of each pair, in a text that ends at the distance."""
    scaling = scaling_of(settings)
    if scaling is None:
        return rope.rope_frequencies(settings["D"], settings["theta"])
    length = settings["distance"] + 1
    return rope.scaled_frequencies(scaling, length, settings["D"], settings["theta"])


def distances_of(shown: dict[str, Any]) -> Tensor:
    """The distance that is set, and those of the curves."""
    return torch.tensor([shown["settings"]["distance"], *shown["distances"]])


def curve(shown: dict[str, Any], name: str) -> list[float]:
    """The score that is shown now, and those of the curve of an encoding."""
    return [shown["now"][name], *shown[name]]


@pytest.mark.slow
def test_the_page_takes_what_is_set(shown):
    expected = {"D": 32, "theta": 4, "trained": 7, "scaling": "none", "factor": 4, "pair": 1,
                "head": 4, "distance": 12, **shown["changes"]}
    expected["theta"] = pytest.approx(10 ** expected["theta"])
    expected["trained"] = 2 ** expected["trained"]
    assert shown["settings"] == expected


@pytest.mark.slow
def test_frequencies_and_angles_are_those_of_models(shown):
    frequencies = frequencies_of(shown["settings"])
    close(shown["frequencies"], frequencies, atol=0)
    close(shown["angles"], shown["settings"]["distance"] * frequencies, atol=0)


@pytest.mark.slow
def test_pairs_at_angles_that_training_did_not_show_are_marked(shown):
    settings = shown["settings"]
    unscaled = rope.rope_frequencies(settings["D"], settings["theta"])
    furthest = (settings["trained"] - 1) * unscaled
    angles = settings["distance"] * frequencies_of(settings)
    assert shown["unseen"] == (angles.remainder(2 * math.pi) > furthest).tolist()


@pytest.mark.slow
def test_the_arrow_is_a_pair_as_models_turn_it(shown):
    settings = shown["settings"]
    width = settings["D"]
    row = rope.precompute_freqs_cis(width, settings["distance"] + 1, settings["theta"],
                                    scaling=scaling_of(settings))[-1:]
    first = torch.eye(width)[2 * settings["pair"]].view(1, 1, 1, width)
    turned, _ = rope.apply_rotary_emb(first, first, row)
    pair = turned.view(-1, 2)[settings["pair"]]
    close(shown["turned"], pair)
    close(shown["tip"], pair * torch.tensor([1, -1]))  # a screen's y points down


@pytest.mark.slow
def test_curves_reach_four_times_the_training_length(shown):
    assert shown["distances"][-1] == 4 * shown["settings"]["trained"]


@pytest.mark.slow
def test_rope_scores_are_those_of_vectors_of_ones(shown):
    """The query, at each distance, and the key, at 0, are vectors of ones. The score is the mean of
    the products of their elements. Scaling multiplies each of the two by its magnitude."""
    settings = shown["settings"]
    far = distances_of(shown)
    scaling = scaling_of(settings)
    magnitude = torch.tensor(1.0 if scaling is None else scaling.magnitude).double()
    rows = torch.polar(magnitude, torch.outer(far, frequencies_of(settings)))
    ones = torch.ones(1, len(far), 1, settings["D"])
    turned, _ = rope.apply_rotary_emb(ones, ones, rows.to(torch.complex64))
    close(curve(shown, "rope"), magnitude * turned.mean(dim=-1).flatten())


@pytest.mark.slow
def test_sinusoid_scores_are_products_of_rows(shown):
    settings = shown["settings"]
    table = sinusoid(128, 4 * settings["trained"] + 1, settings["theta"])
    close(curve(shown, "sinusoid"), table[distances_of(shown)] @ table[0] / 64)


@pytest.mark.slow
def test_alibi_scores_are_the_bias_of_the_head(shown):
    slope = alibi_slopes(8)[shown["settings"]["head"] - 1]
    close(curve(shown, "alibi"), -slope * distances_of(shown))


@pytest.mark.slow
def test_it_opens_where_training_did_not_show_the_angles(answers):
    settings = answers[0]["settings"]
    assert (settings["distance"], settings["trained"]) == (200, 128)
    assert answers[0]["unseen"] == 7 * [False] + 9 * [True]
