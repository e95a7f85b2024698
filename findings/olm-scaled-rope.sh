#!/usr/bin/env bash
# OpenLanguageModel's xPos makes queries and keys vanish, and its YaRN scales the wrong end of the channels.
#
# Versions: openlanguagemodel 2.2.1, transformers 5.24.0, torch 2.13.0.
# Guess before the run: scores depend on the distance of query and key alone, with each `scaling_type`, and xPos makes
#     them smaller with the distance; YaRN by 4 keeps fast channels and divides the slow ones by 4, as in
#     transformers. (The formulas were read in the source before the run.)
# Seen: with xPos, a query and a key that are 3 tokens apart have a score of -3 at the beginning, 0.2 at position 10,
#     0.009 at 100 and 2e-20 at 1,000: all scores of a long text are 0, and attention is a mean of all tokens before;
#     `xpos_scale_base` changes nothing. With YaRN, channels that turn within 32 tokens, the fast ones, are
#     divided by 4, and all slower ones are left as they are. "linear" and "ntk" are right.
# Cause: queries and keys are both multiplied by scale**position, where keys should be divided and the exponent be
#     position / scale_base; `yarn_beta`, a number of turns, is compared with the wavelength in tokens, and both
#     branches are exchanged (olm/nn/embeddings/positional/rope.py, `ScaledRotaryPositionalEmbedding`).
# For gyre: computes YaRN itself, and has no xPos. There, take "linear" or "ntk".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 transformers==5.24.0 \
    datasets==5.2.0 openlanguagemodel==2.2.1
export OMP_NUM_THREADS=1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from olm.nn.embeddings.positional.rope import ScaledRotaryPositionalEmbedding
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HEAD_SIZE, ORIGINAL, FACTOR, DISTANCE = 64, 1024, 4.0, 3
STARTS = [0, 10, 100, 1000]
torch.manual_seed(0)
query, key = torch.randn(2, 1, 1, 1, HEAD_SIZE)


def make(scaling_type, **options):
    return ScaledRotaryPositionalEmbedding(HEAD_SIZE, max_seq_len=4096, scaling_type=scaling_type, **options)


def compute_scores(rope):
    """Scores of one query and one key at a distance of 3, from different positions on."""
    return torch.stack([(rope(query, torch.tensor([[start + DISTANCE]])) * rope(key, torch.tensor([[start]]))).sum()
                        for start in STARTS])


def compute_expected(scaling_type):
    config = LlamaConfig(hidden_size=HEAD_SIZE, num_attention_heads=1, max_position_embeddings=int(ORIGINAL * FACTOR),
                         rope_parameters={"rope_type": scaling_type, "rope_theta": 10000.0, "factor": FACTOR,
                                          "original_max_position_embeddings": ORIGINAL})
    return ROPE_INIT_FUNCTIONS[scaling_type](config, device="cpu")[0]


plain = make("linear").inv_freq
scaled = {"scaling_factor": FACTOR, "original_max_seq_len": ORIGINAL}
for scaling_type in ["linear", "ntk", "yarn"]:
    scores = compute_scores(make(scaling_type, **scaled))
    assert torch.allclose(scores, scores[:1].expand(4), rtol=1e-4)
assert torch.allclose(make("ntk", **scaled).inv_freq[[0, -1]] / plain[[0, -1]], torch.tensor([1, 1 / FACTOR]))

found, due = make("yarn", **scaled).inv_freq / plain, compute_expected("yarn") / plain
print("YaRN, shares of the plain frequencies, from fast to slow channels:")
print("    found", [round(share, 2) for share in found[::4].tolist()])
print("    due  ", [round(share, 2) for share in due[::4].tolist()])
assert due[0] == 1 and due[-1] == 1 / FACTOR and found[0] == 1 / FACTOR and found[-1] == 1
assert torch.equal(found == 1, 2 * torch.pi / plain > 32)

scores = compute_scores(make("xpos"))
print(f"xPos, scores at a distance of {DISTANCE} from positions {STARTS}: {[f'{x:.0e}' for x in scores.tolist()]}")
assert torch.equal(scores, compute_scores(make("xpos", xpos_scale_base=512)))
assert abs(scores[0]) > 0.5 and abs(scores[2]) < 0.05 and abs(scores[3]) < 1e-15

# The published form: queries are multiplied, keys divided.
scale = ((torch.arange(0, HEAD_SIZE, 2) + 0.4 * HEAD_SIZE) / (1.4 * HEAD_SIZE)).repeat_interleave(2).double()
rope = make("linear")
expected = torch.stack([(rope(query, torch.tensor([[start + DISTANCE]])) * rope(key, torch.tensor([[start]]))
                         * scale ** (DISTANCE / 512)).sum() for start in STARTS])
print(f"due: {[f'{x:.2f}' for x in expected.tolist()]}")
assert torch.allclose(expected, expected[:1].expand(4), rtol=1e-4)
PYTHON
