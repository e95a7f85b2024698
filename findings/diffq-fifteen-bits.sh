#!/usr/bin/env bash
# A packed DiffQ state holds no weights of 15 bits: what is restored is whatever was in the memory.
#
# Versions: diffq 0.2.4, torch 2.13.0.
# Guess before the run: `restore_quantized_state(model, quantizer.get_quantized_state())` gives the
#     model of the unpacked state, for each number of bits that is allowed: 1 to 15, and 15 is the
#     default of max_bits. (That the last one is left out was suspected after reading the source.)
# Seen: `_bit_pack_param` packs the groups of `range(1, 15)` bits, and nothing says that groups are
#     left over. Restoring starts with `torch.empty`, so that these groups are zeros or whatever
#     the memory held. Where a fifth of the groups have 15 bits, outputs are off by half of their
#     size or more; with 2 to 14 bits, packed and unpacked states are equal, bit for bit. The file
#     is smaller than `true_model_size`. `extra_bits=2` with 13 bits does the same. (Issue 9 of
#     diffq reports a restored state that is worse than the model, without a cause.)
# For gyre: it trains without quantization. There, set max_bits=14, without extra_bits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile diffq==0.2.4 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from diffq import DiffQuantizer, restore_quantized_state

SIZE = 64
torch.set_num_threads(1)


def check(bits, share=1.0, **options):
    """Return relative errors of outputs after restoring, and the size of the packed state.

    bits: of a share of the groups; the others have 8
    """
    torch.manual_seed(0)
    model = torch.nn.Linear(SIZE, SIZE)
    quantizer = DiffQuantizer(model, group_size=4, min_size=0.001, **options)
    logits = quantizer._qparams[0].logit
    n_groups = round(share * len(logits))
    with torch.no_grad():
        logits[:n_groups] = torch.logit(torch.tensor((bits - 2) / 13))
    x = torch.randn(16, SIZE)
    expected = model.eval()(x)  # in evaluation the model is quantized
    errors = []
    for packed, torch_pack in [(False, False), (True, False), (True, True)]:
        state = quantizer.get_quantized_state(packed=packed, torch_pack=torch_pack)
        restored = torch.nn.Linear(SIZE, SIZE)
        # torch.empty finds this number in the memory that is given back
        rubbish = [torch.full((len(logits), 4), 12345, dtype=torch.short) for _ in range(20)]
        del rubbish
        restore_quantized_state(restored, state)
        errors.append(((restored(x) - expected).norm() / expected.norm()).item())
    size = quantizer.packed_model_size() / quantizer.true_model_size()
    return errors, size


for bits, share, options in [
        (2.3, 1, {}), (8, 1, {}), (13, 1, {}), (14.4, 1, {}), (14.6, 1, {}), (14.6, 0.2, {}),
        (12, 1, {"extra_bits": 2}), (13, 1, {"extra_bits": 2})]:
    errors, size = check(bits, share, **options)
    print(f"{bits} bits in {share:.0%} of the groups {options or ''}: error {errors[0]:.2g} from "
          f"the unpacked state, {errors[1]:.2g} and {errors[2]:.2g} from packed ones; packed size "
          f"{size:.2f} of due")
    assert errors[0] == 0
    if round(bits + options.get("extra_bits", 0)) < 15:
        assert errors == [0, 0, 0] and size > 1
    else:
        assert min(errors[1:]) > 0.3
PYTHON
