#!/usr/bin/env bash
# Asking inseq for its dropout score once leaves dropout on, in that call and in all later ones.
#
# Versions: inseq 0.7.1, captum 0.9.0, transformers 5.24.0, torch 2.13.0.
# Guess before the run: the step score mc_dropout_prob_avg is a mean of probabilities, as its name
#     and documentation say, and switches dropout on for its own forward passes only. (That it
#     leaves it on was suspected after reading the source.)
# Seen: the model is in training mode afterwards, and nothing but a new load_model() sets it back.
#     In the same call, the probabilities and attributions of the first token are right, and those
#     of all later tokens have dropout in them. In later calls without this score, all have: two
#     equal calls differ by most of the largest attribution. And the score is no mean: it is the
#     probability without dropout, less the mean, over the deviation, and can be negative.
# For gyre: its exports are saved without dropout, so nothing shows. For others, call
#     model.eval() after it, and ask for no other score in the same call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps inseq==0.7.1
"$folder/env/bin/pip" install --quiet --no-compile captum==0.9.0 transformers==5.24.0 \
    torch==2.13.0 numpy==2.4.6 treescope==0.1.10 jaxtyping==0.3.11 typeguard==2.13.3 rich==15.0.0 \
    matplotlib==3.11.2
HF_HUB_OFFLINE=1 "$folder/env/bin/python" -W ignore - <<'PYTHON'
import inseq
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PROMPT = "w1 w2 w3"
TEXT = "w1 w2 w3 w4 w5 w6"

words = ["<pad>", "<s>", "</s>", *[f"w{i}" for i in range(29)]]
words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", bos_token="<s>",
                                    eos_token="</s>")
torch.manual_seed(0)
llama = LlamaForCausalLM(LlamaConfig(
    vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=64, attention_dropout=0.3, pad_token_id=0,
    bos_token_id=1, eos_token_id=2)).eval()
for parameter in llama.parameters():
    if parameter.ndim == 2:
        parameter.data *= 10  # so that random weights attend to something


def attribute(model, scores):
    """Return the step scores, and the attributions of each generated token (3, tokens, C)."""
    out = model.attribute(PROMPT, TEXT, step_scores=scores, show_progress=False)[0]
    return out.step_scores, out.target_attributions.nan_to_num().transpose(0, 1)


def distance(first, second):
    return (first - second).abs().amax((1, 2))


model = inseq.load_model(llama, "saliency", tokenizer=tokenizer)
clean_scores, clean = attribute(model, ["probability"])
again = attribute(model, ["probability"])[1]
clean_text = [round(p, 4) for p in clean_scores["probability"].tolist()]
print(f"before: probabilities {clean_text}, largest attribution {clean.max():.3f}, two calls "
      f"differ by {(clean - again).abs().max():.3f}; training mode {llama.training}")
assert torch.equal(clean, again) and not llama.training

scores, mixed = attribute(model, ["mc_dropout_prob_avg", "probability"])
for name, values in scores.items():
    print(f"with the score: {name} {[round(value, 4) for value in values.tolist()]}")
print(f"with the score: attributions of the three tokens are off by "
      f"{[round(value, 3) for value in distance(clean, mixed).tolist()]}")
off = (scores["probability"] - clean_scores["probability"]).abs()
assert llama.training and off[0] < 1e-6 and off[1:].min() > 1e-4
assert distance(clean, mixed)[0] < 1e-6 and distance(clean, mixed)[1:].min() > 0.005
assert scores["mc_dropout_prob_avg"].min() < 0

first, second = [attribute(model, ["probability"])[1] for _ in range(2)]
print(f"after: two calls differ by {(first - second).abs().max():.3f}, and from before by "
      f"{(first - clean).abs().max():.3f}; training mode {llama.training}")
assert (first - second).abs().max() > 0.05 and (first - clean).abs().max() > 0.05

model = inseq.load_model(llama, "saliency", tokenizer=tokenizer)
reloaded = attribute(model, ["probability"])[1]
print(f"loaded again: differs from before by {(reloaded - clean).abs().max():.3f}")
assert torch.equal(reloaded, clean)
PYTHON
