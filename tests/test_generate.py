"""The command line, on real run folders: what lands on stdout, and what bad input gets."""

import dataclasses
import functools
import io
import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import generate as script
from data.tokenizer import Tokenizer
from gyre.cli import config_parser, parse
from gyre.rundir import RunDir
from model.generation import generate
from model.rope import RopeScaling, ScalingType
from model.sampling import Sampling
from model.transformer import Transformer

ROOT = Path(__file__).parent.parent
TEXT = "def f(x):\n    return x + 1  # naïve café, 中文, 🙂\n\n\nclass A:\n\tpass\n"
PROMPT = "def f(x):\n"
VOCAB = 310
FIRST_BYTE = 3  # Llama 2's ids: unk, bos, eos, then the 256 bytes


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    Tokenizer.train([TEXT] * 5, VOCAB, path)
    return path


@pytest.fixture(scope="session")
def tokenizer(tokenizer_file):
    return Tokenizer(tokenizer_file)


@pytest.fixture(scope="session")
def runs(tmp_path_factory, tokenizer_file):
    """Two runs: "learned", whose context ends after 32 tokens, and the newer "rope"."""
    folder = tmp_path_factory.mktemp("work") / "runs"
    for name, changes in (("learned", {}), ("rope", {"max_positions": 6000})):
        make_run(folder, name, tokenizer_file, position=name, **changes)
    return folder


def make_run(folder, name, tokenizer_file, **model):
    words = [f"--data.vocab_size={VOCAB}", "--data.seq_len=32", f"--log.runs={folder}"]
    model = {"dim": 24, "n_layers": 2, "n_heads": 3, "n_kv_heads": 1, "hidden_dim": 40} | model
    words += [f"--model.{key}={value}" for key, value in model.items()]
    config, _ = parse(config_parser(""), words)
    run = RunDir.create(
        dataclasses.replace(config.log, wandb="disabled"), name, config_yaml=config.to_yaml(),
        config={}, tokenizer=[tokenizer_file], manifest={},
    )  # fmt: skip
    for seed, checkpoint in enumerate(("last", "best")):
        model = Transformer(config.model)
        model.init_weights(seed)
        weights = {key: 5 * value for key, value in model.state_dict().items()}
        weights["tok_embeddings.weight"][2] = 0  # a logit of 0 never is the largest: greedy goes on
        run.save(checkpoint, weights, training={} if checkpoint == "last" else None)
    return run


@pytest.fixture
def call(runs, monkeypatch, capsys):
    """Run the script where `runs/` is; return stdout and stderr."""
    monkeypatch.chdir(runs.parent)

    def call(*argv, stdin=b"", code=None):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        if code is None:
            script.main([*argv])
        else:
            with pytest.raises(SystemExit) as exit:
                script.main([*argv])
            assert exit.value.code == code
        return capsys.readouterr()

    return call


@pytest.fixture(scope="session")
def expected(runs, tokenizer):
    """The continuation of a prompt, with nothing of the script's but its defaults."""

    @functools.cache
    def load(name, checkpoint, scaling):
        run = RunDir.open(runs / name)
        config = script.load_file(run.path / "config.yaml").model
        if scaling:
            config = dataclasses.replace(config, rope_scaling=RopeScaling(*scaling))
        model = Transformer(config)
        model.load_state_dict(run.load_weights(checkpoint))
        return model

    def expected(
        prompt=PROMPT, sampling=None, sample=0, run="rope", checkpoint="best", scaling=None,
        **options,
    ):  # fmt: skip
        options = {"max_new_tokens": 40, "eos_id": tokenizer.eos_id} | options
        ids, sampling = tokenizer.encode(prompt), sampling or Sampling()
        model = load(run, checkpoint, scaling)
        return generate(model, [ids], sampling, num_samples=sample + 1, **options)[sample]

    return expected


# --- text -----------------------------------------------------------------------------------------


