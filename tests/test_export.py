"""Folders and files of others, in both directions. Judges: transformers, tokenizers and gguf."""

import dataclasses
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

import gguf
import pytest
import sentencepiece
import tensorfiles
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import evaluate
import export
import generate as generate_script
import train
from data.prepare import prepare
from data.tokenizer import Tokenizer, open_tokenizer
from formats import names as interop
from gyre.cli import config_parser, parse
from gyre.cli import load_file as load_config
from gyre.rundir import RunDir
from model.generation import generate
from model.rope import RopeScaling
from model.sampling import Sampling
from model.transformer import Transformer

ROOT = Path(__file__).parent.parent
TEXT = "def f(x):\n    return x + 1  # naïve café, 中文, 🙂\n\n\nclass A:\n\tpass\n"
ODD = [
    TEXT, "", " ", "  two", "a  b   c    d", "\n\n\n\t\t", "</s> is <s> text <unk>", "<0x41>",
    "\u2581 a\u2581b", "\0", "\r\n\u2585", "e\u0301", "🙂" * 3, " " * 41, "=" * 33, "0123456789",
]  # fmt: skip
VOCAB = 330
POSITIONS = 64
SIZES = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 80}


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    Tokenizer.train([TEXT + "    " * 9] * 5, VOCAB, path)
    return path


@pytest.fixture
def make_run(tmp_path, tokenizer_file):
    """A run with random weights, large enough that a wrong layout shows."""

    def make_run(name="ours", *, dtype=torch.float32, tokenizer=tokenizer_file, **model):
        scaling = model.pop("rope_scaling", None)
        words = [f"--data.vocab_size={VOCAB}", "--data.seq_len=16", f"--log.runs={tmp_path}"]
        model = SIZES | {"max_positions": POSITIONS, "tie_embeddings": False} | model
        position = model.pop("position", "rope")
        words += [f"--model.{key}={json.dumps(value)}" for key, value in model.items()]
        words.append(f"--model.position={position}")
        if scaling is not None:
            words.append(f"--model.rope_scaling={json.dumps(dataclasses.asdict(scaling))}")
        config, _ = parse(config_parser(""), words)
        run = RunDir.create(
            dataclasses.replace(config.log, wandb="disabled"), name, config_yaml=config.to_yaml(),
            config={}, tokenizer=[tokenizer], manifest={},
        )  # fmt: skip
        model = Transformer(config.model)
        model.init_weights(1)
        draw = torch.Generator().manual_seed(2)
        weights = {
            name: (8 * w if w.ndim > 1 else w + 0.3 * torch.randn(w.shape, generator=draw)).to(
                dtype
            )
            for name, w in model.state_dict().items()
        }
        run.save("best", weights)
        return run

    return make_run


def load(run: RunDir) -> Transformer:
    model = Transformer(load_config(run.path / "config.yaml").model)
    model.load_state_dict(run.load_weights())
    return model.eval()


def logits(model, vocab_size=VOCAB, length=POSITIONS) -> torch.Tensor:
    """Over the full context."""
    draw = torch.Generator().manual_seed(3)
    tokens = torch.randint(vocab_size, (2, length), generator=draw)
    with torch.no_grad():
        out = model(tokens)
    return out if isinstance(out, torch.Tensor) else out.logits


def equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a
    )


@pytest.fixture
def refused(capsys):
    """Exit 2 and one line that holds all of the words, and not a file more or less than before."""

    def refused(source, to, target, *words, options=()):
        before = {p: p.stat().st_mtime_ns for p in target.parent.rglob("*")}
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            export.main([str(source), "--to", to, str(target), *options])
        said = capsys.readouterr().err
        assert exit.value.code == 2
        assert said.startswith("error: ") and said.count("\n") == 1, said
        for word in words:
            assert word in said, said
        assert {p: p.stat().st_mtime_ns for p in target.parent.rglob("*")} == before

    return refused


# --- out: Hugging Face ----------------------------------------------------------------------------

