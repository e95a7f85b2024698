"""llama.cpp as the judge of GGUF files: ids, logits and greedy tokens, for docs/interop.md.

    python export.py runs/tiny --to gguf tiny.gguf
    python -m tools.judge_gguf runs/tiny tiny.gguf

Compares a run with files made of it, by export.py or by llama.cpp's convert_hf_to_gguf.py. Prints
a table in Markdown. llama.cpp is that of tools/llama_cpp.py, in one thread.
"""

import sys
from pathlib import Path

import torch

from errors import report_errors
from gyre.load import Trained, load
from gyre.parser import Parser
from model.generation import generate
from model.sampling import Sampling
from tools.llama_cpp import Decoder, Model

NEW = 64  # greedy tokens
TEXT = 'def read_file(self, path):\n    """naïve café, 中文, 🙂"""\n\n\nclass A:\n\tpass  \n'
ODD = [
    TEXT, "a", " ", "  two", "a  b   c    d", "\n\n\n\t\t", "</s> is <s> text <unk>", "<0x41>",
    "\u2581 a\u2581b", "\0", "\r\n\u2585", "e\u0301", "🙂" * 3, " " * 41, f"a{' ' * 99}b", "=" * 33,
    "0123456789", "ﬁ ½ Å", "\ufeffx", "a\u00a0b\u3000c", "\u200d", "日本語のテキスト", "x" * 200,
    "\tif x:\n\t\treturn  # done   \n",
]


def judge(ours: Trained, file: str) -> None:
    """Print the row of a file that was made of the run `ours`, and the texts with other ids."""
    model = ours.model
    tokenizer = ours.tokenizer
    positions = model.config.max_positions
    ids = (tokenizer.prefix_ids + tokenizer.encode(TEXT * positions))[: positions - NEW]
    [expected] = generate(model, [ids], Sampling(temperature=0), max_new_tokens=NEW)
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0].numpy()

    theirs = Model(Path(file))
    differing = [text for text in ODD if tokenizer.encode(text) != theirs.encode(text)]
    ends = [i for i in tokenizer.eos_ids if theirs.ends_texts(i)]
    decoder = Decoder(theirs, positions, rows=1, threads=1, exact=True)
    scores = decoder.read([ids], every=True).copy()
    likeliest_equal = (scores.argmax(-1) == logits.argmax(-1)).mean()
    [greedy] = decoder.generate([ids], NEW)
    same = next((n for n in range(NEW) if greedy[n] != expected[n]), NEW)
    row = [
        file,
        f"{len(ODD) - len(differing)} of {len(ODD)}",
        f"{len(ends)} of {len(tokenizer.eos_ids)}",
        f"{abs(scores - logits).max():.2g} of {abs(logits).max():.3g}",
        f"{likeliest_equal:.1%}",
        f"{same} of {NEW}",
    ]
    print(f"| {' | '.join(row)} |", flush=True)
    for text in differing:
        print(f"{file}: other ids for {text!r}", file=sys.stderr)


def main(run: str, files: list[str]) -> None:
    """Print the table of these files, which were made of a run."""
    print("| file | ids of texts equal | ends | largest difference of a logit "
          "| likeliest token equal | greedy tokens equal |\n|---|---|---|---|---|---|")
    for file in files:
        judge(load(run, device="cpu"), file)


if __name__ == "__main__":
    with report_errors():
        parser = Parser(__doc__)
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("files", metavar="FILE", nargs="+")
        options = parser.parse_args()
        main(options.run, options.files)
