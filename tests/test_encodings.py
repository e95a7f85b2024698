"""POSITIONS by the commands, and what is special about the encodings for experiments."""


import pytest
import torch
from conftest import arguments, points, refusal, run

import evaluate
import generate
import train
from model.encodings import POSITIONS

TOKENS = torch.arange(14).view(2, 7)


# --- the commands ---


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
def test_a_run_of_every_encoding_is_trained_sampled_evaluated_and_resumed(world, position, capsys):
    folder = world / "runs" / position
    options = ["--name", position, "--model.position", position, "--train.steps", "4"]
    assert run(train.main, *arguments(world, *options)) == 0
    assert list(points(folder)) == [1, 2, 3, 4]
    capsys.readouterr()

    assert run(generate.main, "--run", folder, "--prompt", "ab", "--max-new-tokens", "5") == 0
    assert capsys.readouterr().out.startswith("ab")

    assert run(evaluate.main, folder, "--device", "cpu") == 0
    assert position in capsys.readouterr().out.split()

    assert run(train.main, "--resume", folder, "--train.steps", "6") == 0
    assert list(points(folder)) == [1, 2, 3, 4, 5, 6]


def test_help_and_the_refusal_of_another_name_list_every_encoding(capsys):
    assert run(train.main, "--help") == 0
    words = capsys.readouterr().out.replace(",", " ").replace(";", " ").split()
    assert set(POSITIONS) <= set(words)
    error = refusal(capsys, train.main, "--model.position", "rop")[-1]
    assert error == ("error: model.position must be one of rope, sinusoidal, learned, alibi, none, "
                     "sin_qk, sin_qk_first, sin_qkv, sin_residual, learned_qk, rope_first, "
                     "rope_sinscale, sin_aligned, sin_qk_aligned, not rop")
