#!/usr/bin/env bash
# With memory tokens, x-transformers masks the memories in place of the left padding.
#
# Versions: x-transformers 2.31.10, torch 2.13.0.
# Guess before the run: greedy text of a prompt is the same alone and in a batch with a longer one,
#     for which `generate` has prompt_lens, with and without memory tokens. (Written down after a
#     scan of all options had shown it.)
# Seen: without them it is. With them, the shorter prompt gets another text in 20 of 20 batches. It
#     is padded at the left, and so many positions are masked from the left; but the memories have
#     been put in front by then. With 3 memories and 5 padded positions, the prompt sees no memory
#     and 3 tokens of padding: these have a say in its text, the memories none. The longest prompt
#     is right.
# For gyre: it has no such tokens. There, generate prompts of one length at a time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile x-transformers==2.31.10 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

N_BATCHES = 20
N_NEW = 12
SHORT, LONG = 4, 9


def make_model(n_memories):
    torch.manual_seed(0)
    layers = Decoder(dim=64, depth=2, heads=2, attn_dim_head=32, rotary_pos_emb=True)
    model = TransformerWrapper(num_tokens=64, max_seq_len=64, num_memory_tokens=n_memories,
                               use_abs_pos_emb=False, attn_layers=layers)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return model.eval()


for n_memories in [0, 1, 3]:
    model = make_model(n_memories)
    wrapper = AutoregressiveWrapper(model, pad_value=0)
    n_same = {SHORT: 0, LONG: 0}
    for seed in range(N_BATCHES):
        torch.manual_seed(seed)
        batch = torch.randint(1, 64, (2, LONG))
        batch[0, SHORT:] = 0
        texts = wrapper.generate(batch, N_NEW, temperature=0.0,
                                 prompt_lens=torch.tensor([SHORT, LONG]))
        for row, length in enumerate(n_same):
            alone = wrapper.generate(batch[row:row + 1, :length], N_NEW, temperature=0.0)
            n_same[length] += int((texts[row] == alone[0]).all())
    print(f"{n_memories} memory tokens: texts that are the same alone and in a batch: "
          f"{n_same[SHORT]} of {N_BATCHES} of {SHORT} tokens, {n_same[LONG]} of {N_BATCHES} of "
          f"{LONG} tokens")
    assert n_same[LONG] == N_BATCHES
    assert n_same[SHORT] == (0 if n_memories else N_BATCHES)

    row = torch.randint(1, 64, (1, LONG))
    start = torch.tensor([LONG - SHORT])
    with torch.no_grad():
        logits = model(row, seq_start_pos=start)[0, -1]
        seen = []
        for position in range(LONG - SHORT):
            other = row.clone()
            other[0, position] = 0
            if (model(other, seq_start_pos=start)[0, -1] - logits).abs().max() > 0.01:
                seen.append(position)
        print(f"    of {LONG - SHORT} padded positions, these have a say in the next token: {seen}")
        assert seen == list(range(LONG - SHORT))[LONG - SHORT - n_memories:]
        if n_memories:
            model.memory_tokens.normal_()
            assert (model(row, seq_start_pos=start)[0, -1] == logits).all()
            print("    other memories give the same logits, bit for bit")
PYTHON
