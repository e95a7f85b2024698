"""What holds of every encoding in POSITIONS, by itself and by the commands; and the experiments."""

import copy
import math
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import (
    ABSOLUTE,
    CPU,
    error_lines,
    exit_code,
    model_config,
    random_model,
    read_metric,
    sharp_model,
    tiny_argv,
    train_tiny,
)
from torch import Tensor, nn

import evaluate
import generate
import train
from errors import UserError
from model.config import INIT_STD, ModelConfig
from model.encodings import (
    MODEL_FIELDS,
    POSITIONS,
    PoPE,
    bound_phases,
    check_position,
    overrides,
)
from model.position import ALiBi, PositionEncoding, RoPE, sinusoid
from model.transformer import FeedForward, KVCache, Transformer

TOKENS = torch.arange(14).view(2, 7)


# --- by the commands ---


@pytest.fixture(scope="module", params=POSITIONS)
def trained(workdir, request) -> Path:
    """A run of 30 steps, for each encoding. It has the encoding's name."""
    return train_tiny(workdir, request.param, "--model.position", request.param,
                      "--optim.lr=1e-2", "--train.steps=30", "--train.eval_interval=15")


@pytest.mark.slow
def test_every_encoding_learns(trained):
    losses = read_metric(trained)
    assert losses[30] < losses[1] - 1.5


@pytest.mark.slow
def test_commands_sample_evaluate_and_resume_every_encoding(trained, tmp_path, capsys):
    folder = tmp_path / trained.name  # the run itself stays as it is
    shutil.copytree(trained, folder)
    assert exit_code(generate.main, "--run", folder, "--prompt", "ab", "--max-new-tokens", "5") == 0
    assert capsys.readouterr().out.startswith("ab")

    assert exit_code(evaluate.main, folder, "--device", "cpu") == 0
    assert trained.name in capsys.readouterr().out.split()

    assert exit_code(train.main, "--resume", folder, "--train.steps", "32") == 0
    assert list(read_metric(folder)) == list(range(1, 33))


def test_help_lists_every_encoding(capsys):
    assert exit_code(train.main, "--help") == 0
    words = capsys.readouterr().out.replace(",", " ").replace(";", " ").split()
    assert set(POSITIONS) <= set(words)


def test_the_refusal_of_an_unknown_encoding_lists_all(capsys):
    error = error_lines(capsys, train.main, "--model.position", "xyz")[-1]
    assert error.startswith(
        "error: there is no model.position xyz: it must be one of rope, sinusoidal, learned, "
        "alibi, none or, for experiments, sin_qk, sin_qk_first, sin_qkv, sin_residual, learned_qk, "
        "rope_first, rope_nope, rope_sinscale, sin_aligned, sin_qk_aligned, pope, pope_nophase, "
        "partial_25, partial_10, rope_sin_qk, sin_qk_rope_last")  # and then those of one's own


@pytest.mark.parametrize("word, meant", [
    ("RoPE", "rope"), ("rop", "rope"), ("rotary", "rope"), ("Rotary", "rope"), ("ALiBi", "alibi"),
    ("PoPE", "pope"), ("NoPE", "none"), ("None", "none"), ("null", "none"),
    ("absolute", "sinusoidal"), ("sine", "sinusoidal"), ("sin", "sinusoidal"),
    ("sinusoids", "sinusoidal"), ("learnable", "learned"), ("windw", "Window")])
def test_the_encoding_that_a_word_may_mean_is_suggested(word, meant, monkeypatch):
    monkeypatch.setitem(POSITIONS, "Window", ALiBi)
    with pytest.raises(UserError) as caught:
        check_position(ModelConfig(position=word))
    assert f"no model.position {word} (did you mean {meant}?): it must" in str(caught.value)


# --- an encoding of one's own that is not right ---


def refusal(monkeypatch, encoding: Any) -> str:
    """What a model says to an encoding of this name and class; "" if it takes it."""
    monkeypatch.setitem(POSITIONS, "mine", encoding)
    try:
        Transformer(model_config(position="mine"))
    except UserError as error:
        return str(error)
    return ""


