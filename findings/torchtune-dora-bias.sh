#!/usr/bin/env bash
# torchtune's DoRA scales the biases of a layer with its weights, and the merged checkpoint does not.
#
# Versions: torchtune 0.6.1, torch 2.13.0.
# Guess before the run: the merged checkpoint of a DoRA has the logits of the trained model, within
#     rounding, for Qwen2 as for LLaMA. (That the bias is scaled was suspected after reading the
#     source.)
# Seen: for LLaMA, which has no biases, and for LoRA it does. For Qwen2, whose queries, keys and values
#     have biases, it does only as long as the magnitudes are those of the start. The layer multiplies
#     its whole output by magnitude / norm, the bias too. The paper (Liu et al. 2024, arXiv:2402.09353)
#     scales the weight alone, and so does the function that merges. With magnitudes that are 10 %
#     larger, and biases drawn like the weights, the logits are off by 8 % of the largest one. Nothing
#     is said: each key fits.
# For gyre: its models have no biases. There, use LoRA for a Qwen2, or evaluate the merged checkpoint.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 torchao==0.16.0 torchdata==0.11.0 \
    numpy==2.4.6 omegaconf==2.4.0 tiktoken==0.14.0 sentencepiece==0.2.3 blobfile==3.3.0 \
    datasets==5.2.0 huggingface_hub==2.4.0 safetensors==0.8.0 tokenizers==0.23.3 psutil==7.2.2 \
    pillow==13.0.0 tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchtune==0.6.1
cd "$folder"
env/bin/python - <<'PYTHON'
import torch
from torchtune.models.llama3 import llama3, lora_llama3
from torchtune.models.qwen2 import lora_qwen2, qwen2
from torchtune.modules.peft import get_merged_lora_ckpt

SIZES = {"vocab_size": 50, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 32,
         "intermediate_dim": 48, "max_seq_len": 64}
ADAPTED = ["q_proj", "k_proj", "v_proj", "output_proj"]
RANK = 4
ALPHA = 8

torch.set_num_threads(1)


@torch.no_grad()
def measure(name, use_dora, growth):
    """Return how far the merged model is from the adapted one, as a share of the largest logit."""
    make_adapted, make_plain = {"Qwen2": (lora_qwen2, qwen2), "LLaMA": (lora_llama3, llama3)}[name]
    torch.manual_seed(0)
    adapted = make_adapted(ADAPTED, apply_lora_to_mlp=True, lora_rank=RANK, lora_alpha=ALPHA,
                           use_dora=use_dora, **SIZES).eval()
    for key, parameter in adapted.named_parameters():
        if "magnitude" not in key:
            torch.nn.init.normal_(parameter, std=0.3)
    for module in adapted.modules():
        if hasattr(module, "initialize_dora_magnitude"):
            module.initialize_dora_magnitude()
            module.magnitude *= growth
    state = {key: value.clone() for key, value in adapted.state_dict().items()}
    plain = make_plain(**SIZES).eval()
    plain.load_state_dict(get_merged_lora_ckpt(state, rank=RANK, alpha=ALPHA))
    ids = torch.randint(SIZES["vocab_size"], (4, 20))
    expected = adapted(ids)
    error = ((plain(ids) - expected).abs().max() / expected.abs().max()).item()
    kind = f"DoRA with magnitudes times {growth}" if use_dora else "LoRA"
    print(f"{name}, {kind}: the merged model is off by {error:.2g} of the largest logit")
    return error


assert measure("LLaMA", True, 1.1) < 1e-5
assert measure("Qwen2", False, 1.0) < 1e-5
assert measure("Qwen2", True, 1.0) < 1e-5
assert measure("Qwen2", True, 1.1) > 0.03
PYTHON
