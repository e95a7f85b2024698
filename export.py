"""Weights out of a run, and other people's weights into one.

    python export.py runs/small-rope-s1 --to hf OUT/
    python export.py runs/small-rope-s1 --to gguf OUT.gguf --dtype q8_0
    python export.py FOLDER --to run runs/NAME

hf is a folder for transformers, vLLM and whatever else reads that; gguf a file for llama.cpp and
its kin. FOLDER is one of Hugging Face's LLaMA family, or Meta's own with consolidated.*.pth,
params.json and a tokenizer. What cannot be carried over exactly is refused by name.
"""

import argparse
import json
import math
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from data.dataset import DataConfig
from data.tokenizer import JSON, MODEL, SETTINGS, Tokenizer, open_tokenizer, tokenizer_files
from errors import UserError, exit_in_words, say
from files import atomic_path, require_space, writing
from formats import names as interop
from formats.tensors import Stored, read_json, stored_pickles, stored_safetensors, write_safetensors
from gyre.cli import Parser, load_file
from gyre.config import Config, TrainConfig
from gyre.optim import OptimConfig
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig
from model.config import ModelConfig
from model.rope import rope_frequencies

SHARD = 5 * 10**9  # bytes; what Hugging Face splits at
GGUF_TYPES = ("f32", "f16", "bf16", "q8_0")


def main(argv: list[str] | None = None) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and clean up
    with exit_in_words():
        try:
            run(parse(argv))
        except KeyboardInterrupt:
            say("\ninterrupted; nothing was left behind")
            sys.exit(130)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("source", metavar="FROM", help="A run, or a folder to import.")
    parser.add_argument("--to", required=True, choices=["hf", "gguf", "run"], help="What to make.")
    parser.add_argument("target", metavar="OUT", help="Where; it must not be there yet.")
    parser.add_argument(
        "--dtype",
        choices=GGUF_TYPES,
        help="Type of the matrices in a gguf. Default: the one that the run has.",
    )
    options = parser.parse_args(argv)
    if options.dtype is not None and options.to != "gguf":
        raise UserError(f"--dtype has no effect with --to {options.to}: weights stay as they are")
    return options


def run(options: argparse.Namespace) -> None:
    source, target = Path(options.source), Path(options.target)
    if target.exists():
        raise UserError(f"{target} is there already: choose another place, or remove it")
    if not source.is_dir():
        raise UserError(f"{source} is no folder: give a run, or a folder to import")
    if options.to == "run":
        import_folder(source, target)
        return
    exported = open_run(source, options.to)
    with writing(target, "choose another place"), atomic_path(target) as staging:
        if options.to == "hf":
            write_hf(exported, staging)
        else:
            write_gguf(exported, staging, options.dtype)
    say(f"{target}: {exported.parameters:,} parameters from {source}")


# --- a run, to be exported ------------------------------------------------------------------------


@dataclass
class Exported:
    """A run with all that an export needs, checked."""

    run: RunDir
    config: Config
    weights: dict[str, Tensor]
    tokenizer: Tokenizer

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.weights.values())

    @property
    def dtype(self) -> torch.dtype:
        """That of all weights; float32 where they differ, which holds each of them."""
        found = {weight.dtype for weight in self.weights.values()}
        return found.pop() if len(found) == 1 else torch.float32


def open_run(path: Path, to: str) -> Exported:
    """The run at `path` with its best weights. UserError where it has no counterpart in `to`."""
    run = RunDir.open(path)
    config = load_file(run.path / "config.yaml")
    try:
        interop.refuse_without_counterpart(config.model, to)
    except ValueError as error:
        raise UserError(f"{path} cannot be exported to {to}: {error}") from None
    weights = run.load_weights()
    stored = {name: Stored(path, w.dtype, tuple(w.shape), w.clone) for name, w in weights.items()}
    check(stored, interop.shapes(config.model))
    return Exported(run, config, weights, open_tokenizer(run.path))


def check(found: dict[str, Stored], expected: dict[str, tuple[int, ...]]) -> None:
    """UserError that names file and tensor, unless there is every tensor, in its shape, and no
    other."""
    for name, tensor in found.items():
        if name not in expected:
            raise UserError(
                f"{tensor.file} holds {name}, which a LLaMA has not: it cannot be left out"
            )
        if tensor.shape != expected[name]:
            raise UserError(
                f"{name} in {tensor.file} has shape {tensor.shape}, and the configuration asks for "
                f"{expected[name]}: they do not belong together, or a part is missing"
            )
    files = sorted({str(tensor.file) for tensor in found.values()}) or ["the folder"]
    for name in expected:
        if name not in found:
            raise UserError(f"{name} is in none of {', '.join(files)}: a part is missing")


