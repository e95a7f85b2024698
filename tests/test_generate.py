"""The command line, on real run folders: what lands on stdout, and what bad input gets."""

import dataclasses
import io
import itertools
import re
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from builders import error_lines, exit_code
from random_runs import PROMPT, random_run
from small_tokenizers import FIRST_BYTE
from tqdm import tqdm

import generate as script
from data.tokenizer import open_tokenizer
from errors import UserError
from gyre import compiled
from gyre.load import load
from model import generation
from model.config import RopeScaling
from model.generation import generate, next_logits
from model.sampling import Sampling

BOS = 1  # "<s>"
ABCD = [FIRST_BYTE + byte for byte in b"abcd"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs: "learned", whose context ends after 32 tokens, and the newer "rope"."""
    folder = tmp_path_factory.mktemp("work") / "runs"
    random_run(folder, "learned", position="learned")
    random_run(folder, "rope", max_positions=6000)
    return folder


@pytest.fixture(scope="module")
def tokenizer(runs):
    return open_tokenizer(runs / "rope")


@pytest.fixture
def call(runs, monkeypatch, capsys):
    """Run the script where `runs/` is; return stdout and stderr.

    The machine never looks busy, because a note would say so on stderr.
    """
    monkeypatch.chdir(runs.parent)
    monkeypatch.setattr(script, "busy_load", lambda per_core: 0.0)

    def call(*argv, stdin=b""):
        # Another encoding than UTF-8, as on some systems: the script has to set that itself.
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="latin-1"))
        assert exit_code(script.main, *argv) == 0
        return capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def expected(runs, tokenizer):
    """The continuation of a prompt by the package, with the default options of the script."""
    def expected(prompt=PROMPT, sampling=None, sample=0, checkpoint="best", scaling=None,
                 dtype="float32", **options):  # max_new_tokens, and perhaps the seed
        model = load(runs / "rope", checkpoint, dtype=dtype, rope_scaling=scaling).model
        prompts = [tokenizer.encode_prompt(prompt)]
        rows = generate(model, prompts, sampling or Sampling(), num_samples=sample + 1,
                        eos_ids=tokenizer.eos_ids, **options)
        return rows[sample]

    return expected


def test_stdout_is_the_prompt_and_the_continuation(call, expected, tokenizer):
    text = tokenizer.decode(expected(max_new_tokens=40))
    assert "\ufffd" in text  # a model of noise: bytes that are no characters are among them
    assert call("--prompt", PROMPT, "--max-new-tokens", "40").out == f"{PROMPT}{text}\n"


def test_every_text_is_flushed_before_the_next_token(call, monkeypatch):
    events = []
    printed = []
    sample = generation.sample

    def record_draw(*options):
        events.append("draw")
        return sample(*options)

    def record_print(text="", **how):
        events.append("print")
        printed.append((text, how))
        print(text, **how)

    monkeypatch.setattr(generation, "sample", record_draw)
    monkeypatch.setattr(script, "print", record_print, raising=False)
    call("--prompt", PROMPT, "--max-new-tokens", "40")
    *texts, rest, last = printed
    assert events == 40 * ["draw", "print"] + ["print", "print"]
    assert texts[0][0].startswith(PROMPT)
    # The others have no text yet, because a character is not complete.
    assert len([text for text, _ in texts if text]) > 20
    assert all(how == {"end": "", "flush": True} for _, how in [*texts, rest])
    assert last == ("", {"flush": True})


@pytest.mark.parametrize("is_imported, best_step, last_step, name", [
    (False, 12, 12, "best weights"), (False, 2, 12, "best weights, of step 2 of 12"),
    (False, 0, 12, "last weights"), (True, 0, 0, "imported weights")])
def test_the_weights_are_named_that_are_read(is_imported, best_step, last_step, name):
    steps = {"best": best_step, "last": last_step}
    checkpoints = SimpleNamespace(has_best=best_step > 0, saved_step=steps.get)
    run = SimpleNamespace(is_imported=is_imported, checkpoints=checkpoints)
    trained = SimpleNamespace(run=run, step=best_step)
    assert script.name_weights(trained, "best") == name


def test_the_named_step_is_that_of_the_weights_that_were_loaded():
    """By then, the run may have saved others."""
    checkpoints = SimpleNamespace(has_best=True, saved_step={"best": 9, "last": 12}.get)
    run = SimpleNamespace(is_imported=False, checkpoints=checkpoints)
    trained = SimpleNamespace(run=run, step=2)
    assert script.name_weights(trained, "best") == "best weights, of step 2 of 12"


def test_the_run_is_described_on_stderr(call):
    _, err = call("--prompt", "x", "--max-new-tokens", "1")
    assert "runs/rope: best weights, rope positions, cpu, float32, not compiled\n" in err


@pytest.fixture
def ticks(monkeypatch):
    """A clock that ticks every half a second, when it is read."""
    monkeypatch.setattr(script, "time", mock.Mock(perf_counter=itertools.count(7, 0.5).__next__))


def test_the_rates_of_prefill_and_decoding_are_printed(call, ticks):
    """The clock is read before the text, for each of its tokens, and at its end. So decoding takes
    40 ticks. Its 1.95 tokens/s are printed as 2."""
    _, err = call("--prompt", "x", "--max-new-tokens", "40")
    assert err.endswith("prefill: 1 token in 0.500 s (2 tokens/s)\n"
                        "decode: 39 tokens in 20.000 s (2 tokens/s)\n")


def test_every_token_of_the_prompt_is_prefill(call, ticks, tokenizer):
    assert len(tokenizer.encode("abc")) == 3
    _, err = call("--prompt", "abc", "--max-new-tokens", "1")
    assert "prefill: 3 tokens in 0.500 s (6 tokens/s)\n" in err


def test_no_rate_is_printed_if_prompts_of_two_lengths_end_at_once(call, tokenizer, monkeypatch):
    monkeypatch.setattr("model.generation.sample",
                        lambda logits, *_: torch.full((len(logits),), tokenizer.eos_id))
    _, err = call("--prompt", PROMPT, "--prompt", "x", "--max-new-tokens", "3")
    assert "tokens/s" not in err


def test_no_rate_is_printed_if_the_shortest_prompt_ends_at_once(call, tokenizer, monkeypatch):
    """The first new token is then of the other prompt, after later passes than prefill."""
    drawn = itertools.chain([tokenizer.eos_id], itertools.repeat(ABCD[0]))
    monkeypatch.setattr("model.generation.sample",
                        lambda logits, *_: torch.full((len(logits),), next(drawn)))
    _, err = call("--prompt", PROMPT, "--prompt", "x", "--max-new-tokens", "3")
    assert "tokens/s" not in err


# One choice of the options that decide which tokens are drawn: the words of a command line, and the
# same as arguments of `expected`.
CHOICE = ("--checkpoint last --rope-scaling yarn --rope-factor 3 --prompt x --max-new-tokens 12 "
          "--seed 3 --temperature 1.2 --top-k 20 --top-p 0.9 --min-p 0.1 --repetition-penalty 1.3 "
          "--dtype int8")
CHOSEN_SAMPLING = Sampling(1.2, top_k=20, top_p=0.9, min_p=0.1, repetition_penalty=1.3)
CHOSEN_OPTIONS = {"checkpoint": "last", "scaling": RopeScaling("yarn", 3.0), "seed": 3,
                  "dtype": "int8", "max_new_tokens": 12}


@pytest.fixture(scope="module")
def chosen(expected):
    """The continuation of "x" with this choice."""
    return expected("x", CHOSEN_SAMPLING, **CHOSEN_OPTIONS)


def test_the_options_that_decide_the_tokens_arrive(call, chosen, tokenizer):
    out, err = call(*CHOICE.split())
    assert out == f"x{tokenizer.decode(chosen)}\n"
    assert "runs/rope: last weights, rope positions, cpu, int8, not compiled" in err


@pytest.mark.parametrize("name", [part.name for part in dataclasses.fields(Sampling)])
def test_every_option_of_sampling_changes_the_chosen_tokens(name, expected, chosen):
    other = dataclasses.replace(CHOSEN_SAMPLING, **{name: getattr(Sampling(), name)})
    assert expected("x", other, **CHOSEN_OPTIONS) != chosen


@pytest.mark.parametrize("changes", [
    {"checkpoint": "best"}, {"scaling": None}, {"seed": 8}, {"dtype": "float32"}], ids=str)
def test_every_other_option_changes_the_chosen_tokens(changes, expected, chosen):
    assert expected("x", CHOSEN_SAMPLING, **CHOSEN_OPTIONS | changes) != chosen


def test_a_processor_that_is_slower_in_int8_is_told_both_rates(call, monkeypatch):
    # FLOP/s in float32 and in int8.
    monkeypatch.setattr(script, "int8_rates", lambda model, tokens: [5e10, 3.5e9])
    _, err = call("--prompt", "x", "--max-new-tokens", "1", "--dtype", "int8")
    assert ("note: int8 is slower than float32 here: products run at 3.5 GFLOP/s in int8 "
            "and at 50 in float32, in one thread\n") in err


def test_a_processor_that_is_faster_in_int8_is_told_nothing(call, monkeypatch):
    monkeypatch.setattr(script, "int8_rates", lambda model, tokens: [5e10, 6e10])
    _, err = call("--prompt", "x", "--max-new-tokens", "1", "--dtype", "int8")
    assert "float32" not in err


@pytest.mark.parametrize("options, measured", [
    ("--num-samples 3", 3), ("--num-samples 3 --compile", script.PROMPT_TOKENS),
    ("--num-samples 5 --compile", 5)])
def test_int8_is_measured_for_the_products_that_take_place(call, options, measured, monkeypatch):
    """Compiled decoding of up to 4 rows multiplies in float32; then only prompts are in int8."""
    rates = mock.Mock(return_value=[1, 2])
    monkeypatch.setattr(script, "max_float_rows", lambda: 4)
    monkeypatch.setattr(script, "int8_rates", rates)
    monkeypatch.setattr(compiled, "compile_batch", lambda batch, previous: next_logits)
    call("--prompt", "x", "--max-new-tokens", "1", "--dtype", "int8", *options.split())
    (_, tokens), _ = rates.call_args
    assert tokens == measured


def test_compile_draws_with_the_compiled_step(call, monkeypatch):
    def prefer_a(model, tokens, cache):
        logits = next_logits(model, tokens, cache)
        logits[:, FIRST_BYTE + ord("a")] = 1e9
        return logits

    monkeypatch.setattr(compiled, "compile_batch", lambda batch, previous: prefer_a)
    out, err = call("--prompt", "x", "--max-new-tokens", "3", "--compile")
    assert out == "xaaa\n"
    assert "cpu, float32, compiled\n" in err
    assert call("--prompt", "x", "--max-new-tokens", "3").out != "xaaa\n"


THREE_PROMPTS = ("--prompt", PROMPT, "--prompt", "class A:\n\tpass", "--prompt-file", "-")


def test_several_rows_have_headings_and_equal_those_of_each_prompt_alone(call, expected, tokenizer):
    out, _ = call(*THREE_PROMPTS, "--num-samples", "2", "--max-new-tokens", "15",
                  stdin="🙂".encode())
    texts = []
    for number, prompt in enumerate((PROMPT, "class A:\n\tpass", "🙂"), 1):
        for sample in range(2):
            new = tokenizer.decode(expected(prompt, max_new_tokens=15, sample=sample))
            texts.append(f"=== prompt {number}, sample {sample + 1} ===\n{prompt}{new}\n")
    assert out == "".join(texts)


def test_samples_of_one_prompt_are_counted_without_it(call):
    out, _ = call("--prompt", "x", "--num-samples", "2", "--max-new-tokens", "1")
    headings = [line for line in out.splitlines() if line.startswith("===")]
    assert headings == ["=== sample 1 ===", "=== sample 2 ==="]


def test_prefill_is_counted_once_for_all_samples_of_a_prompt(call, tokenizer):
    """Up to the length of the shortest prompt, whose rows then draw their first tokens."""
    assert [len(tokenizer.encode(prompt)) for prompt in ("ab", "abc", "abcd")] == [2, 3, 4]
    _, err = call("--prompt", "ab", "--prompt", "abc", "--prompt", "abcd", "--num-samples", "4",
                  "--max-new-tokens", "15")
    assert "prefill: 6 tokens" in err  # 2 of each of 3 prompts
    assert "decode: 176 tokens" in err  # 15 in each of 12 rows, without the first of the 4 shortest


def test_the_prompt_file_is_read_exactly(call, tmp_path, expected, tokenizer):
    text = "a\r\n\tb\ufeff 中\n\n"
    file = tmp_path / "prompt.txt"
    file.write_bytes(text.encode())
    out, _ = call("--prompt-file", file, "--max-new-tokens", "5")
    assert out == text + tokenizer.decode(expected(text, max_new_tokens=5)) + "\n"


def test_a_dash_reads_the_prompt_from_stdin(call, expected, tokenizer):
    text = "a\r\n\tb\ufeff 中\n\n"
    out, _ = call("--prompt-file", "-", "--max-new-tokens", "5", stdin=text.encode())
    assert out == text + tokenizer.decode(expected(text, max_new_tokens=5)) + "\n"


def test_an_empty_prompt_begins_a_document(call, expected, tokenizer):
    begun = tokenizer.decode(expected("", max_new_tokens=5))
    assert call("--prompt", "", "--max-new-tokens", "5").out == f"{begun}\n"


@pytest.mark.parametrize("content, prompt", [
    (b"\xef\xbb\xbfOnce\r\n", "Once\r\n"), (b"\xef\xbb\xbf", ""),
    (b"\xef\xbb\xbf\xef\xbb\xbfa", "\ufeffa"), (b"a\xef\xbb\xbf", "a\ufeff"), (b"", "")])
def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path, content, prompt):
    """Text to train on loses it too, so a model has never seen one."""
    (tmp_path / "prompt.txt").write_bytes(content)
    assert script.read_prompt(str(tmp_path / "prompt.txt")) == prompt


@pytest.mark.parametrize("content, words", [
    ("Once".encode("utf-16"), "it is UTF-16: save it as UTF-8"),
    ("Once upon".encode("utf-16-le"), "it is UTF-16 without a byte order mark"),
    (b"caf\xe9", "byte 0xe9 at offset 3 .*'caf\u00e9'"), (b"PK\3\4", "it is a zip archive"),
    (b"\x1f\x8b\x08", "the byte 0x8b at offset 1")])
def test_a_prompt_in_another_encoding_is_refused(tmp_path, content, words):
    (tmp_path / "prompt.txt").write_bytes(content)
    with pytest.raises(UserError, match=f"prompt-file .*prompt.txt cannot be read: .*{words}"):
        script.read_prompt(str(tmp_path / "prompt.txt"))


@pytest.mark.parametrize("prompts, notes", [(["x ", "y "], 1), (["x", " y\n"], 0), ([""], 0)])
def test_a_space_at_the_end_of_a_prompt_is_noted_once(call, prompts, notes):
    argv = [f"--prompt={prompt}" for prompt in prompts]
    _, err = call(*argv, "--max-new-tokens", "1")
    assert err.count("note: a prompt ends with a space, and pieces of the tokenizer begin") == notes


@pytest.mark.parametrize("options, n_notes", [
    (["--temperature=0", "--num-samples=2"], 1), (["--top-k=1", "--num-samples=2"], 1),
    (["--temperature=0"], 0), (["--num-samples=2"], 0)])
def test_samples_that_cannot_differ_are_noted(call, options, n_notes):
    _, err = call("--prompt", "x", "--max-new-tokens", "1", *options)
    assert err.count("samples are the same, because each token is the likeliest") == n_notes


def test_no_note_precedes_options_that_are_refused(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs.parent)
    argv = ["--prompt", "x\\n", "--temperature=0", "--top-k=1", "--num-samples=2"]
    assert error_lines(capsys, script.main, *argv) == [
        "error: top_k has no effect at temperature 0: leave it out"]


@pytest.mark.parametrize("prompt, words", [
    ("my poem.txt", "'my poem.txt' is continued as it is written: for the text in the file of this "
                    "name, say --prompt-file 'my poem.txt'"),
    ("@my poem.txt", "'@my poem.txt' is continued as it is written: for the text in the file of "
                     "this name, say --prompt-file 'my poem.txt'"),
    ("-", "- is continued as it is written: for the text in stdin, say --prompt-file -")])
def test_a_prompt_that_names_a_file_is_noted(capsys, tmp_path, monkeypatch, prompt, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my poem.txt").write_text("A line", encoding="utf-8")
    assert script.parse([f"--prompt={prompt}"]).prompt == [prompt]
    assert capsys.readouterr().err == f"note: --prompt {words}\n"


def test_a_prompt_that_names_no_file_is_not_noted(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script.parse(["--prompt=my poem", "--prompt=", "--prompt=@"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("option", ["--prompt", "--stop"])
def test_a_backslash_and_an_n_in_a_text_are_noted(call, option):
    _, err = call("--prompt", "x", option, "ROMEO:\\n", "--max-new-tokens", "1")
    assert err.count(f"note: \\n in {option} is a backslash and an n") == 1


def test_a_prompt_file_may_have_a_backslash_and_an_n(call, tmp_path):
    (tmp_path / "prompt.txt").write_text("print('\\n')")
    _, err = call("--prompt-file", str(tmp_path / "prompt.txt"), "--max-new-tokens", "1")
    assert "backslash" not in err


# The seeds of the second and the third text of a session of seed 0: derive_seed(0, "turn", 1) and
# derive_seed(0, "turn", 2).
SECOND = 1911258136983961498
THIRD = 7840605766364344384


@pytest.fixture
def talk(call):
    """Type lines into a session of 5 tokens a text; return stdout and stderr."""
    def talk(*lines, argv=()):
        text = "".join(f"{line}\n" for line in lines)
        return call("--interactive", "--max-new-tokens", "5", *argv, stdin=text.encode())

    return talk


def test_interactive_continues_line_after_line_until_ctrl_d(talk, expected, tokenizer):
    first = tokenizer.decode(expected("x", max_new_tokens=5))
    second = tokenizer.decode(expected("🙂 y", max_new_tokens=5, seed=SECOND))
    assert talk("x", "", "🙂 y").out == f"x{first}\n🙂 y{second}\n"


@pytest.mark.parametrize("line, error", [
    # A token for each byte: as many as the context of "rope" has.
    (6000 * b"\1", "no room in the context of 6000"), (b"\xff", "UTF-8")])
def test_after_a_line_that_is_refused_the_next_is_read(line, error, call, expected, tokenizer):
    out, err = call("--interactive", "--max-new-tokens", "5", stdin=line + b"\nx\n")
    assert out == f"x{tokenizer.decode(expected('x', max_new_tokens=5))}\n"
    assert len(re.findall(f"error: .*{error}", err)) == 1


def test_the_rates_of_a_session_are_those_of_all_texts(talk):
    _, err = talk("x", "y")
    prefill, decode = err.splitlines()[-2:]
    assert prefill.startswith("prefill: 2 tokens in ")
    assert decode.startswith("decode: 8 tokens in ")
    assert err.count("tokens/s)") == 2


def test_ctrl_c_at_the_prompt_ends_a_session(call, monkeypatch):
    """`call` makes stdin of an io.TextIOWrapper, and here its readline is interrupted."""
    readline = mock.Mock(side_effect=KeyboardInterrupt)
    terminal = type("Terminal", (io.TextIOWrapper,), {"readline": readline})
    monkeypatch.setattr(io, "TextIOWrapper", terminal)
    assert call("--interactive").out == ""
    readline.assert_called_once()


def test_the_same_line_gets_another_text_each_turn(talk, expected, tokenizer):
    texts = [tokenizer.decode(expected("x", max_new_tokens=5, seed=seed))
             for seed in (0, SECOND, THIRD)]
    assert talk("x", "x", "x").out == "".join(f"x{text}\n" for text in texts)
    assert len({*texts}) == 3


def test_a_seed_begins_with_the_text_of_that_seed(talk, expected, tokenizer):
    out, _ = talk("y", "y", ":seed\t3", "x")
    assert out.endswith(f"x{tokenizer.decode(expected('x', max_new_tokens=5, seed=3))}\n")


def test_more_goes_on_where_the_text_ended(talk, expected, tokenizer):
    new = expected("x", Sampling(temperature=0), max_new_tokens=15)
    parts = [tokenizer.decode(new[i : i + 5]) for i in (0, 5, 10)]
    out, _ = talk("x", ":more", ":more", argv=("--temperature", "0"))
    assert out == f"x{parts[0]}\n{parts[1]}\n{parts[2]}\n"


def test_more_draws_with_the_numbers_of_its_turn(talk, runs, expected, tokenizer):
    first = expected("x", max_new_tokens=5)
    prompt = tokenizer.encode_prompt("x") + first
    (new,) = generate(load(runs / "rope").model, [prompt], Sampling(), max_new_tokens=5,
                      seed=SECOND, eos_ids=tokenizer.eos_ids)
    assert talk("x", ":more").out == f"x{tokenizer.decode(first)}\n{tokenizer.decode(new)}\n"


def test_more_goes_on_after_a_stop_string_and_shows_it(talk, draw_instead):
    """The first two texts end at the stop string, and the third one after five tokens."""
    draw_instead([FIRST_BYTE + byte for byte in b"abc" b"dbc" b"efghi"])
    out, _ = talk("x", ":more", ":more", argv=("--stop", "bc"))
    assert out == "xa\nbcd\nbcefghi\n"


def test_more_reads_the_end_of_a_full_context(talk, runs, tokenizer):
    """A context of 32 tokens, of which 20 are for each continuation."""
    options = ("--run", "runs/learned", "--temperature", "0", "--max-new-tokens", "20")
    out, err = talk("x", ":more", argv=options)
    model = load(runs / "learned").model
    prompt = tokenizer.encode_prompt("x")
    (first,) = generate(model, [prompt], Sampling(temperature=0), max_new_tokens=20)
    (second,) = generate(model, [(prompt + first)[-12:]], Sampling(temperature=0),
                         max_new_tokens=20)
    assert out == f"x{tokenizer.decode(first)}\n{tokenizer.decode(second)}\n"
    assert ("note: the context (model.max_positions) is 32 tokens long: the text goes on from its "
            "last 12\n") in err


def test_two_colons_are_a_prompt_that_begins_with_one(talk, expected, tokenizer):
    text = tokenizer.decode(expected(":more", max_new_tokens=5))
    assert talk("::more").out == f":more{text}\n"


def test_spaces_before_a_command_do_not_make_it_a_prompt(talk):
    assert talk("x", "  :more").out == talk("x", ":more").out


def test_an_indented_line_with_a_colon_is_a_prompt(talk, expected, tokenizer):
    text = tokenizer.decode(expected("    :param x:", max_new_tokens=5))
    assert talk("    :param x:").out == f"    :param x:{text}\n"


def test_a_line_of_spaces_is_no_prompt(talk):
    assert talk("   ").out == ""


def test_help_lists_the_commands(talk):
    out, err = talk(":help")
    assert out == "" and ("Each line is a prompt of its own. The commands:\n"
                          "    :more      go on with the last text\n"
                              "    :new       in a conversation (--chat, and one sample), begin "
                              "a new one\n"
                          "    :seed N    draw the texts of another seed, N\n"
                          "    :help      print this\n"
                          "    ::TEXT     the prompt :TEXT\n"
                          "    :q         end, as quit, exit and Ctrl-D do\n") in err


@pytest.mark.parametrize("line", ["quit", "exit", ":q", "quit "])
def test_a_line_that_says_so_ends_a_session(talk, line, expected, tokenizer):
    text = tokenizer.decode(expected("x", max_new_tokens=5))
    out, err = talk("x", line, "y")
    assert out == f"x{text}\n"
    assert "quit, exit, :q or Ctrl-D ends.\n" in err


@pytest.mark.parametrize("line, message", [
    (":more", ":more goes on with a text, and there is none yet"),
    (":seed", ":seed takes a whole number, such as :seed 3, not ''"),
    (":seed x 3", ":seed takes a whole number, such as :seed 3, not 'x 3'"),
    (":sed 3", ":sed is no command (:more, :new, :seed N, :help, :q); to continue this text as a "
                "prompt, write ::sed 3"),
    (":more 3", ":more takes nothing after it, not '3'"),
    (":q now", ":q takes nothing after it, not 'now'")])
def test_a_command_that_cannot_be_obeyed_is_said(talk, line, message):
    out, err = talk(line)
    assert out == "" and f"\nerror: {message}\n" in err


def test_a_top_k_of_0_is_refused_with_advice():
    with pytest.raises(UserError, match="not 0: leave it out to keep all tokens$"):
        script.parse(["--prompt", "x", "--top-k", "0"])


def test_more_is_for_one_text(talk):
    _, err = talk("x", ":more", argv=("--num-samples", "2"))
    assert "error: :more goes on with one text, and there are 2: leave out --num-samples\n" in err


def test_a_session_begins_with_the_prompts_of_the_command_line(talk, expected, tokenizer):
    texts = [tokenizer.decode(expected(prompt, max_new_tokens=5, seed=seed))
             for prompt, seed in ((":more", 0), ("y", SECOND), ("z", THIRD))]
    out, _ = talk("z", argv=("--prompt", ":more", "--prompt", "y"))
    assert out == f":more{texts[0]}\ny{texts[1]}\nz{texts[2]}\n"


def test_a_session_may_begin_with_a_document(talk, expected, tokenizer):
    text = tokenizer.decode(expected("", max_new_tokens=5))
    assert talk(argv=("--prompt", "")).out == f"{text}\n"


# --- compiling and progress -----------------------------------------------------------------------


def test_the_rate_leaves_compiling_out(call, ticks, monkeypatch):
    """Compiling reads the clock a hundred times."""
    def slow_compile(batch, previous):
        for _ in range(100):
            script.time.perf_counter()
        return next_logits

    monkeypatch.setattr(compiled, "compile_batch", slow_compile)
    _, err = call("--prompt", "x", "--max-new-tokens", "5", "--compile")
    assert err.endswith("prefill: 1 token in 0.500 s (2 tokens/s)\n"
                        "decode: 4 tokens in 2.500 s (2 tokens/s)\n")


def test_the_notice_of_compiling_comes_before_the_text(call, expected, tokenizer, monkeypatch,
                                                        tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "OPENED", {})
    monkeypatch.setattr(compiled, "make_package", mock.Mock(side_effect=RuntimeError("broken")))
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    call("--prompt", PROMPT, "--max-new-tokens", "9", "--compile")
    text = tokenizer.decode(expected(max_new_tokens=9))
    _, notice, note, shown = terminal.getvalue().split("\n", 3)
    assert notice.startswith("compiling decoding, once, which takes up to some minutes; kept as ")
    assert note == "note: decoding is eager, because it could not be compiled or loaded: broken"
    assert shown.startswith(f"{PROMPT}{text}\nprefill: ")


def test_the_first_line_says_up_to_where_dynamic_scaling_is_compiled(call, monkeypatch):
    """Up to the 32 tokens of the training rows. Longer texts have no cache."""
    monkeypatch.setattr(compiled, "compile_step", lambda *_, **options: next_logits)
    err = call("--prompt", "x", "--max-new-tokens", "32", "--compile", "--rope-scaling", "dynamic",
               "--rope-factor", "2").err
    assert "cpu, float32, compiled up to 32 tokens\n" in err


@pytest.fixture
def bars(monkeypatch):
    """The options of all progress bars, which appear at once."""
    bars = []

    def bar(**options):
        bars.append(options)
        return tqdm(**options | {"delay": 0, "mininterval": 0})

    monkeypatch.setattr(script, "tqdm", bar)
    return bars


def test_several_samples_show_their_progress_after_two_seconds(call, bars):
    # Greedy, because a text of these models then never ends before its length.
    _, err = call("--prompt", "x", "--max-new-tokens", "5", "--num-samples", "3",
                  "--temperature", "0")
    assert "generate: 100%" in err
    assert " 15/15 " in err
    assert not re.search(r"generate: \d+token", err)  # tqdm drops the total once more are counted
    (options,) = bars
    assert (options["delay"], options["mininterval"]) == (2, 10)  # as stderr is no terminal


def test_a_single_sample_shows_no_progress(call, bars):
    assert "generate:" not in call("--prompt", "x", "--max-new-tokens", "5").err


def test_a_text_past_the_training_rows_gets_a_note(call, tokenizer):
    room = 32 - len(tokenizer.encode(PROMPT))
    assert "this text has" not in call("--prompt", PROMPT, "--max-new-tokens", str(room)).err
    err = call("--prompt", PROMPT, "--max-new-tokens", str(room + 1)).err
    assert "this text has 33 tokens; the model was trained on rows of 32" in err


def test_a_text_within_the_scaling_that_is_asked_for_gets_no_note(call):
    words = ("--prompt", "x", "--rope-scaling", "yarn", "--rope-factor", "3")
    assert "this text has" not in call(*words, "--max-new-tokens", "95").err
    err = call(*words, "--max-new-tokens", "96").err
    assert "this text has 97 tokens; the model has a rope_scaling that reaches 96" in err


def test_the_default_length_is_what_the_longest_prompt_leaves(call, tokenizer):
    """In a context of 32 tokens. Behind the first prompt, x, alone there would be more room."""
    words = ("--run", "runs/learned", "--prompt", "x", "--prompt", PROMPT)
    room = 32 - len(tokenizer.encode(PROMPT))
    assert call(*words).out == call(*words, "--max-new-tokens", str(room)).out


def test_the_longest_text_need_not_have_the_longest_prompt(call, tokenizer, monkeypatch):
    """The row with the longest prompt ends at once. The other prompt has 1 token, so with the new
    ones its row has 1 + 28 = 29, fewer than the 32 of the training rows."""
    drawn = torch.tensor([tokenizer.eos_id, ABCD[0]])

    def end_first_row(logits, *options):
        if len(logits) == 1:  # the last row, which draws while the longer prompt is read
            return drawn[1:]
        return drawn

    monkeypatch.setattr("model.generation.sample", end_first_row)
    assert len(tokenizer.encode(PROMPT)) + 28 > 32
    words = ("--prompt", PROMPT, "--prompt", "x", "--max-new-tokens", "28")
    assert "this text has" not in call(*words).err


def test_the_text_ends_with_the_document(call, draw_instead, tokenizer):
    words = tokenizer.encode("a b c")
    draw_instead([*words, tokenizer.eos_id])
    assert call("--prompt", "x", "--max-new-tokens", "40").out == "xa b c\n"


def test_a_special_token_can_be_what_stops(call, draw_instead, tokenizer):
    """It has no text in which a stop string could be found."""
    draw_instead([*tokenizer.encode("a b c"), BOS, *ABCD])
    out = call("--prompt", "x", "--max-new-tokens", "40", "--stop", "<s>").out
    assert out == "xa b c\n"


def test_a_special_token_that_was_asked_to_stop_gets_no_note(call, draw_instead):
    draw_instead([*ABCD, BOS])
    assert "ended" not in call("--prompt", "x", "--stop", "<s>").err


def test_a_text_that_the_model_ended_gets_a_note(call, draw_instead, tokenizer):
    draw_instead([*ABCD, tokenizer.eos_id])
    err = call("--prompt", "x", "--seed", "7").err
    assert "note: the model has ended the text: --seed 8 may draw another\n" in err


def test_a_text_of_the_length_asked_for_gets_no_note(call, draw_instead):
    draw_instead(ABCD)
    assert "ended" not in call("--prompt", "x", "--max-new-tokens", "4").err


def test_the_note_on_an_ended_greedy_text_advises_a_temperature(call, draw_instead, tokenizer):
    draw_instead([tokenizer.eos_id])
    err = call("--prompt", "x", "--temperature", "0").err
    assert "the text: --temperature 0.8 may draw another" in err


def test_the_note_on_an_ended_text_of_top_k_1_advises_more_tokens(call, draw_instead, tokenizer):
    draw_instead([tokenizer.eos_id])
    assert "the text: --top-k 2 may draw another" in call("--prompt", "x", "--top-k", "1").err


def test_a_text_that_ends_at_once_decodes_nothing(call, draw_instead, tokenizer):
    draw_instead([tokenizer.eos_id])
    assert "decode" not in call("--prompt", "x").err


def test_a_stop_string_over_three_tokens_is_never_shown(call, draw_instead):
    draw_instead(ABCD)
    assert call("--prompt", "x", "--stop", "bcd", "--stop", "not in there").out == "xa\n"


def test_no_token_is_drawn_after_a_stop_string(call, draw_instead):
    draw_instead(ABCD)
    err = call("--prompt", "x", "--stop", "bcd").err
    assert "decode: 3 tokens" in err
    assert "ended" not in err  # not by itself


@pytest.mark.parametrize("words, n_rows", [
    ("--prompt x --prompt y --num-samples 3", 6), ("--interactive", 1)])
def test_auto_measures_for_all_rows(words, n_rows, call, monkeypatch):
    """bfloat16 is made the faster type for that number of rows, and for no other."""
    def rates(device, model, rows, *, training):
        return [5, 6 if rows == n_rows else 0]

    monkeypatch.setattr("gyre.load.matmul_rates", rates)
    _, err = call(*words.split(), "--max-new-tokens=3", "--dtype=auto")
    assert "bfloat16, not compiled" in err


@pytest.mark.parametrize("words, message", [
    ("", "give --prompt TEXT or --prompt-file FILE, or else --interactive, which reads stdin"),
    ("--interactive --prompt-file -", "--prompt-file - reads all of stdin, which leaves none to "
     "--interactive: give the prompt by --prompt TEXT"),
    ("--prompt x --rope-scaling yarn", "give both"), ("--prompt x --rope-factor 2", "give both"),
    # Before `auto` measures how fast so many rows are.
    ("--prompt x --num-samples -1 --dtype auto", "num_samples must be in .* not -1"),
    ("--interactive --temperature 0 --top-k 5", "top_k has no effect at temperature 0: leave it "
     "out"),
    ("--interactive --run runs/rope --max-new-tokens 6000", "--max-new-tokens 6000 leaves no room "
     "for a prompt in the context of 6000 .model.max_positions.: give a smaller number"),
    ("--prompt x --stop=", "--stop '' is in"), ("--prompt x --run .", "params.json"),
    ("--prompt x --device meta", "device must be auto"),
    ("--prompt x --rope-scaling yarn --rope-factor 2 --run runs/learned",
     "rope_scaling has no effect with model.position learned: it belongs to rope"),
    ("--prompt-file nope.txt", "prompt-file nope.txt cannot be read .No such file or directory.: "
     "give a file of text in UTF-8, or - for stdin"),
    ("--prompt-file params.json", "prompt-file params.json cannot be read: the byte 0xff at off"),
    ("--prompt-file=", "--prompt-file '' names no file"),
    ("--prompt x --prompt-file=", "--prompt-file '' names no file")])
def test_bad_options_are_one_line_and_exit_2(runs, monkeypatch, capsys, words, message):
    monkeypatch.chdir(runs.parent)
    # It is no UTF-8, and makes the folder "." one of Meta's.
    (runs.parent / "params.json").write_bytes(b"abc\xff")
    assert re.search(message, error_lines(capsys, script.main, *words.split())[-1])


def test_characters_that_a_terminal_cannot_show_are_question_marks(call, monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    call("--prompt", "naïve 🙂", "--max-new-tokens", "1")
    assert shown.buffer.getvalue().startswith(b"na?ve ?")


@pytest.mark.parametrize("is_terminal, shown", [
    (True, ["a", "\nb", "", "\n", "", "\ufffdc", "", "\ufffd"]),
    (False, ["a\r", "\nb", "\r", "\n", "\r", "c", "\r", ""])])
def test_a_line_end_in_two_parts_is_one_on_a_terminal(call, monkeypatch, is_terminal, shown):
    """A \\r is held back until the next part. Before \\n it belongs to a line end, and alone it is
    a control character. What is printed last is what was still held back."""
    parts = ["a\r", "\nb", "\r", "\n", "\r", "c", "\r"]
    printed = []
    monkeypatch.setattr(script, "stream", lambda *_: ((0, part) for part in parts))
    monkeypatch.setattr(script, "is_terminal", lambda stream: is_terminal)
    monkeypatch.setattr(script, "print", lambda text="", **how: printed.append(text), raising=False)
    call("--prompt", "x", "--max-new-tokens", "1")
    assert printed == shown


@pytest.mark.parametrize("is_terminal, shown", [(True, "a\ufffd[2J"), (False, "a\x1b[2J")])
def test_control_characters_reach_files_but_no_terminal(is_terminal, shown, monkeypatch):
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: is_terminal))
    assert script.for_stdout("a\x1b[2J") == shown


@pytest.mark.parametrize("threads, load, n_notes", [(2, 3.0, 1), (1, 3.0, 0), (2, 0.0, 0)])
def test_cores_that_are_busy_are_noted_for_compiled_decoding(
    threads, load, n_notes, monkeypatch, capsys
):
    monkeypatch.setattr(script.torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(script, "busy_load", lambda per_core: load)
    script.note_busy_cores(SimpleNamespace(compute=SimpleNamespace(device=torch.device("cpu"))))
    assert capsys.readouterr().err.count("with OMP_NUM_THREADS=1 before the command") == n_notes