def with_methods(base: type, *names: str) -> type:
    """A class Mine that has these methods, which return 1."""
    return type("Mine", (base,), {name: lambda self: 1 for name in names})


def test_an_encoding_without_any_hook_is_refused(monkeypatch):
    assert refusal(monkeypatch, with_methods(PositionEncoding)) == (
        "model.position mine would train without positions: override one of the hooks embed, "
        "freqs_cis, bias, attach in Mine")


@pytest.mark.parametrize("method, meant", [("get_bias", "bias"), ("embedding", "embed")])
def test_a_method_like_a_hook_is_suggested_where_none_is_overridden(method, meant, monkeypatch):
    error = refusal(monkeypatch, with_methods(PositionEncoding, method))
    assert error.endswith(f" in Mine (did you mean {meant} by {method}?)")


@pytest.mark.parametrize("methods", [("embeded", "attatching"), ("attatching", "embeded")])
def test_of_two_methods_the_one_most_like_a_hook_is_suggested(methods, monkeypatch):
    error = refusal(monkeypatch, with_methods(PositionEncoding, *methods))
    assert error.endswith("(did you mean embed by embeded?)")


@pytest.mark.parametrize("options, words", [
    ("theta", "the options of Mine are 'theta', and must be a tuple: write options = "
     '("theta",), with a comma, for one'),
    (("thetas",), "the options of Mine name thetas (did you mean theta?), which is no field of "
     "ModelConfig: add it in model/config.py, or leave it out"),
    (("n_heads",), "the options of Mine name n_heads, which every model has, whatever its "
     "encoding: leave it out")], ids=["no tuple", "no field", "the model's"])
def test_options_that_are_no_tuple_of_fields_are_refused(options, words, monkeypatch):
    encoding = type("Mine", (ALiBi,), {"options": options})
    assert refusal(monkeypatch, encoding) == words


def test_each_field_of_a_model_is_its_own_or_of_an_encoding():
    of_encodings = {option for encoding in POSITIONS.values() for option in encoding.options}
    assert {field.name for field in fields(ModelConfig)} == {*MODEL_FIELDS, *of_encodings}
    assert of_encodings.isdisjoint(MODEL_FIELDS)


def test_a_run_with_a_misspelt_hook_does_not_begin(workdir, capsys, monkeypatch):
    monkeypatch.setitem(POSITIONS, "mine", with_methods(PositionEncoding, "bais"))
    argv = tiny_argv(workdir, "--model.position", "mine", "--name", "misspelt")
    assert error_lines(capsys, train.main, *argv)[-1] == (
        "error: model.position mine: nothing calls the method bais of Mine (did you mean bias?), "
        "because the hooks are embed, freqs_cis, bias, attach")
    assert not (workdir / "runs" / "misspelt").exists()


@pytest.mark.parametrize("method, meant", [
    ("bais", "bias"), ("bis", "bias"), ("emebd", "embed"), ("freq_cis", "freqs_cis"),
    ("attatch", "attach")])
def test_a_misspelt_hook_is_refused_beside_inherited_ones(method, meant, monkeypatch):
    error = refusal(monkeypatch, with_methods(RoPE, method))
    assert f"nothing calls the method {method} of Mine (did you mean {meant}?)" in error


def test_a_misspelt_hook_of_a_base_class_is_refused(monkeypatch):
    error = refusal(monkeypatch, with_methods(with_methods(ALiBi, "bais"), "rows"))
    assert "the method bais of Mine (did you mean bias?)" in error


@pytest.mark.parametrize("method", [
    "base", "basis", "bins", "biased", "embeds", "embedding", "freqs", "attach_layer", "_bais",
    "freqs_cos", "freqs_sin"])
def test_a_helper_may_be_named_somewhat_like_a_hook(method, monkeypatch):
    assert refusal(monkeypatch, with_methods(ALiBi, method)) == ""


def test_a_helper_may_be_named_like_a_hook_beside_it(monkeypatch):
    class Mine(RoPE):
        def freq_cis(self):
            return self.table

        def freqs_cis(self, start, stop):
            return self.freq_cis()[start:stop]

    assert refusal(monkeypatch, Mine) == ""


