#!/usr/bin/env bash
# In OpenVINO GenAI, presence and frequency penalties reward repetition where logits are negative.
#
# Versions: openvino-genai 2026.4.1.0, openvino 2026.4.1.
# Guess before the run: a positive penalty is subtracted from the logits of the tokens that have
#     been generated, as elsewhere, so they become less likely. A constant added to all logits changes
#     nothing, as it does not change the model.
# Seen: so it is for a model whose logits are all positive. From the same logits less a constant, so
#     that all are negative, the penalty is added: with presence_penalty=1, greedy text repeats its
#     first token, and of sampled pairs, half are equal instead of a tenth (a quarter without a
#     penalty). frequency_penalty does the same, growing with each repetition. Many models have
#     negative logits: softmax does not fix their constant. No error and no warning.
# For gyre: it has a repetition penalty only. There, take repetition_penalty, or add a constant to
#     the logits of the model so that they are positive.
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

PROBABILITIES = np.array([0.3, 0.25, 0.2, 0.15, 0.06, 0.04])  # of the next token, always
EOS = 5
N_PAIRS = 500


def constant(values):
    return ops.constant(np.array(values, np.int64))


def make_pipeline(shift):
    """Return a model with logits log(PROBABILITIES) + shift; its state is as long as the text."""
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
    table = np.tile(np.log(PROBABILITIES) + shift, (len(PROBABILITIES), 1)).astype(np.float32)
    logits = ops.add(ops.gather(ops.constant(table), ids, constant(0)), ops.convert(nothing, "f32"))
    logits.output(0).get_tensor().set_names({"logits"})
    model = openvino.Model([ops.result(logits)], [opset6.assign(state, "past")], inputs)
    folder = Path(f"shift {shift}")
    folder.mkdir()
    openvino.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    for name in ["config.json", "generation_config.json"]:
        (folder / name).write_text(json.dumps({"eos_token_id": EOS, "pad_token_id": 0}))
    return genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND="SDPA")


def generate(pipeline, **options):
    config = genai.GenerationConfig()
    config.eos_token_id = EOS
    config.ignore_eos = True
    for name, value in options.items():
        setattr(config, name, value)
    return pipeline.generate(openvino.Tensor(np.array([[4]], np.int64)), config).tokens[0]


def right_text(presence, frequency, length):
    counts = np.zeros(len(PROBABILITIES))
    text = []
    for _ in range(length):
        logits = np.log(PROBABILITIES) - presence * (counts > 0) - frequency * counts
        text.append(int(logits.argmax()))
        counts[text[-1]] += 1
    return text


def equal_pairs(pipeline, **options):
    """Return how many of the sampled pairs of tokens are one token twice."""
    pairs = [generate(pipeline, do_sample=True, max_new_tokens=2, rng_seed=seed, **options)
             for seed in range(N_PAIRS)]
    return np.mean([first == second for first, second in pairs])


def right_share(penalty):
    """Return the share of equal pairs with a presence penalty."""
    rest = 1 - PROBABILITIES
    again = PROBABILITIES * np.exp(-penalty)
    return (PROBABILITIES * again / (again + rest)).sum()


positive = make_pipeline(10)
negative = make_pipeline(-10)
for name, presence, frequency in [("presence_penalty", 1, 0), ("frequency_penalty", 0, 0.7)]:
    penalty = max(presence, frequency)
    right = right_text(presence, frequency, 8)
    texts = [generate(pipeline, max_new_tokens=8, **{name: penalty})
             for pipeline in [positive, negative]]
    print(f"{name}={penalty}, greedy: right is {right}; positive logits {texts[0]}, negative "
          f"logits {texts[1]}")
    assert texts[0] == right and len(set(right)) >= 3
    assert texts[1] == [0] * 8
for penalty in [0, 1]:
    shares = [equal_pairs(pipeline, presence_penalty=penalty) for pipeline in [positive, negative]]
    right = right_share(penalty)
    print(f"presence_penalty={penalty}, sampled: {right:.2f} of the pairs should be equal tokens; "
          f"positive logits {shares[0]:.2f}, negative logits {shares[1]:.2f}; with the sign "
          f"reversed it would be {right_share(-penalty):.2f}")
    assert abs(shares[0] - right) < 0.06
    assert abs(shares[1] - right_share(-penalty)) < 0.06
PYTHON
