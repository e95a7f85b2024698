#!/usr/bin/env bash
# tokie leaves out steps of a tokenizer.json that it does not know, without a word.
#
# Versions: tokie 0.1.4, tokenizers 0.23.3.
# Guess before the run: tokie, which is "100% accurate" and "works with any HuggingFace tokenizer",
#     gives the ids that tokenizers gives for the same tokenizer.json, or refuses the file.
# Seen: it loads each file, and leaves steps out. Of a template, it takes what is before the text
#     and not what is behind it, so that with T5's "$A </s>" no text has an end. NFKC, Replace,
#     StripAccents, `add_prefix_space` and any sequence of NFKC and Lowercase are not applied at
#     all: "The" and "the" stay two words. Lowercase alone strips accents too. BERT's own steps,
#     Digits, and byte-level BPE as in GPT-2 are right.
# For gyre: a prompt read by tokie may have other ids than in training. Compare ids first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tokie==0.1.4 tokenizers==0.23.3
"$folder/env/bin/python" -W ignore - "$folder" <<'PYTHON'
import sys
from pathlib import Path

import tokie
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = ["The keeper of the Zoo saw that giraffes were near the old gate in 1998 .",
          "Giraffes eat leaves and zebras eat grass , so the old keeper fed 25 zebras .",
          "In the caf\u00e9 at the zoo , the keeper paid 120 \u20ac for 30 cups of coffee ."] * 3
TEXTS = ["The keeper saw  25 giraffes", "In the caf\u00e9 , The Zoo paid 120",
         "Zebras eat   grass .", "the \uff12\uff15 zebras of the Zoo", "a cafe\u0301"]
path = Path(sys.argv[1]) / "tokenizer.json"

plain = Tokenizer(models.BPE())
plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
plain.train_from_iterator(CORPUS, trainers.BpeTrainer(
    vocab_size=400, special_tokens=["<s>", "</s>"], show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
trained = plain.to_str()


def encode(text, normalizer=None):
    """Return the ids of the plain tokenizer, behind a normalizer."""
    return plain.encode(normalizer.normalize_str(text) if normalizer else text).ids


def with_step(attribute, step):
    """Return the tokenizer with this step, as tokenizers and as tokie read it."""
    rust = Tokenizer.from_str(trained)
    if step is not None:
        setattr(rust, attribute, step)
    rust.save(str(path))
    return Tokenizer.from_file(str(path)), tokie.Tokenizer.from_json(str(path))


def template(text, *ids):
    return processors.TemplateProcessing(text, None, list(ids))


start, end = ("<s>", 0), ("</s>", 1)
lower, accents = normalizers.Lowercase(), [normalizers.NFD(), normalizers.StripAccents()]
steps = [
    ("none", "normalizer", None),
    ("<s> $A", "post_processor", template("<s> $A", start)),
    ("$A </s>", "post_processor", template("$A </s>", end)),
    ("<s> $A </s>", "post_processor", template("<s> $A </s>", start, end)),
    ("NFC", "normalizer", normalizers.NFC()),
    ("NFKC", "normalizer", normalizers.NFKC()),
    ("Lowercase", "normalizer", lower),
    ("NFKC, Lowercase", "normalizer", normalizers.Sequence([normalizers.NFKC(), lower])),
    ("NFD, StripAccents", "normalizer", normalizers.Sequence(accents)),
    ("Replace", "normalizer", normalizers.Replace(Regex(" {2,}"), " ")),
    ("Digits", "pre_tokenizer", pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])),
    ("add_prefix_space", "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
]
result = {}
for name, attribute, step in steps:
    rust, other = with_step(attribute, step)
    pairs = [(rust.encode(text).ids, list(other.encode(text).ids)) for text in TEXTS]
    right = sum(due == given for due, given in pairs)
    ignored = sum(given == encode(text) for text, (_, given) in zip(TEXTS, pairs))
    changed = sum(due != encode(text) for text, (due, _) in zip(TEXTS, pairs))
    result[name] = right, ignored, changed, pairs
    print(f"{name:18s} changes {changed} of {len(TEXTS)} texts in tokenizers; tokie is right in "
          f"{right}, and gives the ids without this step in {ignored}")

for name in ["none", "<s> $A", "Digits"]:
    assert result[name][0] == len(TEXTS)
assert result["<s> $A"][2] == len(TEXTS) and result["Digits"][2] >= 2
for name in ["$A </s>", "<s> $A </s>"]:
    assert all(given == due[:-1] for due, given in result[name][3])
for name in ["NFKC", "NFKC, Lowercase", "NFD, StripAccents", "Replace", "add_prefix_space"]:
    right, ignored, changed, _ = result[name]
    assert changed and ignored == len(TEXTS) and right == len(TEXTS) - changed
stripped = normalizers.Sequence([lower, *accents])
assert all(given == encode(text, stripped)
           for text, (_, given) in zip(TEXTS, result["Lowercase"][3]))
assert result["Lowercase"][0] < len(TEXTS)
PYTHON
