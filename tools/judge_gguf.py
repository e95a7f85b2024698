"""llama.cpp as the judge of GGUF files: ids, logits and greedy tokens, for docs/interop.md.

    pip install -r requirements-dev.txt llama-cpp-python==0.3.36
    python export.py runs/tiny --to gguf tiny.gguf
    python -m tools.judge_gguf runs/tiny tiny.gguf

Compares a run with files made of it, by export.py or by llama.cpp's convert_hf_to_gguf.py. Prints
a table in Markdown.
"""

import sys

import numpy as np
import torch
from llama_cpp import Llama, llama_model_get_vocab, llama_vocab_is_eog  # pyrefly: ignore

from gyre.load import Trained, load
from model.generation import generate
from model.sampling import Sampling

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

    # A cache in float32: in float16, which is usual, differences are a thousand times as large.
    theirs = Llama(file, n_ctx=positions, logits_all=True, type_k=0, type_v=0, verbose=False,
                   n_threads=1)
    differing = [text for text in ODD if tokenizer.encode(text) != encode(theirs, text)]
    vocabulary = llama_model_get_vocab(theirs.model)
    ends = [i for i in tokenizer.eos_ids if llama_vocab_is_eog(vocabulary, i)]
    theirs.eval(ids)
    scores = np.array(theirs.scores[: len(ids)])
    likeliest_equal = (scores.argmax(-1) == logits.argmax(-1)).mean()
    greedy = []
    for _ in range(NEW):
        greedy.append(int(np.argmax(theirs.scores[theirs.n_tokens - 1])))
        theirs.eval(greedy[-1:])
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


def encode(theirs: Llama, text: str) -> list[int]:
    """Return llama.cpp's ids of a text."""
    return theirs.tokenize(text.encode(), add_bos=False, special=False)


if __name__ == "__main__":
    print("| file | ids of texts equal | ends | largest difference of a logit "
          "| likeliest token equal | greedy tokens equal |\n|---|---|---|---|---|---|")
    for file in sys.argv[2:]:
        judge(load(sys.argv[1], device="cpu"), file)
