#!/usr/bin/env bash
# Quantizing to MXFP4, mistral.rs cuts off the largest weights of every block.
#
# Version: mistralrs 0.9.5.
# Guess before the run: the scale of 32 weights is the one of the OCP standard, 2**(e - 2) for a
#     largest weight of 2**e to 2**(e+1). It cuts off at most a quarter of that weight, and random
#     normal weights have a root mean square error of 0.12.
# Seen: the scale is the largest power of two below max / 6, where 6 is the largest value of the
#     format. So max / scale is 6 to 12 and becomes 6: the largest weight of each block loses up
#     to half, and so do its neighbours of like size. The error is 0.19. The log-probabilities are
#     those of this rule within 0.001. No warning.
# For gyre: its exports are not quantized. There, take Q4_0 or Q4K instead of MXFP4.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile mistralrs==0.9.5 tokenizers==0.23.3 safetensors==0.8.0 \
    numpy==2.4.6
cat > quantize.py <<'PYTHON'
import json
import os

import numpy as np
from mistralrs import Architecture, ChatCompletionRequest, Runner, Which
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

N_WORDS = 16
WIDTH = 64
BLOCK = 32
VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # of four bits, without their sign
WORDS = ["<unk>", "<s>", "</s>", *(f"▁w{i}" for i in range(3, N_WORDS))]
head = np.random.default_rng(0).normal(size=(N_WORDS, WIDTH)).astype(np.float32)


def save_model():
    """Save a LLaMA whose layer adds nothing: after word i, the logits are 8 * head[:, i]."""
    zeros = {name: np.zeros((WIDTH, WIDTH), np.float32)
             for name in [*(f"self_attn.{part}_proj" for part in "qkvo"), "mlp.gate_proj",
                          "mlp.up_proj", "mlp.down_proj"]}
    weights = {f"model.layers.0.{name}.weight": matrix for name, matrix in zeros.items()}
    for name in ["model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm",
                 "model.norm"]:
        weights[f"{name}.weight"] = np.ones(WIDTH, np.float32)
    weights["model.embed_tokens.weight"] = np.eye(N_WORDS, WIDTH, dtype=np.float32)
    weights["lm_head.weight"] = head
    save_file(weights, "model/model.safetensors", metadata={"format": "pt"})
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
              "vocab_size": N_WORDS, "hidden_size": WIDTH, "intermediate_size": WIDTH,
              "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
              "rms_norm_eps": 1e-9, "rope_theta": 10000.0, "max_position_embeddings": 64,
              "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
              "tie_word_embeddings": False, "torch_dtype": "float32"}
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse()])
    tokenizer.save("model/tokenizer.json")
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    for name, entries in [("config", config), ("tokenizer_config",
                          {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                           "chat_template": template})]:
        with open(f"model/{name}.json", "w") as file:
            json.dump(entries, file)


def read_logits(quantization):
    """Return the log-probabilities after each word but the first three."""
    runner = Runner(which=Which.Plain(model_id=os.path.abspath("model"), arch=Architecture.Llama),
                    no_paged_attn=True, in_situ_quant=quantization)
    logits = np.zeros((N_WORDS, N_WORDS - 3))
    for column, word in enumerate(WORDS[3:]):
        request = ChatCompletionRequest(
            model="default", messages=[{"role": "user", "content": word[1:]}], max_tokens=1,
            temperature=1.0, logprobs=True, top_logprobs=N_WORDS, ignore_eos=True)
        choice = runner.send_chat_completion_request(request).choices[0]
        for top in choice.logprobs.content[0].top_logprobs:
            logits[top.token, column] = top.logprob
    return logits


def quantize(find_exponent):
    blocks = head.reshape(N_WORDS, -1, BLOCK)
    largest = np.abs(blocks).max(-1, keepdims=True)
    scales = 2.0 ** find_exponent(largest)
    scaled = blocks / scales
    nearest = VALUES[np.abs(np.abs(scaled)[..., None] - VALUES).argmin(-1)]
    quantized = nearest * np.sign(scaled) * scales
    kept = np.abs(quantized).max(-1, keepdims=True) / largest
    return quantized.reshape(head.shape), kept


def log_softmax(weights):
    logits = 8 * weights[:, 3:N_WORDS].astype(float)
    return logits - np.log(np.exp(logits).sum(0))


os.mkdir("model")
save_model()
standard, kept_standard = quantize(lambda largest: np.floor(np.log2(largest)) - 2)
cut, kept_cut = quantize(lambda largest: np.floor(np.log2(largest / 6)))
rms = {name: np.sqrt(((weights - head) ** 2).mean())
       for name, weights in [("standard", standard), ("cut", cut)]}
plain = np.abs(read_logits(None) - log_softmax(head)).max()
print(f"not quantized: log-probabilities are off by up to {plain:.4f} from those of the weights")
assert plain < 0.001
seen = read_logits("MXFP4")
for name, weights in [("standard", standard), ("cut", cut)]:
    error = np.abs(seen - log_softmax(weights)).max()
    print(f"MXFP4: log-probabilities are off by up to {error:.4f} from those of the {name} rule, "
          f"whose weights have an error of {rms[name]:.3f}")
print(f"a block's largest weight becomes {kept_standard.min():.2f} to {kept_standard.max():.2f} of "
      f"itself by the standard rule, {kept_cut.min():.2f} to {kept_cut.max():.2f} by the other")
assert np.abs(seen - log_softmax(cut)).max() < 0.001
assert np.abs(seen - log_softmax(standard)).max() > 1
assert rms["cut"] > 1.5 * rms["standard"] and kept_cut.max() <= 1 and kept_cut.min() < 0.6
PYTHON
env/bin/python quantize.py 2> >(grep -v INFO >&2) | grep -v INFO
