"""Tokenizers in other people's files, out and in. Judges: transformers and sentencepiece."""

import json
import math
import random
from unittest import mock

import numpy as np
import pytest
import sentencepiece
import tokenizers
import torch
from builders import exit_code
from saved_models import (
    assert_refused,
    edit_json,
    export_to,
    imported,
    make_run,
    read_gguf,
    reexport,
    their_folder,
)
from saved_tokenizers import (
    SAVE,
    add_tokens,
    save_gemma,
    save_llama2,
    save_llama2_json,
    save_llama2_of_4,
    save_llama3,
)
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyrefly: ignore
from small_tokenizers import ODD_TEXTS, VOCAB, train_sentencepiece
from transformers import AutoTokenizer

import generate
import train
from data.tokenizer import SPACE, Tokenizer, open_tokenizer
from errors import UserError
from files import read_json
from formats import tokenizers as formats_tokenizers
from gyre.load import Row
from gyre.load import load as load_run
from gyre.options import TrainConfig


def reference_ids(folder, texts):
    """{text: ids} by the tokenizer.json of a folder, or else by its sentencepiece file."""
    if (folder / "tokenizer.json").exists():
        by_file = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        return {text: by_file.encode(text).ids for text in texts}
    pieces = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    return {text: pieces.encode(text, add_bos=True) for text in texts}


KINDS = ["llama2", "llama2-json", "llama2-of-4", "llama3"]
# Texts that spell tokens of the kinds above: special ones, and an added one of llama3, "<thïnk >".
SPELT = ["<s>a</s>", "<|begin_of_text|>a<|end_of_text|>", "<thïnk > b"]
SPECIAL = ("<unk>", "<s>", "</s>")  # in a sentencepiece file


def spells_special(text):
    """Whether transformers reads a special token out of a text, which sentencepiece never does."""
    return any(token in text for token in SPECIAL)


@pytest.mark.parametrize("kind", KINDS)
def test_imported_ones_give_the_ids_of_their_reference(kind, tmp_path):
    """That is `tokenizers`, and sentencepiece for a sentencepiece file. The two differ where a text
    begins with a space or spells a special token."""
    run, folder = imported(tmp_path, kind)
    ours = open_tokenizer(run.path)
    for text, ids in reference_ids(folder, ODD_TEXTS + SPELT).items():
        assert ours.prefix_ids + ours.encode(text) == ids, text


@pytest.mark.parametrize("kind, agrees", [
    ("llama2", False), ("llama2-json", True), ("llama2-of-4", False), ("llama3", True)])
def test_transformers_5_does_not_read_every_file_as_it_says(kind, agrees, tmp_path):
    """So the reference is not always transformers."""
    SAVE[kind](tmp_path)
    auto = AutoTokenizer.from_pretrained(tmp_path)
    reference = reference_ids(tmp_path, ODD_TEXTS + SPELT)
    assert ({text: auto(text)["input_ids"] for text in reference} == reference) is agrees


@pytest.mark.parametrize("kind", KINDS)
def test_imported_ones_begin_and_end_as_in_transformers(kind, tmp_path):
    run, folder = imported(tmp_path, kind)
    ours = open_tokenizer(run.path)
    auto = AutoTokenizer.from_pretrained(folder)
    assert ours.prefix_ids == [auto.bos_token_id]
    assert ours.eos_id == ours.eos_ids[-1] == auto.eos_token_id
    assert ours.encode_prompt("") == [auto.eos_token_id, auto.bos_token_id]


@pytest.mark.parametrize("kind", KINDS)
def test_imported_ones_give_text_back(kind, tmp_path):
    """But for special tokens. Nor where a text begins with a space: a tokenizer.json may add none
    in front of it, and decoding removes one."""
    SAVE[kind](tmp_path)
    ours = open_tokenizer(tmp_path)
    texts = [text for text in ODD_TEXTS if SPACE not in text and "</s>" not in text]
    if type(ours) is not Tokenizer:
        texts = [text for text in texts if not text.startswith(" ")]
    assert [ours.decode(ours.encode(text)) for text in texts] == texts


@pytest.mark.parametrize("kind", KINDS)
def test_imported_ones_leave_with_the_same_ids(kind, tmp_path):
    run, folder = imported(tmp_path, kind)
    texts = [*ODD_TEXTS, *SPELT]
    if kind == "llama2":
        texts = [text for text in texts if not spells_special(text)]
    reference = reference_ids(folder, texts)
    again = AutoTokenizer.from_pretrained(export_to("hf", run.path, tmp_path / "again"))
    assert {text: again(text)["input_ids"] for text in reference} == reference


def converters_ids(folder, text):
    """The ids that llama.cpp gives a text after convert_hf_to_gguf.py: those of the sentencepiece
    file, with a space in front unless add_prefix_space says otherwise."""
    processor = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    adds_space = read_json(folder / "tokenizer_config.json").get("add_prefix_space") in (None, True)
    assert adds_space == (processor.normalize("a") == SPACE + "a")
    return processor.encode(text)


def test_an_export_holds_what_llama_cpps_converter_reads(tmp_path):
    run = make_run(tmp_path)
    out = export_to("hf", run.path, tmp_path / "hf")
    assert converters_ids(out, ODD_TEXTS[0]) == open_tokenizer(run.path).encode(ODD_TEXTS[0])


