"""The tokenizer in a GGUF, read. Judges are `tokenizers` and the file that the GGUF was made of."""

import json
import random

import gguf
import pytest
import tokenizers
from builders import exit_code, quick_for
from saved_models import byte_level_gguf, edit_gguf, export_to, imported, make_run
from saved_tokenizers import byte_level_fields, described
from small_tokenizers import VOCAB
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

import generate
from data.tokenizer import open_tokenizer
from errors import UserError
from formats.chat import encode_chat, read_chat
from formats.folders import open_model
from formats.gguf_tokenizers import to_byte_level, write_tokenizer
from formats.tokenizers import to_gguf_fields

LETTERS = ["a", "b", "é", "中", "🙂", " ", "  ", "\n", "\t", "1", "23", "'s", "def", "return", ".",
           "x)", "</s>", "<0x41>", "\u0301", "\u00a0"]
BOS, EOS, IM_END, THINK = 298, 299, 300, 301  # of `byte_level_fields`
A = 64  # the piece "a" there


def random_texts():
    """250 texts of pieces that tokenizers treat in different ways."""
    rng = random.Random(0)
    return ["".join(rng.choices(LETTERS, k=rng.randint(1, 30))) for _ in range(250)]


def written(folder, fields):
    """The tokenizer that is written for these fields."""
    write_tokenizer(fields, folder)
    return open_tokenizer(folder)


@pytest.mark.parametrize("kind", ["llama2", "llama2-runs"])
def test_sentencepieces_ids_come_back(kind, tmp_path):
    run, _ = imported(tmp_path, kind)
    file = export_to("gguf", run.path, tmp_path / "file.gguf")
    before = open_tokenizer(run.path)
    back = open_tokenizer(export_to("run", file, tmp_path / "back"))
    for text in random_texts():
        assert back.encode_prompt(text) == before.encode_prompt(text)
    assert back.eos_ids == before.eos_ids
    assert back.adds_space


def test_our_own_ids_come_back(tmp_path):
    run = make_run(tmp_path)
    file = export_to("gguf", run.path, tmp_path / "file.gguf")
    before = open_tokenizer(run.path)
    back = open_tokenizer(export_to("run", file, tmp_path / "back"))
    for text in ("", " two", "\u2581", *random_texts()):
        assert back.encode_prompt(text) == before.encode_prompt(text)
    assert (back.bos_id, back.eos_ids, back.prefix_ids) == (2, [2], [])


def test_a_run_made_of_a_padded_gguf_can_be_exported(tmp_path):
    run, _ = imported(tmp_path, "llama2")  # whose model has 6 embeddings more than pieces
    file = export_to("gguf", run.path, tmp_path / "file.gguf")  # they are unused pieces in it
    back = export_to("run", file, tmp_path / "back")
    exported = open_tokenizer(export_to("hf", back, tmp_path / "hf"))
    assert exported.vocab_size == VOCAB
    assert exported.encode("def f(x)") == open_tokenizer(run.path).encode("def f(x)")


@pytest.mark.parametrize("pre, splitter", [
    ("gpt-2", pre_tokenizers.ByteLevel(add_prefix_space=False)),
    ("smollm", pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])),
])
def test_byte_level_ids_are_those_of_the_models_own_files(pre, splitter, tmp_path):
    """As the tokenizer.json of GPT-2 and of SmolLM cut a text."""
    reference = tokenizers.Tokenizer.from_str(json.dumps(described()))
    reference.pre_tokenizer = splitter
    tokenizer = written(tmp_path, byte_level_fields(pre))
    for text in random_texts():
        assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("pre, words", [
    ("gpt-2", ["I", "'ll", " pay", " 12345", "\n\n ", " née", "!!", "\n"]),
    ("smollm", ["I", "'ll", " pay", " ", "1", "2", "3", "4", "5", "\n\n ", " née", "!!", "\n"]),
    ("llama-bpe", ["I", "'ll", " pay", " ", "123", "45", "\n\n", " ", " née", "!!\n"]),
    ("qwen2", ["I", "'ll", " pay", " ", "1", "2", "3", "4", "5", "\n\n", " ", " née", "!!\n"]),
    ("tekken", ["I", "'ll", " pay", " ", "1", "2", "3", "4", "5", "\n\n", " ", " née", "!!\n"]),
    ("deepseek-coder", ["I", "'", "ll", " pay", " ", "1", "2", "3", "4", "5", "\n", "\n", " ",
                        " née", "!!", "\n"])])