SHAPES = [
    {},
    {"tie_embeddings": True, "n_layers": 1, "n_kv_heads": 1},
    {"head_dim": 12, "norm_eps": 3e-2, "theta": 500.0},
    {"rope_scaling": RopeScaling("linear", 4.0, 16)},
    {"rope_scaling": RopeScaling("ntk", 4.0, 16)},
    {"rope_scaling": RopeScaling("dynamic", 4.0, 16)},
    {"rope_scaling": RopeScaling("yarn", 4.0, 16, beta_fast=4.0)},
    {"rope_scaling": RopeScaling("llama3", 4.0, 16), "head_dim": 16},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transformers_computes_what_we_do_and_gives_it_back(shape, make_run, tmp_path):
    run, out = make_run(**shape), tmp_path / "hf"
    export.main([str(run.path), "--to", "hf", str(out)])
    ours, theirs = load(run), AutoModelForCausalLM.from_pretrained(out)
    assert theirs.dtype == torch.float32 and type(theirs) is LlamaForCausalLM
    torch.testing.assert_close(logits(theirs), logits(ours), rtol=0, atol=1e-4)

    tokenizer = open_tokenizer(run.path)
    ids = tokenizer.encode("def f(x):")
    new = POSITIONS - len(ids)
    greedy = generate(ours, [ids], Sampling(temperature=0), max_new_tokens=new,
                      eos_id=tokenizer.eos_id, seed=0,
                      use_cache=ours.position.cache_limit >= POSITIONS)  # fmt: skip
    if "rope_scaling" not in shape or shape["rope_scaling"].type != "dynamic":
        # With its cache, dynamic scaling leaves keys as they were turned when they came; ours not.
        found = theirs.generate(torch.tensor([ids]), max_new_tokens=new, do_sample=False)
        assert found[0].tolist() == ids + greedy[0]

    export.main([str(out), "--to", "run", str(tmp_path / "back")])
    back = RunDir.open(tmp_path / "back")
    assert equal(back.load_weights(), run.load_weights())
    torch.testing.assert_close(logits(load(back)), logits(ours), rtol=0, atol=1e-6)


def test_without_the_permutation_it_is_another_model(make_run, tmp_path, monkeypatch):
    run, out = make_run(), tmp_path / "hf"
    monkeypatch.setattr(interop, "relayout", lambda weight, head_dim, to: weight)
    export.main([str(run.path), "--to", "hf", str(out)])
    wrong = logits(AutoModelForCausalLM.from_pretrained(out))
    assert (wrong - logits(load(run))).abs().max() > 0.5


def test_autotokenizer_gives_our_ids(make_run, tmp_path):
    run, out = make_run(), tmp_path / "hf"
    export.main([str(run.path), "--to", "hf", str(out)])
    ours, theirs = open_tokenizer(run.path), AutoTokenizer.from_pretrained(out)
    draw = torch.Generator().manual_seed(4)
    alphabet = [*" \n=ad(f\u2581", "中", "    "]
    drawn = torch.randint(len(alphabet), (300, 30), generator=draw).tolist()
    for text in [*ODD, *("".join(alphabet[i] for i in row) for row in drawn)]:
        ids = ours.encode(text)
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids) == text
        assert open_tokenizer(out).encode(text) == ids
    assert theirs.eos_token_id == ours.eos_id == 2
    assert open_tokenizer(out).agrees_with(ours)


def test_the_folder_says_what_it_is(make_run, tmp_path):
    run, out = make_run(), tmp_path / "hf"
    run.log({"step": 1, "tokens": 640, "val/loss": 4.25, "val/bpb": 1.5})
    run.log({"step": 2, "tokens": 1280, "val/loss": 4.5, "val/bpb": 1.75})
    export.main([str(run.path), "--to", "hf", str(out)])
    assert {p.name for p in out.iterdir()} == {
        "README.md", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
    }  # fmt: skip
    card = (out / "README.md").read_text(encoding="utf-8")
    for fact in ("standard library", "640 tokens", "4.2500 nats", "1.5000 bits"):
        assert fact in card
    found = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert found["rope_theta"] == found["rope_parameters"]["rope_theta"] == 10000.0
    assert found["torch_dtype"] == found["dtype"] == "float32"
    assert json.loads((out / "generation_config.json").read_text(encoding="utf-8")) == {
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


@pytest.mark.parametrize("tied", [False, True])
def test_shards(tied, make_run, tmp_path, monkeypatch):
    run, out = make_run(tie_embeddings=tied), tmp_path / "hf"
    monkeypatch.setattr(export, "SHARD", 100_000)
    export.main([str(run.path), "--to", "hf", str(out)])
    files = sorted(out.glob("*.safetensors"))
    assert len(files) >= 4 and not (out / "model.safetensors").exists()
    assert all(f.stat().st_size < 100_000 + 4096 for f in files)
    index = json.loads((out / "model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["metadata"]["total_size"] == sum(w.nbytes for w in run.load_weights().values())
    assert index["weight_map"] == {k: f.name for f in files for k in load_file(f)}
    theirs = AutoModelForCausalLM.from_pretrained(out)
    torch.testing.assert_close(logits(theirs), logits(load(run)), rtol=0, atol=1e-4)
    export.main([str(out), "--to", "run", str(tmp_path / "back")])
    assert equal(RunDir.open(tmp_path / "back").load_weights(), run.load_weights())


# --- in: Hugging Face -----------------------------------------------------------------------------

THEIRS = dict(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
    num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=POSITIONS,
    rms_norm_eps=1e-5, tie_word_embeddings=False,
)  # fmt: skip
BEFORE = {"factor": 4.0, "original_max_position_embeddings": 16}


@pytest.fixture
def their_folder(tmp_path, tokenizer_file):
    """A random model of transformers' own making, saved by its own code."""

    def their_folder(dtype=torch.float32, shards=None, kind=LlamaConfig, **changes):
        torch.manual_seed(0)
        config = kind(**(THEIRS | {"initializer_range": 0.2} | changes))
        model = AutoModelForCausalLM.from_config(config).to(dtype).eval()
        folder = tmp_path / "theirs"
        model.save_pretrained(folder, max_shard_size=shards or "5GB")
        shutil.copy(tokenizer_file, folder)
        return folder, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    return their_folder


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": torch.bfloat16, "shards": "50KB"},
        {"tie_word_embeddings": True, "num_key_value_heads": 1, "num_hidden_layers": 1},
        {"head_dim": 12, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 1e4}},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        {"rope_parameters": {"rope_type": "yarn", **BEFORE, "rope_theta": 1e4, "beta_fast": 4}},
        {"rope_parameters": {"rope_type": "llama3", **BEFORE, "rope_theta": 5e3,
                             "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
        {"kind": transformers.MistralConfig, "sliding_window": None},
        {"dtype": torch.float16, "vocab_size": VOCAB + 6},
    ],
    ids=str,
)  # fmt: skip
def test_a_model_of_theirs_is_ours_and_theirs_again(changes, their_folder, tmp_path):
    folder, theirs = their_folder(**changes)
    export.main([str(folder), "--to", "run", str(tmp_path / "ours")])
    run = RunDir.open(tmp_path / "ours")
    length = POSITIONS * 2 if "dynamic" in str(changes) else POSITIONS
    found, expected = logits(load(run), length=length), logits(theirs, length=length)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    export.main([str(run.path), "--to", "hf", str(tmp_path / "again")])
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) == 1 or "shards" in changes
    before = {k: t for file in files for k, t in load_file(file).items()}
    assert equal(before, load_file(tmp_path / "again" / "model.safetensors"))


def test_old_folders_bring_a_table_that_is_not_a_weight(their_folder, tmp_path):
    folder, theirs = their_folder()
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, file)
    export.main([str(folder), "--to", "run", str(tmp_path / "ours")])
    run = RunDir.open(tmp_path / "ours")
    torch.testing.assert_close(logits(load(run)), logits(theirs), rtol=0, atol=1e-4)