@pytest.mark.parametrize("text", ["def f(x):", "", "a\n", "</s"])
def test_eos_behind_a_text_of_an_export_is_the_end(text, tmp_path):
    """Trainers, such as trl's SFTTrainer, end a text by appending the text of EOS."""
    run = make_run(tmp_path)
    theirs = AutoTokenizer.from_pretrained(export_to("hf", run.path, tmp_path / "hf"))
    ids = theirs(text + theirs.eos_token)["input_ids"]
    assert ids == [*open_tokenizer(run.path).encode(text), 2]


def test_a_special_token_that_a_text_spells_is_one_in_exports(tmp_path):
    """And is text in the run."""
    run = make_run(tmp_path)
    out = export_to("hf", run.path, tmp_path / "hf")
    theirs = AutoTokenizer.from_pretrained(out)
    assert theirs("</s><s><unk>")["input_ids"] == [2, 1, 0]
    assert open_tokenizer(out).encode("</s><s><unk>") == [2, 1, 0]
    ours = open_tokenizer(run.path)
    assert ours.decode(ours.encode("</s><s><unk>")) == "</s><s><unk>"


def test_an_imported_export_gives_the_ids_of_its_run(tmp_path):
    run = make_run(tmp_path)
    out = export_to("hf", run.path, tmp_path / "hf")
    back = open_tokenizer(export_to("run", out, tmp_path / "back"))
    ours = open_tokenizer(run.path)
    for text in ODD_TEXTS:
        if not spells_special(text):
            assert back.encode(text) == ours.encode(text), text


def test_an_old_export_reads_special_tokens_as_text(tmp_path):
    """It has split_special_tokens, with which an import gives the ids of the run for each text."""
    run = make_run(tmp_path)
    out = export_to("hf", run.path, tmp_path / "hf")
    edit_json(out / "tokenizer_config.json", split_special_tokens=True)
    back = open_tokenizer(export_to("run", out, tmp_path / "back"))
    ours = open_tokenizer(run.path)
    for text in ODD_TEXTS:
        assert back.encode(text) == ours.encode(text), text


@pytest.fixture
def saved_by_transformers(tmp_path):
    """(our tokenizer, a run from what transformers saved of its export, that run's export).

    transformers saves a tokenizer.json alone.
    """
    run = make_run(tmp_path)
    out = export_to("hf", run.path, tmp_path / "hf")
    (out / "tokenizer.model").unlink()
    AutoTokenizer.from_pretrained(out).save_pretrained(out)
    edit_json(out / "tokenizer_config.json", add_prefix_space=None)  # other versions have none
    return open_tokenizer(run.path), *reexport(out, tmp_path / "again")


def test_what_transformers_saved_gives_the_same_ids_and_texts(saved_by_transformers):
    ours, _, out = saved_by_transformers
    theirs = AutoTokenizer.from_pretrained(out)
    again = open_tokenizer(out)
    rng = random.Random(4)
    characters = [*" \n=ad(f\u2581", "中", "    "]
    drawn = ["".join(rng.choices(characters, k=30)) for _ in range(100)]
    odd = [text for text in ODD_TEXTS if not spells_special(text)]
    for text in [*odd, *drawn]:
        ids = ours.encode(text)
        assert theirs(text)["input_ids"] == ids
        assert again.encode(text) == ids
        assert theirs.decode(ids) == text
        if SPACE not in text:
            assert converters_ids(out, text) == ids
    assert theirs.eos_token_id == ours.eos_id == 2


def test_what_transformers_saved_has_scores_in_a_gguf(saved_by_transformers, tmp_path):
    _, run, out = saved_by_transformers
    fields, _ = read_gguf(run, tmp_path / "out.gguf")
    pieces = sentencepiece.SentencePieceProcessor(str(out / "tokenizer.model"))
    assert fields["tokenizer.ggml.scores"] == [pieces.get_score(i) for i in range(330)]
    assert fields["tokenizer.ggml.add_space_prefix"] is False


def test_pieces_that_never_merge_score_below_all_merges():
    pieces = {3: "a", 4: "b", 5: "ab", 6: "aba"}
    scores = formats_tokenizers.piece_scores(pieces, ["ab", "aba"])
    assert scores == {"ab": 0, "aba": -1, "a": -5, "b": -6}


def test_a_tokenizer_json_that_joins_characters_is_refused_in_a_gguf(tmp_path, capsys):
    """By NFC: a sentencepiece file of ours normalises nothing."""
    folder = their_folder(tmp_path, "llama2-of-4")
    steps = read_json(folder / "tokenizer.json")["normalizer"]["normalizers"]
    edit_json(folder / "tokenizer.json",
              normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, *steps]})
    run = export_to("run", folder, tmp_path / "ours")
    assert_refused(capsys, "gguf", run, tmp_path / "x.gguf", "that no sentencepiece file gives, "
                   "and a GGUF is written with such a file only: export with --to hf")


@pytest.mark.parametrize("change", ["order", "merges", "added_tokens"])
def test_a_tokenizer_json_that_no_sentencepiece_file_equals_is_refused(change, tmp_path, capsys):
    """order: the shortest runs of spaces merge first, so long runs split elsewhere. merges: one is
    missing, and sentencepiece would merge that pair too, since its piece is there. added_tokens:
    <unk> is a common token, which has a text."""
    folder = their_folder(tmp_path, "llama2-of-4")
    described = read_json(folder / "tokenizer.json")
    merges = described["model"]["merges"]
    if change == "merges":
        merges.pop()
    elif change == "added_tokens":
        described["added_tokens"].pop(0)
        edit_json(folder / "tokenizer_config.json", unk_token=None)
    else:
        assert not "".join(merges[-120:]).strip(SPACE + " ")
        merges[-120:] = sorted(merges[-120:], key=lambda pair: [len(run) for run in pair.split()])
    edit_json(folder / "tokenizer.json", **described)
    run, out = reexport(folder, tmp_path)
    assert not (out / "tokenizer.model").exists()
    assert_refused(
        capsys, "gguf", run, tmp_path / "out.gguf", "tokenizer.json", "no sentencepiece file")


