#!/usr/bin/env bash
# With a draft model, mlx-lm does not penalise the words of the prompt.
#
# Versions: mlx-lm 0.32.2, mlx 0.32.4 on a CPU.
# Guess before the run: greedy text is the same with and without a draft model, whatever the draft
#     proposes, and with penalties too.
# Seen: without penalties it is. With one for repetition, presence or frequency, the text differs
#     from the second token on, even if the draft model is the model itself. It is the text of
#     penalties that forget all of the prompt but its last token: logits processors get the prompt
#     and the text without a draft, and only that token and the text with one. A processor that
#     counts from the end of the prompt counts wrongly too.
# For gyre: it has no draft model, and its repetition penalty counts the prompt, as in transformers.
#     So compare its text with mlx-lm's without a draft.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mlx-lm==0.32.2 mlx==0.32.4 mlx-cpu==0.32.4
"$folder/env/bin/python" - <<'PYTHON'
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models import llama
from mlx_lm.sample_utils import make_logits_processors

N_TOKENS = 60
PROMPT = [3, 5, 7, 9, 11, 13, 5, 5]


def make_model(seed, n_layers):
    mx.random.seed(seed)
    model = llama.Model(llama.ModelArgs(
        model_type="llama", hidden_size=32, num_hidden_layers=n_layers, intermediate_size=64,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=40))
    # Larger weights than those of training's start, so that the text depends on what is before.
    model.update(tree_map(lambda x: 4 * x if x.ndim == 2 else x, model.parameters()))
    return model


def generate(processors, draft=None):
    if draft is None:
        steps = generate_step(mx.array(PROMPT), model, max_tokens=N_TOKENS,
                              logits_processors=processors)
    else:
        steps = speculative_generate_step(mx.array(PROMPT), model, draft, max_tokens=N_TOKENS,
                                          logits_processors=processors)
    return [step[0] for step in steps]


def forget_prompt(processor):
    return lambda tokens, logits: processor(tokens[len(PROMPT) - 1:], logits)


mx.set_default_device(mx.cpu)
model = make_model(0, 2)
drafts = {"a smaller model": make_model(1, 1), "the model itself": model}
for name, draft in drafts.items():
    assert generate(None, draft) == generate(None)
    for penalty in ["repetition", "presence", "frequency"]:
        processors = make_logits_processors(
            **{f"{penalty}_penalty": 1.3, f"{penalty}_context_size": 100})
        right = generate(processors)
        seen = generate(processors, draft)
        n_equal = sum(a == b for a, b in zip(right, seen))
        print(f"{penalty} penalty, draft by {name}: {n_equal} of {N_TOKENS} tokens are equal")
        assert seen[0] == right[0] and seen[1] != right[1]
        assert seen == generate([forget_prompt(processor) for processor in processors])



def record(tokens, logits):
    contexts.append(tokens.tolist())
    return logits


contexts = []
generate([record], drafts["a smaller model"])
print(f"with a draft, the first contexts of a processor are {contexts[:3]}")
assert contexts[0] == PROMPT[-1:]
PYTHON
