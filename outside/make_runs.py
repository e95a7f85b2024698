"""Runs for other programs to read, exported, with what gyre says of them.

    python -m outside.make_runs FOLDER [RUN]

Writes a folder for RoPE as it is and one for each scaling: hf/ and model.gguf, by export.py. The
weights are those of RUN, or random ones of a tiny model. questions.json is what a consumer is
asked, expected.json is what gyre answers. A RUN that has a scaling keeps it.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data.bpe import learn_pieces
from data.tokenizer import tokenizer_files
from errors import UserError, report_errors
from export import export_run
from gyre.checkpoint import WEIGHTS, write_tensors
from gyre.load import load
from gyre.options import Config, make_config
from gyre.parallel import ALONE
from gyre.rundir import RunDir
from model.config import ModelConfig, RopeScaling, ScalingType
from model.generation import generate
from model.sampling import Sampling
from model.transformer import Transformer

SCALINGS: tuple[ScalingType, ...] = ("linear", "dynamic", "yarn", "llama3")
FACTOR = 4
ATTENTION_FACTOR = 1.5  # of a second yarn; by itself it is 1.14
NEW_TOKENS = 64
SHORT = 12  # tokens of the short prompt
LAST = 32  # positions at the end of a prompt whose logits are compared
TINY: dict[str, Any] = {
    "model": {"dim": 128, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 256,
              "tie_embeddings": False},
    "data": {"vocab_size": 512, "seq_len": 64},
    "train": {"sample_tokens": 0},
}
GAIN = 6  # on initial weights, with which the largest logits of a tiny model are near 6
REPEATS = 8  # of the text below, for the long prompt of a RUN
FIRST_PIECE = 259  # behind unk, bos, eos and the 256 bytes, in the tokenizers that gyre learns
ODD_TEXTS = [
    "def read_file(path):\n    return path  # all of it\n", "a", " ", "  two", "a  b   c    d",
    "trailing spaces   ", "\n\n\n\t\t", "\r\n", "a\0b", "</s> is <s> text <unk>", "<0x41>",
    "\u2581 a\u2581b", "e\u0301 \u00e9", "\U0001f642\U0001f642", " " * 41, "=" * 33, "0123456789",
    "\ufb01 \u00bd \u212b", "\ufeffx", "a\u00a0b\u3000c", "\u65e5\u672c\u8a9e", "x" * 200,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\tif x:\n\t\treturn\n",
]

# What the tiny tokenizer learns from and what prompts are cut from: fixed, so that a table does not
# change with a document.
TEXT = """\
The harbour wakes before the town does. A lamp goes on in the shed where the nets are mended, then
another in the kitchen of the inn, and a dog trots down the quay to see who is up. By five the first
boat has its engine running. By six the fish are in boxes, the boxes are on the carts, and the carts
are halfway up the hill. Nobody hurries, and yet nothing waits.

There are three ways from the harbour to the market. The short one has two hundred steps and no
shade. The long one follows the river, past the mill and the old bridge, and takes an hour. Most
people take the third: it begins behind the church, looks as if it ended in a garden, and goes on
through a gate that is never locked. Children know it, cats know it, and strangers find it by
following the smell of bread.

The clock on the church has been wrong since the winter of 1962, when ice broke one of its hands.
It was mended twice. Each time it ran well for a week, lost ten minutes in the second, and stopped
in the third. Now it shows a quarter past four, which is right twice a day, and people meet "at the
clock" at whatever time they like.

def average(values: list[float]) -> float:
    # The mean, or 0.0 if there are no values.
    if not values:
        return 0.0
    return sum(values) / len(values)


class Boat:
    def __init__(self, name, length=12.5, crew=("Ada", "Ben")):
        self.name = name
        self.length = length
        self.crew = list(crew)

    def load(self, boxes):
        for box in boxes:
            if box.weight > 40:
                raise ValueError(f"{box} is too heavy for {self.name}")
            self.boxes.append(box)
        return len(self.boxes)

