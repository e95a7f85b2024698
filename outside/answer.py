"""What a consumer answers, asked in its own environment, which does not have gyre.

    answer(load, notes)     writes answers.json of the current folder

`load(folder)` returns a Model of one of the folders that make_runs.py wrote. It may add to the
notes, which stand in the last column of the table.
"""

import json
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWERS = Path("answers.json")


@dataclass
class Model:
    """A model of a consumer. A function that it does not have is None."""

    encode: Callable[[str], list[int]] | None
    logits: Callable[[list[int]], Any] | None
    """From T ids to T rows of logits, in whatever kind of array."""
    greedy: Callable[[Any, int], list[int]] | None
    """From a prompt to so many new tokens, with the consumer's own cache."""
    reads_text: bool = False
    """Whether `greedy` is given the text of a prompt in place of its ids."""


def answer(load: Callable[[Path], Model], notes: Sequence[str] = ()) -> None:
    """Ask the model of every folder. What cannot be answered is recorded as an error."""
    made = Path(os.environ["OUTSIDE_MADE"])
    questions = json.loads((made / "questions.json").read_text(encoding="utf-8"))
    answers: dict[str, Any] = {}
    for folder in sorted(made.glob("*/hf")):
        name = folder.parent.name
        answers[name] = {}
        try:
            ask(load(folder.parent), questions, answers[name])
        except Exception as error:  # of whatever kind: it is what the table reports
            answers[name]["error"] = first_line(error)
            traceback.print_exc()
        answers["note"] = ", ".join(notes)
        ANSWERS.write_text(json.dumps(answers), encoding="utf-8")  # the next one may crash


def ask(model: Model, questions: dict[str, Any], said: dict[str, Any]) -> None:
    """Add what a model says: ids of the texts, and for each prompt logits and greedy tokens."""
    if model.encode is not None:
        said["ids"] = [list(model.encode(text)) for text in questions["texts"]]
    for length, prompt in questions["prompts"].items():
        said[length] = {}
        if model.logits is not None:
            rows = model.logits(prompt)[-questions["last"]:]
            said[length]["logits"] = [[float(logit) for logit in row] for row in rows]
        if model.greedy is not None:
            start = questions["prompt_texts"][length] if model.reads_text else prompt
            tokens = model.greedy(start, questions["new_tokens"])
            said[length]["greedy"] = [int(token) for token in tokens]


def first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of what it says."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    return lines[0]


def transformers_model(folder: Path, change: Callable[[Any], Any] | None = None,
                       gguf_file: str | None = None) -> Model:
    """Return the model of transformers, as its documentation loads it, in float32.

    `change` makes another model of it, by a library that builds on transformers. With `gguf_file`
    it is read from that file of the folder.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": folder / "hf"}
    if gguf_file is not None:
        source = {"pretrained_model_name_or_path": folder, "gguf_file": gguf_file}
    tokenizer: Any = AutoTokenizer.from_pretrained(**source)
    model: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    if change is not None:
        model = change(model)
    model.generation_config.eos_token_id = None  # as gyre was asked: go on behind an end

    def encode(text: str) -> list[int]:
        return tokenizer(text).input_ids

    def logits(ids: list[int]) -> Any:
        with torch.no_grad():
            return model(input_ids=torch.tensor([ids])).logits[0].tolist()

    def greedy(ids: list[int], new_tokens: int) -> list[int]:
        prompt = torch.tensor([ids])
        mask = torch.ones_like(prompt)
        tokens = model.generate(input_ids=prompt, attention_mask=mask, do_sample=False,
                                max_new_tokens=new_tokens)
        return tokens[0, len(ids):].tolist()

    return Model(encode, logits, greedy)


def mistralrs_model(which: Any) -> Model:
    """Return the model of mistral.rs, of which `which` says where it lies.

    It is given the text of a prompt, as a turn of a chat whose template is that text, because only
    a chat shows ids of the answer.
    """
    from mistralrs import ChatCompletionRequest, Runner  # pyrefly: ignore[missing-import]

    Path("template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    theirs: Any = Runner(which, chat_template="template.jinja", no_paged_attn=True,
                         prefix_cache_n=0)

    def encode(text: str) -> list[int]:
        return theirs.tokenize_text(text, add_special_tokens=False, enable_thinking=None)

    def greedy(text: str, new_tokens: int) -> list[int]:
        request = ChatCompletionRequest(
            [{"role": "user", "content": text}], "default", logprobs=True, top_logprobs=1,
            max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
        [choice] = theirs.send_chat_completion_request(request).choices
        return [token.top_logprobs[0].token for token in choice.logprobs.content]

    return Model(encode, None, greedy, reads_text=True)


def export_logits(folder: Path) -> Any:
    """Return what torch.export makes of the model of transformers: from ids to logits, no cache."""
    import torch
    from transformers import AutoModelForCausalLM

    class Logits(torch.nn.Module):
        def __init__(self, model: Any):
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            return self.model(input_ids=ids, use_cache=False).logits

    model: Any = AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32)
    reach = model.config.max_position_embeddings
    length = torch.export.Dim("length", min=2, max=reach)
    example = torch.ones(1, 8, dtype=torch.long)
    return torch.export.export(Logits(model), (example,), dynamic_shapes={"ids": {1: length}})


def greedy_from(logits: Callable[[list[int]], Any]) -> Callable[[list[int], int], list[int]]:
    """Return greedy generation without a cache."""

    def greedy(ids: list[int], new_tokens: int) -> list[int]:
        ids = list(ids)
        for _ in range(new_tokens):
            ids.append(int(logits(ids)[-1].argmax()))
        return ids[-new_tokens:]

    return greedy


def gguf_file(folder: Path) -> str:
    """Return the path of the GGUF. Raises ValueError where export.py wrote none."""
    refusal = folder / "no-gguf.txt"
    if refusal.exists():
        raise ValueError(refusal.read_text(encoding="utf-8"))
    return str(folder / "model.gguf")