@pytest.mark.parametrize("options, words", [
    ({}, ["do not number", "other ids"]),
    ({"user_defined_symbols": "<sep>"}, ["(0 of ", "'<sep>'", "other ids"])])
def test_pieces_whose_scores_are_not_those_of_merges_are_refused(options, words, tmp_path, capsys):
    """Merges alone would give other ids in silence."""
    tokenizer = train_sentencepiece(tmp_path, add_dummy_prefix=False, **options)
    if not options:  # two pieces share a score
        proto = ModelProto.FromString(tokenizer.read_bytes())
        proto.pieces[-1].score = proto.pieces[-2].score
        tokenizer.write_bytes(proto.SerializeToString())
    run = make_run(tmp_path, tokenizer=tokenizer)
    for to in ("hf", "gguf"):
        assert_refused(capsys, to, run.path, tmp_path / "out", *words)


def test_a_tokenizer_json_that_gives_other_ids_is_not_written(tmp_path, capsys, monkeypatch):
    """As of a model that is no BPE, whose scores seem to number merges."""
    run = make_run(tmp_path)
    merges = formats_tokenizers._merges
    monkeypatch.setattr(formats_tokenizers, "_merges", lambda *args: merges(*args)[:-1])
    assert_refused(
        capsys, "hf", run.path, tmp_path / "out", str(run.path), "is it not a BPE model?")


@pytest.mark.parametrize("merges, order", [
    ("a b, c d", ["ab", "cd"]), ("a bc, ab c, d e", ["abc", "de"]),
    ("a bc, d e, ab c", None),  # the merges of "abc" go on after those of "de"
    ("a b, s s, ss ss, s s", ["ab"]),  # s: a space. Its runs may share a score
    ("s s, a b, s s", None), ("a bc, d e, ab c, s s", None)])
def test_merges_have_an_order_that_scores_can_have_or_none(merges, order):
    pairs = [tuple(pair.replace("s", SPACE).split(" ")) for pair in merges.split(", ")]
    assert formats_tokenizers.merge_order(pairs) == order


@pytest.mark.parametrize("mixed", [False, True])
def test_runs_of_spaces_that_share_a_score_can_leave(mixed, tmp_path):
    """Of up to 149 spaces, and texts full of shorter ones. 15 pieces are runs of spaces.
    `mixed`: their merges stand among the others, as in the tokenizer.json of transformers 4."""
    rng = random.Random(7)
    parts = ["  ", "     ", "def", "a", "\n"]
    spaced = ["x" + "".join(rng.choices(parts, k=40)) for _ in range(50)]
    spaced += [f"a{n * ' '}b" for n in range(150)]
    run, folder = imported(tmp_path, "llama2-of-4" if mixed else "llama2-runs")
    out = export_to("hf", run.path, tmp_path / "hf")
    auto = AutoTokenizer.from_pretrained(out)
    for text, ids in reference_ids(folder, spaced).items():
        assert auto(text)["input_ids"] == [1, *converters_ids(out, text)] == ids, text
    fields, _ = read_gguf(run.path, tmp_path / "out.gguf")
    assert fields["tokenizer.ggml.scores"][VOCAB - 15 : VOCAB] == [-1e9] * 15


# transformers 4 reads add_bos_token for Llama's class, and 5 what the file says, so an export lets
# the two agree. For another class both read what the file says.
@pytest.mark.parametrize("kind, adds_bos, file_begins, begins", [
    ("LlamaTokenizer", False, True, False), ("LlamaTokenizer", True, False, True),
    ("PreTrainedTokenizerFast", False, True, True)])
def test_texts_begin_as_the_class_says_in_every_version(
        kind, adds_bos, file_begins, begins, tmp_path):
    folder = their_folder(tmp_path, "llama2-of-4")
    edit_json(folder / "tokenizer_config.json", tokenizer_class=kind, add_bos_token=adds_bos)
    if not file_begins:
        edit_json(folder / "tokenizer.json", post_processor=None)
    run, out = reexport(folder, tmp_path)
    ids = open_tokenizer(run).encode("a")
    expected = [1, *ids] if begins else ids
    assert reference_ids(out, ["a"]) == {"a": expected}
    assert AutoTokenizer.from_pretrained(out)("a")["input_ids"] == expected


def test_transformers_begins_texts_as_the_file_says(tmp_path):
    """For any class but Llama's."""
    save_llama2_of_4(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast",
              add_bos_token=False)
    assert AutoTokenizer.from_pretrained(tmp_path)("a")["input_ids"][0] == 1


@pytest.mark.parametrize("kind, adds_bos, begins, begins_in_5", [
    ("llama2", True, True, True), ("llama2", None, True, False), ("llama2", False, False, False),
    ("llama2-of-4", False, False, True)])
def test_texts_begin_as_in_transformers_4(kind, adds_bos, begins, begins_in_5, tmp_path):
    """Version 5 does not read add_bos_token beside a tokenizer.json. Without one, it adds no BOS if
    the field is absent (None)."""
    SAVE[kind](tmp_path)
    settings = tmp_path / "tokenizer_config.json"
    fields = read_json(settings) | {"add_bos_token": adds_bos}
    settings.write_text(json.dumps({name: v for name, v in fields.items() if v is not None}))
    assert (open_tokenizer(tmp_path).prefix_ids == [1]) is begins
    ids = AutoTokenizer.from_pretrained(tmp_path)("a")["input_ids"]
    assert (ids[0] == 1) is begins_in_5


