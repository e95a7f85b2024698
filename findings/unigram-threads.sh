#!/usr/bin/env bash
# The number of threads decides which pieces a unigram vocabulary of sentencepiece has.
#
# Version: sentencepiece 0.2.3.
# Guess before the run: num_threads is about speed. With 1 and with 8 threads, the pieces and
#     scores of a unigram model are the same, as they are for BPE.
# Seen: each thread adds the expected counts of its share of the sentences, and float sums depend
#     on how they are grouped. The scores differ, and so do some pieces near the cut. A repetition
#     with the same number gives the same model. BPE counts integers and does not change.
# For gyre: data/bpe.py trains BPE and fixes num_threads. A unigram vocabulary from elsewhere can be
#     made again only with the number of threads that its file states.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile sentencepiece==0.2.3
"$folder/env/bin/python" - <<'PYTHON'
import io
from pydoc_data.topics import topics

import sentencepiece

sentences = [line for text in topics.values() for line in text.splitlines() if line.strip()]


def train(model_type, n_threads):
    """Return the pieces with their scores."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, model_type=model_type,
        vocab_size=3000, num_threads=n_threads, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return {processor.id_to_piece(i): processor.get_score(i) for i in range(len(processor))}


models = {}
for model_type in ["unigram", "bpe"]:
    alone = train(model_type, 1)
    for n_threads in [2, 8, 8]:
        model = train(model_type, n_threads)
        models.setdefault((model_type, n_threads), []).append(model)
        n_other = len(model.keys() - alone.keys())
        print(f"{model_type}, {n_threads} threads: equal to one thread: {model == alone}; "
              f"{n_other} other pieces")
    first, second = models[model_type, 8]
    assert first == second
    assert (first == alone) == (model_type == "bpe")
PYTHON