def rewrite(file: Path, change) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def edit(file: Path, **fields) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(content | fields), encoding="utf-8")


Q_BIAS = "model.layers.1.self_attn.q_proj.bias"
DOWN = "model.layers.2.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "model.safetensors").unlink(), ["model.safetensors is missing"]),
        (
            lambda f: rewrite(
                f / "model.safetensors", lambda t: t.update({Q_BIAS: torch.ones(48)})
            ),
            ["model.safetensors", Q_BIAS],
        ),
        (
            lambda f: rewrite(f / "model.safetensors", lambda t: t.pop(DOWN)),
            ["model.safetensors", DOWN, "in none of"],
        ),
        (
            lambda f: rewrite(
                f / "model.safetensors", lambda t: t.update({DOWN: t[DOWN][:, 1:].clone()})
            ),
            ["model.safetensors", DOWN, "(48, 79)", "(48, 80)"],
        ),
        (
            lambda f: rewrite(
                f / "model.safetensors", lambda t: t.update({DOWN: t[DOWN].to(torch.int8)})
            ),
            ["model.safetensors", DOWN, "I8"],
        ),
        (lambda f: os.truncate(f / "model.safetensors", 9999), ["model.safetensors", "cut short"]),
        (lambda f: os.truncate(f / "model.safetensors", 5), ["model.safetensors", "cut short"]),
        (
            lambda f: edit(f / "config.json", tie_word_embeddings=True),
            ["lm_head.weight", "tie_word"],
        ),
        (lambda f: edit(f / "config.json", attention_bias=True), ["config.json", "attention_bias"]),
        (lambda f: edit(f / "config.json", vocab_size=300), ["lm_head.weight", "(300, 48)"]),
        (
            lambda f: (f / "config.json").write_text("{", encoding="utf-8"),
            ["config.json is damaged"],
        ),
        (lambda f: (f / "config.json").unlink(), ["neither config.json", "params.json"]),
        (lambda f: (f / "tokenizer.model").unlink(), ["has no tokenizer"]),
        (lambda f: (f / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\n"), ["tokenizer.json"]),
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), ["can run code"]),
    ],
    ids=[*"abcdefghijklmno"],
)
def test_damaged_folders_are_refused_and_leave_nothing(
    damage, words, their_folder, tmp_path, refused
):
    folder, _ = their_folder()
    damage(folder)
    refused(folder, "run", tmp_path / "ours", str(folder), *words)


def test_a_missing_shard_is_named_with_a_tensor_of_it(their_folder, tmp_path, refused):
    folder, _ = their_folder(shards="50KB")
    second = sorted(folder.glob("model-*.safetensors"))[1]
    held = next(iter(load_file(second)))
    rewrite(second, lambda tensors: tensors.pop(held))
    refused(folder, "run", tmp_path / "ours", second.name, held, "index.json")
    second.unlink()
    refused(folder, "run", tmp_path / "ours", second.name, held, "is missing")


@pytest.mark.parametrize("elsewhere", ["../outside.safetensors", "/etc/passwd", "..", 7])
def test_an_index_that_leads_out_of_the_folder_is_refused(
    elsewhere, their_folder, tmp_path, refused
):
    folder, _ = their_folder(shards="50KB")
    index = folder / "model.safetensors.index.json"
    shutil.copy(next(folder.glob("model-*.safetensors")), tmp_path / "outside.safetensors")
    weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    edit(index, weight_map=weight_map | {DOWN: elsewhere})
    words = [DOWN, str(elsewhere)] + (["is missing"] if elsewhere == ".." else ["outside of"])
    refused(folder, "run", tmp_path / "ours", *words)
    edit(index, weight_map={})
    refused(folder, "run", tmp_path / "ours", index.name, "damaged")


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(their_folder, tmp_path, refused):
    folder, _ = their_folder(vocab_size=VOCAB - 1)
    refused(folder, "run", tmp_path / "ours", "ids up to 329", "329 embeddings")


