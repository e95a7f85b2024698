#!/usr/bin/env bash
# With beams or with prompt lookup, `guidance_scale` guides a text by the tokens of another one.
#
# Versions: transformers 5.24.0, torch 2.13.0.
# Guess before the run: with prompt lookup, guided greedy text stays what it is, as it does with
#     penalties. The score of a guided beam is the sum of its tokens' guided scores. (The second
#     was suspected to be otherwise after the first was.)
# Seen: prompt lookup gives another text from its first or second token on. The best of four beams
#     has a score of 8.8 that is really 2.9 for a scale of 1.5, and of 90 that is 16 for a scale of
#     3; it is another text than with the right scores. No warning. The processor keeps a context of
#     its own for each row, without the prompt, and adds the last token of the row at each call. It
#     does not know that beam search has moved a row to another place, or that several tokens were
#     accepted since. A processor that takes the context from the tokens it is given is right in
#     both. Greedy text without lookup is right, in a batch too.
# For gyre: it has neither beams nor guidance. Guide its exports without beams and without lookup.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile transformers==5.24.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessor

PROMPT = torch.tensor([[3, 5, 7, 9, 11, 13, 5, 5]])
N_TOKENS = 12


def combine(scores, unguided, scale):
    return unguided + scale * (scores - unguided)


class Guidance(LogitsProcessor):
    """Guidance without memory: it reads the context from the tokens of each row."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, input_ids, scores):
        unguided = model(input_ids[:, PROMPT.shape[1] - 1:]).logits[:, -1]
        return combine(scores.log_softmax(-1), unguided.log_softmax(-1), self.scale)


def generate(**options):
    output = model.generate(
        PROMPT, attention_mask=torch.ones_like(PROMPT), do_sample=False, max_new_tokens=N_TOKENS,
        length_penalty=0.0, return_dict_in_generate=True, output_scores=True, **options)
    return output.sequences[0], output.get("sequences_scores")


def score(sequence, scale):
    """Return the sum of the guided scores of the tokens after the prompt."""
    n_before = PROMPT.shape[1]
    scores = model(sequence[None]).logits[0, n_before - 1:-1].log_softmax(-1)
    unguided = model(sequence[None, n_before - 1:]).logits[0, :-1].log_softmax(-1)
    guided = combine(scores, unguided, scale)
    return guided.gather(1, sequence[n_before:, None]).sum().item()


transformers.logging.set_verbosity_error()
torch.set_grad_enabled(False)
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
    pad_token_id=0, initializer_range=0.3)).eval()

for scale in [1.5, 3.0]:
    greedy = generate(guidance_scale=scale)[0]
    assert torch.equal(greedy, generate(logits_processor=[Guidance(scale)])[0])
    looked_up = generate(guidance_scale=scale, prompt_lookup_num_tokens=3)[0]
    n_equal = (looked_up == greedy).sum().item() - PROMPT.shape[1]
    print(f"scale {scale}, prompt lookup: {n_equal} of {N_TOKENS} tokens are those of greedy text")
    assert n_equal < N_TOKENS // 2
    without_memory = generate(logits_processor=[Guidance(scale)], prompt_lookup_num_tokens=3)[0]
    assert torch.equal(without_memory, greedy)
    for use_cache in [False, True]:
        sequence, reported = generate(guidance_scale=scale, num_beams=4, use_cache=use_cache)
        right_sequence, right_reported = generate(
            logits_processor=[Guidance(scale)], num_beams=4, use_cache=use_cache)
        print(f"scale {scale}, 4 beams, use_cache={use_cache}: the score is given as "
              f"{reported.item():.3f} and is {score(sequence, scale):.3f}; without memory "
              f"{right_reported.item():.3f} and {score(right_sequence, scale):.3f}")
        assert abs(reported.item() - score(sequence, scale)) > 5
        assert abs(right_reported.item() - score(right_sequence, scale)) < 1e-3
        assert not torch.equal(sequence, right_sequence)

sequence, reported = generate(num_beams=4)
assert abs(reported.item() - score(sequence, 1.0)) < 1e-3
PYTHON
