"""Untrained models on the disk: runs of ours, and folders of Hugging Face's and Meta's.

Their weights are so large that a wrong layout shows."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import gguf
import torch
from builders import error_lines, exit_code, model_config, parse_config, randn, untrained_run
from random_runs import save_weights
from safetensors.torch import load_file, save_file
from saved_tokenizers import SAVE
from small_tokenizers import VOCAB, train_tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

import export
from data.tokenizer import open_tokenizer
from files import read_json
from formats.gguf import model_fields
from formats.names import tensor_names
from gyre.load import load as load_run
from gyre.rundir import RunDir
from gyre.yaml_files import read_config
from model.config import ModelConfig
from model.rope import rope_frequencies
from model.transformer import Transformer

POSITIONS = 64  # as in builders' SIZES
THEIR_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 3, "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "initializer_range": 0.2}

# params.json of such a run.
META_PARAMS = {"dim": 48, "n_layers": 2, "n_heads": 6, "n_kv_heads": 3, "norm_eps": 1e-5}


def export_to(to: str, source: Path, target: Path, *options: str) -> Path:
    """`python export.py SOURCE --to TO TARGET ...`, which has to succeed; returns the target."""
    assert exit_code(export.main, source, "--to", to, target, *options) == 0
    return target


def assert_refused(capsys, to, source, target, *words, options=()) -> None:
    """Exit 2 and one line that holds all of the words, and not a file more or less than before."""

    def files():
        return {p: p.stat().st_mtime_ns for p in target.parent.rglob("*")}

    before = files()
    (message,) = error_lines(capsys, export.main, source, "--to", to, target, *options)
    for word in words:
        assert word in message, message
    assert files() == before


def untied(**changes: Any) -> ModelConfig:
    """Other people's models with our names for THEIR_SIZES, and these fields changed."""
    return model_config(**{"tie_embeddings": False, "n_layers": 2, "n_kv_heads": 3, **changes})


MADE = TemporaryDirectory(prefix="gyre-tests-")  # until the process ends


def copy_made(make: Callable[..., object], folder: Path, *args: Any, **options: Any) -> None:
    """Put into `folder` what `make(folder, ...)` puts there. It is made once and copied then."""
    call = repr((make.__name__, args, sorted(options.items())))
    made = Path(MADE.name) / hashlib.sha256(call.encode()).hexdigest()
    if not made.exists():
        making = Path(mkdtemp(dir=MADE.name))
        make(making, *args, **options)
        making.rename(made)
    shutil.copytree(made, folder, dirs_exist_ok=True)


def make_run(folder: Path, name: str = "ours", **options: Any) -> RunDir:
    """A run with random weights: the model of `untied`, and what `options` change."""
    copy_made(make_new_run, folder, name, **options)
    return RunDir.open(folder / name)


def make_new_run(folder: Path, name: str, *, dtype=torch.float32,
                 tokenizer: Path | None = None, **model: Any) -> RunDir:
    """The same; `options` are `dtype`, `tokenizer` and fields of ModelConfig."""
    tokenizer = tokenizer or train_tokenizer(folder)
    pieces = open_tokenizer(tokenizer.parent).vocab_size
    config = parse_config(f"--data.vocab_size={pieces}", "--train.sample_tokens=0")
    config = replace(config, model=untied(**{"vocab_size": pieces, **model}))
    run = untrained_run(folder, name, tokenizer, config)
    model_of_run = Transformer(config.model)
    model_of_run.init_weights(1)
    weights = {}
    for seed, (key, weight) in enumerate(model_of_run.state_dict().items()):
        large = 8 * weight if weight.ndim > 1 else weight + 0.3 * randn(*weight.shape, seed=seed)
        weights[key] = large.to(dtype)
    save_weights(run, "best", weights)
    return run


def load_model(run: RunDir) -> Transformer:
    return load_run(run, device="cpu").model


def their_folder(folder: Path, tokenizer: str = "ours", **options: Any) -> Path:
    """A random model of transformers' own making, saved by its own code, with this tokenizer: ours,
    or another that SAVE names, for which the model has 6 ids more."""
    copy_made(make_their_folder, folder, tokenizer, **options)
    return folder / f"theirs-{tokenizer}"


def make_their_folder(folder: Path, tokenizer: str, *, dtype=torch.float32, shards="5GB",
                      kind=LlamaConfig, **changes: Any) -> None:
    """The same; `options` are `dtype`, `shards`, `kind` and fields of its configuration."""
    torch.manual_seed(0)
    vocab_size = VOCAB if tokenizer == "ours" else VOCAB + 6
    sizes = THEIR_SIZES | {"vocab_size": vocab_size} | changes
    model = AutoModelForCausalLM.from_config(kind(**sizes)).to(dtype)
    folder = folder / f"theirs-{tokenizer}"
    model.save_pretrained(folder, max_shard_size=shards)
    SAVE[tokenizer](folder)


def exported(tmp_path: Path, *options: str, **model: Any) -> tuple[RunDir, Path]:
    """(a run as `make_run` makes it, a folder of theirs exported from it)."""
    copy_made(make_export, tmp_path, *options, **model)
    return RunDir.open(tmp_path / "ours"), tmp_path / "hf"