def test_stdout_is_the_prompt_and_the_one_shot_decode(call, expected, tokenizer):
    out, err = call("--prompt", PROMPT, "--max-new-tokens", "40")
    text = tokenizer.decode(expected())
    assert out == PROMPT + text + "\n"
    assert "\ufffd" in text  # a model of noise: bytes that are no characters were among them
    assert "runs/rope (the newest run): best weights, rope positions, cpu, float32" in err
    assert re.search(r"prefill: \d+ tokens .* tokens/s\); decode: 39 tokens in .* tokens/s\)", err)


def test_one_row_is_streamed(call, monkeypatch):
    events = []

    class Spy(io.TextIOWrapper):
        def write(self, text):
            events.append(text)
            return super().write(text)

        def flush(self):
            events.append("flushed")
            super().flush()

    monkeypatch.setattr(sys, "stdout", Spy(io.BytesIO(), encoding="utf-8"))
    call("--prompt", PROMPT, "--max-new-tokens", "40")
    events = [event for event in events if event]  # print() writes an empty end, too
    texts = [event for event in events if event != "flushed"]
    assert texts[0].startswith(PROMPT) and len(texts) > 20
    assert all("flushed" in pair for pair in itertools.pairwise(events))  # no text behind a text


def test_every_option_arrives(call, expected, tokenizer):
    sampling = Sampling(1.2, top_k=20, top_p=0.9, min_p=0.1, repetition_penalty=1.3)
    out, err = call(
        "--run", "runs/learned", "--checkpoint", "last", "--prompt", "x", "--max-new-tokens",
        "20", "--temperature", "1.2", "--top-k", "20", "--top-p", "0.9", "--min-p", "0.1",
        "--repetition-penalty", "1.3", "--seed", "7",
    )  # fmt: skip
    options = {"checkpoint": "last", "run": "learned", "max_new_tokens": 20, "seed": 7}
    assert out == "x" + tokenizer.decode(expected("x", sampling, **options)) + "\n"
    assert "runs/learned: last weights, learned positions" in err
    for part in dataclasses.fields(Sampling):  # none of them is without effect here
        changed = dataclasses.replace(sampling, **{part.name: part.default})
        assert expected("x", changed, **options) != expected("x", sampling, **options), part.name


def test_several_rows_have_headings_and_equal_their_solo_runs(call, expected, tokenizer):
    prompts = [PROMPT, "class A:\n\tpass", "🙂"]
    words = [word for prompt in prompts for word in ("--prompt", prompt)]
    out, _ = call(*words, "--num-samples", "2", "--max-new-tokens", "15")
    blocks = [
        f"=== prompt {p}, sample {s} ===\n{prompt}"
        f"{tokenizer.decode(expected(prompt, max_new_tokens=15, sample=s - 1))}\n"
        for p, prompt in enumerate(prompts, 1)
        for s in (1, 2)
    ]
    assert out == "".join(blocks)


def test_the_prompt_file_is_read_exactly(call, tmp_path, expected, tokenizer):
    text = "a\r\n\tb 中\n\n"
    file = tmp_path / "prompt.txt"
    file.write_bytes(text.encode())
    continuation = tokenizer.decode(expected(text, max_new_tokens=5))
    for words, stdin in (
        (["--prompt-file", str(file)], b""),
        (["--prompt-file", "-"], text.encode()),
    ):
        out, _ = call(*words, "--max-new-tokens", "5", stdin=stdin)
        assert out == text + continuation + "\n"


def test_interactive_continues_line_after_line(call, expected, tokenizer):
    too_long = 6000 * "\x01"
    lines = f"x\n\n{too_long}\n🙂 y".encode()
    out, err = call("--interactive", "--max-new-tokens", "5", stdin=lines)
    texts = [t + tokenizer.decode(expected(t, max_new_tokens=5)) + "\n" for t in ("x", "🙂 y")]
    assert out == "".join(texts)
    assert "past the context of 6000" in err  # the long line's error, and the next line was read


