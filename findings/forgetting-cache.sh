#!/usr/bin/env bash
# x-transformers generates other text with its KV cache if positions depend on the data.
#
# Versions: x-transformers 2.31.10, torch 2.13.0.
# Guess before the run: greedy text is the same with and without the cache, whose use is the
#     default, for every option; a model that cannot use a cache says so by can_cache_kv.
# Seen: rotary embeddings and ALiBi are right. Data-dependent ALiBi (the forgetting transformer) and
#     shift_tokens are not, in silence: both see only the new token. The bias then is a sum over
#     that token alone, 1 x 1, spread over all keys, so nothing is forgotten; the shift brings in
#     zeros. can_cache_kv is True: it knows of selective attention, recycling and memory tokens.
# For gyre: an ablation there with one of these options needs generate(..., cache_kv=False).
#     Losses are right, since training has no cache.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile x-transformers==2.31.10 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

N_NEW = 24
RIGHT = {
    "rotary": {"rotary_pos_emb": True},
    "ALiBi": {"alibi_pos_bias": True},
}
WRONG = {
    "data-dependent ALiBi": {"attn_data_dependent_alibi": True},
    "data-dependent ALiBi per row":
        {"attn_data_dependent_alibi": True, "attn_data_dependent_alibi_per_row": True},
    "rotary, shift_tokens": {"rotary_pos_emb": True, "shift_tokens": 1},
}


def random_model(options):
    torch.manual_seed(0)
    layers = Decoder(dim=64, depth=2, heads=2, attn_dim_head=32, **options)
    model = TransformerWrapper(num_tokens=64, max_seq_len=64, use_abs_pos_emb=False,
                               attn_layers=layers)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return model.eval()


prompt = torch.arange(8)[None]
differences = {}
for name, options in {**RIGHT, **WRONG}.items():
    model = random_model(options)
    wrapper = AutoregressiveWrapper(model)
    with_cache, without = [wrapper.generate(prompt, N_NEW, temperature=0.0, cache_kv=cache_kv)
                           for cache_kv in [True, False]]
    n_equal = int((with_cache == without).long().cumprod(dim=1).sum())
    text = torch.cat([prompt, without[:, :1]], dim=1)
    with torch.no_grad():
        _, cache = model(prompt, return_intermediates=True)
        logits = model(text)[:, -1]
        differences[name] = (model(text, cache=cache)[:, -1] - logits).abs().max().item()
    print(f"{name}: can_cache_kv {model.can_cache_kv}; greedy tokens equal with and without: "
          f"{n_equal} of {N_NEW}; the second one's logits differ by {differences[name]:.0e}")
    assert model.can_cache_kv

assert max(differences[name] for name in RIGHT) < 1e-4
assert min(differences[name] for name in WRONG) > 0.1
PYTHON
