"""What holds of every encoding in POSITIONS, by itself and by the commands; and the experiments."""

import copy
import math
from typing import Any

import pytest
import torch
from conftest import (
    error_lines,
    exit_code,
    model_config,
    random_model,
    read_metric,
    sharp_model,
    tiny_argv,
)
from torch import Tensor, nn

import evaluate
import generate
import train
from model.config import INIT_STD
from model.encodings import POSITIONS
from model.position import sinusoid
from model.transformer import Transformer

TOKENS = torch.arange(14).view(2, 7)
ABSOLUTE = ("sinusoidal", "learned", "sin_qk", "sin_qk_first", "sin_qkv", "sin_residual",
            "learned_qk", "sin_aligned", "sin_qk_aligned")


# --- by the commands ---


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
def test_commands_train_sample_evaluate_and_resume_every_encoding(workdir, position, capsys):
    folder = workdir / "runs" / position
    options = ["--name", position, "--model.position", position, "--train.steps", "4"]
    assert exit_code(train.main, *tiny_argv(workdir, *options)) == 0
    assert list(read_metric(folder)) == [1, 2, 3, 4]
    capsys.readouterr()

    assert exit_code(generate.main, "--run", folder, "--prompt", "ab", "--max-new-tokens", "5") == 0
    assert capsys.readouterr().out.startswith("ab")

    assert exit_code(evaluate.main, folder, "--device", "cpu") == 0
    assert position in capsys.readouterr().out.split()

    assert exit_code(train.main, "--resume", folder, "--train.steps", "6") == 0
    assert list(read_metric(folder)) == [1, 2, 3, 4, 5, 6]


def test_help_lists_every_encoding(capsys):
    assert exit_code(train.main, "--help") == 0
    words = capsys.readouterr().out.replace(",", " ").replace(";", " ").split()
    assert set(POSITIONS) <= set(words)


def test_the_refusal_of_an_unknown_encoding_lists_all(capsys):
    error = error_lines(capsys, train.main, "--model.position", "rop")[-1]
    assert error == ("error: model.position must be one of rope, sinusoidal, learned, alibi, none, "
                     "sin_qk, sin_qk_first, sin_qkv, sin_residual, learned_qk, rope_first, "
                     "rope_sinscale, sin_aligned, sin_qk_aligned, not rop")


# --- every encoding ---


@pytest.mark.parametrize("position", POSITIONS)
def test_checkpoints_hold_no_table(position):
    model = random_model(position=position)
    stored = {name for name in model.state_dict() if name.startswith("position.")}
    assert stored <= {"position.alpha", "position.weight"}
    assert not list(model.named_buffers())


@pytest.mark.parametrize("position", [x for x in POSITIONS if POSITIONS[x].extrapolates])
def test_weights_fit_a_model_of_another_length(position):
    model = random_model(position=position, max_positions=300)
    longer = random_model(seed=2, position=position, max_positions=400)
    longer.load_state_dict(model.state_dict())
    assert torch.equal(model(TOKENS), longer(TOKENS))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_cast_changes_no_table_and_no_bias(position, dtype):
    """In bfloat16, positions 256 and 257 would be equal."""
    model = random_model(position=position, max_positions=300)
    at = torch.arange(258)
    before = copy.deepcopy((model.position.table, model.position.bias(at, at)))
    model.to(dtype)
    after = (model.position.table, model.position.bias(at, at))
    torch.testing.assert_close(after, before, rtol=0, atol=0)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_model_built_on_meta_equals_one_built_in_place(position):
    expected = random_model(position=position)
    with torch.device("meta"):
        model = Transformer(model_config(position=position))
    assert not any(parameter.is_meta for parameter in model.position.parameters())
    model.to("meta").to_empty(device="cpu")
    model.load_state_dict(expected.state_dict())
    assert torch.equal(model(TOKENS), expected(TOKENS))


def change_by_order(position: str) -> float:
    """How much the last logits of one layer change when tokens 0 and 2 are exchanged."""
    model = sharp_model(position=position, n_layers=1)
    exchanged = TOKENS[:, [2, 1, 0, 3, 4, 5, 6]]
    return (model(TOKENS)[:, -1] - model(exchanged)[:, -1]).abs().max().item()


@pytest.mark.parametrize("position", [x for x in POSITIONS if x != "none"])
def test_every_encoding_but_none_sees_order(position):
    assert change_by_order(position) > 1e-3


def test_without_positions_one_layer_sees_no_order():
    assert change_by_order("none") < 1e-5


def change_by_shift(position: str) -> float:
    """How much logits change when all tokens move from 0, 1, ... to 40, 41, ..."""
    model = random_model(position=position)
    return (model(TOKENS, start=40) - model(TOKENS)).abs().max().item()


@pytest.mark.parametrize("position", ABSOLUTE)
def test_absolute_encodings_see_where_a_row_starts(position):
    assert change_by_shift(position) > 1e-3


@pytest.mark.parametrize("position", [x for x in POSITIONS if x not in ABSOLUTE])
def test_relative_encodings_do_not_see_where_a_row_starts(position):
    assert change_by_shift(position) <= 1e-5


# --- experiments: rows added in several layers ---