def make_export(folder: Path, *options: str, **model: Any) -> None:
    """A run in `ours`, and what is exported from it in `hf`."""
    run = make_run(folder, **model)
    export_to("hf", run.path, folder / "hf", *options)


def reexport(folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """(a run imported from their folder, a folder of theirs exported from that run)."""
    run = export_to("run", folder, tmp_path / "ours")
    return run, export_to("hf", run, tmp_path / "hf")


def imported(tmp_path: Path, tokenizer: str) -> tuple[RunDir, Path]:
    """(a run from transformers' own model with such a tokenizer, their folder)."""
    copy_made(make_import, tmp_path, tokenizer)
    return RunDir.open(tmp_path / "imported"), tmp_path / f"theirs-{tokenizer}"


def make_import(folder: Path, tokenizer: str) -> None:
    """Their folder, and what is imported from it in `imported`."""
    export_to("run", their_folder(folder, tokenizer), folder / "imported")


def meta_folder(folder: Path, run: RunDir, parts: int, columns: bool) -> Path:
    """A folder of Meta's with the weights of a run, as `parts` parallel processes leave it behind.

    Embeddings are cut by `columns`, as Llama 2's are, or by rows."""
    folder.mkdir()
    for n in range(parts):
        cut = {"rope.freqs": rope_frequencies(8).bfloat16()}  # as Llama 2's are
        for name, w in run.checkpoints.load_weights().items():
            across = name.endswith(("wo.weight", "w2.weight")) or (columns and "tok_emb" in name)
            cut[name] = w if w.ndim == 1 else w.chunk(parts, dim=int(across))[n].clone()
        torch.save(cut, folder / f"consolidated.{n:02}.pth")
    edit_json(folder / "params.json", **META_PARAMS, vocab_size=-1, multiple_of=16)
    shutil.copy(run.path / "tokenizer.model", folder)
    return folder


def greedy(folder: Path) -> list[int]:
    """The new ids of transformers for "def f(x"."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("def f(x", return_tensors="pt")["input_ids"]
    return model.generate(ids, max_new_tokens=20, do_sample=False)[0, ids.shape[1] :].tolist()


def read_gguf(run, out, *options):
    """(fields, tensors) of the GGUF that a run is exported to."""
    reader = gguf.GGUFReader(export_to("gguf", run, out, *options))
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    return fields, {t.name: t for t in reader.tensors}


def write_gguf(file: Path, fields: dict[str, Any], tensors: dict[str, tuple[Any, str]]) -> Path:
    """A GGUF with these fields, written by the gguf package. A tensor is (its data, which may be
    quantised, and the name of its type)."""
    writer = gguf.GGUFWriter(file, fields.get("general.architecture", "llama"))
    add: dict[type, Any] = {
        bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
        str: writer.add_string, list: writer.add_array}
    for name, value in fields.items():
        if name != "general.architecture":
            add[type(value)](name, value)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def byte_level_gguf(tmp_path, fields, vocab_size=302):
    """A GGUF of a random model with the tokenizer of these fields."""
    run = make_run(tmp_path, vocab_size=vocab_size)
    model = read_config(run.path / "config.yaml").model
    names = tensor_names(model, "gguf")
    tensors = {names[name]: (weight.numpy(), "F32")
               for name, weight in run.checkpoints.load_weights().items()}
    return write_gguf(tmp_path / "file.gguf", model_fields(model) | fields, tensors)


READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
"""What the files have that were edited, by their hash: reading one takes longer than all else."""


def read_fields_and_tensors(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields and tensors of a GGUF, as `write_gguf` takes them."""
    reader = gguf.GGUFReader(file)
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    tensors = {t.name: (t.data.copy(), t.tensor_type.name) for t in reader.tensors}
    return fields, tensors


def edit_gguf(file: Path, fields: dict[str, Any], tensors: dict[str, Any] | None = None) -> Path:
    """Write a GGUF again with these fields and tensors changed or added; None takes one away."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest not in READ:
        READ[digest] = read_fields_and_tensors(file)
    before, stored = READ[digest]
    all_fields = before | fields
    all_tensors = stored | (tensors or {})
    return write_gguf(file, {name: v for name, v in all_fields.items() if v is not None},
                      {name: v for name, v in all_tensors.items() if v is not None})


def logits(model, length: int = POSITIONS) -> Tensor:
    """Over the full context."""
    tokens = torch.randint(VOCAB, (2, length), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        out = model(tokens)
    return out if isinstance(out, Tensor) else out.logits


def assert_same_logits(first, second, length: int = POSITIONS) -> None:
    torch.testing.assert_close(logits(first, length), logits(second, length), rtol=0, atol=1e-4)


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Bit by bit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def edit_json(file: Path, **fields) -> None:
    """Change or add these fields of a file of JSON, which may not be there yet."""
    before = read_json(file) if file.exists() else {}
    file.write_text(json.dumps(before | fields), encoding="utf-8")


def edit_tensors(file: Path, **tensors) -> None:
    """Change or add these tensors of a safetensors file; None takes one away."""
    changed = load_file(file) | tensors
    save_file({name: t for name, t in changed.items() if t is not None}, file)
