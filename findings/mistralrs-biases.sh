#!/usr/bin/env bash
# mistral.rs drops the biases of a LLaMA, in silence.
#
# Versions: mistralrs 0.9.5, beside transformers 5.24.0 and torch 2.13.0.
# Guess before the run: a LLaMA with attention_bias or mlp_bias, both keys of its config.json, has
#     the log-probabilities of transformers, or is refused as unsupported, as a "yarn" scaling is.
# Seen: it loads, and runs without the biases in the file. Its log-probabilities are those of the
#     model with all biases removed: with biases of deviation one, those of the likeliest tokens
#     are off by up to 3, and no greedy text is right. The same architecture without biases agrees
#     within 0.001, and so does Qwen2, whose biases are read. So a Qwen2 that was saved as a LLaMA
#     with attention_bias is another model. No warning.
# For gyre: its exports have no biases. For other checkpoints, compare log-probabilities first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile mistralrs==0.9.5 transformers==5.24.0 torch==2.13.0 \
    tokenizers==0.23.3 numpy==2.4.6
cat > save.py <<'PYTHON'
import json

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

torch.set_num_threads(1)
N_WORDS = 64
N_NEW = 12
WORDS = ["<unk>", "<s>", "</s>", *(f"▁w{i}" for i in range(3, N_WORDS))]
OPTIONS = {"vocab_size": N_WORDS, "hidden_size": 64, "intermediate_size": 128,
           "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
           "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 256}
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def save(name, model_class, config):
    """Save a random model; return greedy texts, and log-probabilities with and without biases."""
    torch.manual_seed(0)
    model = model_class(config).eval()
    for key, parameter in model.named_parameters():
        if parameter.ndim == 2:
            parameter.data *= 4  # so that random weights attend to something
        elif key.endswith("bias"):
            parameter.data.normal_()
    model.save_pretrained(name)
    with open(f"{name}/config.json") as file:
        entries = json.load(file)
    entries["rope_theta"] = entries.pop("rope_parameters")["rope_theta"]  # the key that it reads
    with open(f"{name}/config.json", "w") as file:
        json.dump(entries, file)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse()])
    tokenizer.save(f"{name}/tokenizer.json")
    with open(f"{name}/tokenizer_config.json", "w") as file:
        json.dump({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                   "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}, file)
    prompts = torch.randint(3, N_WORDS, (4, 10))
    texts = model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=False,
                           max_new_tokens=N_NEW, eos_token_id=None, pad_token_id=0)[:, 10:]
    logs = [model(prompts).logits[:, -1].log_softmax(-1).tolist()]
    for key, parameter in model.named_parameters():
        if key.endswith("bias"):
            parameter.data.zero_()
    logs.append(model(prompts).logits[:, -1].log_softmax(-1).tolist())
    return {"prompts": [[WORDS[i][1:] for i in row] for row in prompts.tolist()],
            "texts": texts.tolist(), "with": logs[0], "without": logs[1]}


with torch.no_grad():
    right = {"no biases": save("no biases", LlamaForCausalLM, LlamaConfig(**OPTIONS)),
             "attention_bias": save("attention_bias", LlamaForCausalLM,
                                    LlamaConfig(**OPTIONS, attention_bias=True)),
             "mlp_bias": save("mlp_bias", LlamaForCausalLM, LlamaConfig(**OPTIONS, mlp_bias=True)),
             "Qwen2": save("Qwen2", Qwen2ForCausalLM, Qwen2Config(**OPTIONS))}
with open("right.json", "w") as file:
    json.dump(right, file)
PYTHON
cat > compare.py <<'PYTHON'
import json
import os

from mistralrs import Architecture, ChatCompletionRequest, Runner, Which

with open("right.json") as file:
    right = json.load(file)


def run(runner, prompt, n_new):
    """Return the greedy text, and the log-probabilities of the five likeliest first tokens."""
    request = ChatCompletionRequest(
        model="default", messages=[{"role": "user", "content": " ".join(prompt)}],
        max_tokens=n_new, temperature=0.0, logprobs=True, top_logprobs=5, ignore_eos=True)
    tokens = runner.send_chat_completion_request(request).choices[0].logprobs.content
    text = [max(entry.top_logprobs, key=lambda top: top.logprob).token for entry in tokens]
    return text, {top.token: top.logprob for top in tokens[0].top_logprobs}


for name, reference in right.items():
    kind = Architecture.Qwen2 if name == "Qwen2" else Architecture.Llama
    runner = Runner(which=Which.Plain(model_id=os.path.abspath(name), arch=kind),
                    no_paged_attn=True)
    errors = {"with": 0, "without": 0}
    n_equal = 0
    for row, prompt in enumerate(reference["prompts"]):
        text, logs = run(runner, prompt, len(reference["texts"][row]))
        n_equal += text == reference["texts"][row]
        for key in errors:
            errors[key] = max(errors[key], *(abs(value - reference[key][row][token])
                                             for token, value in logs.items()))
    print(f"{name}: log-probabilities are off by up to {errors['with']:.4f} from the model, by "
          f"{errors['without']:.4f} from the model without its biases; {n_equal} of 4 greedy texts "
          "are right", flush=True)
    if name in ["no biases", "Qwen2"]:
        assert errors["with"] < 0.005 and n_equal == 4
    else:
        assert errors["with"] > 0.1 and errors["without"] < 0.005 and n_equal == 0
PYTHON
HF_HUB_OFFLINE=1 env/bin/python -W ignore save.py 2> /dev/null
env/bin/python compare.py 2> >(grep -v INFO >&2) | grep -v INFO
