#!/usr/bin/env bash
# auto-round's GGUF files are NaN where 16 features in a row are never active, as those of a padded MLP.
#
# Versions: auto-round 0.16.1, gguf 0.19.0, transformers 5.24.0, torch 2.13.0.
# Guess before the run: importances of zero are replaced, as the code and its warning say ("use mean
#     values", "fallback to no imatrix"), so that a model whose MLPs are padded with zeros to a width
#     that K-quants need has the errors of the model without padding.
# Seen: in the Q4_K_M of a model with 512 inputs of which 32 are padded, half of `ffn_down`, a Q6_K, is NaN:
#     each block of 256 with these 32. The export ends well, with the advice to raise `nsamples`, which changes
#     nothing. 15 zeros in a row are right; so are Q2_K, Q4_K and Q5_K; Q3_K is NaN as well.
# Cause: a group with zeros in more than half of it takes other weights, one with fewer takes its mean.
#     Half is 16 for all but Q2_K, and the groups of Q3_K and Q6_K have 16: the mean of no number is 0 / 0
#     (auto_round/data_type/gguf.py, `_imatrix_handle_zero`).
# For gyre: it writes GGUF itself, in F32, F16 and Q8_0. There, check the file for NaN, or pad with small noise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 transformers==5.24.0 gguf==0.19.0 \
    sentencepiece==0.2.2 protobuf==6.33.0 auto-round==0.16.1
export HOME="$folder" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
cd "$folder"
"$folder/env/bin/python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { tail -20 "$folder/errors"; exit 1; }
import io
import json
import random
from pathlib import Path

import gguf
import numpy as np
import sentencepiece
import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaTokenizer

N_PADDED = 32
words = random.Random(0)
VOCABULARY = ["".join(words.choices("abcdefghij", k=words.randrange(1, 6))) for _ in range(300)]
TEXTS = [" ".join(words.choices(VOCABULARY, k=150)) for _ in range(32)]
Path("texts.json").write_text(json.dumps([{"text": text} for text in TEXTS]))

pieces = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(TEXTS), model_writer=pieces, vocab_size=512, model_type="bpe", byte_fallback=True,
    minloglevel=2)
Path("model").mkdir()
Path("model/tokenizer.model").write_bytes(pieces.getvalue())
LlamaTokenizer.from_pretrained("model").save_pretrained("model")
Path("model/tokenizer.model").write_bytes(pieces.getvalue())

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256))
mlp = model.model.layers[0].mlp
with torch.no_grad():
    mlp.gate_proj.weight[-N_PADDED:] = mlp.up_proj.weight[-N_PADDED:] = 0
    mlp.down_proj.weight[:, -N_PADDED:] = 0
model.save_pretrained("model")
WEIGHTS = {"blk.0.ffn_down.weight": mlp.down_proj.weight, "blk.0.ffn_up.weight": mlp.up_proj.weight}

from auto_round import AutoRound  # noqa: E402
from auto_round.export.export_to_gguf.packing import ggml_quant  # noqa: E402

AutoRound("model", scheme="GGUF:Q4_K_M", iters=0, nsamples=16, seqlen=64, device_map="cpu",
          dataset=str(Path("texts.json").resolve())).quantize_and_save("out", format="gguf:q4_k_m")
for tensor in gguf.GGUFReader(next(Path("out").rglob("*.gguf"))).tensors:
    if tensor.name in WEIGHTS:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        due, finite = WEIGHTS[tensor.name].detach().numpy(), np.isfinite(values)
        error = np.linalg.norm((values - due)[finite]) / np.linalg.norm(due[finite])
        print(f"{tensor.name} is {tensor.tensor_type.name}, {1 - finite.mean():.0%} are NaN; the error of the others is "
              f"{error:.3f}")
        is_down = "ffn_down" in tensor.name
        assert tensor.tensor_type.name == ("Q6_K" if is_down else "Q4_K")
        assert finite.mean() == (0.5 if is_down else 1) and error < 0.1

torch.manual_seed(0)
weights, importances = 0.02 * torch.randn(64, 256), torch.rand(256) + 0.1
for n_zeros in [15, 16]:
    importances[:n_zeros] = 0
    for kind in ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]:
        packed = ggml_quant(weights.clone(), kind, imatrix=importances, device="cpu")
        values = torch.tensor(gguf.dequantize(packed, gguf.GGMLQuantizationType[kind.upper()]))
        error = ((values - weights).norm() / weights.norm()).item()
        print(f"the first {n_zeros} features never active, {kind}: error {error:.3f}")
        assert np.isnan(error) == (n_zeros == 16 and kind in ["q3_k", "q6_k"])
PYTHON
