#!/usr/bin/env bash
# llm-compressor's SmoothQuant makes an outlier of one sign stand out more than before.
#
# Versions: llmcompressor 0.14.0.1, compressed-tensors 0.19.0, transformers 5.17.0, torch 2.13.0.
# Guess before the run: scales are max|X|^alpha / max|W|^(1 - alpha), as the paper and a comment in the code have it,
#     so that a channel with values near 30, where others are near 1, is smoothed, and products in 8 bits have a
#     smaller error. (That the range max - min is taken was read in the source before the run.)
# Seen: for a channel between 29.8 and 30.2 in the embeddings, 8 bits for each token and each output have an error of
#     0.024 without smoothing, 0.008 with the paper's scales, and 0.052 with SmoothQuantModifier: its scale for that
#     channel is below those of all others, 1.7 for 12.9. So it is with "log_equalization": 0.072 for 0.007.
# Cause: `max_channel_vals - min_channel_vals` (llmcompressor/modifiers/transform/smoothquant/base.py), which is
#     twice the largest magnitude for channels around 0, as the weights are doubled for, and nearly 0 for others.
# For gyre: its exports are not quantized. There, look at the signs of outliers first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 transformers==5.17.0 datasets==5.2.0 \
    accelerate==1.15.0 compressed-tensors==0.19.0 auto-round==0.15.1 llmcompressor==0.14.0.1
export HOME="$folder" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 LLM_COMPRESSOR_LOG_DISABLED=true TOKENIZERS_PARALLELISM=false
cd "$folder"
"$folder/env/bin/python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { tail -20 "$folder/errors"; exit 1; }
import contextlib
import io

import torch
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

N_WORDS, OUTLIER = 64, 5
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(N_WORDS)}, unk_token="w0"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w1", eos_token="w2")
tokenizer.save_pretrained("model")
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=N_WORDS, hidden_size=128, intermediate_size=192, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=4))
with torch.no_grad():
    model.model.embed_tokens.weight.normal_()
    model.model.embed_tokens.weight[:, OUTLIER] = 30 + 0.05 * torch.randn(N_WORDS)
model.save_pretrained("model")
IDS = torch.randint(0, N_WORDS, (16, 32))
PROJECTIONS = ["q_proj", "k_proj", "v_proj"]


def collect(model):
    """Return the inputs and the weights of the projections of attention."""
    layer, inputs = model.model.layers[0], []
    hook = layer.input_layernorm.register_forward_hook(lambda module, args, output: inputs.append(output.flatten(0, 1)))
    with torch.no_grad():
        model(IDS)
    hook.remove()
    return inputs[0], torch.cat([getattr(layer.self_attn, name).weight.detach() for name in PROJECTIONS])


def round_rows(values):
    scales = values.abs().amax(dim=1, keepdim=True) / 127
    return (values / scales).round() * scales


INPUTS, WEIGHTS = collect(model)
DUE = INPUTS @ WEIGHTS.T


def relative_error(outputs):
    return ((outputs - DUE).norm() / DUE.norm()).item()


def smooth(**options):
    """Return the scales of SmoothQuantModifier, and the smoothed inputs and weights."""
    smoothed = LlamaForCausalLM.from_pretrained("model", dtype=torch.float32)
    with contextlib.redirect_stdout(io.StringIO()):
        oneshot(model=smoothed, processor=tokenizer, dataset=Dataset.from_dict({"input_ids": IDS.tolist()}),
                recipe=[SmoothQuantModifier(**options)], max_seq_length=32, num_calibration_samples=16)
    return 1 / smoothed.model.layers[0].input_layernorm.weight.detach(), *collect(smoothed)


magnitudes = INPUTS.abs().amax(dim=0)
due = {"smoothquant": (magnitudes / WEIGHTS.abs().amax(dim=0)).sqrt(),
       "log_equalization": magnitudes / (2 + magnitudes).log2()}
plain = relative_error(round_rows(INPUTS) @ round_rows(WEIGHTS).T)
print(f"8 bits without smoothing: error {plain:.4f}; the outlier is {magnitudes[OUTLIER]:.1f}, the others up to "
      f"{magnitudes.sort().values[-2]:.1f}")
for algorithm, scales_due in due.items():
    scales, inputs, weights = smooth(algorithm=algorithm)
    assert relative_error(inputs @ weights.T) < 1e-5
    found = relative_error(round_rows(inputs) @ round_rows(weights).T)
    error_due = relative_error(round_rows(INPUTS / scales_due) @ round_rows(WEIGHTS * scales_due).T)
    ranges = INPUTS.amax(dim=0) - INPUTS.amin(dim=0)
    others = torch.cat([scales[:OUTLIER], scales[OUTLIER + 1 :]])
    print(f"{algorithm}: the outlier's scale is {scales[OUTLIER]:.2f}, due {scales_due[OUTLIER]:.2f}, the others' at least "
          f"{others.min():.2f}; error {found:.4f}, due {error_due:.4f}")
    assert scales[OUTLIER] < others.min() and scales_due[OUTLIER] > 2 * scales[OUTLIER]
    assert found > 1.5 * plain and error_due < 0.5 * plain
    if algorithm == "smoothquant":
        assert torch.allclose(scales, (ranges / (2 * WEIGHTS.abs().amax(dim=0))).sqrt(), rtol=1e-3)
PYTHON