# --- in: Meta -------------------------------------------------------------------------------------


def meta_folder(folder: Path, run: RunDir, parts: int, columns: bool) -> Path:
    """As model parallelism over `parts` processes leaves it behind."""
    folder.mkdir()
    config = load_config(run.path / "config.yaml").model
    weights = run.load_weights()
    for n in range(parts):
        cut = {"rope.freqs": config.theta ** -(torch.arange(0, 8, 2) / 8)}
        for name, w in weights.items():
            across = name.endswith(("wo.weight", "w2.weight"))
            across |= name == "tok_embeddings.weight" and columns
            cut[name] = w if w.ndim == 1 else w.chunk(parts, dim=int(across))[n].clone()
        torch.save(cut, folder / f"consolidated.{n:02}.pth")
    params = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "norm_eps": config.norm_eps,
              "vocab_size": -1, "multiple_of": 16}  # fmt: skip
    (folder / "params.json").write_text(json.dumps(params), encoding="utf-8")
    shutil.copy(run.path / "tokenizer.model", folder)
    return folder


@pytest.mark.parametrize(("parts", "columns"), [(1, False), (2, False), (2, True)])
def test_metas_folders_are_read_however_they_were_cut(parts, columns, make_run, tmp_path):
    run = make_run(dtype=torch.bfloat16)
    folder = meta_folder(tmp_path / "meta", run, parts, columns)
    export.main([str(folder), "--to", "run", str(tmp_path / "new")])
    found = RunDir.open(tmp_path / "new")
    assert equal(found.load_weights(), run.load_weights())
    assert torch.equal(logits(load(found)), logits(load(run)))
    assert open_tokenizer(found.path).prefix_ids == [1]  # Llama begins every text with BOS