def test_an_encoding_may_override_the_mask_alone(monkeypatch):
    assert refusal(monkeypatch, with_methods(PositionEncoding, "mask")) == ""


class Flat(PositionEncoding):
    """A bias of the given shape; None for no bias."""

    shape: Any = None

    def bias(self, q_positions, k_positions):
        sizes = {"T": len(q_positions), "S": len(k_positions)}
        if self.shape is None:
            return None
        return torch.zeros([sizes.get(size, size) for size in self.shape])


@pytest.mark.parametrize("shape, returned", [
    ((1, 1, "T"), (1, 1, 2)), (("T", "S"), (2, 3)), ((6, "S", "T"), (6, 3, 2)),
    ((2, "T", "S"), (2, 2, 3)), ((1, 6, "T", "S"), (1, 6, 2, 3)), ((6, 1, "S"), (6, 1, 3))])
def test_a_bias_of_another_shape_is_refused(shape, returned, monkeypatch):
    monkeypatch.setattr(Flat, "shape", shape)
    assert refusal(monkeypatch, Flat) == (
        f"the bias of model.position mine has the shape {returned} for 2 queries and 3 keys, and "
        "must have (1 or H, T, S), here (1, 2, 3) or (6, 2, 3)")


@pytest.mark.parametrize("embed, words", [
    (lambda h: h[0], "returns the shape (1, 48) for embeddings of the shape (2, 1, 48)"),
    (lambda h: h.mean(1, True), "returns the shape (2, 1, 48) for embeddings of the shape (2, 3, "),
    (lambda h: h + torch.zeros(9, 48), "returns the shape (2, 9, 48) for embeddings of the shape "),
    (lambda h: None, "returns NoneType for embeddings of the shape (2, 1, 48): it must return a")])
def test_an_embed_that_changes_the_shape_is_refused(embed, words, monkeypatch):
    class Mine(PositionEncoding):
        def embed(self, h, start):
            return embed(h)

    assert refusal(monkeypatch, Mine).startswith(f"embed of model.position mine {words}")


def test_a_bias_by_which_token_0_sees_nothing_is_refused(monkeypatch):
    class Logarithm(PositionEncoding):
        """Minus infinity at distance 0, and NaN for later keys, which are hidden anyway."""

        def bias(self, q_positions, k_positions):
            return (q_positions[:, None] - k_positions[None, :]).float().log()[None]

    assert refusal(monkeypatch, Logarithm) == (
        "the bias of model.position mine is -inf from token 0 to itself, the only token that it "
        "sees: it must be finite")


def test_a_bias_that_is_minus_infinity_for_one_head_is_told_by_that_number(monkeypatch):
    class LastHead(PositionEncoding):
        def bias(self, q_positions, k_positions):
            bias = torch.zeros(6, len(q_positions), len(k_positions))
            bias[5] = -math.inf
            return bias

    assert "is -inf from token 0" in refusal(monkeypatch, LastHead)


@pytest.mark.parametrize("bias, returned", [
    (lambda distance: -distance[None], "torch.int64"), (lambda distance: 0.0, "float"),
    (lambda distance: distance[None] > 0, "torch.bool")], ids=["int", "float", "bool"])
def test_a_bias_that_is_no_tensor_of_floats_is_refused(bias, returned, monkeypatch):
    class Mine(PositionEncoding):
        def bias(self, q_positions, k_positions):
            return bias(q_positions[:, None] - k_positions[None, :])

    assert refusal(monkeypatch, Mine) == (
        f"the bias of model.position mine is {returned}: it must be None or a tensor of "
        "floating-point numbers, as .float() makes one")


def test_a_matrix_of_a_bias_may_hold_anything_until_it_is_drawn(monkeypatch):
    class Learned(PositionEncoding):
        def __init__(self, config):
            super().__init__(config)
            self.weight = nn.Parameter(torch.full((6, 8), math.nan))

        def bias(self, q_positions, k_positions):
            return self.weight[:, (q_positions[:, None] - k_positions[None, :]).clamp(0, 7)]

    assert refusal(monkeypatch, Learned) == ""