# --- out: Hugging Face ----------------------------------------------------------------------------


def write_hf(exported: Exported, folder: Path) -> None:
    """A folder that stock transformers loads, without code of ours."""
    weights, names = exported.weights, interop.names(exported.config.model, "hf")
    size = sum(weight.nbytes for weight in weights.values())
    require_space(folder, size)
    folder.mkdir(parents=True)
    tokenizer, model = exported.tokenizer, exported.config.model
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    dtype = str(exported.dtype).removeprefix("torch.")
    # v4 reads torch_dtype, v5 dtype.
    fields = interop.to_hf_config(model) | ids | {"torch_dtype": dtype, "dtype": dtype}
    write_json(folder / "config.json", fields)
    write_json(folder / "generation_config.json", ids)
    write_hf_tokenizer(exported, folder)
    (folder / "README.md").write_text(model_card(exported), encoding="utf-8")

    shards: list[list[str]] = [[]]
    filled = 0
    for name in names:
        if filled + weights[name].nbytes > SHARD and shards[-1]:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += weights[name].nbytes
    files = ["model.safetensors"]
    if len(shards) > 1:
        files = [f"model-{n:05}-of-{len(shards):05}.safetensors" for n in range(1, len(shards) + 1)]
        index = {names[name]: f for f, shard in zip(files, shards, strict=True) for name in shard}
        content = {"metadata": {"total_size": size}, "weight_map": index}
        write_json(folder / "model.safetensors.index.json", content)
    with tqdm(interop.to_hf(weights, model), "writing", len(names), unit="tensor", delay=2) as bar:
        tensors = (tensor for _, tensor in bar)
        for file, shard in zip(files, shards, strict=True):
            shapes = {names[n]: (weights[n].dtype, tuple(weights[n].shape)) for n in shard}
            write_safetensors(folder / file, shapes, islice(tensors, len(shard)))


def write_json(file: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def write_hf_tokenizer(exported: Exported, folder: Path) -> None:
    """The files of an imported tokenizer as they came; ours with a tokenizer.json of the same ids.

    Ours never reads a special token out of a text, hence split_special_tokens.
    """
    for file in tokenizer_files(exported.run.path):
        shutil.copyfile(file, folder / file.name)
    if (folder / JSON).exists():
        return
    tokenizer = exported.tokenizer
    write_json(folder / JSON, tokenizer.to_json())
    pieces = [piece for piece, _, _ in tokenizer.pieces()]
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    settings |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None if tokenizer.bos_id is None else pieces[tokenizer.bos_id],
        "eos_token": pieces[tokenizer.eos_id],
        "unk_token": pieces[tokenizer.unk_id],
        "add_bos_token": bool(tokenizer.prefix_ids),
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        "model_max_length": exported.config.model.max_positions,
    }
    write_json(folder / SETTINGS, settings)
    if not tokenizer.agrees_with(open_tokenizer(folder)):
        raise UserError(
            f"{exported.run.path / MODEL} gives ids that no tokenizer.json gives: is it not a list "
            "of byte pairs?"
        )


def model_card(exported: Exported) -> str:
    """README.md: what the model was trained on, for how long, and how well it does."""
    run, config, manifest = exported.run, exported.config, exported.run.manifest
    model, data = config.model, config.data
    lines = [
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags: [llama, gyre]\n---",
        f"\n# {run.path.name}\n",
        f"A LLaMA of {exported.parameters:,} parameters: dim {model.dim}, {model.n_layers} layers, "
        f"{model.n_heads} heads over {model.n_kv_heads} of keys and values, "
        f"{model.vocab_size} ids, {model.max_positions} positions.\n",
    ]
    if "imported" in manifest:
        lines.append(
            f"Imported from {Path(manifest['imported']['from']).name}, not trained further."
        )
        return "\n".join(lines) + "\n"
    if config.init_from is not None:
        lines.append(f"Training started from the weights of {Path(config.init_from).name}.\n")
    source = {"stdlib": "the standard library of Python", "url": data.url, "hub": data.hub}.get(
        data.source
    ) or ", ".join(Path(file).name for file in data.files)
    lines += ["| | |", "|---|---|", f"| data | {source} |"]
    if text := manifest.get("text"):
        lines.append(f"| text | {text['bytes']:,} bytes, sha256 {text['sha256']} |")
    if validated := [point for point in run.metrics() if point.get("val/loss") is not None]:
        best = min(validated, key=lambda point: point["val/loss"])
        lines += [
            f"| trained on | {best['tokens']:,} tokens, in rows of {data.seq_len} |",
            f"| validation loss | {best['val/loss']:.4f} nats per token, "
            f"{best['val/bpb']:.4f} bits per byte |",
        ]
    return "\n".join(lines) + "\n"