class Touch:
    """A pickle that does something when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_that_executes_does_not(make_run, tmp_path, refused):
    folder = meta_folder(tmp_path / "meta", make_run(), 1, False)
    torch.save({"tok_embeddings.weight": Touch(tmp_path / "ran")}, folder / "consolidated.00.pth")
    refused(folder, "run", tmp_path / "new", "consolidated.00.pth", "could run code")
    assert not (tmp_path / "ran").exists()


def test_metas_folders_that_do_not_fit_are_refused(make_run, tmp_path, refused):
    folder, out = meta_folder(tmp_path / "meta", make_run(), 2, False), tmp_path / "new"
    first, second = (folder / f"consolidated.{n:02}.pth" for n in range(2))
    whole = second.read_bytes()
    second.unlink()
    refused(folder, "run", out, str(first), "attention.wk.weight", "(8, 48)")
    second.write_bytes(whole)
    first.rename(folder / "kept")
    refused(folder, "run", out, "consolidated.00.pth is missing")
    (folder / "kept").rename(first)
    os.truncate(second, 5000)
    refused(folder, "run", out, str(second), "damaged")
    weights = torch.load(first)
    torch.save(weights | {"norm.weight": weights["norm.weight"] + 1}, second)
    refused(folder, "run", out, str(second), str(first), "norm.weight")
    torch.save({k: v for k, v in weights.items() if k != "layers.1.ffn_norm.weight"}, second)
    refused(folder, "run", out, str(second), "layers.1.ffn_norm.weight")
    second.write_bytes(whole)
    edit(folder / "params.json", rope_theta=5e5)
    refused(folder, "run", out, str(first), "rope.freqs", "500000")
    edit(folder / "params.json", rope_theta=1e4, use_scaled_rope=True)
    refused(folder, "run", out, "params.json", "rope_scaling_factor")


# --- out: GGUF ------------------------------------------------------------------------------------


def read_gguf(file):
    reader = gguf.GGUFReader(file)
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    return fields, {t.name: t for t in reader.tensors}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_holds_every_tensor_and_field(dtype, tied, make_run, tmp_path):
    shape = {"dim": 64, "head_dim": 16, "n_heads": 4, "hidden_dim": 96, "vocab_size": VOCAB}
    run, out = make_run(tie_embeddings=tied, theta=5e3, **shape), tmp_path / "out.gguf"
    export.main([str(run.path), "--to", "gguf", str(out), "--dtype", dtype])
    fields, tensors = read_gguf(out)
    weights = run.load_weights()
    names = interop.names(load_config(run.path / "config.yaml").model, "gguf")
    assert tensors.keys() == set(names.values())
    for name, w in weights.items():
        found = tensors[names[name]]
        kind = dtype if w.ndim > 1 else "f32"
        assert found.tensor_type.name == kind.upper()
        assert found.shape.tolist() == list(reversed(w.shape))
        values = torch.from_numpy(gguf.quants.dequantize(found.data, found.tensor_type).copy())
        if kind == "q8_0":  # 8 bits of the largest of a block of 32, whose scale is a float16
            step = w.unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True) / 127
            error = (values - w).unflatten(-1, (-1, 32)).abs()
            assert (error <= 0.51 * step + 127 * step / 2**11).all()
            assert error.max() > 0
        else:
            exact = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[kind]
            assert torch.equal(values, w.to(exact).float())

    tokenizer = Tokenizer(run.path / "tokenizer.model")
    tokens, scores, kinds = (
        fields.pop(f"tokenizer.ggml.{x}") for x in ("tokens", "scores", "token_type")
    )
    reference = sentencepiece.SentencePieceProcessor(str(run.path / "tokenizer.model"))
    assert tokens == [reference.id_to_piece(i) for i in range(VOCAB)]
    assert scores == pytest.approx([reference.get_score(i) for i in range(VOCAB)])
    assert kinds == [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)
    assert tokenizer.vocab_size == VOCAB
    assert fields == {
        "general.architecture": "llama",
        "general.name": "ours",
        "general.file_type": {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7}[dtype],
        "general.quantization_version": 2,
        "llama.vocab_size": VOCAB,
        "llama.context_length": POSITIONS,
        "llama.embedding_length": 64,
        "llama.block_count": 3,
        "llama.feed_forward_length": 96,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 16,
        "llama.attention.value_length": 16,
        "llama.attention.layer_norm_rms_epsilon": pytest.approx(1e-5),
        "llama.rope.dimension_count": 16,
        "llama.rope.freq_base": pytest.approx(5e3),
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.remove_extra_whitespaces": False,
    }


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (
            RopeScaling("linear", 4.0, 16),
            {"type": "linear", "factor": 4.0, "original_context_length": 16},
        ),
        (
            RopeScaling("yarn", 4.0, 16, beta_fast=6.0),
            {"type": "yarn", "factor": 4.0, "original_context_length": 16, "yarn_beta_fast": 6.0,
             "yarn_beta_slow": 1.0},
        ),
        (RopeScaling("llama3", 4.0, 16), {}),
        (RopeScaling("ntk", 4.0, 16), {}),
    ],
)  # fmt: skip
def test_a_gguf_holds_the_scaling(scaling, expected, make_run, tmp_path):
    run, out = make_run(rope_scaling=scaling), tmp_path / "out.gguf"
    export.main([str(run.path), "--to", "gguf", str(out)])
    fields, tensors = read_gguf(out)
    start = "llama.rope.scaling."
    assert {k[len(start) :]: v for k, v in fields.items() if k.startswith(start)} == expected
    model = load_config(run.path / "config.yaml").model
    base = fields["llama.rope.freq_base"]
    if scaling.type == "ntk":
        assert base == pytest.approx(1e4 * 4 ** (8 / 6))
    else:
        assert base == 1e4
    assert ("rope_freqs.weight" in tensors) == (scaling.type == "llama3")
    if scaling.type == "llama3":
        factors = torch.from_numpy(tensors["rope_freqs.weight"].data.copy())
        assert torch.equal(factors, interop.gguf_rope_factors(model))


def test_what_a_gguf_cannot_hold_is_refused(make_run, tmp_path, refused):
    out = tmp_path / "out.gguf"
    refused(make_run().path, "gguf", out, "--dtype q8_0", "tok_embeddings.weight", "rows of 48",
            options=["--dtype", "q8_0"])  # fmt: skip
    alibi = make_run("alibi", position="alibi")
    refused(alibi.path, "gguf", out, str(alibi.path), "model.position alibi")
    refused(alibi.path, "hf", out, str(alibi.path), "model.position alibi")
    refused(alibi.path, "hf", out, "--dtype has no effect", options=["--dtype", "f16"])
    refused(alibi.path, "hf", alibi.path, "is there already")
    refused(tmp_path, "hf", out, "run.json is missing")
    refused(tmp_path / "none", "run", tmp_path / "new", "is no folder")
    refused(alibi.path / "config.yaml", "run", tmp_path / "new", "is no folder")


# --- a disk without room --------------------------------------------------------------------------


def test_too_little_room_is_said_before_anything_is_written(
    make_run, their_folder, tmp_path, refused, monkeypatch
):
    run, (folder, _) = make_run(), their_folder()
    usage = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    for source, to in ((run.path, "hf"), (run.path, "gguf"), (folder, "run")):
        refused(source, to, tmp_path / "out", "0.1 MB free", "make room")


@pytest.mark.parametrize("to", ["hf", "gguf", "run"])
def test_a_disk_that_fills_up_leaves_nothing(to, make_run, their_folder, tmp_path, refused):
    """The system refuses the write that passes a limit, as a full disk would."""
    source = their_folder()[0] if to == "run" else make_run().path
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        refused(
            source,
            to,
            tmp_path / "out",
            str(tmp_path / "out"),
            "File too large" if to != "gguf" else "written",
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("to", ["hf", "gguf", "run"])
def test_whoever_stops_it_finds_nothing(
    to, number, code, make_run, their_folder, tmp_path, monkeypatch
):
    source = their_folder()[0] if to == "run" else make_run().path
    before, seen = sorted(tmp_path.rglob("*")), []

    def interrupted(tensor, *args):
        seen.append(any(p.name == ".out.tmp" for p in (tmp_path / "in").iterdir()))
        os.kill(os.getpid(), number)
        return tensor

    # What all weights pass on their way.
    monkeypatch.setattr(interop, "relayout", interrupted)
    monkeypatch.setattr(gguf.quants, "quantize", interrupted)
    (tmp_path / "in").mkdir()
    with pytest.raises(SystemExit) as exit:
        export.main([str(source), "--to", to, str(tmp_path / "in" / "out")])
    assert exit.value.code == code and seen == [True]
    (tmp_path / "in").rmdir()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_refusal_makes_no_folder(make_run, their_folder, tmp_path, refused):
    run, (folder, _) = make_run(n_heads=6, dim=48), their_folder()
    refused(run.path, "gguf", tmp_path / "new" / "out", "q8_0", options=["--dtype", "q8_0"])
    edit(folder / "config.json", mlp_bias=True)
    refused(folder, "run", tmp_path / "new" / "ours", "mlp_bias")
    assert not (tmp_path / "new").exists()


# --- imported tokenizers, generation and fine-tuning ----------------------------------------------


def save_llama2(folder: Path) -> None:
    """A tokenizer.model as Meta's: a space in front, nothing else changed."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((TEXT * 5).splitlines()), model_prefix=str(folder / "tokenizer"),
        model_type="bpe", vocab_size=VOCAB, byte_fallback=True, minloglevel=3,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
    )  # fmt: skip
    (folder / "tokenizer.vocab").unlink()
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def save_llama2_json(folder: Path) -> None:
    """The same with what transformers makes of it beside it."""
    save_llama2(folder)
    (folder / "tokenizer_config.json").unlink()
    with tempfile.TemporaryDirectory() as spare:
        shutil.copy(folder / "tokenizer.model", spare)
        tokenizer = transformers.LlamaTokenizer.from_pretrained(spare, add_bos_token=True)
        tokenizer.save_pretrained(folder)


