#!/usr/bin/env bash
# NonCausalAttnPress and CompactorPress keep nearly all tokens of the last chunk, whatever they are.
#
# Versions: kvpress 0.5.5, transformers 5.2.0, torch 2.13.0.
# Guess before the run: chunked attention in chunks of 256 gives a last chunk of 64 tokens what it gives
#     these 64 alone, so that with a compression ratio of 0.5 about half of them stay. (That it is
#     otherwise was suspected after reading the source.)
# Seen: 97 % of them stay, and of 32 tokens all. The padding of the last chunk takes part: its keys
#     are filled with -1e-9 where -1e9 or less is needed, which is 0, and its queries, whose scores are
#     set to 0, spread over all keys of the chunk. So a token in a last chunk of 64 gets 0.75 for
#     nothing, where the mean of all tokens is 1: they add up to 112 instead of 64. With a length that
#     is a multiple of 256 all is right. CompactorPress, which is made of it, keeps 86 and 91 %.
# For gyre: it does not compress its cache. There, cut the text to a multiple of `chunk_size`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile transformers==5.2.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps kvpress==0.5.5
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.metadata
import sys
from types import ModuleType

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

# The package imports a dozen others for its pipeline and its benchmarks: load its modules alone.
root = importlib.metadata.distribution("kvpress").locate_file("kvpress")
for name in ["kvpress", "kvpress.presses"]:
    package = ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package
from kvpress.presses.compactor_press import CompactorPress  # noqa: E402
from kvpress.presses.non_causal_attention_press import NonCausalAttnPress  # noqa: E402

CHUNK = 256
N_FULL = 3

torch.set_num_threads(1)
torch.manual_seed(0)
torch.set_grad_enabled(False)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=2048, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096)).eval()
for parameter in model.parameters():
    if parameter.dim() == 2:
        torch.nn.init.normal_(parameter, std=0.15)


def kept(press, n_last):
    """Return which shares of the full chunks and of the last one stay in the first layer."""
    text = torch.randperm(2048)[None, :N_FULL * CHUNK + n_last]
    full = DynamicCache()
    model(text, past_key_values=full)
    cache = DynamicCache()
    with press(model):
        model(text, past_key_values=cache)
    shares = []
    for whole, left in zip(full.layers[:1], cache.layers[:1]):
        for values, rest in zip(whole.values[0], left.values[0]):
            stays = (values[:, None] == rest[None]).all(-1).any(1).float()
            shares.append((stays[:N_FULL * CHUNK].mean(), stays[N_FULL * CHUNK:].mean()))
    return torch.tensor(shares).mean(0).tolist()


given = {}
for press in [NonCausalAttnPress, CompactorPress]:
    for n_last in [32, 64, 128, 256]:
        before, last = kept(press(0.5), n_last)
        given[press, n_last] = last
        assert 0.4 < before < 0.55
        print(f"{press.__name__}: {before:.0%} of the full chunks and {last:.0%} of a last chunk of "
              f"{n_last} stay")
assert min(given[NonCausalAttnPress, n_last] for n_last in [32, 64]) > 0.9
assert min(given[CompactorPress, n_last] for n_last in [32, 64]) > 0.75
assert max(given[press, 256] for press in [NonCausalAttnPress, CompactorPress]) < 0.55

queries, keys = torch.randn(2, 1, 4, N_FULL * CHUNK + 64, 64)
attend = NonCausalAttnPress.non_causal_chunked_attn
last = attend(queries, keys, CHUNK)[..., -64:]
alone = attend(queries[..., -64:, :], keys[..., -64:, :], 64)
right = (queries[..., -64:, :] @ keys[..., -64:, :].mT).softmax(-1).sum(-2)
print(f"a last chunk of 64 has a sum of {last.sum(-1).mean():.1f} and a minimum of {last.min():.2f}, "
      f"alone {alone.sum(-1).mean():.1f} and {alone.min():.2f}")
assert torch.allclose(alone, right, atol=1e-4) and abs(alone.sum(-1).mean() - 64) < 0.01
assert last.min() > 0.74 and abs(last.sum(-1).mean() - 112) < 1
PYTHON