# --- out: GGUF ------------------------------------------------------------------------------------


def write_gguf(exported: Exported, file: Path, dtype: str | None) -> None:
    """A file for llama.cpp. Its `llama` architecture turns pairs as we do, so wq and wk go as they
    are; vectors are float32 there, whatever the matrices are. (ggml, docs/gguf.md)"""
    import gguf  # here, as only this target needs it

    config, weights = exported.config.model, exported.weights
    dtype = dtype or {torch.float16: "f16", torch.bfloat16: "bf16"}.get(exported.dtype, "f32")
    names = interop.names(config, "gguf")
    types, sizes = {}, {}
    for name in names:
        weight = weights[name]
        types[name] = gguf.GGMLQuantizationType[dtype.upper() if weight.ndim > 1 else "F32"]
        block, size = gguf.GGML_QUANT_SIZES[types[name]]
        if weight.shape[-1] % block:
            raise UserError(
                f"--dtype {dtype} packs rows in blocks of {block}, and {name} has rows of "
                f"{weight.shape[-1]}: choose f16, bf16 or f32"
            )
        sizes[name] = weight.numel() // block * size
    file_type = "ALL_F32" if dtype == "f32" else f"MOSTLY_{dtype.upper()}"
    fields = {
        "general.name": exported.run.path.name,
        "general.file_type": gguf.LlamaFileType[file_type].value,
        "general.quantization_version": gguf.GGML_QUANT_VERSION,
        **interop.to_gguf_fields(config),
        **gguf_vocabulary(exported),
    }
    factors = interop.gguf_rope_factors(config)
    require_space(file, sum(sizes.values()))
    file.parent.mkdir(parents=True, exist_ok=True)

    writer = gguf.GGUFWriter(file, "llama")
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
           str: writer.add_string, list: writer.add_array}  # fmt: skip
    try:
        for key, value in fields.items():
            add[type(value)](key, value)
        if factors is not None:
            writer.add_tensor_info("rope_freqs.weight", factors.shape, np.float32, factors.nbytes)
        for ours, theirs in names.items():
            shape = weights[ours].shape
            writer.add_tensor_info(theirs, shape, np.float32, sizes[ours], types[ours])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        if factors is not None:
            writer.write_tensor_data(factors.numpy())
        with tqdm(names, "writing", unit="tensor", delay=2) as bar:
            for name in bar:
                data = weights[name].float().numpy()
                writer.write_tensor_data(gguf.quants.quantize(data, types[name]))
    finally:
        writer.close()


def gguf_vocabulary(exported: Exported) -> dict[str, Any]:
    """The fields of the tokenizer. UserError where llama.cpp could not give its ids."""
    run, config = exported.run, exported.config.model
    if not (run.path / MODEL).is_file():
        raise UserError(
            f"{run.path} has a tokenizer.json and no sentencepiece file, and what such a tokenizer "
            "splits at is code in llama.cpp: export with --to hf, and let its "
            "convert_hf_to_gguf.py recognise it"
        )
    with TemporaryDirectory() as spare:
        write_hf_tokenizer(exported, Path(spare))  # refuses what are no byte pairs
    tokenizer = Tokenizer(run.path / MODEL)
    if not tokenizer.agrees_with(exported.tokenizer):
        raise UserError(
            f"{run.path / MODEL} and {run.path / JSON} give different ids, and only the first can "
            "go into a gguf: export with --to hf, and let llama.cpp's convert_hf_to_gguf.py see "
            "to it"
        )
    return tokenizer.to_gguf_fields(config.vocab_size)


# --- in -------------------------------------------------------------------------------------------


