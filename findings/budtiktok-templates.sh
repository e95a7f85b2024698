#!/usr/bin/env bash
# budtiktok puts CLS and SEP, or <s> and </s>, around texts if no template asks for it.
#
# Versions: budtiktok 0.1.0, tokenizers 0.23.3.
# Guess before the run: budtiktok, a "drop-in replacement" for tokenizers, gives the same ids for a
#     WordPiece and for a unigram model with any template: none, T5's "$A </s>", "<s> $A".
# Seen: only a template with one token on both sides is right. Without a template, and with one that
#     has a token behind the text alone, both sides get one: CLS and SEP in a WordPiece, <s> and
#     </s> in a unigram model, if the vocabulary has them. With "<s> $A", the text ends in CLS.
#     There is no error. Without special tokens, all ids are right.
# For gyre: a text between two tokens that a model has never seen there. Give
#     `add_special_tokens=False`, and add them by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile budtiktok==0.1.0 tokenizers==0.23.3 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import budtiktok
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = ["the keeper of the zoo saw the zebras near the gate and the old giraffe"] * 3
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<s>", "</s>", "<unk>"]
TEXT = "the keeper saw the zebras"

wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
wordpiece.normalizer = normalizers.BertNormalizer()
wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
wordpiece.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
    vocab_size=100, special_tokens=SPECIAL, show_progress=False))
unigram = Tokenizer(models.Unigram())
unigram.pre_tokenizer = pre_tokenizers.Metaspace()
unigram.train_from_iterator(CORPUS, trainers.UnigramTrainer(
    vocab_size=60, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False))

for name, rust, pair in [("WordPiece", wordpiece, ["[CLS]", "[SEP]"]),
                         ("unigram", unigram, ["<s>", "</s>"])]:
    print(name)
    body = rust.encode(TEXT, add_special_tokens=False).ids
    for template in [None, "[CLS] $A [SEP]", "<s> $A </s>", "$A </s>", "<s> $A"]:
        if template:
            ids = [(token, rust.token_to_id(token)) for token in template.split() if token != "$A"]
            rust.post_processor = processors.TemplateProcessing(template, None, ids)
        other = budtiktok.Tokenizer.from_str(rust.to_str())
        due = rust.encode(TEXT).ids
        given = other.encode(TEXT).ids
        assert given[1:-1] == body == other.encode(TEXT, add_special_tokens=False).ids
        outside = [rust.id_to_token(given[0]), rust.id_to_token(given[-1])]
        print(f"    template {template}: {len(due) - len(body)} token(s) added by tokenizers, "
              f"{outside} by budtiktok")
        assert (given == due) == (template in ["[CLS] $A [SEP]", "<s> $A </s>"])
        if template in [None, "$A </s>"]:
            assert outside == pair
        if template == "<s> $A":
            assert outside == ["<s>", "[CLS]"]
PYTHON
