"""A run as a Python object."""

import shutil
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from builders import target_losses, train_tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from random_runs import PROMPT, random_run
from small_tokenizers import FIRST_BYTE, VOCAB, train_sentencepiece, train_tokenizer

from data.tokenizer import Tokenizer, open_tokenizer
from errors import UserError
from gyre import rundir
from gyre.code import KIND
from gyre.load import Row, load
from gyre.yaml_files import read_config
from model.config import RopeScaling
from model.generation import generate
from model.packed_forms import find_part
from model.sampling import Sampling
from model.transformer import Transformer

pytestmark = pytest.mark.filterwarnings("ignore:this text has")  # past the training rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return random_run(tmp_path_factory.mktemp("work") / "runs", "rope")


@pytest.fixture(scope="module")
def model(run):
    return load(run.path, device="cpu")


OPTIONS = {"max_new_tokens": 50, "seed": 3, "top_k": 20}


@pytest.fixture(scope="module")
def drawn_by_hand(run) -> list[int]:
    """The tokens of OPTIONS, without gyre/load.py."""
    tokenizer = open_tokenizer(run.path)
    by_hand = Transformer(read_config(run.path / "config.yaml").model)
    by_hand.load_state_dict(run.checkpoints.load_weights("best"))
    (new,) = generate(by_hand, [tokenizer.encode(PROMPT)], Sampling(top_k=20), max_new_tokens=50,
                      eos_ids=tokenizer.eos_ids, seed=3)
    return new


@pytest.fixture(scope="module")
def text(model) -> str:
    """The text of OPTIONS."""
    return model.generate(PROMPT, **OPTIONS)


def test_three_lines_generate(run, drawn_by_hand):
    """The example at the top of gyre/load.py, against the loop called by hand."""
    text = load(run.path).generate(PROMPT, **OPTIONS)
    assert text == open_tokenizer(run.path).decode(drawn_by_hand)


def test_at_a_prompt_a_model_is_shown_in_one_line(run, model):
    size = sum(parameter.numel() for parameter in model.model.parameters())
    assert repr(model) == (
        f"<{run.path}: {size:,} parameters, positions: rope, torch.float32 on cpu>")


def test_a_model_whose_encoding_was_edited_has_a_note(run, monkeypatch, capsys):
    monkeypatch.setattr(rundir, "hash_encoding", lambda position: f"{KIND}:other")
    load(run.path, device="cpu")
    said = capsys.readouterr().err
    assert f"the code of model.position rope has changed since {run.path} was made" in said


def test_a_model_whose_encoding_is_the_same_has_no_note(run, capsys):
    load(run.path, device="cpu")
    assert capsys.readouterr().err == ""


def test_another_seed_is_another_text(model, text):
    assert text != model.generate(PROMPT, max_new_tokens=50, top_k=20)


def test_a_text_past_the_training_rows_gets_a_warning(model):
    room = model.config.data.seq_len - len(model.tokenizer.encode(PROMPT))
    with warnings.catch_warnings(action="error"):
        model.generate(PROMPT, max_new_tokens=room)
    words = f"this text has {model.config.data.seq_len + 1} tokens; the model was trained on rows"
    with pytest.warns(UserWarning, match=words) as caught:
        model.generate(PROMPT, max_new_tokens=room + 1)
    assert caught[0].filename == __file__  # the line that called, and not one of ours


@pytest.mark.parametrize("others", [[], ["not in there"]])
def test_a_text_ends_before_a_stop_string(others, model, text):
    assert model.generate(PROMPT, **OPTIONS, stop=[text[5:9], *others]) == text[:5]
    assert model.generate(PROMPT, **OPTIONS, stop=iter([text[5:9], *others])) == text[:5]


@pytest.mark.parametrize("stop, error, words", [
    ([1], TypeError, "stop must be text or several texts, not 1"),
    (b"ab", TypeError, "stop must be text or several texts, not 97"),
    (["\ud800"], UserError, "no UTF-8 form")])
def test_a_stop_that_is_no_text_is_refused(model, stop, error, words):
    with pytest.raises(error, match=words):
        model.generate(PROMPT, stop=stop)


def test_a_stop_string_may_be_given_alone(model, text):
    assert model.generate(PROMPT, **OPTIONS, stop=text[5:9]) == text[:5]


