"""Targets are split by whether their window has shown them before."""

import json

import torch
from builders import train_tiny

from tools.split_losses import find_repeated, main


def test_a_target_is_repeated_if_its_window_has_shown_it():
    tokens = torch.tensor([[7, 8, 7, 9, 7, 8, 5]])
    token, pair = find_repeated(tokens[:, :-1], tokens[:, 1:])
    # The targets 8, 7, 9, 7, 8, 5: the first 7 was the first token; the second 8 follows 7 again.
    assert token.tolist() == [[False, True, False, True, True, False]]
    assert pair.tolist() == [[False, False, False, False, True, False]]


def test_another_window_does_not_count():
    token, pair = find_repeated(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 3], [4, 1]]))
    assert not token.any()
    assert not pair.any()


def test_it_prints_the_split_of_a_run(workdir, capsys):
    main([str(train_tiny(workdir, "split", "--train.steps=3"))])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    kinds = [figures[name] for name in ("repeated pair", "repeated token", "new")]
    total = sum(kind["targets"] for kind in kinds)
    assert total == 280  # all targets of the validation split, in 14 windows of 20
    mean = sum(kind["loss"] * kind["targets"] for kind in kinds) / total
    assert abs(mean - figures["loss"]) < 1e-9