def import_folder(folder: Path, target: Path) -> None:
    """A new run from a Hugging Face or a Meta folder. Tensors pass through memory one by one."""
    RunDir.new_path(target.parent, target.name)
    if (folder / "config.json").is_file():
        kind, read = "Hugging Face", read_hf
    elif (folder / "params.json").is_file():
        kind, read = "Meta", read_meta
    else:
        raise UserError(f"{folder} has neither config.json (Hugging Face) nor params.json (Meta)")
    model, stored, notes = read(folder)
    tokenizer = open_tokenizer(folder)
    if tokenizer.vocab_size > model.vocab_size:
        raise UserError(
            f"the tokenizer of {folder} has ids up to {tokenizer.vocab_size - 1}, and the model "
            f"{model.vocab_size} embeddings: a text could hold ids that have none"
        )
    scaling = model.rope_scaling
    length = model.max_positions if scaling is None else scaling.original_positions
    log = LogConfig(runs=str(target.parent), wandb="disabled")
    config = Config(
        model=model,
        data=DataConfig(tokenizer=str(target), vocab_size=tokenizer.vocab_size, seq_len=length),
        optim=OptimConfig(),
        train=TrainConfig(),
        log=log,
        name=target.name,
    )
    names = interop.names(model, "hf")
    shapes = {name: (stored[name].dtype, stored[name].shape) for name in names}
    require_space(
        target, sum(math.prod(shape) * dtype.itemsize for dtype, shape in shapes.values())
    )

    def write_best(file: Path) -> None:
        with tqdm(names, "importing", unit="tensor", delay=2) as bar:
            write_safetensors(file, shapes, (stored[name].read() for name in bar))

    files = {file.name: file for file in tokenizer_files(folder)}
    settings = read_json(files[SETTINGS]) if SETTINGS in files else {}
    with TemporaryDirectory() as spare:
        if JSON not in files and "add_bos_token" not in settings:
            # LlamaTokenizer's default. No file at all would mean a tokenizer of our own.
            notes.append("add_bos_token: true")
            files[SETTINGS] = Path(spare) / SETTINGS
            write_json(files[SETTINGS], settings | {"add_bos_token": True})
        RunDir.create(
            log, target.name, config_yaml=config.to_yaml(), config={},
            manifest={"imported": {"from": str(folder), "format": kind}},
            tokenizer=list(files.values()), write_best=write_best,
        )  # fmt: skip
    for note in notes:
        say(f"note: {folder} does not say {note}")
    numbers = sum(math.prod(shape) for _, shape in shapes.values())
    say(f"{target}: {numbers:,} parameters from {folder} ({kind})")


def read_hf(folder: Path) -> tuple[ModelConfig, dict[str, Stored], list[str]]:
    """What a Hugging Face folder holds, by our names and in our layout."""
    try:
        model, notes = interop.from_hf_config(read_json(folder / "config.json"))
    except ValueError as error:
        raise UserError(f"{folder / 'config.json'}: {error}") from None
    names, shapes = interop.names(model, "hf"), interop.shapes(model)
    found = stored_safetensors(folder)
    for name in [name for name in found if name.endswith("rotary_emb.inv_freq")]:
        del found[name]  # a table of old folders, that follows from the configuration
    head, embeddings = found.get("lm_head.weight"), found.get("model.embed_tokens.weight")
    if model.tie_embeddings and head and embeddings:
        if not torch.equal(head.read(), embeddings.read()):
            raise UserError(
                f"{head.file} holds an lm_head.weight of its own, and {folder / 'config.json'} "
                "says tie_word_embeddings: one of them is wrong"
            )
        del found["lm_head.weight"]
    check(found, {theirs: shapes[ours] for ours, theirs in names.items()})
    stored = {ours: found[theirs] for ours, theirs in names.items()}
    for name in filter(interop.is_rotated, stored):
        stored[name].read = turned(stored[name].read, model.head_dim)
    return model, stored, notes


def turned(read: Callable[[], Tensor], head_dim: int) -> Callable[[], Tensor]:
    return lambda: interop.relayout(read(), head_dim, "pairs")


def read_meta(folder: Path) -> tuple[ModelConfig, dict[str, Stored], list[str]]:
    """What a folder of Meta's holds: our names and our layout, over one file for each of the
    processes that trained it."""
    params = read_json(folder / "params.json")
    stored = stored_pickles(folder, params.get("dim"))
    frequencies = stored.pop("rope.freqs", None)
    for name in ("tok_embeddings.weight", "layers.0.feed_forward.w1.weight"):
        if name not in stored:
            raise UserError(f"{name} is in no consolidated.*.pth of {folder}: is it no LLaMA?")
    try:
        model, notes = interop.from_meta_params(params, {n: s.shape for n, s in stored.items()})
    except ValueError as error:
        raise UserError(f"{folder / 'params.json'}: {error}") from None
    if frequencies is not None:
        found, ours = frequencies.read().float(), rope_frequencies(model.head_dim, model.theta)
        if found.shape != ours.shape or not torch.allclose(found, ours.float(), rtol=0.01):
            raise UserError(
                f"rope.freqs in {frequencies.file} are not those of rope_theta {model.theta:g}: is "
                f"{folder / 'params.json'} that of another model?"
            )
    check(stored, interop.shapes(model))
    return model, stored, notes


if __name__ == "__main__":
    main()