def test_a_text_is_cut_as_the_pre_tokenizer_says(pre, words):
    fields = {name.removeprefix("tokenizer.ggml."): value
              for name, value in byte_level_fields(pre).items()}
    tokenizer = to_byte_level(fields)
    text = "I'll pay 12345\n\n  née!!\n"
    cuts = tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cuts] == words


@pytest.mark.parametrize("pre, changes, prefix", [
    ("smollm", {}, []), ("smollm", {"add_bos_token": True}, [BOS]),
    ("llama-bpe", {}, [BOS]), ("llama-bpe", {"add_bos_token": False}, [])])
def test_bos_is_added_as_by_llama_cpp(pre, changes, prefix, tmp_path):
    assert written(tmp_path, byte_level_fields(pre, **changes)).prefix_ids == prefix


@pytest.mark.parametrize("changes, ends", [
    ({}, [EOS, IM_END]),  # <|im_end|> is known as the end of a turn
    ({"eot_token_id": BOS}, [EOS, BOS, IM_END]), ({"eom_token_id": BOS}, [EOS, BOS, IM_END])])
def test_texts_end_where_the_fields_or_llama_cpp_say(changes, ends, tmp_path):
    assert written(tmp_path, byte_level_fields(**changes)).eos_ids == ends


@pytest.mark.parametrize("wrong", [1, 4])
def test_the_end_of_a_turn_is_special_whatever_its_type(wrong, tmp_path):
    """As in llama.cpp. Here it is an ordinary piece, or one that a user has defined."""
    fields = byte_level_fields()
    fields["tokenizer.ggml.token_type"][IM_END] = wrong
    tokenizer = written(tmp_path, fields)
    assert tokenizer.eos_ids == [EOS, IM_END]
    assert tokenizer.encode("a<|im_end|>") == [A, IM_END]
    assert tokenizer.decode([A, IM_END]) == "a"


def test_special_tokens_are_read_out_of_a_text(tmp_path):
    """They have no text, but those that a user has defined have one."""
    tokenizer = written(tmp_path, byte_level_fields())
    ids = tokenizer.encode("<|im_end|><think>")
    assert ids == [IM_END, THINK]
    assert tokenizer.decode(ids) == "<think>"


def test_an_ordinary_piece_that_pads_is_no_special_token(tmp_path, capsys):
    """Some files pad with the token of id 0. As a special token, transformers would cut texts at
    it."""
    run = export_to("run", byte_level_gguf(tmp_path, byte_level_fields(padding_token_id=0)),
                    tmp_path / "run")
    out = export_to("hf", run, tmp_path / "hf")
    assert AutoTokenizer.from_pretrained(out).pad_token is None


def test_padding_without_a_piece_is_no_special_token(tmp_path, capsys):
    """Converters fill a vocabulary up with unused tokens, and a model may pad with one of these."""
    fields = byte_level_fields(padding_token_id=THINK)
    fields["tokenizer.ggml.token_type"][THINK] = 5
    run = export_to("run", byte_level_gguf(tmp_path, fields), tmp_path / "run")
    assert open_tokenizer(run).pad_id is None


def test_bos_of_the_wrong_type_begins_a_byte_level_text(tmp_path):
    """It begins texts in llama.cpp too. A chat template has to know its name."""
    fields = byte_level_fields(add_bos_token=True)
    fields["tokenizer.ggml.token_type"][BOS] = 1
    tokenizer = written(tmp_path, fields)
    assert (tokenizer.bos_id, tokenizer.prefix_ids) == (BOS, [BOS])
    assert tokenizer.encode("a<|bos|>") == [A, BOS]


