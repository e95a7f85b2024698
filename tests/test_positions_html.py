"""docs/positions.html: one file that needs no network, and whose numbers are the project's."""

import json
import math
import re
import shutil
import subprocess
from typing import Any, get_args

import pytest
import torch
from conftest import ROOT
from torch import Tensor

from model import rope
from model.config import RopeScaling, ScalingType
from model.position import alibi_slopes, sinusoid

PAGE = (ROOT / "docs" / "positions.html").read_text(encoding="utf-8")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

# What is set, in this order; theta and the training length are exponents, of 10 and 2.
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
    if BROWSER is None:
        pytest.skip("no chromium here, which runs the page's own program")
    tmp_path = tmp_path_factory.mktemp("browser")
    page = tmp_path / "page.html"
    drive = DRIVE.replace("SETTINGS", json.dumps(SETTINGS), 1)
    page.write_text(PAGE.replace("</body>", f"<script>{drive}</script></body>"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    dom = subprocess.run(
        [str(BROWSER), *options, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()],
        capture_output=True, text=True, encoding="utf-8", timeout=120, check=True).stdout
    (text,) = re.findall(r'<pre id="answers">(.*)</pre>', dom)
    return json.loads(text)


@pytest.mark.slow
def test_its_numbers_are_those_of_the_functions_that_models_use(answers):
    for changes, answer in zip(SETTINGS, answers[1:], strict=True):
        check(changes, answer)


@pytest.mark.slow
def test_it_opens_where_pairs_stand_at_angles_that_training_did_not_show(answers):
    assert answers[0]["settings"]["distance"] == 200 > answers[0]["settings"]["trained"] == 128
    assert answers[0]["unseen"] == 7 * [False] + 9 * [True]


def check(changes: dict[str, Any], answer: dict[str, Any]) -> None:
    s = answer["settings"]
    asked: dict[str, Any] = {"D": 32, "theta": 4, "trained": 7, "scaling": "none", "factor": 4,
                             "pair": 1, "head": 4, "distance": 12, **changes}
    asked |= {"theta": pytest.approx(10 ** asked["theta"]), "trained": 2 ** asked["trained"]}
    assert s == asked
    kind, width, trained, distance = s["scaling"], s["D"], s["trained"], s["distance"]
    scaling = None if kind == "none" else RopeScaling(kind, s["factor"], trained)
    row = rope.precompute_freqs_cis(width, distance + 1, s["theta"], scaling=scaling)[-1:]
    plain = frequencies = rope.rope_frequencies(width, s["theta"])
    if scaling is not None:
        frequencies = rope.scaled_frequencies(scaling, distance + 1, width, s["theta"])
    angles, seen = distance * frequencies, (trained - 1) * plain
    close(answer["frequencies"], frequencies, atol=0)
    close(answer["angles"], angles, atol=0)
    assert answer["unseen"] == (angles.remainder(2 * math.pi) > seen).tolist()
    first = torch.eye(width)[2 * s["pair"]].view(1, 1, 1, width)
    turned = rope.apply_rotary_emb(first, first, row)[0].view(-1, 2)[s["pair"]]
    close(answer["turned"], turned)
    close(answer["tip"], turned * torch.tensor([1, -1]))  # a screen's y points down

    far = torch.tensor([distance, *answer["distances"]])
    assert far[-1] == 4 * trained
    magnitude = row[0, 0].abs().item()
    rows = torch.polar(torch.tensor(magnitude).double(), torch.outer(far, frequencies))
    ones = torch.ones(1, len(far), 1, width)
    scores = rope.apply_rotary_emb(ones, ones, rows.to(torch.complex64))[0].mean(dim=-1)
    table = sinusoid(128, 4 * trained + 1, s["theta"])
    expected = {"rope": magnitude * scores.flatten(), "sinusoid": table[far] @ table[0] / 64,
                "alibi": -alibi_slopes(8)[s["head"] - 1] * far}
    for name, values in expected.items():
        close([answer["now"][name], *answer[name]], values)