def test_a_sentencepiece_file_follows_the_tokenizer_json_beside_it(tmp_path):
    """Also where nothing says add_bos_token, which for such a file alone is true by default."""
    folder = their_folder(tmp_path, "llama2-json")
    edit_json(folder / "tokenizer.json", post_processor=None)
    edit_json(folder / "tokenizer_config.json", add_bos_token=None)
    run, out = reexport(folder, tmp_path)
    assert read_json(out / "tokenizer_config.json")["add_bos_token"] is False
    theirs = AutoTokenizer.from_pretrained(out)
    assert theirs("a")["input_ids"] == open_tokenizer(folder).encode("a")
    fields, _ = read_gguf(run, tmp_path / "out.gguf")
    assert fields["tokenizer.ggml.add_bos_token"] is False


def test_a_number_that_json_has_not_is_none(tmp_path):
    folder = their_folder(tmp_path, "llama2-json")
    edit_json(folder / "tokenizer_config.json", model_max_length=math.inf)
    _, out = reexport(folder, tmp_path)
    assert read_json(out / "tokenizer_config.json")["model_max_length"] is None


def test_a_sentencepiece_file_without_the_end_is_another_tokenizer(tmp_path, capsys):
    folder = their_folder(tmp_path, "llama2-json")
    added = read_json(folder / "tokenizer.json")["added_tokens"]
    end = added[-1] | {"id": VOCAB, "content": "<end>"}
    edit_json(folder / "tokenizer.json", added_tokens=[*added, end])
    edit_json(folder / "tokenizer_config.json", eos_token="<end>")
    run = export_to("run", folder, tmp_path / "ours")
    assert_refused(capsys, "gguf", run, tmp_path / "out.gguf", "give different ids", str(run))


def test_a_tokenizer_json_that_truncates_and_pads_encodes_whole_texts(tmp_path):
    folder = their_folder(tmp_path, "llama2-of-4")
    text = "def f(x): " * 9
    whole = open_tokenizer(folder).encode(text)
    cut = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 999}, "direction": "Right", "pad_to_multiple_of": None,
           "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    edit_json(folder / "tokenizer.json", truncation=cut, padding=pad)
    assert open_tokenizer(folder).encode(text) == whole


def test_the_settings_say_what_ends_a_text(tmp_path):
    """Here <end>, and not </s>, the end of the sentencepiece file. An added_tokens.json, which
    older versions of transformers wrote, changes nothing if it gives the ids of that file."""
    folder = their_folder(tmp_path)
    train_sentencepiece(folder, control_symbols="<end>")
    edit_json(
        folder / "tokenizer_config.json", eos_token={"__type": "AddedToken", "content": "<end>"})
    edit_json(folder / "added_tokens.json", **{"</s>": 2, "<end>": 3})
    assert open_tokenizer(folder).prefix_ids == [1]  # unless add_bos_token says otherwise
    run, out = reexport(folder, tmp_path)
    theirs, again = (AutoTokenizer.from_pretrained(path) for path in (folder, out))
    assert open_tokenizer(run).eos_id == theirs.eos_token_id == again.eos_token_id == 3
    assert read_gguf(run, tmp_path / "out.gguf")[0]["tokenizer.ggml.eos_token_id"] == 3


@pytest.mark.parametrize("file, content, words", [
    ("added_tokens", {"<pad>": VOCAB}, "'<pad>'"),
    ("tokenizer_config", {"added_tokens_decoder": {"7": {"content": "<s>"}}}, "'<s>'"),
    ("tokenizer_config", {"eos_token": "<end>"}, "eos_token '<end>' of"),
    ("tokenizer_config", {"add_prefix_space": True}, "add_prefix_space"),
    ("tokenizer_config", {"add_eos_token": True}, "has add_eos_token")])
def test_sentencepiece_files_that_others_read_otherwise(file, content, words, tmp_path, capsys):
    folder = their_folder(tmp_path)
    edit_json(folder / f"{file}.json", **content)
    assert_refused(capsys, "run", folder, tmp_path / "ours", f"{file}.json", words)


BEHIND = {"type": "BertProcessing", "cls": ["<|begin_of_text|>", 6], "sep": ["<|end_of_text|>", 7]}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
CUT = {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"String": "q"}, "behavior": "Removed", "invert": False}]}
REPLACE = {"type": "Replace", "pattern": {"String": "ab"}, "content": "c"}


@pytest.mark.parametrize("file, place, value, words", [
    ("tokenizer_config", "eos_token", "#", "what ends a text"),
    ("tokenizer", "post_processor", BEHIND, "puts tokens behind every text"),
    ("tokenizer", "post_processor.special_tokens", {}, "PanicException"),
    ("tokenizer", "post_processor.special_tokens.<|begin_of_text|>.ids", [301],
     "puts the id 301 in front of every text, and has no such token"),
    ("tokenizer", "normalizer", REPLACE, "it replaces [{'String': 'ab'}]"),
    ("tokenizer", "pre_tokenizer", BYTE_LEVEL, "not give text back"),
    ("tokenizer", "pre_tokenizer", CUT, "it replaces"),
    ("tokenizer", "model.dropout", 0.1, "its dropout is 0.1"),
], ids=lambda x: x if isinstance(x, str) else "")
def test_a_tokenizer_json_of_no_use_is_refused(file, place, value, words, tmp_path, capsys):
    folder = their_folder(tmp_path, "llama3")
    content = part = read_json(folder / f"{file}.json")
    *parents, name = place.split(".")
    for parent in parents:
        part = part[parent]
    part[name] = value
    edit_json(folder / f"{file}.json", **content)
    assert_refused(capsys, "run", folder, tmp_path / "ours", str(folder), words)