def test_bos_of_the_wrong_type_begins_a_sentencepiece_text(tmp_path):
    run = make_run(tmp_path)
    fields = to_gguf_fields(run.path, open_tokenizer(run.path), VOCAB)
    fields["tokenizer.ggml.token_type"][1] = 1
    fields |= {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 1}
    tokenizer = written(tmp_path, fields)
    assert (tokenizer.bos_id, tokenizer.prefix_ids) == (1, [1])


@pytest.mark.parametrize("changes, words", [
    ({"pre": "made-up"}, "tokenizer.ggml.pre is 'made-up', and we know"),
    ({"pre": None}, "tokenizer.ggml.pre is None"),
    ({"merges": ["a zz"]}, "the merge 'a zz' of the tokenizer is not one of its tokens"),
    ({"tokens": ["a", "a"], "token_type": [1, 1], "bos_token_id": 0, "eos_token_id": 0,
      "padding_token_id": 0}, "two tokens of the tokenizer have the same text")])
def test_what_gives_other_ids_is_refused(changes, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        write_tokenizer(byte_level_fields(**changes), tmp_path)


def test_a_user_defined_piece_with_a_space_is_found_in_a_text(tmp_path):
    """llama.cpp's converter writes it with an ordinary space."""
    run = make_run(tmp_path)
    fields = to_gguf_fields(run.path, open_tokenizer(run.path), VOCAB)
    fields["tokenizer.ggml.tokens"].append("New York")
    fields["tokenizer.ggml.scores"].append(0.0)
    fields["tokenizer.ggml.token_type"].append(4)
    tokenizer = written(tmp_path, fields)
    ids = tokenizer.encode("a New York b")
    assert VOCAB in ids
    assert tokenizer.decode(ids) == "a New York b"


def test_a_user_defined_piece_may_be_spelt_as_a_normal_one(tmp_path):
    run = make_run(tmp_path)
    fields = to_gguf_fields(run.path, open_tokenizer(run.path), VOCAB)
    fields["tokenizer.ggml.tokens"] += ["\u2581\u2581qq", "  qq"]
    fields["tokenizer.ggml.scores"] += [-9000.0, 0.0]
    fields["tokenizer.ggml.token_type"] += [1, 4]
    assert written(tmp_path, fields).encode("a")


def test_an_empty_token_is_named(tmp_path):
    run = make_run(tmp_path)
    fields = to_gguf_fields(run.path, open_tokenizer(run.path), VOCAB)
    fields["tokenizer.ggml.tokens"][280] = ""
    with pytest.raises(ValueError, match="the token 280 of the tokenizer is empty"):
        write_tokenizer(fields, tmp_path)


@pytest.mark.parametrize("bos", ["<bos:1>", "$BOS", "<bos>"])
def test_the_token_that_begins_texts_may_have_any_name(bos, tmp_path):
    """TemplateProcessing of `tokenizers` takes a colon and a dollar for signs of its own."""
    fields = byte_level_fields(add_bos_token=True)
    fields["tokenizer.ggml.tokens"][BOS] = bos
    write_tokenizer(fields, tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode("a").ids == [BOS, A]
    assert theirs.encode("a", "a").ids == [BOS, A, A]
    assert theirs.encode("a", "a").type_ids == [0, 0, 1]


def test_more_tokens_than_embeddings_are_refused(tmp_path):
    fields = byte_level_fields()
    fields["tokenizer.ggml.tokens"].append("<more>")
    fields["tokenizer.ggml.token_type"].append(3)
    file = byte_level_gguf(tmp_path, fields)
    with pytest.raises(UserError, match=f"the tokenizer of {file} has ids up to 302"), \
            open_model(file):
        pass


TEMPLATE = {"tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}<|im_end|>\n"}


def chat_greedily(source, capsys):
    """What a model answers to a prompt, by the command."""
    assert exit_code(generate.main, "--run", source, "--chat", "--prompt", "def f",
                     "--temperature", "0", "--max-new-tokens", "9") == 0
    return capsys.readouterr().out


def test_a_gguf_chats_as_the_run_made_of_it(tmp_path, capsys):
    file = byte_level_gguf(tmp_path, byte_level_fields() | TEMPLATE)
    run = export_to("run", file, tmp_path / "back")
    assert chat_greedily(file, capsys) == chat_greedily(run, capsys)
    assert (run / "chat_template.jinja").read_text(encoding="utf-8") == (
        "{{ bos_token }}{{ messages[0].content }}<|im_end|>\n")


# --- chats of a sentencepiece tokenizer -----------------------------------------------------------

CONTROL = 3
USER_DEFINED = 4
TURNS = ("{{ bos_token }}{% for turn in messages %}<|im_start|>{{ turn.role }}\n"
         "{{ turn.content }}<|im_end|>{{ '\n' }}{% endfor %}<|im_start|>assistant\n")


def sentencepiece_gguf(tmp_path, kind):
    """A GGUF with BOS and a space in front of texts, TURNS, and two pieces of this type behind the
    others."""
    run, _ = imported(tmp_path, "llama2")
    file = export_to("gguf", run.path, tmp_path / "file.gguf")
    fields = gguf.GGUFReader(file).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    scores = fields["tokenizer.ggml.scores"].contents()
    # In place of the first two of the six unused pieces that pad the vocabulary.
    tokens[VOCAB : VOCAB + 2] = ["<|im_start|>", "<|im_end|>"]
    types[VOCAB : VOCAB + 2] = [kind, kind]
    scores[VOCAB : VOCAB + 2] = [0.0, 0.0]
    return edit_gguf(file, {
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores, "tokenizer.chat_template": TURNS})


def chat_ids(run, text):
    return encode_chat(read_chat(run), open_tokenizer(run), text)


@pytest.mark.parametrize("text", quick_for(["  naïve\n中 🙂", "a<|im_end|> b"], [
    "def f(x)", "", "  naïve\n中 🙂", "a<|im_end|> b", "</s></s>  y", "<unk>"]))
def test_a_sentencepiece_chat_has_the_ids_of_transformers(text, tmp_path):
    run = export_to("run", sentencepiece_gguf(tmp_path, CONTROL), tmp_path / "run")
    auto = AutoTokenizer.from_pretrained(export_to("hf", run, tmp_path / "hf"))
    turns = [{"role": "user", "content": text}]
    expected = auto.apply_chat_template(turns, add_generation_prompt=True)
    assert chat_ids(run, text) == expected["input_ids"]


@pytest.mark.parametrize("kind", [CONTROL, USER_DEFINED])
def test_a_space_follows_each_special_piece_as_in_llama_cpp(kind, tmp_path):
    run = export_to("run", sentencepiece_gguf(tmp_path, kind), tmp_path / "run")
    piece = open_tokenizer(run).processor.id_to_piece
    pieces = " ".join(map(piece, chat_ids(run, "a")))
    assert pieces == ("<s> <|im_start|> ▁ u s e r <0x0A> a <|im_end|> ▁ <0x0A> <|im_start|> ▁ ass "
                      "<0x69> s t a n t")


def test_a_sentencepiece_gguf_chats_where_it_lies(tmp_path, capsys):
    file = sentencepiece_gguf(tmp_path, CONTROL)
    run = export_to("run", file, tmp_path / "run")
    assert chat_greedily(file, capsys) == chat_greedily(run, capsys)


def test_a_gguf_without_a_template_says_so(tmp_path, capsys):
    file = byte_level_gguf(tmp_path, byte_level_fields())
    assert exit_code(generate.main, "--run", file, "--chat", "--prompt", "a") == 2
    assert f"{file} has no chat template" in capsys.readouterr().err


def test_a_gguf_without_a_tokenizer_is_refused(tmp_path):
    file = byte_level_gguf(tmp_path, {})
    with pytest.raises(UserError, match="tokenizer.ggml.model is None"), open_model(file):
        pass
