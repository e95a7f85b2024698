"""Measurements against explicit loops, the same targets everywhere, and records of runs."""

import json
import math
import shutil
import statistics
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from builders import ABSOLUTE, parse_config, quick_for, read_metric, tiny_argv, train_tiny
from safetensors.torch import save_file
from small_scorers import T, V, scorer

from ablation import record
from data.text import Encoded
from errors import UserError
from gyre import measure
from gyre.checkpoint import WEIGHTS, Checkpoints
from gyre.compute import Compute
from gyre.measure import Scorer, choose_blocks, context_range, cut, roll, slide
from gyre.rundir import RunDir
from gyre.yaml_files import read_config
from model import kernels
from model.config import RopeScaling
from model.encodings import POSITIONS
from model.transformer import Transformer


def one_loss(s: Scorer, model: Transformer, first: int, target: int, offset: int = 0) -> float:
    """Loss of one token of the stream, seen from tokens first .. target-1, which are at positions
    from `offset`: the slow way."""
    with torch.no_grad():
        logits = model(s.stream[None, first:target], start=offset)[0, -1].double()
    return -logits.log_softmax(-1)[s.stream[target]].item()


def shared_targets(spans: torch.Tensor) -> dict[int, int]:
    """The targets that all contexts share, each with the start of its span.

    Of span i, which has 8T targets, they are the T targets of block i % 8.
    """
    spans_of_targets = {}
    for i, start in enumerate(spans.tolist()):
        first = start + (i % 8) * T + 1
        for target in range(first, first + T):
            spans_of_targets[target] = start
    return spans_of_targets


def assert_mean_and_error(found: dict, nats: list[float]) -> None:
    """The mean of losses in the order of the text, and its error over 20 stretches."""
    assert found["loss"] == pytest.approx(math.fsum(nats) / len(nats), abs=1e-5)
    means = [part.mean() for part in np.array_split(nats, 20)]
    assert found["se"] == pytest.approx(np.std(means, ddof=1) / 20**0.5, rel=1e-3)


@pytest.fixture
def spans() -> torch.Tensor:
    """17 spans: each block twice, and one three times."""
    return scorer(length=3000).spans(17)


def read_windows(windows) -> list[tuple[list[int], list[int]]]:
    """(places of the tokens that are read, places of the targets) of each window."""
    found = []
    for starts, length, scored, _ in windows:
        for start in starts.tolist():
            end = start + length
            found.append(([*range(start, end)], [*range(end - scored + 1, end + 1)]))
    return found


def scored_targets(windows) -> list[int]:
    """The targets of all windows, in order."""
    targets = []
    for _, scored in read_windows(windows):
        targets += scored
    return sorted(targets)