def test_a_tokenizer_json_with_more_ids_than_embeddings_is_refused(tmp_path, capsys):
    folder = their_folder(tmp_path, "llama3")
    model = read_json(folder / "tokenizer.json")["model"]
    model["vocab"]["xyz"] = 336
    edit_json(folder / "tokenizer.json", model=model, post_processor=None)
    assert_refused(capsys, "run", folder, tmp_path / "ours", str(folder),
                   "ids up to 336, and the model 336 embeddings")


@pytest.mark.parametrize("stated", [
    {"additional_special_tokens": ["<|user|>"]}, {"extra_special_tokens": ["<|user|>"]},
    {"extra_special_tokens": {"user_token": "<|user|>"}}, {"unk_token": "<|user|>"}])
def test_a_special_token_of_the_settings_alone_is_refused(stated, tmp_path, capsys):
    folder = their_folder(tmp_path, "llama3")
    edit_json(folder / "tokenizer_config.json", **stated)
    assert AutoTokenizer.from_pretrained(folder)("<|user|>")["input_ids"] == [298, 301]
    assert_refused(capsys, "run", folder, tmp_path / "ours", "the special token '<|user|>'")


@pytest.mark.parametrize("name", ["additional_special_tokens", "extra_special_tokens"])
def test_special_tokens_that_are_no_list_are_refused(name, tmp_path, capsys):
    """As transformers refuses them, also if the text that stands there is a special token."""
    folder = their_folder(tmp_path, "llama3")
    edit_json(folder / "tokenizer_config.json", **{name: "<|end_of_text|>"})
    with pytest.raises(TypeError, match="must be a list"):
        AutoTokenizer.from_pretrained(folder)
    assert_refused(capsys, "run", folder, tmp_path / "ours", f"{name} is '<|end_of_text|>'")


@pytest.mark.parametrize("stated", [
    {"extra_special_tokens": [["a"]]}, {"extra_special_tokens": {"a": {}}}, {"unk_token": ["a"]}])
def test_a_special_token_without_a_text_is_refused(stated, tmp_path, capsys):
    folder = their_folder(tmp_path, "llama3")
    edit_json(folder / "tokenizer_config.json", **stated)
    assert_refused(capsys, "run", folder, tmp_path / "ours", "which has no text: correct it")


def test_a_special_token_that_is_a_piece_in_the_file_is_refused(tmp_path, capsys):
    """transformers would cut the text at it."""
    folder = their_folder(tmp_path, "llama3")
    edit_json(folder / "tokenizer_config.json", pad_token="#")
    assert_refused(capsys, "run", folder, tmp_path / "ours", "the special token '#'")


def import_notes(capsys, folder):
    """(what an import of a folder notes, the run)."""
    run = export_to("run", folder, folder.with_name("imported"))
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if line.startswith("note:")], run


def test_an_import_without_a_tokenizer_json_says_so(tmp_path, capsys):
    (note,), _ = import_notes(capsys, their_folder(tmp_path))
    assert "has no tokenizer.json: the ids are sentencepiece's" in note


def test_an_end_that_is_text_in_the_tokenizer_is_noted(tmp_path, capsys):
    folder = their_folder(tmp_path, "llama3")  # transformers writes Llama 2's ids by default
    edit_json(folder / "config.json", bos_token_id=298)
    (note,), _ = import_notes(capsys, folder)
    assert "ends texts at id 2, and the tokenizer there has '#' for it" in note


def test_another_beginning_than_the_tokenizers_is_noted(tmp_path, capsys):
    folder = their_folder(tmp_path, "llama3")
    edit_json(folder / "config.json", eos_token_id=299)
    (folder / "generation_config.json").unlink()
    (note,), _ = import_notes(capsys, folder)
    assert "config.json is 1, and the tokenizer there has 298" in note


def test_an_end_of_config_json_counts_beside_the_tokenizers(tmp_path, capsys):
    """Where generation_config.json is silent."""
    folder = their_folder(tmp_path, "llama3")
    edit_json(folder / "config.json", bos_token_id=298)
    edit_json(folder / "generation_config.json", eos_token_id=None)
    (note,), run = import_notes(capsys, folder)
    assert "ends texts at id 2" in note
    assert open_tokenizer(run).eos_ids == [2, 299]


def test_an_import_that_fits_notes_nothing(tmp_path, capsys):
    folder = their_folder(tmp_path, "llama3")
    edit_json(folder / "config.json", bos_token_id=298, eos_token_id=299)
    (folder / "generation_config.json").unlink()
    notes, _ = import_notes(capsys, folder)
    assert notes == []


# --- added tokens ---------------------------------------------------------------------------------


def stream(tokenizer, ids, prompt=""):
    """What `generate.py` prints of these ids behind a prompt."""
    row = Row(prompt, tokenizer)
    return "".join(row.add(i) for i in ids) + row.add(None)


def decodings(folder, text):
    """The text of the ids of `text`: by `tokenizers`, by us, and by us token by token."""
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = open_tokenizer(folder)
    ids = theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text) == ids
    return {theirs.decode(ids), ours.decode(ids), stream(ours, ids)}