def test_no_token_is_drawn_after_a_stop_string(model, monkeypatch):
    drawn = [FIRST_BYTE + byte for byte in b"abcd"]
    tokens = iter(drawn)
    monkeypatch.setattr("model.generation.sample", lambda *_: torch.tensor([next(tokens)]))
    assert model.generate(PROMPT, stop="bc") == "a"
    assert list(tokens) == [drawn[3]]


def test_the_start_of_a_stop_string_is_kept_at_the_end(model, text):
    assert model.generate(PROMPT, **OPTIONS, stop=f"{text[-1]}, never") == text


def test_a_text_ends_before_its_eos(model, drawn_by_hand, monkeypatch):
    new = drawn_by_hand
    monkeypatch.setattr(model.tokenizer, "eos_ids", [new[20]])
    before = new[: new.index(new[20])]
    assert model.generate(PROMPT, **OPTIONS) == model.tokenizer.decode(before)


def test_a_text_ends_before_a_special_token_that_stops(model, drawn_by_hand, monkeypatch):
    new = drawn_by_hand
    before = new[: new.index(new[20])]
    monkeypatch.delitem(model.tokenizer.bytes, new[20])  # special tokens have no bytes
    spelling = model.tokenizer.processor.id_to_piece(new[20])
    assert model.generate(PROMPT, **OPTIONS, stop=spelling) == model.tokenizer.decode(before)


def test_an_empty_prompt_begins_a_document(model):
    assert model.tokenizer.encode_prompt("") == [model.tokenizer.eos_id]


def test_sampling_without_a_meaning_is_refused(model):
    with pytest.raises(UserError, match="top_k must be at least 1"):
        model.generate(PROMPT, top_k=0)


def test_a_prompt_that_is_no_text_is_refused(model):
    with pytest.raises(TypeError, match="prompt must be text, not list"):
        model.generate(["a", "b"])


@pytest.mark.parametrize("name, value, kind", [
    ("max_new_tokens", 5.0, "a whole number"), ("top_k", 2.5, "a whole number"),
    ("seed", "7", "a number"), ("temperature", "0.7", "a number"), ("seed", None, "a number"),
    ("temperature", None, "a number"), ("repetition_penalty", None, "a number"),
    ("seed", True, "a number"), ("top_k", True, "a number"), ("temperature", False, "a number")])
def test_an_option_of_another_type_is_refused(name, value, kind, model):
    with pytest.raises(TypeError, match=f"^{name} must be {kind}, not {value!r}$"):
        model.generate(PROMPT, **{name: value})


def test_stop_strings_may_be_left_out_and_not_be_none(model):
    with pytest.raises(TypeError, match="^stop must be text or several texts, not None$"):
        model.generate(PROMPT, stop=None)


@pytest.mark.parametrize("name, hint", [
    ("do_sample", " (for the likeliest tokens, give temperature=0)"),
    ("temprature", " (did you mean temperature?)"), ("xyz", "")])
def test_an_unknown_option_is_told_the_options(name, hint, model):
    with pytest.raises(TypeError) as caught:
        model.generate("x", **{name: False})
    assert str(caught.value) == (
        f"generate has no option {name}{hint}: it has max_new_tokens, seed, stop, temperature, "
        "top_k, top_p, min_p, repetition_penalty")


def test_matrices_with_the_same_input_are_joined_when_loaded(model):
    attention = model.model.layers[0].attention
    for layer in (attention.wq, attention.wk, attention.wv):
        assert find_part(layer.weight) is not None
    assert find_part(attention.wo.weight) is None


def test_a_loaded_model_is_in_evaluation_mode(run, model):
    assert not model.model.training
    assert model.run.path == run.path


def test_unset_it_is_the_newest_run(run, monkeypatch):
    monkeypatch.chdir(run.path.parents[1])
    assert load().run.path.name == "rope"


def test_a_text_is_as_long_as_the_context_allows(model):
    """128 tokens with its prompt. 1 if there is no room, which is refused when it is drawn."""
    assert [model.default_new_tokens(n) for n in (1, 100, 128, 500)] == [127, 28, 1, 1]


def test_unset_a_text_fills_the_context(model):
    prompt = 70 * "x"
    room = 128 - len(model.tokenizer.encode_prompt(prompt))
    assert model.generate(prompt) == model.generate(prompt, max_new_tokens=room)