What is a box of fish worth? Between 18 and 25 on a calm day, 31 or more after a storm, and next to
nothing on the day before a holiday. So the older captains look at the sky, the younger ones at
their phones, and the oldest one looks at the other captains. He says that the weather has been
asked often enough.
"""


def main(folder: Path, source: Path | None) -> None:
    """Make the runs in `folder`, export them, and write questions and answers."""
    folder.mkdir(parents=True)
    if source is None:
        config, weights = make_tiny(folder)
        tokenizer = tokenizer_files(folder)
    else:
        trained = load(source, device="cpu")
        config = trained.config
        weights = trained.model.state_dict()
        tokenizer = tokenizer_files(trained.run.path)
    prompts: dict[str, list[int]] = {}
    prompt_texts: dict[str, str] = {}
    answers: dict[str, Any] = {}
    for name, model in scaled_models(config).items():
        of_model = replace(config, model=model)
        run = save_run(folder / "runs", name, of_model, weights, tokenizer)
        export(run, folder / name)
        ours = load(run, device="cpu")
        if not prompts:
            ids = ours.tokenizer.encode(REPEATS * TEXT)
            long = min(5 * config.data.seq_len // 2, model.max_positions - NEW_TOKENS)
            prompts = {"short": ids[:SHORT], "long": ids[:long]}
            prompt_texts = {length: ours.tokenizer.decode(ids) for length, ids in prompts.items()}
            answers["ids"] = [ours.tokenizer.encode(text) for text in ODD_TEXTS]
        answers[name] = {length: answer(ours.model, ids) for length, ids in prompts.items()}
    questions = {"texts": ODD_TEXTS, "prompts": prompts, "prompt_texts": prompt_texts,
                 "new_tokens": NEW_TOKENS, "last": LAST}
    write_json(folder / "questions.json", questions)
    write_json(folder / "expected.json", answers)


def make_tiny(folder: Path) -> tuple[Config, Mapping[str, Tensor]]:
    """Learn a tokenizer in `folder`; return a small configuration and large random weights."""
    config = make_config(TINY)
    pieces = learn_pieces([TEXT], config.data.vocab_size)
    (folder / "tokenizer.model").write_bytes(pieces)
    model = Transformer(config.model)
    model.init_weights(seed=1)
    weights = {name: weight if weight.ndim == 1 else GAIN * weight
               for name, weight in model.state_dict().items()}
    # Never the likeliest tokens: no text ends, and none has bytes that are no characters, at which
    # wllama gives up.
    weights["output.weight"][:FIRST_PIECE] = 0
    return config, weights


def scaled_models(config: Config) -> dict[str, ModelConfig]:
    """Return the model as it is, and with each scaling if it has none, by name."""
    model = config.model
    if model.rope_scaling is not None:
        return {model.rope_scaling.type: model}
    length = config.data.seq_len
    reach = max(model.max_positions, FACTOR * length)  # so that all are given the same long prompt
    models = {"plain": replace(model, max_positions=reach)}
    scalings: dict[str, RopeScaling] = {}
    for kind in SCALINGS:
        scalings[kind] = RopeScaling(kind, FACTOR, original_positions=length)
    scalings["yarn-factor"] = replace(scalings["yarn"], attention_factor=ATTENTION_FACTOR)
    for name, scaling in scalings.items():
        models[name] = replace(model, rope_scaling=scaling, max_positions=scaling.reach)
    return models


def save_run(runs: Path, name: str, config: Config, weights: Mapping[str, Tensor],
             tokenizer: list[Path]) -> RunDir:
    """Write a run with these weights."""
    log = replace(config.log, runs=str(runs), wandb="disabled")
    config = replace(config, name=name, log=log)
    run = RunDir.create(config, tokenizer=tokenizer, manifest={})
    write = partial(write_tensors, files={WEIGHTS: weights}, world=ALONE)
    run.checkpoints.save("last", write, {})
    return run


def export(run: RunDir, folder: Path) -> None:
    """Export a run in both formats. What export.py refuses is left out, with its words beside."""
    folder.mkdir()
    export_run(run.path, folder / "hf", "hf", "f32")
    try:
        export_run(run.path, folder / "model.gguf", "gguf", "f32")
    except UserError as error:
        reason = str(error).partition(": ")[2]  # behind the name of the run
        (folder / "no-gguf.txt").write_text(f"export.py refuses: {reason}\n", encoding="utf-8")


def answer(model: Transformer, ids: list[int]) -> dict[str, Any]:
    """Return the logits of the last positions of a prompt, and its greedy continuation."""
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0, -LAST:]
    [greedy] = generate(model, [ids], Sampling(temperature=0), max_new_tokens=NEW_TOKENS)
    return {"logits": logits.tolist(), "greedy": greedy}


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    given = [Path(word) for word in sys.argv[1:]]
    with report_errors():
        main(given[0], given[1] if len(given) > 1 else None)