@pytest.mark.parametrize("text", [
    "I love New York city", "a <|user|> b", "New York New York", "xNew York",
    "<|user|>", "a\nNew York", " New York ", "a <|user|><|user|>", "x<|user|> New York"])
def test_a_normalized_added_token_keeps_the_space_before_it(text, tmp_path):
    save_llama2_of_4(tmp_path)
    add_tokens(tmp_path, "New York", "<|user|>")
    assert decodings(tmp_path, text) == {text}


@pytest.mark.parametrize("text, decoded", [
    ("I love New York city", "I love New York  city"), ("a <|user|> b", "a <|user|>  b"),
    ("New York New York", "New York  New York"), ("xNew York", "xNew York"),
    ("<|user|>", "<|user|>"), ("a <|user|><|user|>", "a <|user|><|user|>")])
def test_an_unnormalized_added_token_begins_a_text_anew(text, decoded, tmp_path):
    """What follows it gets the space that begins every text, and `tokenizers` takes one away."""
    save_llama2_of_4(tmp_path)
    add_tokens(tmp_path, "New York", "<|user|>", normalized=False)
    assert decodings(tmp_path, text) == {decoded}


@pytest.mark.parametrize("flags, text, decoded", [
    ({"lstrip": True}, "a  <m>  b", "a<m>   b"), ({"lstrip": True}, " <m>", "<m>"),
    ({"rstrip": True}, "a  <m>  b", "a  <m> b"), ({"rstrip": True}, "<m> ", "<m>"),
    ({"single_word": True}, "<m> x<m>", "<m>  x<m>"),
    ({"single_word": True}, "<m>", "<m>")], ids=str)
def test_flags_of_added_tokens_act_as_in_tokenizers(flags, text, decoded, tmp_path):
    save_llama2_of_4(tmp_path)
    add_tokens(tmp_path, "<m>", normalized=False, **flags)
    assert decodings(tmp_path, text) == {decoded}


@pytest.mark.parametrize("text, decoded", [
    ("a <x> b", "a   b"), ("<x><x>a", "a"), ("a<x>", "a"), ("<x>", ""), ("<x> <x>", " ")])
def test_a_special_token_has_no_text(text, decoded, tmp_path):
    save_llama2_of_4(tmp_path)
    add_tokens(tmp_path, "<x>", special=True, normalized=False)
    assert decodings(tmp_path, text) == {decoded}


def test_a_normalized_special_token_has_no_text_either(tmp_path):
    """`tokenizers` 0.23.3 prints it where the normalizer changes its content: it looks for the
    content that is not normalized."""
    save_llama2_of_4(tmp_path)
    add_tokens(tmp_path, "<x>", special=True, normalized=True)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(tmp_path)
    assert theirs.decode(theirs.encode("a <x>").ids) == "a <x>"
    assert ours.decode(ours.encode("a <x>")) == "a"


def test_a_normalized_special_token_that_no_normalizer_changes_has_no_text(tmp_path):
    save_llama3(tmp_path)
    add_tokens(tmp_path, "<x>", special=True, normalized=True)
    assert decodings(tmp_path, "a <x>") == {"a "}


@pytest.mark.parametrize("text", [
    "a New York b", "<|user|> hi", "New YorkNew York", "a\n\n\n\nb", "café x", "x\n\n"])
def test_added_tokens_of_byte_level_files_come_back(text, tmp_path):
    save_llama3(tmp_path)
    add_tokens(tmp_path, "New York", "<|user|>", "\n\n", "é x")
    assert decodings(tmp_path, text) == {text}


@pytest.mark.parametrize("text, decoded", [("a Zürich", "a Z\ufffdrich"), ("Ġx", " x")])
def test_byte_level_decoders_read_added_tokens_as_bytes(text, decoded, tmp_path):
    """Where every character of one stands for a byte. `tokenizers` gives such text no better."""
    save_llama3(tmp_path)
    add_tokens(tmp_path, "Zürich", "Ġx")
    assert decodings(tmp_path, text) == {decoded}


def test_added_tokens_pass_through_nfc_as_in_qwens_files(tmp_path):
    save_llama3(tmp_path)
    edit_json(tmp_path / "tokenizer.json", normalizer={"type": "NFC"})
    add_tokens(tmp_path, "cafe\u0301 x")
    assert decodings(tmp_path, "a cafe\u0301 x") == {"a caf\u00e9 x"}