def test_checkpoint_and_dtype_are_those_asked_for(run):
    last = load(run, "last", device="cpu", dtype="bfloat16")
    assert {p.dtype for p in last.model.parameters()} == {torch.bfloat16}
    assert last.device == torch.device("cpu")
    for name, weight in run.checkpoints.load_weights("last").items():
        assert torch.equal(last.model.state_dict()[name], weight.bfloat16())


@pytest.mark.parametrize("sizes, words", [
    ({"hidden_dim": 56}, r"w1.weight has the shape \(56, 24\), and in the model \(40, 24\)"),
    ({"n_layers": 1}, r"attention.wk.weight has the shape none, and in the model \(8, 24\)"),
    ({"tie_embeddings": False}, r"output.weight has the shape \(330, 24\), and in the model none")])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_weights_of_another_model_are_refused(run, tmp_path, sizes, words, dtype):
    other = random_run(tmp_path / "runs", "other", **sizes)
    mixed = shutil.copytree(run.path, tmp_path / "mixed")
    shutil.copytree(other.path / "best", mixed / "best", dirs_exist_ok=True)
    with pytest.raises(UserError, match=f"best are not those of the model .*{words}"):
        load(mixed, device="cpu", dtype=dtype)


def test_auto_takes_the_dtype_that_multiplies_so_many_rows_faster(run, monkeypatch):
    monkeypatch.setattr("gyre.load.matmul_rates",
                        lambda device, model, rows, *, training: [5.0, float(rows)])
    for rows, dtype in ((5, torch.float32), (6, torch.bfloat16)):
        assert load(run, device="cpu", dtype="auto", rows=rows).dtype == dtype


def test_int8_is_quantised_when_loaded(run):
    plain = load(run, device="cpu").model
    narrow = load(run, device="cpu", dtype="int8").model
    assert narrow.layers[0].attention.wq.weight.dtype == torch.int8
    assert torch.equal(narrow.norm.weight, plain.norm.weight)
    assert not narrow.training


def test_a_model_in_int8_is_shown_with_all_its_parameters(run, model):
    narrow = load(run, device="cpu", dtype="int8")
    assert repr(narrow) == repr(model).replace("torch.float32", "int8 matrices")


@pytest.mark.parametrize("dtype", ["float16", "fp16", torch.bfloat16], ids=str)
def test_another_dtype_is_refused(run, dtype):
    with pytest.raises(UserError, match=f"^dtype must be one of auto, .* int8, not {dtype}$"):
        load(run, dtype=dtype)


@pytest.mark.parametrize("scaling", ["yarn", {"type": "yarn", "factor": 4.0}, ("yarn", 4.0)])
def test_a_scaling_of_another_type_is_refused(run, scaling):
    with pytest.raises(TypeError, match="^rope_scaling must be a RopeScaling, such as .*yarn"):
        load(run, device="cpu", rope_scaling=scaling)


def test_a_device_may_be_one_of_torch(run):
    assert load(run, device=torch.device("cpu")).device.type == "cpu"


def test_int8_is_only_for_a_cpu(run, monkeypatch):
    monkeypatch.setattr("gyre.load.resolve_device", lambda _: torch.device("meta"))
    with pytest.raises(UserError, match="int8 is for a CPU, not for meta"):
        load(run, dtype="int8")


@pytest.mark.slow
def test_int8_costs_at_most_a_hundredth_of_a_nat(workdir):
    path = train_tiny(workdir, "briefly", "--train.steps", "40", "--optim.lr", "1e-2",
                      "--train.eval_interval", "40")
    losses = [target_losses(path, dtype).mean().item() for dtype in ("float32", "int8")]
    assert losses[0] < 5  # of 5.7, what chance has
    assert abs(losses[1] - losses[0]) < 0.01


@pytest.mark.parametrize("factor, context", [(8.0, 256), (2.0, 128)])
def test_a_scaling_extends_the_context_and_never_shortens_it(factor, context, run):
    """To so many times the 32 tokens of a training row. Unscaled, it has 128."""
    scaled = load(run, rope_scaling=RopeScaling("yarn", factor))
    assert scaled.model.config.max_positions == context


def test_by_default_a_text_has_200_tokens_at_most(run):
    scaled = load(run, rope_scaling=RopeScaling("yarn", 8.0))  # with a context of 256
    assert [scaled.default_new_tokens(n) for n in (55, 57)] == [200, 199]


def test_a_scaling_leaves_the_configuration_of_the_training(run, model):
    assert load(run, rope_scaling=RopeScaling("yarn", 8.0)).config == model.config


