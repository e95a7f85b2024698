#!/usr/bin/env bash
# With beams, OpenVINO GenAI ignores min_new_tokens.
#
# Versions: openvino-genai 2026.4.1.0, openvino 2026.4.1.
# Guess before the run: min_new_tokens, one of the generic parameters, keeps EOS away from that many
#     tokens, however they are chosen.
# Seen: greedy decoding and sampling do so. Beam search lets a text end at any length: with
#     min_new_tokens=5, the best of four beams is EOS alone, as with 0, and so it is with groups of
#     beams. No error and no warning, although other options that beams lack, such as
#     repetition_penalty, raise an error with them.
# For gyre: it has no beams. There, give beams a length_penalty instead, or EOS a bias by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile openvino-genai==2026.4.1.0 openvino==2026.4.1 numpy==2.4.6
env/bin/python - <<'PYTHON'
import json

import numpy as np
import openvino
import openvino.opset13 as ops
import openvino_genai as genai
from openvino import opset6

EOS = 2
N_WORDS = 6
probabilities = np.full((N_WORDS, N_WORDS), 0.01)
probabilities[3] = [0.01, 0.01, 0.5, 0.01, 0.4, 0.07]
probabilities[4] = [0.01, 0.01, 0.4, 0.5, 0.01, 0.07]


def constant(values):
    return ops.constant(np.array(values, np.int64))


def save_model():
    """Save a model whose logits depend on the last token; its state is as long as the text."""
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
    table = ops.constant(np.log(probabilities).astype(np.float32))
    logits = ops.add(ops.gather(table, ids, constant(0)), ops.convert(nothing, "f32"))
    logits.output(0).get_tensor().set_names({"logits"})
    model = openvino.Model([ops.result(logits)], [opset6.assign(state, "past")], inputs)
    openvino.save_model(model, "openvino_model.xml", compress_to_fp16=False)
    for name in ["config.json", "generation_config.json"]:
        with open(name, "w") as file:
            json.dump({"eos_token_id": EOS, "pad_token_id": 0}, file)


save_model()
pipeline = genai.LLMPipeline(".", "CPU", ATTENTION_BACKEND="SDPA")


def generate(**options):
    config = genai.GenerationConfig()
    config.eos_token_id = EOS
    config.max_new_tokens = 8
    for name, value in options.items():
        setattr(config, name, value)
    return pipeline.generate(openvino.Tensor(np.array([[3]], np.int64)), config)


WAYS = {"greedy": {}, "sampling": {"do_sample": True},
        "4 beams": {"num_beams": 4, "length_penalty": 0.0},
        "2 groups": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5,
                     "length_penalty": 0.0}}
for way, options in WAYS.items():
    texts = {}
    for n in [0, 5]:
        if way == "sampling":
            texts[n] = [generate(min_new_tokens=n, rng_seed=seed, **options).tokens[0]
                        for seed in range(20)]
        else:
            texts[n] = generate(min_new_tokens=n, **options).tokens
    shortest = {n: min(texts[n], key=len) for n in texts}
    print(f"{way}: the shortest text with min_new_tokens=0 and 5: {shortest}")
    assert shortest[0] == [EOS]
    if "num_beams" in options:
        assert shortest[5] == [EOS]
    else:
        assert EOS not in shortest[5][:5] and len(shortest[5]) > 5
PYTHON