def test_bytes_that_are_no_character_are_counted_otherwise_by_tokenizers(tmp_path):
    """It gives up on the whole row of bytes. No text has such ids, but a model may draw them."""
    save_llama2_of_4(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = [theirs.token_to_id(piece) for piece in ("<0xC3>", "<0xA9>", "<0xFF>")]
    assert theirs.decode(ids) == "\ufffd\ufffd\ufffd"
    assert open_tokenizer(tmp_path).decode(ids) == "é\ufffd"


@pytest.mark.parametrize("length", [2, 3, 4, 5, 8, 16])
def test_added_runs_of_spaces_come_back(length, tmp_path):
    save_llama2_of_4(tmp_path)
    add_tokens(tmp_path, length * SPACE, normalized=False)
    ours = open_tokenizer(tmp_path)
    texts = [f"a{n * ' '}b" for n in range(1, 40)]
    assert [stream(ours, ours.encode(text)) for text in texts] == texts


@pytest.mark.parametrize("text", [
    "a     b", 40 * " " + "a", "a" + 33 * " ", "\n\n\n  a\t\t\tb", "  ", "", "中 é 🙂", "a<t>  b"])
def test_gemmas_layout_gives_text_back(text, tmp_path):
    save_gemma(tmp_path)
    add_tokens(tmp_path, "<t>")
    assert decodings(tmp_path, text) == {text}


def test_gemmas_mark_for_a_space_is_a_space(tmp_path):
    save_gemma(tmp_path)
    assert decodings(tmp_path, "\u2581a\u2581\u2581\u2581b") == {" a   b"}


def test_gemmas_special_tokens_have_no_text(tmp_path):
    save_gemma(tmp_path)
    assert decodings(tmp_path, "<start_of_turn>a</s>") == {"a"}


@pytest.mark.slow
@pytest.mark.parametrize("save", [
    save_llama2_of_4, save_llama2_json, save_llama3, save_gemma], ids=lambda save: save.__name__)
def test_random_added_tokens_give_the_text_of_tokenizers(save, tmp_path):
    """Of these contents and flags; normalized special ones apart, see above."""
    rng = random.Random(save.__name__)
    parts = ["New", " ", "York", SPACE, 3 * SPACE, "  ", "<|x|>", "ü", "中", "\n", "Ġ", "def"]
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        save(folder)
        # "+": so that none begins with a space.
        contents = {"+" + "".join(rng.choices(parts, k=rng.randint(1, 3))) for _ in range(5)}
        for content in sorted(contents):
            flags = {flag: rng.random() < 0.2 for flag in ("lstrip", "single_word", "special")}
            normalized = rng.random() < 0.5 and not flags["special"]
            add_tokens(folder, content, normalized=normalized, **flags)
        pieces = [*sorted(contents), "a", " ", "  ", "\n", "é", "🙂", "New York"]
        text = "".join(rng.choices(pieces, k=12))
        assert len(decodings(folder, text)) == 1, (text, contents)


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "LlamaTokenizer"])
def test_the_settings_have_the_last_word_on_flags(kind, tmp_path):
    save_llama2_of_4(tmp_path)
    add_tokens(tmp_path, "<m>", normalized=False)
    flags = {"lstrip": True, "rstrip": True, "normalized": False, "special": True}
    edit_json(tmp_path / "tokenizer_config.json", tokenizer_class=kind,
              added_tokens_decoder={str(VOCAB): {"content": "<m>", **flags}})
    auto = AutoTokenizer.from_pretrained(tmp_path)
    ours = open_tokenizer(tmp_path)
    assert ours.encode_prompt("a  <m>  b") == [1, 286, 287, 330, 286, 101]
    assert auto("a  <m>  b")["input_ids"] == [1, 286, 287, 330, 286, 101]
    assert ours.decode([286, 287, 330, 286, 101]) == "a b"


STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


@pytest.mark.parametrize("decoder", [
    None, {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "Sequence", "decoders": [
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}]},
    {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, STRIP]},
    {"type": "Sequence", "decoders": [{"type": "Fuse"}, STRIP | {"stop": 1}]},
    {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"Regex": SPACE}, "content": " "}, {"type": "Fuse"}]},
    {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True},
], ids=lambda decoder: str(decoder)[:60])
def test_a_decoder_that_reads_neighbours_is_refused(decoder, tmp_path):
    save_llama2_of_4(tmp_path)
    edit_json(tmp_path / "tokenizer.json", decoder=decoder)
    with pytest.raises(UserError, match="no text can be printed token by token"):
        open_tokenizer(tmp_path)


def test_a_token_that_tokenizers_reads_as_another_byte_is_refused(tmp_path):
    """Its ByteFallback takes a sign for a digit."""
    save_llama2_of_4(tmp_path)
    add_tokens(tmp_path, "<0x+A>")
    edit_json(tmp_path / "tokenizer.json", normalizer=None, decoder={"type": "ByteFallback"})
    with pytest.raises(UserError, match="'<0x[+]A>'"):
        open_tokenizer(tmp_path)


# --- the beginning of a text ----------------------------------------------------------------------


@pytest.mark.parametrize("kind, text, ids", [
    ("llama3", "<|begin_of_text|>def", [298, 290]), ("llama3", "def", [298, 290]),
    ("llama3", "<|begin_of_text|>", [298]), ("llama3", "", [299, 298]),
    ("llama3", "<|begin_of_text|><|begin_of_text|>def", [298, 298, 290]),
    ("llama2-of-4", "<s>def", [1, 286, 281]), ("llama2-of-4", "def", [1, 286, 281]),
    ("llama2-of-4", "a<s>", [1, 286, 287, 1])])
def test_a_prompt_that_spells_bos_has_no_second_one(kind, text, ids, tmp_path):
    SAVE[kind](tmp_path)
    assert open_tokenizer(tmp_path).encode_prompt(text) == ids


def test_a_sentencepiece_file_alone_reads_bos_as_text(tmp_path):
    save_llama2(tmp_path)
    ours = open_tokenizer(tmp_path)
    ids = ours.encode_prompt("<s>def")
    assert ids.count(1) == 1 and ours.decode(ids) == "<s>def"


@pytest.mark.parametrize("prompt, text, printed", [
    ("", "Once upon a time", "Once upon a time"), ("", "  two", "  two"), ("", "", ""),
    ("", "\nx", "\nx"), ("", "中", "中"), ("x", "Once", "x Once"), ("x ", "Once", "x  Once")])
