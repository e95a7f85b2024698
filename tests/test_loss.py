"""The loss of a whole split: over every byte, the same every time, and without a trace."""

import pytest
import torch
import torch.nn.functional as F
from conftest import CPU, arguments

import train
from data.prepare import prepare
from gyre.load import initial_model
from gyre.step import evaluate, summed_loss


def test_the_loss_is_summed_in_float32_over_what_is_not_masked():
    logits = torch.randn(2, 7, 97, generator=torch.Generator().manual_seed(0)).bfloat16()
    y = torch.randint(97, (2, 7), generator=torch.Generator().manual_seed(1))
    y[1, 3:] = -100
    log_p = logits.float().log_softmax(-1)
    expected = -sum(log_p[b, t, y[b, t]] for b in range(2) for t in range(7) if y[b, t] >= 0)
    torch.testing.assert_close(summed_loss(logits, y), expected)


@pytest.mark.slow
def test_validation_is_over_every_byte_and_leaves_no_trace(world):
    config, *_ = train.load(arguments(world, "--name", "a"))
    data, model = prepare(config.data), initial_model(config)
    val_data = data.dataset("val", seq_len=20)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, smaller = (evaluate(model, val_data, n, CPU, torch.float32) for n in (27, 27, 4))
    assert torch.equal(torch.get_rng_state(), before) and model.training
    assert first == again  # bit for bit
    assert smaller[1] == first[1] and smaller[0] == pytest.approx(first[0], rel=1e-6)

    text = (world / "text.txt").read_text(encoding="utf-8")
    held_out = text[int(len(text) * 0.9) :]
    assert data.manifest["val"]["bytes"] == len(held_out.encode()) > len(held_out)
    stream = torch.tensor([data.tokenizer.eos_id, *data.tokenizer.encode(held_out)])
    assert first[1] == len(stream) - 1
    nats = 0.0
    for start in range(0, len(stream) - 1, 20):
        row = stream[start : start + 21]
        logits = model.eval()(row[None, :-1])[0]
        nats += F.cross_entropy(logits, row[1:], reduction="sum").item()
    assert first[0] == pytest.approx(nats, rel=1e-5)
