"""Hashes of what a revision computes, to show that a refactoring changes no number.

    python tools/fingerprint.py CHECKOUT before.json
    python tools/fingerprint.py CHECKOUT after.json && diff before.json after.json

It uses the commands of the CHECKOUT, each in a process of its own and on the CPU: tiny trainings
with every encoding, optimizer, dtype and number of processes, samples of them, exports, prepared
text and a study. Two revisions are equal if all hashes are, on one machine.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

MODEL = ("--model.dim 48 --model.n_layers 2 --model.n_heads 6 --model.n_kv_heads 2 "
         "--data.vocab_size 300")
TRAINING = (
    "--data.seq_len 32 --data.files text.txt --optim.warmup_steps 3 "
    "--train.steps 12 --train.batch_size 12 --train.eval_interval 5 --train.sample_tokens 8 "
    "--train.device cpu --train.onednn false --log.wandb disabled"
)
# Of each training: what is added to TRAINING, and the number of processes.
TRAININGS: dict[str, tuple[str, int]] = {
    "rope": ("", 1),
    "sinusoidal": ("--model.position sinusoidal", 1),
    "vaswani": ("--model.position sinusoidal --model.sinusoid vaswani", 1),
    "learned": ("--model.position learned", 1),
    "alibi": ("--model.position alibi", 1),
    "none": ("--model.position none", 1),
    "yarn": ("--model.rope_scaling.type yarn --model.rope_scaling.factor 2", 1),
    "muon": ("--optim.optimizer muon --optim.schedule wsd", 1),
    "dropout": ("--model.dropout 0.2 --train.micro_batch_size 5", 1),
    "onednn": ("--train.onednn true", 1),
    "bfloat16": ("--train.dtype bfloat16 --optim.optimizer muon", 1),
    "compiled": ("--train.compile true", 1),
    "compiled-bfloat16": ("--train.compile true --train.dtype bfloat16", 1),
    "two": ("--model.dropout 0.2", 2),
    "three": ("--optim.optimizer muon", 3),
    "sharded": ("--optim.optimizer muon --train.shard full", 2),
}
EAGER_FLOAT32 = "--train.compile false --train.dtype float32"
STUDY = (
    "--tier smoke --arms rope,sin,sin_qk,learned_qk,rope_first,sin_residual,sin_aligned "
    "--data.files text.txt --data.vocab_size 300 --train.device cpu --log.wandb disabled --jobs 1"
)
LOGGED = ("train/loss", "train/grad_norm", "train/lr", "val/loss", "val/bpb", "sample")


def main(folder_of_code: str, output: str) -> None:
    """Write the hashes of a checkout into a JSON file."""
    checkout = Path(folder_of_code).resolve()  # the commands run in another folder
    hashes: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text(make_text(), encoding="utf-8")
        for training, (options, processes) in TRAININGS.items():
            print(training, file=sys.stderr)
            words = [*MODEL.split(), *TRAINING.split(), *EAGER_FLOAT32.split(), *options.split()]
            run(folder, checkout / "train.py", *words, "--name", training, processes=processes)
            hashes[training] = hash_run(folder / "runs" / training)
        hashes["prepared"] = {
            file.name: hash_file(file) for file in sorted(folder.glob("data/prepared/*/*"))
            if file.suffix in (".bin", ".model")}
        hashes["resumed"] = resume(folder, checkout)
        hashes["texts"] = generate(folder, checkout)
        hashes["exports"] = export(folder, checkout)
        hashes["study"] = study(folder, checkout)
    Path(output).write_text(json.dumps(hashes, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def make_text() -> str:
    """Return words of a vocabulary of 50, the same every time."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcde\u00e9", k=rng.randint(1, 4))) for _ in range(50)]
    lines = [" ".join(rng.choices(words, k=8)) for _ in range(2500)]
    return "\n".join(lines) + "\n"


def run(folder: Path, *words: str | Path, processes: int = 1) -> str:
    """Return what a command prints to stdout; it has to succeed."""
    launcher = [sys.executable]
    if processes > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                    f"--nproc-per-node={processes}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launcher, *map(str, words)], cwd=folder, env=environment,
                          capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stderr[-2000:]}")
    return done.stdout


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hash_file(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def hash_run(path: Path) -> dict[str, str]:
    """Return hashes of what a run has logged, and of its weights and optimizer states."""
    logged = []
    for line in (path / "metrics.jsonl").open(encoding="utf-8"):
        point = json.loads(line)
        for key in LOGGED:
            if key in point:
                logged.append([point["step"], key, point[key]])
    files = {file.relative_to(path).as_posix(): hash_file(file)
             for file in sorted(path.rglob("*.safetensors"))}
    return {"logged": hash_text(json.dumps(logged)), **files}


def resume(folder: Path, checkout: Path) -> dict[str, str]:
    """Return the hashes of a run that goes on, and of one that starts from its weights."""
    train = checkout / "train.py"
    run(folder, train, "--resume", "dropout", "--train.steps", "17")
    run(folder, train, "--init-from", "rope", *TRAINING.split(), *EAGER_FLOAT32.split(),
        "--name", "tuned")
    return {name: hash_run(folder / "runs" / name)["logged"] for name in ("dropout", "tuned")}


def generate(folder: Path, checkout: Path) -> dict[str, str]:
    """Return hashes of texts by several runs and ways to sample."""
    texts = {}
    for name, options in {
        "rope": "--top-p 0.9 --num-samples 3", "alibi": "--temperature 0", "learned": "",
        "muon": "--dtype bfloat16 --repetition-penalty 1.2", "yarn": "--dtype int8",
    }.items():
        text = run(folder, checkout / "generate.py", "--run", name, "--prompt", "ab", "--device",
                   "cpu", "--max-new-tokens", "20", *options.split())
        texts[name] = hash_text(text)
    return texts


def export(folder: Path, checkout: Path) -> dict[str, str]:
    """Return hashes of the files that are written for other programs."""
    command = checkout / "export.py"
    run(folder, command, "runs/rope", "--to", "hf", "OUT")
    run(folder, command, "runs/yarn", "--to", "gguf", "yarn.gguf", "--dtype", "bf16")
    files = [*sorted((folder / "OUT").iterdir()), folder / "yarn.gguf"]
    return {file.name: hash_file(file) for file in files}


def study(folder: Path, checkout: Path) -> dict[str, str]:
    """Return hashes of the records of a small study, without what depends on time and place."""
    run(folder, checkout / "ablate.py", *STUDY.split())
    path = next((folder / "runs").glob("*/plan.json")).parent
    hashes = {}
    for file in sorted((path / "results").iterdir()):
        record = json.loads(file.read_text(encoding="utf-8"))
        numbers = {key: value for key, value in record.items()
                   if key not in ("run", "sha256", "encoding_sha256", "trained_by", "machine",
                                  "config")}
        hashes[file.name] = hash_text(json.dumps(numbers, sort_keys=True))
    return hashes


if __name__ == "__main__":
    # This file runs as a script, which cannot import the parser of our commands.
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", metavar="CHECKOUT")
    parser.add_argument("output", metavar="OUT.json")
    options = parser.parse_args()
    main(options.checkout, options.output)