def test_a_bias_beside_a_matrix_that_it_does_not_use_is_checked(monkeypatch):
    class Hidden(PositionEncoding):
        def __init__(self, config):
            super().__init__(config)
            self.weight = nn.Parameter(torch.ones(6, 8))

        def bias(self, q_positions, k_positions):
            return torch.full((1, len(q_positions), len(k_positions)), -math.inf)

    assert "is -inf from token 0" in refusal(monkeypatch, Hidden)


def test_a_bias_that_is_no_tensor_for_one_token_is_refused(monkeypatch):
    class Mine(PositionEncoding):
        def bias(self, q_positions, k_positions):
            if len(k_positions) == 1:
                return 0.0
            return torch.zeros(1, len(q_positions), len(k_positions))

    assert "the bias of model.position mine is float" in refusal(monkeypatch, Mine)


def test_a_bias_may_hide_earlier_tokens(monkeypatch):
    class Window(PositionEncoding):
        def bias(self, q_positions, k_positions):
            distance = q_positions[:, None] - k_positions[None, :]
            return torch.zeros(1, *distance.shape).masked_fill(distance > 0, -math.inf)

    assert refusal(monkeypatch, Window) == ""


def test_a_hook_without_one_of_its_arguments_is_refused(monkeypatch):
    class Mine(PositionEncoding):
        def bias(self, q_positions):
            return q_positions

    assert refusal(monkeypatch, Mine) == (
        "model.position mine: bias of Mine is called with other arguments than it takes: write "
        "def bias(self, q_positions, k_positions)")


def test_a_hook_may_be_a_static_method(monkeypatch):
    class Mine(PositionEncoding):
        @staticmethod
        def bias(q_positions, k_positions):
            return -(q_positions[:, None] - k_positions[None, :]).abs().float()[None]

    assert refusal(monkeypatch, Mine) == ""


def test_the_arguments_of_a_hook_may_have_other_names(monkeypatch):
    class Mine(PositionEncoding):
        def embed(self, x, *rest):
            return x

    assert refusal(monkeypatch, Mine) == ""


@pytest.mark.parametrize("shape", [(1, "T", "S"), (6, "T", "S"), None])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_bias_for_each_head_or_for_all_is_taken(shape, device, monkeypatch):
    monkeypatch.setattr(Flat, "shape", shape)
    with torch.device(device):
        assert refusal(monkeypatch, Flat) == ""


@pytest.mark.parametrize("persistent", [True, False])
def test_an_encoding_with_a_buffer_is_refused(persistent, monkeypatch):
    """A run of it could not be resumed."""
    class Mine(ALiBi):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("phases", torch.zeros(3), persistent=persistent)

    assert refusal(monkeypatch, Mine) == (
        "position.phases is a buffer, which a model cannot have: keep what is trained in an "
        "nn.Parameter, and what an encoding computes in self.table")


def test_a_buffer_elsewhere_is_not_blamed_on_the_encoding(monkeypatch):
    class Counting(FeedForward):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("count", torch.zeros(1))

    monkeypatch.setattr("model.transformer.FeedForward", Counting)
    with pytest.raises(UserError) as caught:
        Transformer(model_config())
    assert str(caught.value).startswith(
        "layers.0.feed_forward.count is a buffer, which a model cannot have: ")


class Drawn(PositionEncoding):
    """Random rows, which the constructor draws, and factors, which `attach` draws."""

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.randn(config.max_positions, config.dim)

    def embed(self, h, start):
        return h + (self.factors * self.table)[start : start + h.shape[1]]

    def attach(self, model):
        self.factors = torch.randn(self.table.shape)


def test_an_encoding_draws_the_same_numbers_in_every_model(monkeypatch):
    """No checkpoint has them, so another model of the same weights has to draw them again."""
    monkeypatch.setitem(POSITIONS, "mine", Drawn)
    torch.manual_seed(1)
    expected = random_model(position="mine")(TOKENS)
    torch.manual_seed(2)
    assert torch.equal(random_model(position="mine")(TOKENS), expected)


def test_a_vector_that_attach_adds_on_meta_has_its_values(monkeypatch):
    class Mine(PositionEncoding):
        def attach(self, model):
            self.gains = nn.Parameter(torch.full((2,), 3.0))

    monkeypatch.setitem(POSITIONS, "mine", Mine)
    with torch.device("meta"):
        model = Transformer(model_config(position="mine"))
    assert model.position.gains.tolist() == [3.0, 3.0]


