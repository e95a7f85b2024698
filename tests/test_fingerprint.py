"""The tool that compares what two revisions compute."""

import pytest
from builders import ROOT

from tools import fingerprint


def test_a_checkout_may_be_a_relative_path(monkeypatch):
    asked = []

    def run(folder, command, *words, processes):
        asked.append(command)
        raise SystemExit

    monkeypatch.setattr(fingerprint, "run", run)
    monkeypatch.chdir(ROOT / "tools")
    with pytest.raises(SystemExit):
        fingerprint.main("..", "after.json")
    assert asked == [ROOT / "train.py"]
