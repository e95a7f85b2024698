"""llama.cpp as the judge of exports: ids, logits and greedy tokens, for docs/interop.md.

    pip install -r requirements-dev.txt llama-cpp-python==0.3.36
    python -m docs.judge_gguf runs/tiny --llama-cpp llama_cpp_python-0.3.36/vendor/llama.cpp

Judges the run in every type of a GGUF that its rows can be packed in, and its tokenizer with models
that have large random weights, so that a mistake shows, and each scaling of RoPE. With the source
of llama.cpp, its convert_hf_to_gguf.py is judged too. Prints a table in Markdown.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from llama_cpp import Llama, llama_model_get_vocab, llama_vocab_is_eog  # pyrefly: ignore

from data.tokenizer import MODEL, tokenizer_files
from files import remove
from gyre.load import Trained, load, read_run
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig
from model.config import ModelConfig, RopeScaling
from model.generation import generate
from model.sampling import Sampling
from model.transformer import Transformer

NEW = 64  # greedy tokens
TEXT = 'def read_file(self, path):\n    """naïve café, 中文, 🙂"""\n\n\nclass A:\n\tpass  \n'
ODD = [
    TEXT, "a", " ", "  two", "a  b   c    d", "\n\n\n\t\t", "</s> is <s> text <unk>", "<0x41>",
    "\u2581 a\u2581b", "\0", "\r\n\u2585", "e\u0301", "🙂" * 3, " " * 41, f"a{' ' * 99}b", "=" * 33,
    "0123456789", "ﬁ ½ Å", "\ufeffx", "a\u00a0b\u3000c", "\u200d", "日本語のテキスト", "x" * 200,
    "\tif x:\n\t\treturn  # done   \n",
]
YARN = RopeScaling("yarn", 4.0, 256)
SCALINGS = {
    "unscaled": None,
    "`linear`": RopeScaling("linear", 4.0, 256),
    "`ntk`": RopeScaling("ntk", 4.0, 256),
    "`yarn`": YARN,
    "`yarn`, `beta_fast` 6": replace(YARN, beta_fast=6.0),
    "`yarn`, betas 80 and 3, `attention_factor` 1.3": replace(
        YARN, beta_fast=80.0, beta_slow=3.0, attention_factor=1.3
    ),
    "`llama3`": RopeScaling("llama3", 4.0, 256),
}


def hot_run(base: RunDir, folder: Path, name: str, scaling: RopeScaling | None) -> Path:
    """A run with the tokenizer of `base` and large random weights, which turns slowly."""
    config, tokenizer = read_run(base)
    model = ModelConfig(
        vocab_size=tokenizer.vocab_size, dim=48, n_layers=3, n_heads=6, n_kv_heads=2, head_dim=64,
        hidden_dim=80, max_positions=1024, theta=5e3, tie_embeddings=False, rope_scaling=scaling,
    )
    made = Transformer(model)
    made.init_weights(1)
    noise = torch.Generator().manual_seed(2)
    weights = {
        name: 8 * w if w.ndim > 1 else w + 0.3 * torch.randn(w.shape, generator=noise)
        for name, w in made.state_dict().items()
    }
    run = RunDir.create(
        LogConfig(runs=str(folder), wandb="disabled"), name, config={}, manifest=base.manifest,
        config_yaml=replace(config, model=model).to_yaml(), tokenizer=tokenizer_files(base.path),
    )
    run.save("best", weights)
    return run.path


def python(*words: object) -> None:
    """Run a command of this repository or of llama.cpp, silently unless it fails."""
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def judge(name: str, ours: Trained, file: Path) -> None:
    """Print the row of a file that was made of the run `ours`, and the texts with other ids."""
    model, tokenizer = ours.model, ours.tokenizer
    positions = model.config.max_positions
    ids = (tokenizer.prefix_ids + tokenizer.encode(TEXT * positions))[: positions - NEW]
    [expected] = generate(model, [ids], Sampling(temperature=0), max_new_tokens=NEW)
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0].numpy()

    # A cache in float32: in float16, which is usual, differences are a thousand times as large.
    theirs = Llama(str(file), n_ctx=positions, logits_all=True, type_k=0, type_v=0, verbose=False,
                   n_threads=1)
    odd = [text for text in ODD if tokenizer.encode(text)
           != theirs.tokenize(text.encode(), add_bos=False, special=False)]
    vocabulary = llama_model_get_vocab(theirs.model)
    ends = sum(llama_vocab_is_eog(vocabulary, i) for i in tokenizer.eos_ids)
    theirs.eval(ids)
    found, greedy = np.array(theirs.scores[: len(ids)]), []
    for _ in range(NEW):
        greedy.append(int(np.argmax(theirs.scores[theirs.n_tokens - 1])))
        theirs.eval(greedy[-1:])
    same = next((n for n in range(NEW) if greedy[n] != expected[n]), NEW)
    first = (found.argmax(-1) == logits.argmax(-1)).mean()
    print(f"| {name} | {len(ODD) - len(odd)} of {len(ODD)} | {ends} of {len(tokenizer.eos_ids)} | "
          f"{abs(found - logits).max():.2g} of {abs(logits).max():.3g} | {first:.1%} | "
          f"{same} of {NEW} |", flush=True)
    for text in odd:
        print(f"{name}: other ids for {text!r}", file=sys.stderr)


def main() -> None:
    """Judge what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--llama-cpp", type=Path, help="Its source, with convert_hf_to_gguf.py.")
    options = parser.parse_args()
    base = RunDir.open(options.run)
    print("| model | ids of texts equal | ends | largest difference of a logit "
          "| likeliest token equal | greedy tokens equal |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as spare:
        folder = Path(spare)

        def export(run: Path, name: str, *words: str) -> Path:
            python("export.py", run, "--to", *words, folder / name)
            return folder / name

        def convert(run: Path, name: str) -> Path:
            out = folder / f"{name}.gguf"
            script = options.llama_cpp / "convert_hf_to_gguf.py"
            python(script, run, "--outtype", "f32", "--outfile", out)
            return out

        ours = load(base, device="cpu")
        packable = {ours.model.config.dim % 32, ours.model.config.hidden_dim % 32} == {0}
        for dtype in ("f32", "f16", "bf16", *(["q8_0"] if packable else [])):
            name = f"{base.path.name}, {dtype}"
            judge(name, ours, export(base.path, dtype, "gguf", "--dtype", dtype))
        runs = {name: hot_run(base, folder, f"hot{n}", scaling)
                for n, (name, scaling) in enumerate(SCALINGS.items())}
        for name, run in runs.items():
            judge(name, load(run, device="cpu"), export(run, f"{run.name}.gguf", "gguf"))
        if options.llama_cpp is None:
            return
        for name in ("unscaled", "`linear`", "`llama3`"):
            out = export(runs[name], f"{runs[name].name}-hf", "hf")
            judge(f"{name}, by the converter", load(runs[name], device="cpu"),
                  convert(out, runs[name].name + "-c"))
        # What users do: save with transformers, which leaves a tokenizer.json alone.
        from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

        out, saved = folder / f"{runs['unscaled'].name}-hf", folder / "saved"
        AutoModelForCausalLM.from_pretrained(out).save_pretrained(saved)
        PreTrainedTokenizerFast.from_pretrained(out).save_pretrained(saved)
        remove(saved / MODEL)
        again = export(saved, "again", "run")
        hf = export(again, "again-hf", "hf")
        judge("saved by transformers and imported", load(again, device="cpu"),
              export(again, "again.gguf", "gguf"))
        judge("the same, by the converter", load(again, device="cpu"), convert(hf, "again-c"))


if __name__ == "__main__":
    main()