def test_a_scaling_rotates_otherwise(run, model):
    scaled = load(run, rope_scaling=RopeScaling("yarn", 8.0))
    options = {"temperature": 0, "max_new_tokens": 20}
    assert scaled.generate(PROMPT, **options) != model.generate(PROMPT, **options)


def test_a_scaled_context_can_be_filled_and_no_more(run):
    scaled = load(run, rope_scaling=RopeScaling("yarn", 8.0))
    prompt = 100 * "x"
    room = 256 - len(scaled.tokenizer.encode_prompt(prompt))
    assert scaled.generate(prompt, max_new_tokens=room)
    with pytest.raises(UserError, match="past the context of 256"):
        scaled.generate(prompt, max_new_tokens=room + 1)


def test_a_scaling_of_more_positions_than_memory_holds_is_refused(run, monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 100)  # 100 pages of 100 bytes
    words = "the table of 32000 positions for a factor of 1000 takes .*: choose a smaller one"
    with pytest.raises(UserError, match=words):
        load(run, rope_scaling=RopeScaling("linear", 1000.0))


@pytest.mark.parametrize("trained, length", [
    ({}, 32), ({"rope_scaling.type": "linear", "rope_scaling.factor": 4}, 128)], ids=str)
def test_a_model_knows_how_long_the_texts_were_that_it_was_trained_on(tmp_path, trained, length):
    run = random_run(tmp_path / "runs", "trained", **trained)
    assert load(run).trained_length == length


def test_a_text_past_a_scaling_is_warned_of_in_its_words(tmp_path):
    scaled = {"rope_scaling.type": "linear", "rope_scaling.factor": 4}
    model = load(random_run(tmp_path / "runs", "trained", **scaled))
    assert model.describe_excess(128) is None
    assert model.describe_excess(129) == (
        "this text has 129 tokens; the model has a rope_scaling that reaches 128, and past that it "
        "may get worse")


def test_a_text_within_a_scaling_that_load_is_given_gets_no_warning(run):
    """Three times the 32 tokens of a training row, in a context of 128."""
    scaled = load(run, rope_scaling=RopeScaling("yarn", 3.0))
    assert scaled.describe_excess(96) is None
    assert scaled.describe_excess(97) == (
        "this text has 97 tokens; the model has a rope_scaling that reaches 96, and past that it "
        "may get worse")


def test_a_run_with_a_scaling_of_its_own_keeps_it(tmp_path):
    trained = {"rope_scaling.type": "linear", "rope_scaling.factor": 4}
    run = random_run(tmp_path / "runs", "trained", **trained)
    assert load(run).model.config.rope_scaling == RopeScaling("linear", 4.0, 32)
    with pytest.raises(UserError, match="trained with model.rope_scaling linear: --rope-scaling "):
        load(run, rope_scaling=RopeScaling("ntk", 2.0))


