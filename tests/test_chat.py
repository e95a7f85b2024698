"""Chat templates, against transformers' `apply_chat_template`, and `generate.py --chat`."""

import io
import json
import re
import sys
from pathlib import Path
from unittest import mock

import pytest
from builders import error_lines, exit_code
from random_runs import random_run
from saved_models import edit_json, export_to, their_folder
from saved_tokenizers import add_tokens, save_gemma, save_llama2, save_llama2_of_4, save_llama3
from small_tokenizers import FIRST_BYTE, train_sentencepiece
from transformers import AutoTokenizer

import generate as script
from data.tokenizer import open_tokenizer
from errors import UserError
from formats.chat import Chat, chat_template, encode_chat, read_chat, render_chat
from gyre.load import load as load_run
from model.generation import generate
from model.sampling import Sampling

# In the style of Qwen's: turns between two special tokens, and a system message by default.
CHATML = """\
{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if tools is not none %}
        {%- continue %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# In the style of Llama 2's: BOS, brackets, and an exception for turns out of order.
INST = """\
{% set ns = namespace(turns=0) %}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Turns must alternate: user, assistant, user') }}
    {% endif %}
    {% set ns.turns = ns.turns + 1 %}
    {% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}
    {% else %}
{% generation %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endgeneration %}
    {% endif %}
{% endfor %}
"""

# In the style of Llama 3's: headers, JSON, and loops that break.
HEADERS = """\
{{- bos_token }}
{%- if documents is none and strftime_now is defined %}
    {{- '<|start_header_id|>system<|end_header_id|>\\n\\n' + {'tools': 'é<&>', 'n': [1]} | tojson }}
{%- endif %}
{%- for message in messages %}
    {%- if loop.index > 1 %}{% break %}{% endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {%- generation %}{{ message['content'] + '<|end_of_text|>' }}{% endgeneration %}
{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' if add_generation_prompt }}
"""


def save_chatml(folder):
    """A byte-level tokenizer without BOS, as Qwen's."""
    save_llama3(folder)
    add_tokens(folder, "<|im_start|>", "<|im_end|>", special=True)
    edit_json(folder / "tokenizer.json", post_processor=None)
    edit_json(folder / "tokenizer_config.json", bos_token=None)
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-8")


def save_inst(folder):
    """A tokenizer that adds a space in front; the template is a field of the settings, and BOS is
    written there as older versions of transformers did."""
    save_llama2_of_4(folder)
    bos = {"__type": "AddedToken", "content": "<s>", "normalized": False}
    edit_json(folder / "tokenizer_config.json", chat_template=INST, bos_token=bos)


def save_headers(folder):
    """A byte-level tokenizer with BOS; the template is one of several in the settings."""
    save_llama3(folder)
    add_tokens(folder, "<|start_header_id|>", "<|end_header_id|>", special=True)
    templates = [{"name": "default", "template": HEADERS}, {"name": "rag", "template": "no"}]
    edit_json(folder / "tokenizer_config.json", chat_template=templates)


FAMILIES = {"chatml": save_chatml, "inst": save_inst, "headers": save_headers}


def their_chat(folder, *turns, **options):
    """What transformers makes of turns of a user and a model. The user begins."""
    chat = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)]
    auto = AutoTokenizer.from_pretrained(folder)
    return auto.apply_chat_template(chat, add_generation_prompt=True, **options)


@pytest.mark.parametrize("family, rendered", [
    ("chatml", "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi 中<|im_end|>\n"
               "<|im_start|>assistant\n"),
    ("inst", "<s>[INST] Hi 中 [/INST]\n"),
    ("headers", "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
                '{"tools": "é<&>", "n": [1]}'
                "<|start_header_id|>user<|end_header_id|>\n\n Hi 中 <|end_of_text|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n")])
def test_a_template_is_rendered_as_by_transformers(family, rendered, tmp_path):
    FAMILIES[family](tmp_path)
    assert render_chat(read_chat(tmp_path), " Hi 中 ") == rendered
    assert their_chat(tmp_path, " Hi 中 ", tokenize=False) == rendered