@pytest.mark.parametrize("context", [T // 2, T, 2 * T, 4 * T, 8 * T])
def test_windows_end_to_end_score_the_shared_targets_once(context, spans):
    windows = cut(choose_blocks(spans, T), T, context)
    assert scored_targets(windows) == sorted(shared_targets(spans))


@pytest.mark.parametrize("stride", [T // 4, T // 2])
@pytest.mark.parametrize("context", [T // 2, T, 2 * T, 4 * T, 8 * T])
def test_moved_windows_score_the_shared_targets_once(context, stride, spans):
    windows = slide(choose_blocks(spans, T), T, context, stride)
    assert scored_targets(windows) == sorted(shared_targets(spans))


@pytest.mark.parametrize("context", [T // 2, T, 2 * T, 4 * T, 8 * T])
def test_windows_end_to_end_begin_where_contexts_divide_a_span(context, spans):
    for starts, *_ in cut(choose_blocks(spans, T), T, context):
        for start in starts.tolist():
            (span,) = [first for first in spans.tolist() if first <= start < first + 8 * T]
            assert (start - span) % context == 0


# Tensors stay on the CPU in the tests with a device "cuda": only its name is read.


@pytest.mark.parametrize("device, windows", [("cpu", 256), ("cuda", 8192)])
def test_a_pass_has_2048_tokens_on_a_cpu_and_65536_on_cuda(device, windows):
    s = scorer()
    s.compute = Compute(torch.device(device), torch.float32)
    first, *_ = s.rows(torch.zeros(9000, dtype=torch.int64), T)
    assert first.shape == (windows, T + 1)


@pytest.mark.parametrize("device, sizes", [("cpu", [3, 3, 2]), ("cuda", [5, 3])])
def test_logits_are_computed_for_as_many_tokens_as_fit(device, sizes, monkeypatch):
    monkeypatch.setattr(measure, "LOGITS_AT_ONCE", 3 * V)
    monkeypatch.setattr(measure, "CUDA_LOGITS_AT_ONCE", 5 * V)
    s = scorer()
    s.compute = Compute(torch.device(device), torch.float32)
    seen = []
    logits = s.model.logits

    def watched(states):
        seen.append(len(states))
        return logits(states)

    monkeypatch.setattr(s.model, "logits", watched)
    s.nats(s.model, measure.ScoredWindows(torch.tensor([0]), context=T, scored=T))
    assert seen == sizes


def test_losses_do_not_depend_on_the_size_of_a_pass(monkeypatch):
    s = scorer()
    expected = measure.stream_losses(s, T, T // 2)
    s.compute = Compute(torch.device("cuda"), torch.float32)
    monkeypatch.setattr(measure, "CUDA_TOKENS_PER_PASS", 3 * T)
    monkeypatch.setattr(measure, "CUDA_LOGITS_AT_ONCE", 5 * V)
    losses = measure.stream_losses(s, T, T // 2)
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-5)


def test_losses_are_averaged_in_float64():
    assert measure.stream_losses(scorer(), T, T).dtype == torch.float64


@pytest.mark.parametrize("length", [2 * 8 * T + 1, 200, 300, 3000])
def test_spans_are_disjoint_have_predecessors_and_end_within_the_stream(length):
    spans = scorer(length=length).spans(9)
    assert spans[0] >= 8 * T and spans[-1] + 8 * T <= length - 1
    assert (spans.diff() >= 8 * T).all() and len(spans) == min(9, (length - 1 - 8 * T) // (8 * T))


@pytest.mark.slow
def test_losses_by_context_are_those_of_explicit_loops():
    s = scorer()
    model = s.model_for(8 * T)
    spans = s.spans(2)
    for row in measure.loss_by_context(s, choose_blocks(spans, T)):
        c = row["context"]
        losses = []
        for target, start in shared_targets(spans).items():
            inside = target - 1 - start
            if row["mode"] == "nonoverlapping":
                first = start + inside // c * c
            else:  # the window that holds the target among its last T/2
                first = start + (inside // (T // 2) + 1) * (T // 2) - c
            losses.append(one_loss(s, model, first, target))
        assert row["loss"] == pytest.approx(math.fsum(losses) / len(losses), abs=1e-5)


def test_windows_of_dynamic_rotations_have_their_whole_length():
    """Past T, frequencies depend on the length of the window: also on how many tokens follow a
    target."""
    scaling = RopeScaling("dynamic", 2.0, T)
    s = scorer(rope_scaling=scaling)
    spans = s.spans(9)

    @cache
    @torch.no_grad()
    def predict(first: int, context: int) -> torch.Tensor:
        """Log-probabilities of what follows each token of this window, which many targets share."""
        logits = s.model_for(8 * T)(s.stream[None, first : first + context])
        return logits[0].double().log_softmax(-1)

    for row in measure.loss_by_context(s, choose_blocks(spans, T)):
        if row["mode"] == "sliding":
            continue
        context = row["context"]
        losses = []
        for target, start in shared_targets(spans).items():
            inside = target - 1 - start
            first = start + inside // context * context
            predicted = predict(first, context)[target - 1 - first]
            losses.append(-predicted[s.stream[target]].item())
        assert row["loss"] == pytest.approx(math.fsum(losses) / len(losses), abs=1e-5)


@pytest.mark.parametrize("position", [x for x in POSITIONS if x not in ABSOLUTE])
def test_relative_encodings_do_not_notice_a_shift(position):
    s = scorer(position)
    assert abs(measure.shift(s, s.spans(4))) <= 1e-4


def test_windows_past_the_length_of_the_training_can_be_shifted():
    """An imported model is measured at any length that its encoding has."""
    s = scorer()
    weights = s.model.state_dict()
    s.model = Transformer(replace(s.model.config, max_positions=T // 2)).eval()
    s.model.load_state_dict(weights)
    assert abs(measure.shift(s, s.spans(4))) <= 1e-4
    assert math.isfinite(measure.permute(s, s.spans(2)))


@pytest.mark.parametrize("position", [x for x in ABSOLUTE if not POSITIONS[x].extrapolates])
def test_a_shift_past_a_table_of_positions_is_not_measured(position):
    s = scorer(position)
    assert measure.shift(s, s.spans(4)) is None


SHIFTED = [x for x in ABSOLUTE if POSITIONS[x].extrapolates]


@pytest.mark.parametrize("position", quick_for(["sinusoidal", "sin_qk"], SHIFTED))
def test_the_cost_of_a_shift_is_that_of_explicit_loops(position):
    s = scorer(position)
    spans = s.spans(4)
    model = s.model_for(2 * T)
    changes = []
    for start in spans.tolist():
        for target in range(start + 1, start + T + 1):
            here = one_loss(s, model, start, target)
            changes.append(one_loss(s, model, start, target, offset=T) - here)
    change = measure.shift(s, spans)
    assert change == pytest.approx(statistics.fmean(changes), abs=1e-5)
    assert abs(change) > 1e-3  # far from rounding


def test_the_cost_of_a_permutation_is_that_of_explicit_loops():
    """The last token stays."""
    s = scorer()
    order = torch.randperm(T - 1, generator=torch.Generator().manual_seed(0))
    changes = []
    for span in s.spans(2).tolist():
        for start in range(span, span + 8 * T, T):
            still = one_loss(s, s.model, start, start + T)
            window = s.stream[start : start + T - 1]  # a view, which is written
            before = window.clone()
            window[:] = before[order]
            changes.append(one_loss(s, s.model, start, start + T) - still)
            window[:] = before
    assert measure.permute(s, s.spans(2)) == pytest.approx(statistics.fmean(changes), abs=1e-5)
    assert max(changes) > 1e-3


def test_a_permutation_costs_nothing_without_order():
    """One layer without positions sees its predecessors as a set."""
    s = scorer("none")
    s.model.layers = s.model.layers[:1]
    assert measure.permute(s, s.spans(2)) == pytest.approx(0, abs=1e-5)


def test_every_target_of_the_spans_is_scored_once():
    s = scorer()
    spans = s.spans(2)
    nats = []  # in the order of the text, in which `loss` takes them; `slide` yields them by block
    for start in spans.tolist():
        for target in range(start + 1, start + 8 * T + 1):
            nats.append(one_loss(s, s.model, target - T, target))
    every = choose_blocks(spans, T, every_target=True)
    assert_mean_and_error(s.loss(s.model, slide(every, T, T, 1)), nats)


def test_the_whole_split_has_every_token_once():
    s = scorer(length=20 * T + 6)
    nats = []
    for target in range(1, 20 * T + 6):
        first = (target - 1) // T * T
        nats.append(one_loss(s, s.model, first, target))
    assert_mean_and_error(measure.whole_split(s), nats)


@pytest.mark.parametrize("seq_len, window", [(T, T), (5 * T, 32)])
def test_the_loss_of_32_has_the_same_targets_for_every_row_length(seq_len, window):
    """The second half of every fourth window of 32 tokens, or of a row if that is shorter."""
    s = scorer(length=300)
    s.seq_len = seq_len
    s.model = s.model_for(seq_len)
    nats = []
    for first in range(0, 300 - window, 4 * window):
        for seen in range(window // 2 + 1, window + 1):
            nats.append(one_loss(s, s.model, first, first + seen))
    assert measure.loss_of_32(s) == pytest.approx(statistics.fmean(nats), abs=1e-5)


# --- windows over a whole text ---


def test_windows_with_a_stride_score_every_token_once():
    assert read_windows(roll(tokens=10, context=4, stride=2)) == [
        ([0, 1, 2, 3], [1, 2, 3, 4]), ([2, 3, 4, 5], [5, 6]), ([4, 5, 6, 7], [7, 8]),
        ([6, 7, 8], [9])]


def test_without_overlap_windows_are_those_of_a_validation():
    assert read_windows(roll(tokens=10, context=4, stride=4)) == [
        ([0, 1, 2, 3], [1, 2, 3, 4]), ([4, 5, 6, 7], [5, 6, 7, 8]), ([8], [9])]


def test_windows_are_those_of_lm_eval_but_for_the_last():
    """lm-eval 0.4.13, get_rolling_token_windows: 8 ids after a prefix, max_seq_len 4."""
    prefix = 0
    ids = [1, 2, 3, 4, 5, 6, 7, 8]
    theirs = [([prefix, 1, 2, 3], [1, 2, 3, 4]), ([4, 5, 6, 7], [5, 6, 7, 8])]
    assert read_windows(roll(tokens=1 + len(ids), context=4, stride=4)) == theirs
    # With two ids more, theirs moves the last window back, so that it is as long as the others.
    their_last = ([6, 7, 8, 9], [9, 10])
    *before, last = read_windows(roll(tokens=11, context=4, stride=4))
    assert before == theirs
    assert last == ([8, 9], their_last[1])


def test_a_text_shorter_than_a_window_is_one_window():
    assert read_windows(roll(tokens=3, context=4, stride=2)) == [([0, 1], [1, 2])]
    assert context_range(tokens=3, context=4, stride=2) == (1, 2)


def test_contexts_of_a_text_of_one_window_grow_from_one():
    assert context_range(tokens=9, context=8, stride=2) == (1, 8)


@pytest.mark.parametrize("stride, least", [(1, 8), (3, 6), (8, 1)])
def test_contexts_are_those_of_windows_after_the_first(stride, least):
    _, *windows = read_windows(roll(tokens=48 + 9, context=8, stride=stride))
    seen = set()
    for read, targets in windows:
        seen |= {target - read[0] for target in targets}
    assert (min(seen), max(seen)) == (least, 8)
    assert context_range(48 + 9, 8, stride) == (least, 8)


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_losses_with_a_stride_are_those_of_explicit_loops(stride, monkeypatch):
    monkeypatch.setattr(measure, "LOGITS_AT_ONCE", 3 * V)  # three tokens at a time
    s = scorer(length=31)
    expected = []
    for target in range(1, 31):
        window = 0 if target <= 8 else (target - 8 + stride - 1) // stride
        expected.append(one_loss(s, s.model, window * stride, target))
    assert measure.stream_losses(s, 8, stride).tolist() == pytest.approx(expected, abs=1e-5)


def test_windows_past_a_table_of_positions_are_refused():
    with pytest.raises(UserError, match="9 tokens are longer than the table of positions, 8"):
        measure.stream_losses(scorer("learned"), context=9, stride=9)


# --- bits per byte ---


PIECES = [b"", b"a", b"bc", b"defg"]  # 0 is EOS
TOKENIZER: Any = SimpleNamespace(piece=lambda i: PIECES[i])


def encoded(*ids: int) -> Encoded:
    stream = torch.tensor(ids)
    return Encoded(stream, stream != 0, n_bytes=sum(len(PIECES[i]) for i in ids))


def measured_bits(text: Encoded, *bits: float) -> dict:
    """bits_per_byte for so many bits of each target."""
    nats = torch.tensor(bits, dtype=torch.float64) * math.log(2)
    return measure.bits_per_byte(nats, text, TOKENIZER)


def test_bits_per_byte_leave_the_ends_of_documents_out():
    found = measured_bits(encoded(0, 3, 1, 0, 2), 3.0, 4.0, 2.0, 7.0)
    assert found["bpb"] == pytest.approx((3 + 4 + 7) / 7)
    assert found["eos_share"] == pytest.approx(2 / 16)


def test_bits_per_byte_do_not_grow_with_documents():
    one = measured_bits(encoded(0, 3, 3), 4.0, 4.0)
    two = measured_bits(encoded(0, 3, 0, 3), 4.0, 6.0, 4.0)
    assert one["bpb"] == pytest.approx(two["bpb"]) == pytest.approx(1.0)


def test_a_loss_of_zero_has_no_share_of_ends():
    found = measured_bits(encoded(0, 3, 0, 3), 0.0, 0.0, 0.0)
    assert (found["bpb"], found["eos_share"]) == (0.0, 0.0)


def test_parts_of_a_text_are_equal_for_every_tokenizer(monkeypatch):
    """Eight bytes in two parts: as two pieces, and as five."""
    monkeypatch.setattr(measure, "STRETCHES", 2)
    long = measured_bits(encoded(0, 3, 3), 8.0, 4.0)
    short = measured_bits(encoded(0, 1, 1, 1, 1, 3), 1.0, 2.0, 4.0, 1.0, 4.0)
    assert long["bpb_stretches"] == pytest.approx([2.0, 1.0])
    assert short["bpb_stretches"] == pytest.approx([2.0, 1.0])


@pytest.mark.parametrize("ids, bits, by_part", [
    ((1, 3, 1, 1, 1), (1.0, 8.0, 1.0, 1.0, 1.0), [2.25, 0.75]),  # 8 bits at bytes 1 to 5 of 8
    ((1, 1, 1, 3, 1), (1.0, 1.0, 1.0, 8.0, 1.0), [0.75, 2.25]),  # at bytes 3 to 7
])
def test_a_token_counts_in_the_part_that_has_its_middle(monkeypatch, ids, bits, by_part):
    monkeypatch.setattr(measure, "STRETCHES", 2)
    assert measured_bits(encoded(0, *ids), *bits)["bpb_stretches"] == pytest.approx(by_part)


def test_bits_per_byte_have_the_error_of_their_parts(monkeypatch):
    monkeypatch.setattr(measure, "STRETCHES", 4)
    found = measured_bits(encoded(0, 3, 3, 3, 3), 4.0, 8.0, 12.0, 16.0)
    assert found["bpb_stretches"] == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert found["bpb_se"] == pytest.approx(0.6454972)  # sqrt(5 / 3) / sqrt(4)


def test_bits_per_byte_of_few_tokens_have_no_error(monkeypatch):
    """There would be parts without any token."""
    monkeypatch.setattr(measure, "STRETCHES", 4)
    found = measured_bits(encoded(0, 3, 3, 3), 4.0, 8.0, 12.0)
    assert (found["bpb_se"], found["bpb_stretches"]) == (None, [pytest.approx(2.0)])


def as_record(ids: str, loss: float, bpb: float) -> dict:
    return {"ids_sha256": ids, "loss": loss, "stretches": [loss - 0.5, loss + 0.5], "bpb": bpb,
            "bpb_stretches": [bpb, bpb]}


def test_a_difference_to_few_tokens_has_no_error(monkeypatch):
    monkeypatch.setattr(measure, "STRETCHES", 4)
    few = measured_bits(encoded(0, 3, 3, 3), 4.0, 8.0, 12.0)
    records = [as_record("a", 2.0, 1.0), as_record("b", 2.25, 2.0) | few]
    measure.add_differences(records)
    assert records[1]["bpb_difference"] == pytest.approx(1.0)
    assert records[1]["bpb_difference_se"] is None


def test_losses_of_the_same_ids_have_a_difference():
    records = [as_record("a", 2.0, 1.0), as_record("a", 2.25, 1.125)]
    measure.add_differences(records)
    assert (records[1]["difference"], records[1]["difference_se"]) == (0.25, 0.0)
    assert (records[1]["bpb_difference"], records[1]["bpb_difference_se"]) == (0.125, 0.0)


def test_losses_of_other_ids_have_no_difference():
    records = [as_record("a", 2.0, 1.0), as_record("b", 2.25, 1.125)]
    measure.add_differences(records)
    assert "difference" not in records[1] and records[1]["bpb_difference"] == 0.125


def test_a_split_too_short_for_long_contexts_is_refused():
    with pytest.raises(UserError, match="128 tokens.*T = 8 .* need 129: give a longer text"):
        measure.check_length(128, seq_len=8)


def test_a_split_of_the_least_length_has_room():
    measure.check_length(129, seq_len=8)


def test_a_length_that_cannot_be_halved_is_refused():
    with pytest.raises(UserError, match="T = 7 .* is odd"):
        measure.check_length(1000, seq_len=7)


STEPS = ("--train.steps", "4", "--train.eval_interval", "2", "--data.val_fraction", "0.3",
         "--optim.lr", "1e-2", "--train.sample_tokens", "0")
TOKENS = 9 * 20  # of one step


@pytest.fixture(scope="module")
def run(workdir) -> RunDir:
    return RunDir.open(train_tiny(workdir, "learned", *STEPS, "--model.position", "learned"))


@pytest.fixture(scope="module")
def last(run) -> dict[str, Any]:
    """The record of the last weights."""
    return measure.measure(run, "last", 4, "cpu")


def test_a_record_has_the_losses_that_training_wrote_down(last, run):
    expected = [run.metrics()[-1][f"val/{name}"] for name in ("loss", "bpb")]
    assert [last["loss"], last["bpb"]] == pytest.approx(expected, abs=1e-6)


def test_a_record_says_what_was_trained(last, run):
    assert [last[key] for key in ("tokens", "lr", "seed")] == [4 * TOKENS, 1e-2, 1]
    weights = run.checkpoints.load_weights().values()
    assert last["parameters"] == sum(value.numel() for value in weights)


def test_a_record_names_its_text_and_tokenizer(last, run):
    assert last["tokenizer_sha256"] == run.record["sha256"]["tokenizer.model"]
    assert last["data_sha256"] == run.manifest["text"]["sha256"]


def test_a_record_can_be_written_as_json(last):
    assert json.loads(json.dumps(last, allow_nan=False)) == last


def test_measuring_repeats_itself_and_draws_nothing(last, run):
    state = torch.get_rng_state()
    assert measure.measure(run, "last", 4, "cpu") == last
    assert torch.equal(torch.get_rng_state(), state)


def test_products_are_computed_as_in_training(run, monkeypatch):
    onednn = read_config(run.path / "config.yaml").train.onednn
    # Now it would choose the other.
    monkeypatch.setattr(kernels, "onednn_gain", lambda: 0.0 if onednn else 9.0)
    _, _, scorer = measure.open_scorer(run, "last", "cpu")
    assert scorer.compute.onednn is onednn


@pytest.mark.parametrize("spans, every_target, blocks_scored", [(4, False, 2), (3, True, 24)])
def test_contexts_have_a_block_of_every_second_span(spans, every_target, blocks_scored, run):
    """One block of T targets of every second span; with every_target, all eight of every span."""
    record = measure.measure(run, "last", spans, "cpu", every_target=every_target)
    assert record["targets"] == blocks_scored * 20


def test_unset_the_best_weights_are_measured(run):
    losses = read_metric(run.path, "val/loss")
    best = min(losses, key=losses.__getitem__)
    assert measure.measure(run, device="cpu")["tokens"] == best * TOKENS


def test_tokens_are_those_of_the_checkpoint_that_stands_in(run, tmp_path):
    """`last`, of step 4, if there is no `best`; then that of step 2, if `last` is damaged."""
    other = RunDir.open(shutil.copytree(run.path, tmp_path / "other"))
    shutil.rmtree(other.path / "best")
    assert measure.measure(other, "best", device="cpu")["tokens"] == 4 * TOKENS
    (other.path / "last" / WEIGHTS).unlink()
    assert measure.measure(other, "last", device="cpu")["tokens"] == 2 * TOKENS


def test_a_study_records_what_a_run_ended_with(run, monkeypatch):
    """And not its best weights, which would be chosen by what is reported."""
    measured = Mock(side_effect=UserError("seen"))  # ends measure_runs after this call
    monkeypatch.setattr(measure, "measure", measured)
    monkeypatch.setattr(Checkpoints, "kept_steps", lambda self: [4])  # else it is refused
    with pytest.raises(UserError, match="seen"):
        record.measure_runs("rope", 3, "cpu", run)
    measured.assert_called_once_with(run, "last", 3, "cpu", every_target=True)


def test_a_kept_checkpoint_of_another_model_is_refused(run, tmp_path):
    other = RunDir.open(shutil.copytree(run.path, tmp_path / "other"))
    weights = other.checkpoints.load_weights("last") | {"norm.weight": torch.ones(7)}
    other.checkpoints.save(4, lambda folder: save_file(weights, folder / WEIGHTS), None)
    with pytest.raises(UserError, match=r"kept/4 are not those of the model \(norm\.weight"):
        record.follow(other, 4, "cpu")


def test_arms_of_a_seed_share_weights_and_batches(run, workdir):
    origins = {"learned": record.hash_origin(run)}  # of seed 1
    for name, words in {
        "same-seed": ["--seed=1"],
        "other-seed": ["--seed=2"],
        "vaswani": ["--model.position=sinusoidal", "--model.sinusoid=vaswani"],
        "sin_qk_aligned": ["--model.position=sin_qk_aligned"],
    }.items():
        config = parse_config(*tiny_argv(workdir, *STEPS, f"--name={name}", *words))
        other = RunDir.create(config, tokenizer=[run.path / "tokenizer.model"],
                              manifest=run.manifest)
        origins[name] = record.hash_origin(other)
    first = origins["learned"]
    for key in ("init_sha256", "embeddings_sha256", "batches_sha256"):
        assert first[key] == origins["same-seed"][key] != origins["other-seed"][key]
    assert origins["vaswani"]["init_sha256"] == first["init_sha256"]
    # vaswani scales the embeddings otherwise, and the queries of sin_qk_aligned start otherwise.
    for key, only in (("embeddings_kind", "vaswani"), ("init_kind", "sin_qk_aligned")):
        assert [name for name in origins if origins[name][key] != first[key]] == [only]


def test_a_loss_that_is_not_finite_is_refused(run, monkeypatch):
    def nothing(scorer, *windows):
        return torch.full((len(scorer.stream) - 1,), math.nan)

    monkeypatch.setattr(measure, "stream_losses", nothing)
    with pytest.raises(UserError, match="the last weights of .*learned have no finite loss"):
        measure.measure(run, "last", None, "cpu")


def test_runs_with_other_held_out_text_do_not_compare(tmp_path):
    """Versions of gyre have split few documents differently, which no setting shows."""
    manifest = {"files": {}, "settings": {}, "text": {"sha256": "a"},
                "val": {"documents": 2, "bytes": 100}}
    other = manifest | {"val": {"documents": 2, "bytes": 101}}
    assert measure.identify_data(manifest, tmp_path) != measure.identify_data(other, tmp_path)
