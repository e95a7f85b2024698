#!/usr/bin/env bash
# From texts, tunix trains answers that begin with BOS and do not end.
#
# Versions: google-tunix 0.1.7, jax 0.10.2, flax 0.12.8, sentencepiece 0.2.3.
# Guess before the run: DPOTrainer joins a prompt and an answer as a model will see them: one BOS in
#     front of the prompt, and EOS behind the answer.
# Seen: each text is encoded alone, with a BOS of its own, and without EOS. The BOS in front of the
#     answer is part of it: it is in the log-probabilities that are logged, and ORPO trains it.
#     After that training, the most likely answer to the prompt begins with BOS, and it has learned
#     no end. DPO's loss has the BOS in both answers, so that it cancels, but what follows is
#     learned behind a BOS, where it is not in a chat. Nothing is said.
# For gyre: it trains on text, not on pairs. With tunix, give DPOTrainer a TrainingInput of token
#     ids of one's own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile jax==0.10.2 flax==0.12.8 optax==0.2.8 \
    orbax-checkpoint==0.12.8 grain==0.2.18 qwix==0.1.8 google-metrax==0.2.4 sentencepiece==0.2.3 \
    perfetto==0.59.1 jaxtyping==0.3.11 huggingface_hub==2.4.0 pillow==13.0.0 pandas==3.1.1 \
    tqdm==4.70.1 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps google-tunix==0.1.7
cd "$folder"
JAX_PLATFORMS=cpu env/bin/python - <<'PYTHON'
import io

import jax
import jax.numpy as jnp
import optax
import sentencepiece
from flax import nnx
from tunix.generate import tokenizer_adapter
from tunix.rl import common
from tunix.sft.dpo import dpo_trainer

N_STEPS = 300
LENGTH = 12
PROMPT, CHOSEN, REJECTED = "two and two", "are four", "are five"
PAD, BOS, EOS = 0, 1, 2

words = (PROMPT, CHOSEN, REJECTED)
file = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(words * 10), model_writer=file, vocab_size=24, model_type="bpe",
    pad_id=PAD, bos_id=BOS, eos_id=EOS, unk_id=3, minloglevel=2)
processor = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
tokenizer = tokenizer_adapter.TokenizerAdapter(processor)
record = {"prompts": PROMPT, "chosen_responses": CHOSEN, "rejected_responses": REJECTED}
made = dpo_trainer.process_dpo_record(record, tokenizer, LENGTH, LENGTH)


def show(ids):
    return " ".join(processor.id_to_piece(int(i)) for i in ids if i != PAD)


print(f"prompt: {show(made.prompt_ids)}")
print(f"chosen: {show(made.chosen_ids)}; rejected: {show(made.rejected_ids)}")
assert made.chosen_ids[0] == BOS
assert made.rejected_ids[0] == BOS
assert made.chosen_mask[0] == 1
assert EOS not in made.chosen_ids.tolist()


class Bigram(nnx.Module):
    """A model that sees the last token only."""

    def __init__(self):
        self.logits = nnx.Param(jnp.zeros((24, 24)))

    def __call__(self, input_tokens, positions, cache, attention_mask):
        return self.logits[...][input_tokens], None


ids = jnp.stack([jnp.concatenate([made.prompt_ids, made.chosen_ids]),
                 jnp.concatenate([made.prompt_ids, made.rejected_ids])])
mask = ids != PAD
example = dpo_trainer.TrainExample(
    input_ids=ids, positions=common.build_positions_from_mask(mask),
    attention_mask=common.make_causal_attn_mask(mask), ref_chosen_logps=None,
    ref_rejected_logps=None, completion_mask=jnp.stack([made.chosen_mask, made.rejected_mask]),
    logits_to_keep=LENGTH)
model = Bigram()
optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)
loss_and_gradients = nnx.value_and_grad(
    lambda model: dpo_trainer.dpo_loss_fn(model, example, algorithm="orpo")[0])
for _ in range(N_STEPS):
    loss, gradients = loss_and_gradients(model)
    optimizer.update(model, gradients)

last = int(made.prompt_ids[-1])
answer = []
while len(answer) < LENGTH:
    last = int(model.logits[...][last].argmax())
    answer.append(last)
print(f"after {N_STEPS} steps of ORPO, loss {loss.item():.3f}, the most likely answer: "
      f"{show(answer)}")
p_bos = jax.nn.softmax(model.logits[...][made.prompt_ids[-1]])[BOS].item()
print(f"probability that it begins with BOS: {p_bos:.2f}")
assert answer[0] == BOS
assert p_bos > 0.9
assert EOS not in answer
PYTHON