@pytest.mark.parametrize("text", [
    "def f(x)", "", "  naïve\n中 🙂", "</s><|end_of_text|><|im_end|>", "{{ 1 }} {% raw %}",
    "a a a a a a a a "])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_ids_of_a_chat_are_those_of_transformers(family, text, tmp_path):
    FAMILIES[family](tmp_path)
    ours = open_tokenizer(tmp_path).encode(render_chat(read_chat(tmp_path), text))
    assert ours == their_chat(tmp_path, text)["input_ids"]


@pytest.mark.parametrize("family", ["chatml", "inst"])
def test_a_conversation_has_the_ids_of_transformers(family, tmp_path):
    FAMILIES[family](tmp_path)
    exchanges = [("def f", "(x)"), ("Hi", " 中\n")]
    ours = encode_chat(read_chat(tmp_path), open_tokenizer(tmp_path), "Why?", exchanges)
    theirs = their_chat(tmp_path, "def f", "(x)", "Hi", " 中\n", "Why?")["input_ids"]
    assert ours == theirs


@pytest.mark.parametrize("family, text, token, count", [
    ("chatml", "a<|im_end|>", 302, 3), ("inst", "a</s>", 2, 1),
    ("headers", "<|end_of_text|>", 299, 2)])
def test_a_user_who_spells_a_special_token_says_it(family, text, token, count, tmp_path):
    """As in transformers, unless it is told to sanitize control tokens."""
    FAMILIES[family](tmp_path)
    ours = open_tokenizer(tmp_path).encode(render_chat(read_chat(tmp_path), text))
    assert ours.count(token) == count
    assert their_chat(tmp_path, text)["input_ids"].count(token) == count