def test_an_encoding_that_draws_changes_no_other_random_number(monkeypatch):
    torch.manual_seed(5)
    expected = torch.rand(3)
    monkeypatch.setitem(POSITIONS, "mine", Drawn)
    torch.manual_seed(5)
    Transformer(model_config(position="mine"))
    assert torch.equal(torch.rand(3), expected)


def test_an_encoding_draws_no_number_twice(monkeypatch):
    monkeypatch.setitem(POSITIONS, "mine", Drawn)
    position = Transformer(model_config(position="mine")).position
    assert not (position.factors == position.table).any()


def test_a_class_that_is_no_encoding_is_named(capsys, monkeypatch):
    monkeypatch.setitem(POSITIONS, "mine", with_methods(nn.Module))
    assert error_lines(capsys, train.main, "--model.position", "rope")[-1] == (
        'error: POSITIONS["mine"] is Mine, which is no PositionEncoding: write class '
        "Mine(PositionEncoding)")


def test_an_encoding_that_is_no_class_is_named(monkeypatch):
    assert refusal(monkeypatch, ALiBi(model_config())) == (
        'POSITIONS["mine"] is an object of type ALiBi, and must be a class: '
        'write POSITIONS["mine"] = NAME_OF_THE_CLASS, without a call')


@pytest.fixture(scope="module")
def of_removed(workdir):
    """A run whose encoding is not in POSITIONS any more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(POSITIONS, "mine", ALiBi)
        return train_tiny(workdir, "of-removed", "--train.steps", "3", "--model.position", "mine")


@pytest.mark.parametrize("main, words", [
    (generate.main, ["--run", "RUN", "--prompt", "ab"]),
    (evaluate.main, ["RUN", "--context", "9999"]),
    (train.main, ["--resume", "RUN"]),
    (train.main, ["--init-from", "RUN"])])
def test_a_run_whose_encoding_was_removed_asks_for_it(main, words, of_removed, capsys):
    argv = [str(of_removed) if word == "RUN" else word for word in words]
    assert error_lines(capsys, main, *argv)[-1] == (
        f"error: {of_removed} was trained with model.position mine, which POSITIONS does not have "
        "any more: put its class and its line back into model/encodings.py")


def test_a_run_whose_encoding_was_removed_is_listed(of_removed):
    listed = evaluate.list_runs([evaluate.open_run(Path(of_removed))])
    assert "of-removed" in listed.split()
    assert "mine" in listed.split()


# --- every encoding ---


@pytest.mark.parametrize("position", [x for x in POSITIONS if POSITIONS[x].extrapolates])
def test_weights_fit_a_model_of_another_length(position):
    model = random_model(position=position, max_positions=300)
    longer = random_model(seed=2, position=position, max_positions=400)
    longer.load_state_dict(model.state_dict())
    assert torch.equal(model(TOKENS), longer(TOKENS))


WITH_TABLE = [x for x in POSITIONS if POSITIONS[x](model_config(position=x)).table is not None]


@pytest.mark.parametrize("position", WITH_TABLE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@torch.no_grad()
def test_a_cast_changes_no_table(position, dtype):
    """In bfloat16, positions 256 and 257 would be equal."""
    model = random_model(position=position, max_positions=300)
    before = copy.deepcopy(model.position.table)
    model.to(dtype)
    torch.testing.assert_close(model.position.table, before, rtol=0, atol=0)


@pytest.mark.parametrize("position", [x for x in POSITIONS if overrides(POSITIONS[x], "bias")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@torch.no_grad()
def test_a_cast_changes_no_bias(position, dtype):
    """Distances are not rounded. Only weights are, so the weights are rounded before."""
    model = random_model(position=position, max_positions=300)
    for parameter in model.position.parameters():
        parameter.copy_(parameter.bfloat16())
    before = model.position.mask(0, 258, CPU)
    model.to(dtype)
    after = model.position.mask(0, 258, CPU)
    torch.testing.assert_close(after, before, rtol=0, atol=0, check_dtype=False)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_model_built_on_meta_equals_one_built_in_place(position):
    expected = random_model(position=position)
    with torch.device("meta"):
        model = Transformer(model_config(position=position))
    # The table has to survive a move to "meta" too, because no state dict has it.
    model.to("meta").to_empty(device="cpu")
    model.load_state_dict(expected.state_dict())
    assert torch.equal(model(TOKENS), expected(TOKENS))


@pytest.mark.parametrize("position", ["learned", "learned_qk", "pope"])
def test_the_parameters_of_an_encoding_are_not_built_on_meta(position):
    with torch.device("meta"):
        model = Transformer(model_config(position=position))
    devices = {parameter.device.type for parameter in model.position.parameters()}
    assert devices == {"cpu"}


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
    ("rope_sin_qk", {(0, "wq"), (0, "wk"), (1, "wq"), (1, "wk"), (2, "wq"), (2, "wk")}),
    ("sin_qk_rope_last", {(0, "wq"), (0, "wk"), (1, "wq"), (1, "wk"), (2, "wq"), (2, "wk")}),
    ("sin_qk_first", {(0, "wq"), (0, "wk")}),
    ("sin_qkv", {(0, "wq"), (0, "wk"), (0, "wv"), (1, "wq"), (1, "wk"), (1, "wv"),
                 (2, "wq"), (2, "wk"), (2, "wv")})])
def test_sinusoids_enter_where_their_name_says(position, places):
    rows = math.sqrt(2) * sinusoid(48, 12, theta=100.0)[5:]
    # sqrt(2) times sin and cos of 5, and of 5 / 100**(2 / 48).
    expected = torch.tensor([-1.3561237, 0.4011589, -1.1787594, -0.7813618])
    torch.testing.assert_close(rows[0, :4], expected)
    for place, added in added_rows(random_model(position=position, theta=100.0)).items():
        assert_rows(added, rows if place in places else torch.zeros(7, 48))


def test_learned_vectors_enter_at_queries_and_keys_of_every_layer():
    model = random_model(position="learned_qk")
    weight = model.position.weight.detach()  # (layer, position, C)
    for (layer, part), added in added_rows(model).items():
        assert_rows(added, torch.zeros(7, 48) if part == "wv" else weight[layer, 5:12] / INIT_STD)


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


def rotations(model: Transformer) -> list[Tensor | None]:
    """The freqs_cis that the attention of each layer gets, for a row that starts at 5."""
    inputs, _ = watch(model)
    layers = range(len(model.layers))
    return [inputs[f"layers.{layer}.attention"][1] for layer in layers]  # x is the first input


def test_rope_first_turns_the_first_layer_as_rope_does():
    first, *_ = rotations(random_model(position="rope_first"))
    expected, *_ = rotations(random_model())
    assert torch.equal(first, expected)


def test_rope_first_turns_no_other_layer():
    _, *others = rotations(random_model(position="rope_first"))
    assert others == [None, None]


def test_rope_beside_sinusoids_turns_every_layer_as_rope_does():
    expected = random_model().position.freqs_cis(5, 12)
    for turned in rotations(random_model(position="rope_sin_qk")):
        assert torch.equal(turned, expected)


def test_sinusoids_of_odd_width_stand_beside_rope():
    model = random_model(position="rope_sin_qk", dim=49, head_dim=8)
    assert torch.equal(model.position.freqs_cis(5, 12), random_model().position.freqs_cis(5, 12))
    assert model(TOKENS, start=5).isfinite().all()


def test_rope_in_the_last_layer_turns_no_other_layer():
    *others, last = rotations(random_model(position="sin_qk_rope_last"))
    assert others == [None, None]
    assert torch.equal(last, random_model().position.freqs_cis(5, 12))


def test_every_fourth_layer_of_rope_nope_turns_nothing():
    layers = rotations(random_model(position="rope_nope", n_layers=9))
    turned = [freqs_cis is not None for freqs_cis in layers]
    assert turned == [True, True, True, False, True, True, True, False, True]


def change_in_layer(model: Transformer, layer: int) -> float:
    """How much the last token's output changes if the tokens before it change places."""
    h = torch.randn(1, 6, model.config.dim, generator=torch.Generator().manual_seed(1))
    shuffled = h[:, [3, 0, 4, 2, 1, 5]]
    freqs_cis = model.position.freqs_cis(0, 6)
    before, after = (model.layers[layer](x, freqs_cis, None, None)[:, -1] for x in (h, shuffled))
    return (after - before).abs().max().item()