def watch(model: Transformer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs and the output of every module by name, for a row that starts at 5."""
    names = {module: name for name, module in model.named_modules()}
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}

    def keep(module: nn.Module, arguments: Any, output: Any) -> None:
        inputs[names[module]] = arguments
        outputs[names[module]] = output

    for module in names:
        module.register_forward_hook(keep)
    model(TOKENS, start=5)
    return inputs, outputs


def added_rows(model: Transformer) -> dict[tuple[int, str], Tensor]:
    """What is added to the normalised stream before wq, wk and wv of each layer."""
    inputs, outputs = watch(model)
    added = {}
    for layer in range(3):
        normed = outputs[f"layers.{layer}.attention_norm"]
        for part in ("wq", "wk", "wv"):
            (read,) = inputs[f"layers.{layer}.attention.{part}"]
            added[layer, part] = read - normed
    return added


def assert_rows(added: Tensor, rows: Tensor) -> None:
    torch.testing.assert_close(added, rows.expand_as(added), rtol=0, atol=1e-5)


@pytest.mark.parametrize("position, places", [
    ("sin_qk", {(0, "wq"), (0, "wk"), (1, "wq"), (1, "wk"), (2, "wq"), (2, "wk")}),
    ("sin_qk_first", {(0, "wq"), (0, "wk")}),
    ("sin_qkv", {(0, "wq"), (0, "wk"), (0, "wv"), (1, "wq"), (1, "wk"), (1, "wv"),
                 (2, "wq"), (2, "wk"), (2, "wv")})])
def test_sinusoids_enter_where_their_name_says(position, places):
    rows = math.sqrt(2) * sinusoid(48, 12, theta=100.0)[5:]
    for place, added in added_rows(random_model(position=position, theta=100.0)).items():
        assert_rows(added, rows if place in places else torch.zeros(7, 48))


def test_learned_vectors_enter_at_queries_and_keys_of_every_layer():
    model = random_model(position="learned_qk")
    weight = model.position.weight.detach()  # (layer, position, C)
    for (layer, part), added in added_rows(model).items():
        assert_rows(added, torch.zeros(7, 48) if part == "wv" else weight[layer, 5:12] / 0.02)


@pytest.mark.parametrize("position", ["sin_qk", "learned_qk"])
def test_added_rows_start_with_rms_1(position):
    rows = random_model(position=position).position.rows(0)
    assert rows.square().mean().item() == pytest.approx(1, rel=0.05)


def test_each_layer_has_learned_vectors_of_its_own():
    weight = random_model(position="learned_qk").position.weight
    assert (weight[0] - weight[1]).abs().max() > 0.1 * INIT_STD


def test_sinusoids_enter_the_residual_stream_before_every_block():
    model = random_model(position="sin_residual")
    rows = model.position.alpha * sinusoid(48, 12)[5:]
    inputs, outputs = watch(model)
    assert_rows(inputs["layers.0"][0] - outputs["tok_embeddings"], rows)
    assert_rows(inputs["layers.1"][0] - outputs["layers.0"], rows)
    assert_rows(inputs["layers.2"][0] - outputs["layers.1"], rows)


# --- experiments: RoPE ---


def test_rope_first_turns_the_first_layer_as_rope_does():
    _, turned, *_ = watch(random_model(position="rope_first"))[0]["layers.0.attention"]
    _, expected, *_ = watch(random_model())[0]["layers.0.attention"]
    assert torch.equal(turned, expected)


def test_rope_first_turns_no_other_layer():
    inputs, _ = watch(random_model(position="rope_first"))
    assert inputs["layers.1.attention"][1] is None
    assert inputs["layers.2.attention"][1] is None


def test_scaled_rope_has_the_embeddings_of_vaswanis_sinusoids():
    model = random_model(position="rope_sinscale")
    vaswani = random_model(position="sinusoidal", sinusoid="vaswani")
    h = model.position.embed(model.tok_embeddings(TOKENS), 0)
    with_rows = vaswani.position.embed(vaswani.tok_embeddings(TOKENS), 0)
    torch.testing.assert_close(h, with_rows - sinusoid(48, 7))


def test_scaled_rope_starts_with_embeddings_of_variance_1():
    model = random_model(position="rope_sinscale")
    h = model.position.embed(model.tok_embeddings(TOKENS), 0)
    assert h.std().item() == pytest.approx(1, rel=0.1)


# --- experiments: aligned queries and keys ---

ALIGNED = pytest.mark.parametrize("position, usual, options", [
    ("sin_aligned", "sinusoidal", {"sinusoid": "vaswani"}), ("sin_qk_aligned", "sin_qk", {})])


@ALIGNED
def test_aligned_queries_and_keys_start_equal_and_larger(position, usual, options):
    aligned = random_model(position=position, n_kv_heads=6, **options)
    expected = random_model(position=usual, n_kv_heads=6, **options)
    for layer, usual_layer in zip(aligned.layers, expected.layers, strict=True):
        wq = 3 * usual_layer.attention.wq.weight
        torch.testing.assert_close(layer.attention.wq.weight, wq)
        torch.testing.assert_close(layer.attention.wk.weight, wq)


@ALIGNED
def test_aligned_models_start_as_usual_in_all_other_matrices(position, usual, options):
    aligned = random_model(position=position, n_kv_heads=6, **options)
    expected = dict(random_model(position=usual, n_kv_heads=6, **options).named_parameters())
    for name, matrix in aligned.named_parameters():
        if ".wq." not in name and ".wk." not in name:
            assert torch.equal(matrix, expected[name]), name


@ALIGNED
def test_aligned_scores_follow_distance_at_the_start(position, usual, options):
    attention = random_model(position=position, n_kv_heads=6, **options).layers[0].attention
    rows = sinusoid(48, 40)
    scores = rows @ attention.wq.weight.T @ attention.wk.weight @ rows.T
    near = scores.diagonal()
    far = scores.diagonal(20)
    assert near.mean() - far.mean() > 3 * far.std()


def test_aligned_keys_of_fewer_heads_are_scaled_alike():
    aligned = random_model(position="sin_aligned", n_kv_heads=2).layers[0].attention
    usual = random_model(position="sinusoidal", n_kv_heads=2).layers[0].attention
    assert aligned.wk.weight.std().item() == pytest.approx(3 * usual.wk.weight.std().item(), rel=.1)