def save_llama3(folder: Path) -> None:
    """Byte-level byte pairs, special tokens behind them, and BOS from the post-processor."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(r"\p{N}{1,3}| ?\p{L}+|\s+"), "isolated"
    )
    bytes_ = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, bytes_])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB - 3, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator([TEXT], trainer)
    start, end = "<|begin_of_text|>", "<|end_of_text|>"
    tokenizer.add_special_tokens([start, end])
    tokenizer.add_tokens(["<think>"])
    bos = tokenizer.token_to_id(start)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, bos)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=start, eos_token=end
    )
    fast.save_pretrained(folder)


KINDS = {"llama2": save_llama2, "llama2-json": save_llama2_json, "llama3": save_llama3}


@pytest.fixture(params=KINDS)
def imported(request, their_folder, tmp_path):
    """(a run from transformers' own model and tokenizer, their folder)."""
    folder, _ = their_folder(vocab_size=VOCAB + 6)
    (folder / "tokenizer.model").unlink()
    KINDS[request.param](folder)
    export.main([str(folder), "--to", "run", str(tmp_path / "imported")])
    return RunDir.open(tmp_path / "imported"), folder


def test_imported_tokenizers_give_the_ids_of_their_reference(imported, tmp_path):
    """transformers, and for a sentencepiece file sentencepiece: the two differ where a text begins
    with a space or spells a special token."""
    run, folder = imported
    ours, auto = open_tokenizer(run.path), AutoTokenizer.from_pretrained(folder)
    assert ours.prefix_ids == [auto.bos_token_id] and ours.eos_id == auto.eos_token_id
    special = [auto.bos_token + "a" + auto.eos_token, "<think> b"]
    reference = {text: auto(text)["input_ids"] for text in ODD + special}
    if type(ours) is Tokenizer:
        sp = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
        same = [t for t in ODD if t == t.lstrip(" \u2581") and "</s>" not in t]
        assert len(same) > 9
        for text in same:
            assert sp.encode(text, add_bos=True) == reference[text], text
        reference = {text: sp.encode(text, add_bos=True) for text in reference}
    for text, ids in reference.items():
        assert ours.prefix_ids + ours.encode(text) == ids, text
        if text == text.lstrip(" ") and "\u2581" not in text and text not in special:
            assert "</s>" in text or ours.decode(ids) == text
    # And once more around.
    export.main([str(run.path), "--to", "hf", str(tmp_path / "again")])
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    for text, ids in reference.items():
        assert again(text)["input_ids"] == ids, text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model_type": "bpe", "user_defined_symbols": ["<sep>"]}, ["(0 of ", "'<sep>'"]),
        ({"model_type": "unigram", "hard_vocab_limit": False}, ["(-", "do not number"]),
    ],
)
def test_pieces_whose_scores_are_not_those_of_merges_are_refused(
    options, words, make_run, tmp_path, refused
):
    """Merges alone would give other ids in silence."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((TEXT * 5).splitlines()), model_prefix=str(tmp_path / "tokenizer"),
        vocab_size=VOCAB, byte_fallback=True, minloglevel=3, add_dummy_prefix=False,
        normalization_rule_name="identity", remove_extra_whitespaces=False, **options,
    )  # fmt: skip
    run = make_run(tokenizer=tmp_path / "tokenizer.model")
    for to in ("hf", "gguf"):
        refused(run.path, to, tmp_path / "out", *words, "other ids")


def test_likelihoods_that_all_differ_are_no_merges_either(make_run, tmp_path, refused):
    """A unigram model whose scores could number merges, and do not."""
    rng = random.Random(300)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 5))) for _ in range(60)]
    often = [1 / n for n in range(1, 61)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(rng.choices(words, often, k=9)) for _ in range(2000)]),
        model_prefix=str(tmp_path / "tokenizer"), model_type="unigram", vocab_size=VOCAB,
        hard_vocab_limit=False, byte_fallback=True, minloglevel=3, add_dummy_prefix=False,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
    )  # fmt: skip
    run = make_run(tokenizer=tmp_path / "tokenizer.model")
    assert Tokenizer(run.path / "tokenizer.model").pieces()  # not refused for its scores
    for to in ("hf", "gguf"):
        refused(run.path, to, tmp_path / "out", "is it not a list of byte pairs?")


def test_two_files_that_differ_in_one_piece_do_not_agree(make_run, tmp_path):
    run, out = make_run(), tmp_path / "hf"
    export.main([str(run.path), "--to", "hf", str(out)])
    ours = open_tokenizer(run.path)
    assert ours.agrees_with(open_tokenizer(out))
    model = json.loads((out / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    rare = max((p for p in model["vocab"] if p.isalpha()), key=len)  # no word of the probe
    model["merges"] = [pair for pair in model["merges"] if "".join(pair) != rare]
    edit(out / "tokenizer.json", model=model)
    assert not ours.agrees_with(open_tokenizer(out))


def test_tokens_beside_a_sentencepiece_file_are_refused(their_folder, tmp_path, refused):
    folder, _ = their_folder(vocab_size=VOCAB + 6)
    added = {"added_tokens_decoder": {str(VOCAB): {"content": "<pad>"}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(added), encoding="utf-8")
    refused(folder, "run", tmp_path / "ours", "'<pad>'", "tokenizer_config.json")


def test_generation_ends_where_the_imported_tokenizer_says(imported, capsys):
    run, _ = imported
    tokenizer, model = open_tokenizer(run.path), load(run)
    prompt = tokenizer.prefix_ids + tokenizer.encode("def f(x")
    [ids] = generate(
        model, [prompt], Sampling(temperature=0), max_new_tokens=12, eos_id=None, seed=0
    )
    n = next(n for n in range(3, 12) if ids[n] not in [*ids[:n], tokenizer.eos_id])
    swapped = model.output.weight.detach().clone()
    swapped[[ids[n], tokenizer.eos_id]] = swapped[[tokenizer.eos_id, ids[n]]]
    run.save("best", run.load_weights() | {"output.weight": swapped})
    generate_script.main(
        ["--run", str(run.path), "--prompt", "def f(x", "--temperature", "0",
         "--max-new-tokens", "12", "--device", "cpu"]
    )  # fmt: skip
    text = b"".join(tokenizer.piece(i) for i in ids[:n]).decode(errors="replace")
    assert capsys.readouterr().out == f"def f(x{text}\n"


def test_generation_from_an_imported_model_is_theirs(imported, capsys):
    run, folder = imported
    theirs, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    ids = tokenizer("def f(x", return_tensors="pt")["input_ids"]
    new = theirs.generate(ids, max_new_tokens=20, do_sample=False)[0, ids.shape[1] :]
    generate_script.main(
        ["--run", str(run.path), "--prompt", "def f(x", "--temperature", "0",
         "--max-new-tokens", "20", "--device", "cpu"]
    )  # fmt: skip
    ours = open_tokenizer(run.path)
    text = b"".join(ours.piece(i) for i in new.tolist()).decode(errors="replace")
    assert capsys.readouterr().out == f"def f(x{text}\n"


def test_a_gguf_of_an_imported_model(imported, tmp_path, refused):
    run, _ = imported
    if not (run.path / "tokenizer.model").exists():
        refused(run.path, "gguf", tmp_path / "out.gguf", "tokenizer.json", "convert_hf_to_gguf")
        return
    export.main([str(run.path), "--to", "gguf", str(tmp_path / "out.gguf")])
    fields, _ = read_gguf(tmp_path / "out.gguf")
    assert fields["tokenizer.ggml.add_space_prefix"] and fields["tokenizer.ggml.add_bos_token"]
    assert fields["tokenizer.ggml.tokens"][VOCAB:] == [f"[PAD{i}]" for i in range(VOCAB, VOCAB + 6)]
    assert fields["tokenizer.ggml.token_type"][VOCAB:] == [5] * 6


def test_fine_tuning_from_an_imported_model(imported, tmp_path):
    run, _ = imported
    (tmp_path / "text.txt").write_text(TEXT * 60, encoding="utf-8")
    (tmp_path / "tune.yaml").write_text(
        "model: {dim: 32, n_heads: 2, position: alibi}\n", encoding="utf-8"
    )
    words = [
        "--config", str(tmp_path / "tune.yaml"), "--data.files", str(tmp_path / "text.txt"),
        "--data.prepared", str(tmp_path / "prepared"), "--data.seq_len", "20",
        "--data.val_fraction", "0.5",
        "--train.batch_size", "6", "--train.eval_interval", "4", "--train.sample_tokens", "4",
        "--train.dtype", "float32", "--train.device", "cpu", "--log.runs", str(tmp_path / "runs"),
        "--log.wandb", "disabled", "--optim.warmup_steps", "1", "--train.steps", "8",
    ]  # fmt: skip

    def start(*more):
        with pytest.raises(SystemExit) as exit:
            train.main(list(more))
        return exit.value.code

    def losses(name):
        points = RunDir.open(tmp_path / "runs" / name).metrics()
        return [point["train/loss"] for point in points if "train/loss" in point]

    step = train.Trainer.step

    def stopped(trainer, *args):
        if trainer.count["step"] == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(trainer, *args)

    begin = ["--init-from", str(run.path), *words]
    assert start(*begin, "--name", "whole") == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.Trainer, "step", stopped)
        assert start(*begin, "--name", "cut") == 128 + signal.SIGTERM
    os.rename(run.path, tmp_path / "elsewhere")  # what it came from is not needed again
    assert start("--resume", str(tmp_path / "runs" / "cut")) == 0
    os.rename(tmp_path / "elsewhere", run.path)
    assert losses("cut") == losses("whole") and len(losses("whole")) == 8
    assert losses("whole")[-1] < losses("whole")[0]

    whole = RunDir.open(tmp_path / "runs" / "whole")
    config = load_config(whole.path / "config.yaml")
    assert config.model == load_config(run.path / "config.yaml").model
    assert {f.name: f.read_bytes() for f in whole.path.glob("tokenizer*")} == {
        f.name: f.read_bytes() for f in run.path.glob("tokenizer*")
    }
    # The first loss is that of the imported weights, on what the imported tokenizer makes.
    data = prepare(config.data)
    x, y = data.dataset("train", batch_size=6, seed=config.seed, seq_len=20).batch(0)
    with torch.no_grad():
        expected = train.summed_loss(load(run)(x), y).item() / y.numel()
    assert losses("whole")[0] == pytest.approx(expected, abs=1e-4)
    ids, _ = next(iter(data.dataset("val", seq_len=20).windows(1)))
    tokenizer = open_tokenizer(run.path)
    assert ids[0, 0] == tokenizer.eos_id and ids[0, 1] == tokenizer.bos_id
    text = whole.path.parent.parent / "text.txt"
    assert tokenizer.decode(ids[0].tolist()).strip() in text.read_text(encoding="utf-8")
    # It goes on from there like any other run, out again included.
    export.main([str(whole.path), "--to", "hf", str(tmp_path / "tuned")])
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "tuned")
    torch.testing.assert_close(logits(theirs), logits(load(whole)), rtol=0, atol=1e-4)
    evaluate.measure(whole, windows=1, device="cpu")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--model.dim", "24"], "--model.dim cannot be given with --init-from"),
        (["--model.n_layers=1"], "--model.n_layers cannot be given with --init-from"),
        (["--data.vocab_size", "999"], "--data.vocab_size cannot be given with --init-from"),
        (["--resume", "x"], "leave out --init-from"),
        (["--data.tokenizer=x"], "--data.tokenizer cannot be given with --init-from"),
    ],
)
def test_what_the_weights_pin_down_cannot_change(more, words, make_run, capsys):
    with pytest.raises(SystemExit) as exit:
        train.main(["--init-from", str(make_run().path), *more])
    assert exit.value.code == 2 and words in capsys.readouterr().err


def test_an_imported_run_is_neither_resumed_nor_evaluated(their_folder, tmp_path, capsys):
    folder, _ = their_folder()
    export.main([str(folder), "--to", "run", str(tmp_path / "ours")])
    with pytest.raises(SystemExit):
        train.main(["--resume", str(tmp_path / "ours")])
    assert "start from it with --init-from" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit:
        evaluate.main([str(tmp_path / "ours")])
    assert exit.value.code == 2
    assert "imported and has no validation text" in capsys.readouterr().err


def test_tensors_pass_through_memory_one_by_one(tmp_path):
    alive = []

    def tensors():
        for _ in range(4):
            assert sum(reference() is not None for reference in alive) <= 1
            tensor = torch.ones(3, 5)
            alive.append(weakref.ref(tensor))
            yield tensor
            del tensor

    shapes = {f"t{n}": (torch.float32, (3, 5)) for n in range(4)}
    tensorfiles.write_safetensors(tmp_path / "a.safetensors", shapes, tensors())
    assert equal(load_file(tmp_path / "a.safetensors"), {name: torch.ones(3, 5) for name in shapes})


def test_nobody_pays_for_what_they_do_not_use():
    code = (
        "import sys, train, generate, export; "
        "sys.exit(' '.join({'gguf', 'tokenizers', 'transformers'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_init_from_in_a_configuration_is_no_way_round(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text("init_from: runs/x\n", encoding="utf-8")
    with pytest.raises(SystemExit) as exit:
        train.main(["--config", str(tmp_path / "a.yaml")])
    assert exit.value.code == 2 and "say --init-from runs/x" in capsys.readouterr().err