def test_rope_nope_sees_no_order_in_its_fourth_layer():
    model = sharp_model(position="rope_nope", n_layers=4)
    assert change_in_layer(model, layer=2) > 0.1
    assert change_in_layer(model, layer=3) < 1e-4


@pytest.mark.parametrize("position", ["rope_sin_qk", "sin_qk_rope_last"])
def test_rope_beside_sinusoids_needs_pairs_of_channels(position):
    with pytest.raises(UserError, match="head_dim must be even, not 7"):
        random_model(position=position, head_dim=7)


def test_partial_rope_has_the_frequencies_of_the_channels_it_turns():
    """Of 32 channels the first 8 turn, by 1, 0.1, 0.01 and 0.001 a position."""
    freqs_cis = random_model(position="partial_25", head_dim=32).position.freqs_cis(2, 3)[0]
    angles = [2.0, 0.2, 0.02, 0.002] + 12 * [0.0]
    expected = torch.tensor([(math.cos(angle), math.sin(angle)) for angle in angles])
    torch.testing.assert_close(freqs_cis, expected)


@pytest.mark.parametrize("head_dim, rotated", [(64, 6), (128, 12), (256, 26), (32, 4), (8, 2)])
def test_a_tenth_of_the_channels_is_the_nearest_even_number_but_not_0(head_dim, rotated):
    """The first three are in table 1 of arXiv:2603.11611."""
    freqs_cis = random_model(position="partial_10", head_dim=head_dim).position.freqs_cis(1, 2)
    turned = freqs_cis[0, :, 1] != 0
    assert turned.tolist() == [True] * (rotated // 2) + [False] * ((head_dim - rotated) // 2)


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


# --- experiments: PoPE ---


def make_pope(**changes) -> PoPE:
    """PoPE for heads of 2 channels, whose angles are 1 and 0.1 a position."""
    sizes = {"n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "head_dim": 2, "theta": 100.0}
    return PoPE(model_config(position="pope", **{**sizes, **changes}))


def pope_score(q: float, k: float, distance: int, delta: float) -> float:
    """The score of a head whose only channel turns by 1 a position, before the division by sqrt(D),
    with D = 1.

    Attention will divide by sqrt(2D), so `rotate` multiplies the queries by sqrt(2).
    """
    pope = make_pope(n_heads=1, n_kv_heads=1, head_dim=1, n_layers=1)
    pope.phases.data.fill_(delta)
    xq = torch.full((1, 9, 1, 1), q)
    xk = torch.full((1, 9, 1, 1), k)
    xq, xk = pope.rotate(0, xq, xk, pope.freqs_cis(0, 9))
    return (xq[0, 8, 0] @ xk[0, 8 - distance, 0]).item() / math.sqrt(2)


def test_popes_scores_are_products_of_magnitudes_and_a_cosine():
    """softplus(0) = ln 2, softplus(1) = 1.3132617; cos 0 = 1, cos 2 = -0.41614684."""
    assert pope_score(0.0, 0.0, distance=0, delta=0.0) == pytest.approx(0.48045301)
    assert pope_score(0.0, 1.0, distance=0, delta=0.0) == pytest.approx(0.91028362)
    assert pope_score(0.0, 1.0, distance=2, delta=0.0) == pytest.approx(-0.37881165)


def test_popes_phases_move_where_a_score_is_largest():
    """cos(-2 - 4.2831853) = cos(-2 pi) = 1."""
    assert pope_score(0.0, 1.0, distance=2, delta=-4.2831853) == pytest.approx(0.91028362)


def test_popes_scores_are_those_of_a_loop_over_channels():
    """cos((n - t) theta_c + delta_c) for the query at t and the key at n, over sqrt(D), with D = 2.

    Attention divides by sqrt(2D), the width of what `rotate` returns.
    """
    queries = [[0.3, -1.2], [2.0, 0.1], [-0.7, 1.5]]
    keys = [[1.1, 0.4], [-2.0, 0.9], [0.2, -0.5]]
    pope = make_pope(n_heads=1, n_kv_heads=1)
    pope.phases.data = torch.tensor([0.0, 0.0, -0.5, -3.0])  # of layer 1: -0.5 and -3
    xq, xk = pope.rotate(1, torch.tensor(queries)[None, :, None], torch.tensor(keys)[None, :, None],
                         pope.freqs_cis(4, 7))
    scores = xq[0, :, 0] @ xk[0, :, 0].T / math.sqrt(4)  # 2D
    for t in range(3):
        for n in range(3):
            total = 0.0
            for channel, (frequency, delta) in enumerate([(1.0, -0.5), (0.1, -3.0)]):
                magnitude = math.log1p(math.exp(queries[t][channel]))
                magnitude *= math.log1p(math.exp(keys[n][channel]))
                total += magnitude * math.cos((n - t) * frequency + delta)
            assert scores[t, n].item() == pytest.approx(total / math.sqrt(2), abs=1e-5)  # D


def test_popes_phases_are_those_of_a_layer_and_key_head():
    pope = make_pope()
    pope.phases.data = -torch.arange(8.0) / 2
    still = torch.zeros(1, 1, 2, 2)
    _, xk = pope.rotate(1, still, still, pope.freqs_cis(0, 1))
    angles = torch.atan2(xk[0, 0, :, 2:], xk[0, 0, :, :2])
    torch.testing.assert_close(angles, torch.tensor([[-2.0, -2.5], [-3.0, 2 * math.pi - 3.5]]))


@pytest.mark.parametrize("phase, bound", [(1.0, 0.0), (-7.0, -2 * math.pi)])
def test_popes_phases_are_bounded(phase, bound):
    model = random_model(position="pope")
    model.position.phases.data.fill_(bound)
    expected = model(TOKENS)
    model.position.phases.data.fill_(phase)
    assert torch.equal(model(TOKENS), expected)


def test_pope_starts_without_phases():
    expected = random_model(position="pope_nophase")(TOKENS)
    torch.testing.assert_close(random_model(position="pope")(TOKENS), expected)


def test_popes_phases_are_trained():
    model = random_model(position="pope")
    model(TOKENS).logsumexp(-1).sum().backward()
    assert (model.position.phases.grad != 0).all()


def test_phases_have_a_gradient_up_to_their_bounds():
    phases = torch.tensor([-7.0, -2 * math.pi, -1.0, 0.0, 1.0], requires_grad=True)
    bound_phases(phases).sum().backward()
    assert phases.grad.tolist() == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("position", ["pope", "pope_nophase"])
def test_popes_keys_are_cached_at_twice_the_width_of_values(position):
    cache = KVCache(model_config(position=position), 3, 9)
    assert cache.keys[0].shape == (3, 2, 9, 16)
    assert cache.values[0].shape == (3, 2, 9, 8)


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
def test_aligned_scores_are_larger_at_distance_0_than_at_20_at_the_start(position, usual, options):
    attention = random_model(position=position, n_kv_heads=6, **options).layers[0].attention
    rows = sinusoid(48, 40)
    scores = rows @ attention.wq.weight.T @ attention.wk.weight @ rows.T
    near = scores.diagonal()
    far = scores.diagonal(20)
    assert near.mean() - far.mean() > 3 * far.std()


def test_aligned_keys_of_fewer_heads_equal_the_first_query_heads():
    attention = random_model(position="sin_aligned", n_kv_heads=2).layers[0].attention
    assert torch.equal(attention.wk.weight, attention.wq.weight[: 2 * attention.head_dim])


def test_aligned_keys_of_fewer_heads_are_scaled_alike():
    aligned = random_model(position="sin_aligned", n_kv_heads=2).layers[0].attention
    usual = random_model(position="sinusoidal", n_kv_heads=2).layers[0].attention
    assert aligned.wk.weight.std().item() == pytest.approx(3 * usual.wk.weight.std().item(), rel=.1)
