#!/usr/bin/env bash
# mistral.rs, in Rust: a GGUF. It is given the text of a prompt, as a turn of
# a chat whose template is that text, because only a chat shows ids of the answer.
. "$(dirname "$0")/common.sh"
install mistralrs==0.9.5
name="mistralrs, GGUF"
export MISTRALRS_CPU_KV_F32=1
printf '{{ messages[0].content }}' > "$folder/template.jinja"
ask <<'END'
from pathlib import Path

from answer import Model, answer, gguf_file
from mistralrs import ChatCompletionRequest, ModelDType, Runner, Which


def load(folder):
    which = Which.GGUF(str(folder), Path(gguf_file(folder)).name, dtype=ModelDType.F32)
    theirs = Runner(which, chat_template="template.jinja", no_paged_attn=True, prefix_cache_n=0)

    def encode(text):
        return theirs.tokenize_text(text, add_special_tokens=False, enable_thinking=None)

    def greedy(text, new_tokens):
        request = ChatCompletionRequest(
            [{"role": "user", "content": text}], "default", logprobs=True, top_logprobs=1,
            max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
        [choice] = theirs.send_chat_completion_request(request).choices
        return [token.top_logprobs[0].token for token in choice.logprobs.content]

    return Model(encode, None, greedy, reads_text=True)


answer(load, ["cache in float32"])
END