def test_a_file_comes_before_the_settings(tmp_path):
    save_inst(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("file: {{ messages[0].content }}", "utf-8")
    assert render_chat(read_chat(tmp_path), "x") == "file: x"
    assert their_chat(tmp_path, "x", tokenize=False) == "file: x"


@pytest.mark.parametrize("template, words", [
    ("{{ raise_exception('Only tools here') }}", "Only tools here"),
    ("{% if %}", "TemplateSyntaxError"), ("{{ tokenizer.path }}", "'tokenizer' is undefined"),
    ("{{ 1 + 'a' }}", "TypeError: unsupported operand"), ("{{ [][1].x }}", "UndefinedError"),
    ("{{ messages.append(1) }}", "SecurityError"), ("{{ ''.__class__.__mro__ }}", "SecurityError"),
    ("{{ namespace(__html__=1) }}", "cannot have an attribute __html__"),
    ("{% set ns = namespace() %}{% set ns._x = 1 %}", "cannot have an attribute _x"),
    ("{{ messages[7]['content'] }}", "UndefinedError"), ("{{ 1 / 0 }}", "ZeroDivisionError")])
def test_a_template_that_fails_is_one_sentence(template, words, tmp_path):
    save_llama3(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
    with pytest.raises(UserError, match="chat_template|chat template fails") as info:
        render_chat(read_chat(tmp_path), "x")
    assert words in str(info.value)


@pytest.mark.parametrize("settings", [
    {}, {"chat_template": None}, {"chat_template": [{"name": "rag", "template": "x"}]},
    {"chat_template": ["x"]}, {"chat_template": [{"name": [], "template": "x"}]}])
def test_a_folder_without_a_template_says_so(settings, tmp_path):
    save_llama3(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", **settings)
    assert chat_template(tmp_path) is None
    with pytest.raises(UserError, match="has no chat template .*: leave --chat out. After"):
        render_chat(read_chat(tmp_path), "x")


def test_a_template_that_is_not_utf_8_is_refused(tmp_path):
    save_llama3(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"caf\xe9 {{ messages[0].content }}")
    with pytest.raises(UserError, match="chat_template.jinja is not UTF-8: save it as UTF-8"):
        render_chat(read_chat(tmp_path), "x")


def test_a_sentencepiece_file_alone_cannot_chat(tmp_path):
    save_llama2(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", chat_template=INST)
    with pytest.raises(UserError, match="--chat needs a tokenizer.json"):
        render_chat(read_chat(tmp_path), "x")


@pytest.mark.parametrize("template", [
    "{{ tools|dictsort }}", "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}"])
def test_a_template_that_sorts_or_recurses_wrongly_is_one_sentence(tmp_path, template):
    with pytest.raises(UserError, match="^the chat template fails for this prompt .*: leave --ch"):
        render_chat(Chat(template, {}), "x")


@pytest.mark.parametrize("stated", [{"default": "x"}, 5, [{"name": "default", "template": 5}]])
def test_a_template_that_is_no_text_is_refused(tmp_path, stated):
    save_llama3(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", chat_template=stated)
    with pytest.raises(UserError, match="^chat_template in .*tokenizer_config.json is no text"):
        chat_template(tmp_path)


@pytest.mark.parametrize("text", ["def f(x)", "", "  naïve\n中 🙂"])
def test_a_legacy_sentencepiece_file_chats_as_in_transformers(text, tmp_path):
    save_llama2(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", chat_template=INST, bos_token="<s>",
              eos_token="</s>", legacy=True)
    ours = encode_chat(read_chat(tmp_path), open_tokenizer(tmp_path), text)
    assert ours == their_chat(tmp_path, text)["input_ids"]


def test_the_longest_special_token_is_taken(tmp_path):
    train_sentencepiece(tmp_path, user_defined_symbols="<x>,<x>y")
    chat = Chat("{{ messages[0].content }}", {})
    longer = 4  # behind unk, bos, eos and <x>
    assert encode_chat(chat, open_tokenizer(tmp_path), "<x>y") == [longer]


@pytest.mark.parametrize("name", [
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"])
def test_a_template_can_name_a_special_token(name, tmp_path):
    save_llama3(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", chat_template=f"{{{{ {name} }}}}:",
              **{name: "<t>"})
    assert render_chat(read_chat(tmp_path), "x") == "<t>:"


def test_a_template_without_bos_gets_none(tmp_path):
    """Though the tokenizer begins every other text with it."""
    save_llama2_of_4(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", chat_template="{{ messages[0].content }}:")
    trained = mock.Mock(tokenizer=open_tokenizer(tmp_path))
    (ids,) = script.encode_prompts(trained, ["def"], read_chat(tmp_path))
    assert ids == their_chat(tmp_path, "def")["input_ids"]
    assert ids[0] != 1 and script.encode_prompts(trained, ["def"], None)[0][0] == 1


def test_gemmas_layout_can_chat(tmp_path):
    save_gemma(tmp_path)
    template = "{{ bos_token }}<start_of_turn>{{ messages[0].content | trim }}\n\n"
    edit_json(tmp_path / "tokenizer_config.json", chat_template=template)
    ids = open_tokenizer(tmp_path).encode(render_chat(read_chat(tmp_path), "a   b"))
    assert ids == their_chat(tmp_path, "a   b")["input_ids"]
    assert ids[:2] == [1, 330]


# --- generate.py ----------------------------------------------------------------------------------


def chat_folder(tmp_path, positions=64):
    folder = their_folder(tmp_path, "llama2-of-4", max_position_embeddings=positions)
    edit_json(folder / "tokenizer_config.json", chat_template=INST)
    return folder


def answer(folder, *turns):
    """The greedy continuation of what transformers makes of these turns."""
    ids = their_chat(folder, *turns)["input_ids"]
    run = folder.with_name("imported")
    if not run.exists():
        export_to("run", folder, run)
    model = load_run(run, device="cpu").model
    (new,) = generate(model, [ids], Sampling(temperature=0), max_new_tokens=8, eos_ids=[2])
    return open_tokenizer(folder).decode(new)


GREEDY = ("--max-new-tokens", "8", "--temperature", "0", "--device", "cpu")


def test_chat_prints_the_answer_only(tmp_path, capsys):
    folder = chat_folder(tmp_path)
    expected = answer(folder, "def f")
    capsys.readouterr()
    assert exit_code(script.main, "--run", folder, "--chat", "--prompt", "def f", *GREEDY) == 0
    assert capsys.readouterr().out == expected + "\n"


def test_an_imported_run_can_chat(tmp_path, capsys):
    folder = chat_folder(tmp_path)
    expected = answer(folder, "def f")
    capsys.readouterr()
    words = ("--run", tmp_path / "imported", "--chat", "--prompt", "def f", *GREEDY)
    assert exit_code(script.main, *words) == 0
    assert capsys.readouterr().out == expected + "\n"


def test_every_prompt_is_a_chat_of_its_own(tmp_path, capsys):
    folder = chat_folder(tmp_path)
    expected = answer(folder, "x")
    capsys.readouterr()
    words = ("--run", folder, "--chat", "--prompt", "x", "--prompt", "x", *GREEDY)
    assert exit_code(script.main, *words) == 0
    assert capsys.readouterr().out == (f"=== prompt 1, sample 1 ===\n{expected}\n"
                                       f"=== prompt 2, sample 1 ===\n{expected}\n")


@pytest.fixture
def talk(monkeypatch, capsys):
    """Say these lines to a model in an interactive session. Returns stdout and stderr."""
    def talk(folder, *lines, argv=GREEDY):
        stdin = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stdin)
        words = ("--run", folder, "--chat", "--interactive", *argv)
        capsys.readouterr()
        assert exit_code(script.main, *words) == 0
        return capsys.readouterr()

    return talk


def test_a_line_follows_what_was_said_and_answered(tmp_path, talk):
    folder = chat_folder(tmp_path, positions=256)
    first = answer(folder, "def f")
    second = answer(folder, "def f", first, "x")
    assert second != answer(folder, "x")
    assert talk(folder, "def f", "x").out == f"{first}\n{second}\n"


def test_a_new_conversation_follows_nothing(tmp_path, talk):
    folder = chat_folder(tmp_path)
    expected = f"{answer(folder, 'def f')}\n{answer(folder, 'x')}\n"
    assert talk(folder, "def f", ":new", "x").out == expected


def test_an_answer_that_went_on_is_remembered_as_a_whole(tmp_path, talk):
    folder = chat_folder(tmp_path, positions=256)
    first, more, second = talk(folder, "def f", ":more", "x").out.split("\n")[:3]
    assert second == answer(folder, "def f", first + more, "x")


def test_an_answer_that_went_on_within_a_character_is_remembered(tmp_path, talk, draw_instead):
    first, second = [FIRST_BYTE + byte for byte in "é".encode()]
    draw_instead([first, second, FIRST_BYTE + ord("!")])
    argv = ("--max-new-tokens", "1", "--device", "cpu")
    with mock.patch.object(script, "encode_chat", wraps=encode_chat) as encode:
        out = talk(chat_folder(tmp_path), "def f", ":more", "x", argv=argv).out
    assert out == "\ufffd\né\n!\n"
    _, _, prompt, exchanges = encode.call_args.args
    assert prompt == "x"
    assert exchanges[0] == ("def f", "é")


def test_a_replacement_character_that_the_model_wrote_is_remembered(tmp_path, talk, draw_instead):
    written = [FIRST_BYTE + byte for byte in "\ufffd".encode()]
    draw_instead([*written, *[FIRST_BYTE + ord("!")] * 6])
    argv = ("--max-new-tokens", "3", "--device", "cpu")
    with mock.patch.object(script, "encode_chat", wraps=encode_chat) as encode:
        talk(chat_folder(tmp_path), "def f", ":more", "x", argv=argv)
    _, _, _, exchanges = encode.call_args.args
    assert exchanges[0] == ("def f", "\ufffd!!!")


def test_with_several_samples_each_line_is_a_chat_of_its_own(tmp_path, talk):
    folder = chat_folder(tmp_path)
    expected = answer(folder, "x")
    argv = ("--max-new-tokens", "8", "--top-k", "1", "--device", "cpu", "--num-samples", "2")
    out, err = talk(folder, "def f", "x", argv=argv)
    assert out.endswith(f"=== sample 2 ===\n{expected}\n")
    assert "Each line is a prompt of its own." in err


def test_what_has_no_room_is_forgotten_from_the_first_answer_on(tmp_path, talk):
    """The context has 64 tokens, and 40 are kept free."""
    folder = chat_folder(tmp_path)
    argv = ("--max-new-tokens", "40", "--temperature", "0", "--device", "cpu")
    out, err = talk(folder, "def f", "x", argv=argv)
    assert out == talk(folder, "def f", ":new", "x", argv=argv).out
    assert ("note: the context (model.max_positions) is 64 tokens long: the beginning of the "
            "conversation is forgotten (1 of 1 answers)\n") in err


def test_an_answer_is_forgotten_once(tmp_path, talk):
    """The first one at the second prompt, and the second one, alone, at the third."""
    argv = ("--max-new-tokens", "40", "--temperature", "0", "--device", "cpu")
    err = talk(chat_folder(tmp_path), "def f", "x", "y", argv=argv).err
    assert err.count("(1 of 1 answers)") == 2


def test_a_conversation_that_just_has_room_is_remembered(tmp_path, talk):
    folder = chat_folder(tmp_path, positions=256)
    first = answer(folder, "def f")
    second = answer(folder, "def f", first, "x")
    length = len(their_chat(folder, "def f", first, "x")["input_ids"])
    edit_json(folder / "config.json", max_position_embeddings=length + 8)  # 8 are new
    out, err = talk(folder, "def f", "x")
    assert out == f"{first}\n{second}\n"
    assert "forgotten" not in err


def test_a_line_that_has_no_room_leaves_the_conversation_as_it_was(tmp_path, talk):
    folder = chat_folder(tmp_path)
    out, err = talk(folder, "def f", "a" * 200, "x")
    assert out == talk(folder, "def f", "x").out
    assert "forgotten" not in err
    assert "error: a prompt of" in err


def test_without_chat_there_is_no_conversation_to_forget(tmp_path, capsys, monkeypatch):
    folder = their_folder(tmp_path, "llama2-of-4")
    monkeypatch.setattr(sys, "stdin", io.StringIO(":new\n"))
    assert exit_code(script.main, "--run", folder, "--interactive", *GREEDY) == 0
    assert "error: :new begins a new conversation, and without --chat" in capsys.readouterr().err


def test_with_several_samples_there_is_no_conversation_to_forget(tmp_path, talk):
    _, err = talk(chat_folder(tmp_path), ":new", argv=(*GREEDY, "--num-samples", "2"))
    assert "error: :new begins a new conversation, and with several samples there is none" in err


@pytest.mark.parametrize("n_samples, words", [
    ("1", "Each line is what you say next. The commands:"),
    ("2", "Each line is a prompt of its own. The commands:")])
def test_help_says_what_a_line_is(tmp_path, talk, n_samples, words):
    _, err = talk(chat_folder(tmp_path), ":help", argv=(*GREEDY, "--num-samples", n_samples))
    assert words in err


RAW_NOTE = "has a chat template, and prompts are continued as they are: --chat puts them into it\n"


@pytest.mark.parametrize("words, count", [
    (["--prompt", "x"], 1), (["--prompt", "x", "--prompt", "y"], 1),
    (["--prompt", "x", "--chat"], 0)])
def test_raw_prompts_of_a_chat_model_get_one_note(words, count, tmp_path, capsys):
    folder = chat_folder(tmp_path)
    assert exit_code(script.main, "--run", folder, *words, *GREEDY) == 0
    assert capsys.readouterr().err.count(RAW_NOTE) == count


def test_a_folder_without_a_template_gets_no_note(tmp_path, capsys):
    folder = their_folder(tmp_path, "llama2-of-4")
    assert exit_code(script.main, "--run", folder, "--prompt", "x", *GREEDY) == 0
    assert "chat" not in capsys.readouterr().err


@pytest.mark.parametrize("how", [["--prompt", "x"], ["--interactive"]])
def test_chat_without_a_template_is_an_error(how, tmp_path, capsys):
    random_run(tmp_path / "runs", "noise")
    message = error_lines(capsys, script.main, "--run", tmp_path / "runs/noise", "--chat", *how)[-1]
    assert "runs/noise has no chat template (chat_template.jinja, or chat_template in " in message
    assert message.endswith("leave --chat out. After a training on chats, say in bash --prompt "
                            "$'user: Hello\\nassistant:' --stop $'\\nuser:'")


def test_the_lines_of_the_document_write_dialogues_in_the_template(tmp_path, monkeypatch, capsys):
    document = Path(__file__).parent.parent / "docs" / "interop.md"
    (lines,) = re.findall("<<'END'\n(.*?)END\n", document.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "smol"
    folder.mkdir(parents=True)
    save_chatml(folder)
    messages = [{"role": "user", "content": "h\u00e9"}, {"role": "assistant", "content": "yes"}]
    Path("chat.jsonl").write_text(json.dumps({"messages": messages}), encoding="utf-8")
    exec(lines, {})
    text = json.loads(capsys.readouterr().out)["text"]
    theirs = AutoTokenizer.from_pretrained(folder)
    assert text == theirs.apply_chat_template(messages, tokenize=False)
    ids = theirs.apply_chat_template(messages, return_dict=False)
    assert open_tokenizer(folder).encode(text) == ids
