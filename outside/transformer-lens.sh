#!/usr/bin/env bash
# transformer-lens: what interpretability reads activations with.
# transformers is pinned: it is not by transformer-lens, and 5.24.0 breaks its cache in silence.
. "$(dirname "$0")/common.sh"
install transformer-lens==4.3.0 transformers==5.23.0 torch==2.13.0
ask <<'END'
import torch
from answer import Model, answer
from transformer_lens.model_bridge import TransformerBridge


def load(folder):
    theirs = TransformerBridge.boot_transformers(str(folder / "hf"), device="cpu",
                                                 dtype=torch.float32)

    def encode(text):
        return theirs.to_tokens(text, prepend_bos=False)[0].tolist()

    def logits(ids):
        with torch.no_grad():
            return theirs(torch.tensor([ids]))[0].tolist()

    def greedy(ids, new_tokens):
        tokens = theirs.generate(torch.tensor([ids]), max_new_tokens=new_tokens, do_sample=False,
                                 stop_at_eos=False, verbose=False, return_type="tokens")
        return tokens[0, len(ids):].tolist()

    return Model(encode, logits, greedy)


answer(load)
END