def test_ctrl_c_at_the_interactive_prompt_ends(call, monkeypatch):
    class Interrupted(io.TextIOWrapper):
        def readline(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(io, "TextIOWrapper", Interrupted)
    assert call("--interactive").out == ""


def test_the_note_on_length_appears_past_the_training_rows_only(call, tokenizer):
    prompt = len(tokenizer.encode(PROMPT))
    for total, noted in ((32, False), (33, True)):
        err = call("--prompt", PROMPT, "--max-new-tokens", str(total - prompt)).err
        note = f"this text has {total} tokens; the model was trained on rows of 32"
        assert (note in err) == noted


def test_the_text_ends_with_the_document(call, expected, tokenizer):
    seed = next(seed for seed in range(1000) if 1 < len(expected(seed=seed)) < 39)
    out, _ = call("--prompt", PROMPT, "--max-new-tokens", "40", "--seed", str(seed))
    assert out == PROMPT + tokenizer.decode(expected(seed=seed)) + "\n"


def test_the_default_length_is_what_the_context_has_room_for(call, expected, tokenizer):
    out, _ = call("--run", "runs/learned", "--prompt", PROMPT)
    new = expected(run="learned", max_new_tokens=32 - len(tokenizer.encode(PROMPT)))
    assert out == PROMPT + tokenizer.decode(new) + "\n"


# --- past the training length ---


@pytest.mark.parametrize("type", get_args(ScalingType))
def test_rotations_are_scaled_without_training_again(call, expected, tokenizer, type):
    out, err = call(
        "--prompt", PROMPT, "--max-new-tokens", "40", "--rope-scaling", type, "--rope-factor", "3",
    )  # fmt: skip
    uncached = type == "dynamic"
    new = expected(scaling=(type, 3.0, 32), use_cache=not uncached)
    assert out == PROMPT + tokenizer.decode(new) + "\n"
    assert new != expected()
    assert f"rope positions scaled by {type} 3, cpu" in err
    assert ("note: no cache, so every token takes longer: past 32 tokens" in err) == uncached


def test_dynamic_scaling_keeps_its_cache_within_the_training_length(call, expected, tokenizer):
    new_tokens = 32 - len(tokenizer.encode(PROMPT))
    words = ("--max-new-tokens", str(new_tokens), "--rope-scaling", "dynamic", "--rope-factor", "1")
    out, err = call("--prompt", PROMPT, *words)
    assert out == PROMPT + tokenizer.decode(expected(max_new_tokens=new_tokens)) + "\n"
    assert "no cache" not in err


def test_scaling_extends_the_context(call, tmp_path, tokenizer_file, tokenizer):
    run = make_run(tmp_path, "short", tokenizer_file, max_positions=32)
    room = 64 - len(tokenizer.encode(PROMPT))
    words = ("--run", str(run.path), "--prompt", PROMPT, "--max-new-tokens")
    assert "past the context of 32" in call(*words, str(room), code=2).err
    scaled = ("--rope-scaling", "yarn", "--rope-factor", "2")
    assert call(*words, str(room), *scaled).out.startswith(PROMPT)
    assert "past the context of 64" in call(*words, str(room + 1), *scaled, code=2).err


def test_a_run_with_a_scaling_of_its_own_keeps_it(call, tmp_path, tokenizer_file):
    run = make_run(
        tmp_path, "trained", tokenizer_file,
        **{"rope_scaling.type": "linear", "rope_scaling.factor": 4},
    )  # fmt: skip
    words = ("--run", str(run.path), "--prompt", "x", "--max-new-tokens", "3")
    assert call(*words).out.startswith("x")
    err = call(*words, "--rope-scaling", "ntk", "--rope-factor", "2", code=2).err
    assert "trained with model.rope_scaling linear: --rope-scaling would take it away" in err


# --- stop strings ---------------------------------------------------------------------------------


def until_stop(text, stops):
    """What is left of `text` if it is read one character at a time."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], True
    return text, False


def play(row, ids):
    shown = ""
    for i in ids:
        shown += row.push(i)
        if row.stopped:
            break
    return shown + row.finish(), row.stopped


@settings(max_examples=300, deadline=None)
@given(
    text=st.text("ab中 \n", max_size=14),
    stops=st.lists(st.text("ab中 \n", min_size=1, max_size=4), max_size=3),
)
def test_where_a_row_stops_does_not_depend_on_its_tokens(tokenizer, text, stops):
    expected, stopped = until_stop(text, stops)
    for ids in (tokenizer.encode(text), [FIRST_BYTE + byte for byte in text.encode()]):
        assert play(script.Row("ab", tokenizer, stops), ids) == ("ab" + expected, stopped)


@given(data=st.binary(max_size=12))
@settings(max_examples=200, deadline=None)
def test_a_row_of_any_bytes_equals_the_one_shot_decode(tokenizer, data):
    ids = [FIRST_BYTE + byte for byte in data]
    assert play(script.Row("", tokenizer, []), ids) == (tokenizer.decode(ids), False)


def test_a_stop_string_over_three_tokens_is_never_shown(call, expected, tokenizer):
    new = expected()
    pieces = [tokenizer.decode([i]) for i in new]
    start = next(i for i in range(4, 30) if all(p.isascii() and p for p in pieces[i : i + 3]))
    stop = "".join(pieces[start : start + 3])
    text = tokenizer.decode(new)
    words = ("--max-new-tokens", "40", "--stop", stop, "--stop", "not in there")
    out, err = call("--prompt", PROMPT, *words)
    assert out == PROMPT + text[: text.index(stop)] + "\n"
    assert int(re.search(r"decode: (\d+) tokens", err)[1]) < 39  # it was not only hidden
    # In a batch: this row stops, the other goes on.
    other = PROMPT + tokenizer.decode(expected(sample=1))
    assert stop not in other[len(PROMPT) :]
    out = call("--prompt", PROMPT, "--num-samples", "2", *words).out
    head = "=== prompt 1, sample"
    assert out == f"{head} 1 ===\n{PROMPT}{text[: text.index(stop)]}\n{head} 2 ===\n{other}\n"
    # The prompt may hold it: only what the model writes counts.
    assert call("--prompt", PROMPT, "--stop", PROMPT, "--max-new-tokens", "40").out.endswith(
        text + "\n"
    )


# --- what bad input gets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to continue: give --prompt TEXT, --prompt-file FILE or --interactive"),
        (["--prompt", ""], "--prompt is empty"),
        (["--prompt", "x", "--interactive"], "leave out --prompt"),
        (["--prompt", "x", "--stop", ""], "--stop is empty"),
        (["--prompt", "x", "--top-p", "1.5"], r"--top-p must be in \(0, 1\], not 1.5"),
        (["--prompt", "x", "--top-k", "0"], "--top-k must be at least 1, not 0"),
        (["--prompt", "x", "--temperature", "-1"], "--temperature must be .* not -1"),
        (["--prompt", "x", "--temperature", "0", "--min-p", ".1"], "--min-p has no effect at --t"),
        (["--prompt", "x", "--temperature", "0", "--num-samples", "2"], "--num-samples has no eff"),
        (["--prompt", "x", "--num-samples", "0"], "--num-samples must be at least 1, not 0"),
        (["--prompt", "x", "--max-new-tokens", "0"], "--max-new-tokens must be at least 1, not 0"),
        (["--prompt", "x", "--max-new-tokens", "6000"],
         r"1 tokens and 6000 new ones make 6001, past the context of 6000 \(model.max_positions\): "
         "shorten the prompt or lower --max-new-tokens"),
        (["--prompt", "x", "--top-k", "many"], "argument --top-k: invalid int value: 'many'"),
        (["--prompt", "x", "--rope-scaling", "yarn"], "--rope-scaling TYPE and --rope-factor F be"),
        (["--prompt", "x", "--rope-factor", "2"], "--rope-scaling TYPE and --rope-factor F belong"),
        (["--prompt", "x", "--rope-scaling", "yarn", "--rope-factor", "0.5"],
         "--rope-factor must be at least 1, not 0.5"),
        (["--prompt", "x", "--rope-scaling", "yam", "--rope-factor", "2"], "choose from .*llama3"),
        (["--prompt", "x", "--rope-scaling", "yarn", "--rope-factor", "2", "--run", "runs/learned"],
         "--rope-scaling has no effect with model.position learned: it belongs to rope"),
        (["--promt", "x"], "unrecognized arguments: --promt"),
        (["--prompt", "x", "--run", "runs/none"], "no run folder at runs/none"),
        (["--prompt", "x", "--device", "cuda:99"], "device cuda:99 was asked for"),
        (["--prompt", "\udcff"], "half of a surrogate pair"),
        (["--prompt-file", "none.txt"], "none.txt"),
    ],
)  # fmt: skip
def test_bad_options_are_one_line_and_exit_2(call, words, message):
    out, err = call(*words, code=2)
    assert out == ""
    assert re.search(message, err.splitlines()[-1])
    assert err.count("error:") == 1 and "Traceback" not in err


def test_bad_prompt_files_are_named(call, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"abc\xff")
    assert f"{file} is not UTF-8: byte 3 is 0xff" in call("--prompt-file", str(file), code=2).err
    file.write_bytes(b"")
    assert f"{file} is empty" in call("--prompt-file", str(file), code=2).err
    assert "stdin is empty" in call("--prompt-file", "-", code=2).err


def test_no_run_yet(call, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "python train.py" in call("--prompt", "x", code=2).err


def test_a_tokenizer_or_weights_of_another_model_are_refused(call, tmp_path, tokenizer_file):
    other = tmp_path / "tokenizer.model"
    Tokenizer.train([TEXT] * 5, VOCAB - 7, other)
    run = make_run(tmp_path, "tokenizer", other)
    err = call("--run", str(run.path), "--prompt", "x", code=2).err
    assert f"has {VOCAB - 7} pieces, and its config.yaml says {VOCAB} (data.vocab_size)" in err

    run = make_run(tmp_path, "weights", tokenizer_file)
    weights = run.load_weights("best")
    weights["extra"] = weights.pop("norm.weight")
    weights["layers.0.attention.wq.weight"] = torch.zeros(5, 24)
    run.save("best", weights)
    (line,) = call("--run", str(run.path), "--prompt", "x", code=2).err.splitlines()
    for words in ("norm.weight", "extra", "layers.0.attention.wq.weight", "[5, 24]", "[24, 24]"):
        assert words in line


# --- as a process ---------------------------------------------------------------------------------


def start(runs, *argv, **environment):
    return subprocess.Popen(
        [sys.executable, *argv],
        cwd=runs.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_terminal_without_the_characters_and_no_heavy_imports(runs):
    code = (
        "import sys, generate; generate.main(sys.argv[1:]); "
        "heavy = {'datasets', 'pandas', 'pyarrow', 'wandb', 'matplotlib'} & sys.modules.keys(); "
        "sys.exit(' '.join(heavy) or None)"
    )
    words = ("--prompt", "naïve 🙂", "--max-new-tokens", "9")
    process = start(runs, "-c", code, *words, PYTHONIOENCODING="ascii")
    out, err = process.communicate(timeout=60)
    assert out.startswith(b"na?ve ?") and b"Traceback" not in err
    assert process.returncode == 0, err


def test_ctrl_c_and_a_closed_pipe_end_without_a_traceback(runs):
    words = ("--prompt", "x", "--max-new-tokens", "5999", "--temperature", "0")
    interrupted, unread = (start(runs, str(ROOT / "generate.py"), *words) for _ in range(2))
    assert unread.stdout.read(1) == interrupted.stdout.read(1) == b"x"
    interrupted.send_signal(signal.SIGINT)
    unread.stdout.close()
    out, err = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130 and b"Traceback" not in err
    err = unread.stderr.read()
    assert unread.wait(timeout=60) == 141
    assert b"Traceback" not in err and b"ignored" not in err and b"error" not in err