@pytest.mark.parametrize("kind", ["llama2", "llama2-of-4"])
def test_only_a_document_begins_without_the_tokenizers_space(
        kind, prompt, text, printed, tmp_path):
    """Both kinds put a space in front of every text, also where it begins with one."""
    SAVE[kind](tmp_path)
    ours = open_tokenizer(tmp_path)
    assert stream(ours, ours.encode(text), prompt) == printed


def test_a_tokenizer_without_a_space_keeps_the_first(tmp_path):
    save_llama3(tmp_path)
    ours = open_tokenizer(tmp_path)
    assert stream(ours, ours.encode(" Once")) == " Once"


def feed(monkeypatch, ids):
    """Let every model draw these ids, and no more of them."""
    drawn = iter(ids)
    monkeypatch.setattr("model.generation.sample", lambda *_: torch.tensor([next(drawn)]))


def test_generate_py_begins_a_document_without_that_space(tmp_path, monkeypatch, capsys):
    folder = their_folder(tmp_path, "llama2-of-4")
    ids = open_tokenizer(folder).encode("Once upon")
    feed(monkeypatch, ids)
    assert exit_code(generate.main, "--run", folder, "--prompt", "",
                     "--max-new-tokens", len(ids)) == 0
    assert capsys.readouterr().out == "Once upon\n"


@pytest.mark.parametrize("prompt, text", [("", "Once upon"), ("x", " Once upon")])
def test_run_generate_begins_only_a_document_without_that_space(
        prompt, text, tmp_path, monkeypatch):
    run, folder = imported(tmp_path, "llama2-of-4")
    ids = open_tokenizer(folder).encode("Once upon")
    feed(monkeypatch, ids)
    assert load_run(run, device="cpu").generate(prompt, max_new_tokens=len(ids)) == text


def draw_sample(folder, prompt, ids, monkeypatch):
    """The sample of a training with the tokenizer in a folder, if these ids are drawn."""
    setup = mock.MagicMock()
    setup.data.tokenizer = open_tokenizer(folder)
    setup.train_data.read.return_value = np.array([], dtype=int)  # no words for a prompt
    setup.config.model.max_positions = 64
    setup.config.data.seq_len = 16
    setup.config.train = TrainConfig(sample_prompt=prompt, sample_tokens=9)
    monkeypatch.setattr(train, "generate", lambda *_, **options: [ids])
    return train.draw_sample(setup)


@pytest.mark.parametrize("prompt, text", [("", "Once upon"), ("x", "x Once upon")])
def test_samples_of_a_training_begin_without_that_space(prompt, text, tmp_path, monkeypatch):
    save_llama2(tmp_path)
    ids = open_tokenizer(tmp_path).encode("Once upon")
    assert draw_sample(tmp_path, prompt, ids, monkeypatch) == text


@pytest.mark.parametrize("end", [2, 13])
def test_a_sample_ends_at_each_end_of_generation_config_json(end, tmp_path, monkeypatch):
    """Of </s>, 2, and of the line break, 13."""
    save_llama2(tmp_path)
    edit_json(tmp_path / "generation_config.json", eos_token_id=[2, 13])
    encode = open_tokenizer(tmp_path).encode
    ids = [*encode("Once"), end, *encode("upon")]
    assert draw_sample(tmp_path, "x", ids, monkeypatch) == "x Once"


BOS_NOTE = "note: a prompt begins with the token that begins every text: it is not added again\n"


@pytest.mark.parametrize("kind, prompts, count", [
    ("llama3", ["<|begin_of_text|>def"], 1), ("llama3", ["def"], 0), ("llama3", [""], 0),
    ("llama3", ["<|begin_of_text|>a", "<|begin_of_text|>b"], 1), ("llama2-of-4", ["<s>def"], 1),
    ("llama2-of-4", ["a<s>"], 0), ("llama2", ["<s>def"], 0)])
def test_a_prompt_that_spells_bos_gets_one_note(kind, prompts, count, tmp_path, capsys):
    folder = their_folder(tmp_path, kind)
    words = [f"--prompt={prompt}" for prompt in prompts]
    assert exit_code(generate.main, "--run", folder, *words, "--max-new-tokens", "1") == 0
    assert capsys.readouterr().err.count(BOS_NOTE) == count


# --- files that are missing -----------------------------------------------------------------------


@pytest.mark.parametrize("beside, words", [
    ("params.json", "tokenizer.model is missing; Meta's download keeps it one folder up: copy it"),
    ("vocab.json", "has a vocab.json but no tokenizer.json: load its tokenizer with transformers"),
    ("config.json", "has no tokenizer: tokenizer.model is missing, and tokenizer.json too; copy")])
def test_a_folder_without_a_tokenizer_says_where_to_get_it(beside, words, tmp_path):
    (tmp_path / beside).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=words):
        open_tokenizer(tmp_path)


def test_an_import_without_a_tokenizer_says_so(tmp_path, capsys):
    folder = their_folder(tmp_path)
    (folder / "tokenizer.model").unlink()
    assert_refused(capsys, "run", folder, tmp_path / "ours", f"{folder} has no tokenizer")


@pytest.mark.parametrize("to", ["hf", "gguf"])
def test_an_export_of_a_run_without_its_tokenizer_says_so(to, tmp_path, capsys):
    run = make_run(tmp_path).path
    (run / "tokenizer.model").unlink()
    assert_refused(capsys, to, run, tmp_path / "out", f"{run / 'tokenizer.model'} is missing")


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json"])
def test_a_tokenizer_file_that_is_missing_is_named(name, tmp_path):
    with pytest.raises(UserError, match=f"{name} is missing"):
        open_tokenizer(tmp_path / name)
