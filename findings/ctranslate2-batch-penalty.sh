#!/usr/bin/env bash
# In CTranslate2, a repetition penalty counts more of a prompt the shorter its neighbours are.
#
# Version: ctranslate2 4.8.5.
# Guess before the run: greedy text with repetition_penalty or no_repeat_ngram_size is what
#     transformers gives (the prompt counts), and a prompt has one text alone and in a batch.
# Seen: alone, or beside prompts of its length, nothing of the prompt counts. Beside a shorter one,
#     its tokens count from the length of the shortest prompt on: a prompt of 8 tokens has one text
#     alone and another one beside a prompt of 2. No warning. Without penalties, and with prompts of
#     one length, a batch gives what its prompts give alone.
#     (The prompts are read together up to the length of the shortest one. The rest of a longer one
#     goes through the decoding loop, where the penalties look at what the loop has gone through.)
# For gyre: generate.py counts the prompt. For its exports in CTranslate2, send prompts with a
#     penalty one by one, and compare them with a penalty that counts the new tokens only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile ctranslate2==4.8.5 numpy==2.4.6
env/bin/python - <<'PYTHON'
import os

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerDecoderModelSpec, common_spec

WORDS = ["<unk>", "<s>", "</s>", *"abcdefgh"]
SIZE = len(WORDS)
N_NEW = 4


def save(logits):
    """Save a model whose logits depend on the last token only: its layer adds nothing."""
    spec = TransformerDecoderModelSpec.from_config(
        num_layers=1, num_heads=1, activation=common_spec.Activation.RELU, rms_norm=True)
    decoder, layer = spec.decoder, spec.decoder.layer[0]
    attention, feed_forward = layer.self_attention, layer.ffn
    for norm in [decoder.layer_norm, attention.layer_norm, feed_forward.layer_norm]:
        norm.gamma = np.ones(SIZE, np.float32)
    for linear, n_rows in [(attention.linear[0], 3 * SIZE), (attention.linear[1], SIZE),
                           (feed_forward.linear_0, SIZE), (feed_forward.linear_1, SIZE),
                           (decoder.projection, SIZE)]:
        linear.weight = np.zeros((n_rows, SIZE), np.float32)
        linear.bias = np.zeros(n_rows, np.float32)
    decoder.embeddings.weight = np.eye(SIZE, dtype=np.float32)
    decoder.scale_embeddings = False
    decoder.position_encodings.encodings = np.zeros((64, SIZE), np.float32)
    decoder.projection.weight = (logits.T / np.sqrt(SIZE)).astype(np.float32)
    spec.register_vocabulary(WORDS)
    spec.validate()
    os.mkdir("model")
    spec.save("model")


def continue_text(logits, prompt, start, penalty, ngram):
    """Return greedy text if the penalties see the tokens from `start` on."""
    words = list(prompt)
    for _ in range(N_NEW):
        history = words[start:]
        scores = logits[WORDS.index(words[-1])].copy()
        for word in set(history):
            i = WORDS.index(word)
            scores[i] = scores[i] / penalty if scores[i] > 0 else scores[i] * penalty
        for first, second in zip(history, history[1:]):
            if ngram and first == words[-1]:
                scores[WORDS.index(second)] = -np.inf
        words.append(WORDS[scores.argmax()])
    return "".join(words[len(prompt):])


logits = np.random.default_rng(0).normal(size=(SIZE, SIZE)) + 2
logits[:, :3] = -20
save(logits)
generator = ctranslate2.Generator("model", intra_threads=1)


def generate(prompts, penalty, ngram):
    results = generator.generate_batch(
        [list(prompt) for prompt in prompts], max_length=N_NEW, end_token=[],
        include_prompt_in_result=False, repetition_penalty=penalty, no_repeat_ngram_size=ngram)
    return ["".join(result.sequences[0]) for result in results]


prompts = ["".join(np.random.default_rng(seed).choice(list("abcdefgh"), 8)) for seed in range(20)]
for penalty, ngram in [(1, 0), (2, 0), (1, 2)]:
    texts = {}
    for n_short in [None, 8, 5, 2]:
        neighbours = [] if n_short is None else ["h" * n_short]
        texts[n_short] = [generate([prompt, *neighbours], penalty, ngram)[0] for prompt in prompts]
        assert texts[n_short] == [continue_text(logits, prompt, n_short or 8, penalty, ngram)
                                  for prompt in prompts]
    whole = [continue_text(logits, prompt, 0, penalty, ngram) for prompt in prompts]
    n_same = {n: sum(a == b for a, b in zip(texts[n], texts[None])) for n in [8, 5, 2]}
    n_whole = sum(a == b for a, b in zip(texts[None], whole))
    print(f"repetition_penalty={penalty}, no_repeat_ngram_size={ngram}: {prompts[0]} goes on with "
          f"{texts[None][0]} alone, {texts[2][0]} beside a prompt of 2 tokens, and {whole[0]} if "
          f"all of it counts. Of 20 texts, these are the same: {n_same[8]}, {n_same[5]} and "
          f"{n_same[2]} alone and beside a prompt of 8, 5 and 2; {n_whole} alone and if all counts")
    expected = {(1, 0): (20, 20, 20, 20), (2, 0): (20, 5, 2, 2), (1, 2): (20, 13, 13, 13)}
    assert (n_same[8], n_same[5], n_same[2], n_whole) == expected[penalty, ngram]
PYTHON
