#!/usr/bin/env bash
# In OpenVINO GenAI, copies of a prompt in a sampled batch all have one text.
#
# Versions: openvino-genai 2026.4.1.0, openvino 2026.4.1, with ATTENTION_BACKEND="SDPA".
# Guess before the run: with do_sample, the rows of a batch are drawn independently, as in
#     transformers. Four copies of a prompt are as good as num_return_sequences=4.
# Seen: each row starts a generator of its own from the one rng_seed, so all rows draw the same
#     random numbers. Eight copies of a prompt are one text, with any seed. The texts of other
#     prompts are correlated as well: for two prompts with nearly the same probabilities, nearly all
#     tokens are equal, where 22 % should be. The texts of num_return_sequences differ, but all
#     copies of a prompt have the same ones.
# For gyre: each of its samples draws by its own seed. There, generate copies of a prompt by
#     num_return_sequences, and other prompts one at a time with a seed each.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile openvino-genai==2026.4.1.0 openvino==2026.4.1 numpy==2.4.6
env/bin/python - <<'PYTHON'
import json
from pathlib import Path

import numpy as np
import openvino
import openvino.opset13 as ops
import openvino_genai as genai
from openvino import opset6

PROBABILITIES = np.array([[0.3, 0.25, 0.2, 0.15, 0.06, 0.04],  # of the next token, after token 0
                          [0.29, 0.26, 0.19, 0.16, 0.05, 0.05]])  # after all others
EOS = 5
SEEDS = range(30)
LENGTH = 8


def constant(values):
    return ops.constant(np.array(values, np.int64))


def make_pipeline():
    """Return a model whose logits depend on the last token; its state is as long as the text."""
    inputs = [ops.parameter([-1, -1], np.int64, name=name)
              for name in ["input_ids", "attention_mask", "position_ids"]]
    inputs.append(ops.parameter([-1], np.int32, name="beam_idx"))
    for node in inputs:
        node.output(0).get_tensor().set_names({node.friendly_name})
    ids, mask, positions, beams = inputs
    nothing = ops.multiply(ops.add(ops.reduce_sum(mask, constant([0, 1])),
                                   ops.reduce_sum(positions, constant([0, 1]))), constant(0))
    n_rows = ops.gather(ops.shape_of(ids), constant([0]), constant(0))
    shape = ops.concat([n_rows, constant([1]), ops.reshape(nothing, constant([1]), False),
                        constant([1])], 0)
    empty = ops.broadcast(ops.constant(np.float32(0)), shape)
    past = opset6.read_value(empty, "past", np.float32, openvino.PartialShape([-1, 1, -1, 1]))
    new = ops.unsqueeze(ops.convert(ids, "f32"), constant([1, 3]))
    state = ops.concat([ops.gather(past, beams, constant(0)), new], 2)
    table = np.log(PROBABILITIES[[0, 1, 1, 1, 1, 1]]).astype(np.float32)
    logits = ops.add(ops.gather(ops.constant(table), ids, constant(0)), ops.convert(nothing, "f32"))
    logits.output(0).get_tensor().set_names({"logits"})
    model = openvino.Model([ops.result(logits)], [opset6.assign(state, "past")], inputs)
    openvino.save_model(model, "openvino_model.xml", compress_to_fp16=False)
    for name in ["config.json", "generation_config.json"]:
        Path(name).write_text(json.dumps({"eos_token_id": EOS, "pad_token_id": 0}))
    return genai.LLMPipeline(".", "CPU", ATTENTION_BACKEND="SDPA")


def sample(prompts, seed, n_sequences=1):
    config = genai.GenerationConfig()
    config.eos_token_id = EOS
    config.ignore_eos = True
    config.do_sample = True
    config.max_new_tokens = LENGTH
    config.num_return_sequences = n_sequences
    config.rng_seed = seed
    return pipeline.generate(openvino.Tensor(np.array(prompts, np.int64)), config).tokens



def share_equal(first, second):
    return np.mean(np.array(first) == np.array(second))


pipeline = make_pipeline()
copies = [sample([[4]] * 8, seed) for seed in SEEDS]
returned = [sample([[4]], seed, n_sequences=8) for seed in SEEDS]
for name, batches in [("8 copies of a prompt", copies), ("num_return_sequences=8", returned)]:
    n_texts = [len(set(map(tuple, texts))) for texts in batches]
    print(f"{name}: {min(n_texts)} to {max(n_texts)} different texts in a batch of 8")
    assert set(n_texts) == {1} if batches is copies else min(n_texts) >= 7
assert len({tuple(texts[0]) for texts in copies}) == len(SEEDS)
print(f"{len(SEEDS)} seeds give {len(SEEDS)} different texts")

pairs = [sample([[0], [4]], seed) for seed in SEEDS]
first, second = zip(*pairs, strict=True)
others = [*second[1:], second[0]]
right = (PROBABILITIES[0] * PROBABILITIES[1]).sum()
print(f"two prompts with like probabilities: {share_equal(first, second):.2f} of the tokens are "
      f"equal in a batch; {share_equal(first, others):.2f} with other seeds; right is {right:.2f}")
assert share_equal(first, second) > 0.9
assert abs(share_equal(first, others) - right) < 0.1
shared = [sample([[4], [4]], seed, n_sequences=2) for seed in SEEDS]
assert all(texts[:2] == texts[2:] for texts in shared)
assert all(texts[0] != texts[1] for texts in shared)
print("two copies with two sequences each: both have the same two texts")
PYTHON