# --- text that comes token by token ---


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer(train_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def until_stop(text, stops):
    """The text before the first stop string, read one character at a time, and whether there was
    one."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], True
    return text, False


def play(row, ids):
    """What a row shows of these ids and the end (None), and whether it has stopped."""
    shown = "".join(map(row.add, (*ids, None)))  # once stopped, it gives nothing more
    assert shown == row.text
    return shown, row.stopped


def test_the_stop_string_that_ends_first_counts(tokenizer):
    ids = [FIRST_BYTE + byte for byte in b"abcd"]
    assert play(Row("", tokenizer, ["d", "c", "abcd"]), ids) == ("ab", True)


def test_of_stop_strings_that_end_together_the_longest_counts(tokenizer):
    ids = [FIRST_BYTE + byte for byte in b"abcd"]
    assert play(Row("", tokenizer, ["c", "bc", "d"]), ids) == ("a", True)
    assert play(Row("", tokenizer, ["bc", "c"]), ids) == ("a", True)


def test_the_first_stop_string_counts_within_a_token_too(tokenizer):
    words = {text.decode(): i for i, text in tokenizer.bytes.items() if text.isalpha()}
    word = max(words, key=len)
    assert play(Row("", tokenizer, [word, word[1]]), [words[word]]) == (word[0], True)


def test_what_is_held_back_comes_with_the_end(tokenizer):
    """What may be the start of a stop string."""
    ids = [FIRST_BYTE + byte for byte in "ab中".encode()]
    assert play(Row("x", tokenizer, ["bc", "中d"]), ids) == ("xab中", False)


def test_a_stopped_text_shows_nothing_of_a_character_behind_the_stop_string():
    """The token has the stop string and the first byte of a character."""
    tokenizer: Any = SimpleNamespace(adds_space=False, piece=lambda token: b"d\xc3")
    row = Row("", tokenizer, ["d"])
    assert (row.add(0), row.finish(), row.replacement) == ("", "", "")



def test_half_a_character_at_the_end_is_a_question_mark(tokenizer):
    ids = [FIRST_BYTE + byte for byte in "ab中".encode()]
    assert play(Row("x", tokenizer), ids[:-1]) == ("xab\ufffd", False)


def test_an_empty_stop_string_is_refused(run):
    with pytest.raises(UserError) as caught:
        load(run, device="cpu").generate(PROMPT, stop=["x", ""])
    assert str(caught.value) == "stop '' is in every text: leave it out"


def test_an_empty_text_as_the_only_stop_means_none(run):
    options = {"max_new_tokens": 3, "temperature": 0}
    trained = load(run, device="cpu")
    assert trained.generate(PROMPT, stop="", **options) == trained.generate(PROMPT, **options) != ""


def test_a_stopped_row_goes_on_with_its_stop_string(tokenizer):
    row = Row("x", tokenizer, ["bc"])
    a, b, c, d = [FIRST_BYTE + byte for byte in b"abcd"]
    assert [row.add(token) for token in (a, b, c)] == ["xa", "", ""] and row.stopped
    assert row.finish() == ""
    row.resume()
    assert [row.add(d), row.add(b), row.finish()] == ["bcd", "", "b"]
    assert row.text == "bcdb" and not row.stopped


def test_a_stop_string_across_two_texts_is_found(tokenizer):
    a, b, c, d = [FIRST_BYTE + byte for byte in b"abcd"]
    row = Row("x", tokenizer, ["abcd", "bcx"])
    assert [row.add(a), row.add(b), row.finish()] == ["x", "", "ab"]
    row.resume()
    assert [row.add(c), row.finish()] == ["", "c"]
    row.resume()
    assert [row.add(d), row.stopped, row.finish(), row.text] == ["", True, "", ""]
    row.resume()  # from here on, the rest of the stop string, "d", comes with the next text
    assert [row.add(a), row.finish()] == ["d", "a"]


def test_the_beginning_of_a_stop_string_may_end_otherwise(tokenizer):
    a, b, d = [FIRST_BYTE + byte for byte in b"abd"]
    row = Row("x", tokenizer, ["abc"])
    row.add(a)
    assert row.add(b) + row.finish() == "ab"
    row.resume()
    assert [row.add(d), row.add(a), row.finish(), row.stopped] == ["d", "", "a", False]


def test_a_row_goes_on_within_a_character(tokenizer):
    first, second, third = [FIRST_BYTE + byte for byte in "中".encode()]
    row = Row("x", tokenizer)
    assert [row.add(first), row.add(second), row.finish()] == ["x", "", "\ufffd"]
    row.resume()
    assert [row.add(third), row.finish()] == ["中", ""]


def test_a_row_that_goes_on_keeps_its_first_space(tmp_path):
    """Of a tokenizer that puts a space in front of every text, which is left out at its start."""
    tokenizer = Tokenizer(train_sentencepiece(tmp_path))
    assert tokenizer.adds_space
    (word,) = {i for i, text in tokenizer.bytes.items() if text == b" return"}
    row = Row("", tokenizer)
    assert [row.add(word), row.finish()] == ["return", ""]
    row.resume()
    assert [row.add(word), row.finish()] == [" return", ""]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(text=st.text("ab中 \n", max_size=14),
       stops=st.lists(st.text("ab中 \n", min_size=1, max_size=4), max_size=3))
def test_where_a_row_stops_does_not_depend_on_its_tokens(tokenizer, text, stops):
    expected, stopped = until_stop(text, stops)
    for ids in (tokenizer.encode(text), [FIRST_BYTE + byte for byte in text.encode()]):
        assert play(Row("ab", tokenizer, stops), ids) == ("ab" + expected, stopped)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, VOCAB - 1) | st.integers(FIRST_BYTE, FIRST_BYTE + 255)))
def test_a_row_of_any_ids_equals_the_one_shot_decode(tokenizer, ids):
    """Also of ids that no text has, such as half a character before a whole one."""
    assert play(Row("", tokenizer), ids) == (tokenizer.decode(ids), False)
