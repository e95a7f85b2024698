"""What is noticed in a text is noted with a command, and the command does what it says."""

import json
import re
import shutil
import subprocess
from email.message import EmailMessage

import pytest
from text_files import MESSAGES, notes, read, run_advised, write

from errors import UserError

LICENSED = """\
The Project Gutenberg eBook of Days\r
\r
*** START OF THE PROJECT GUTENBERG EBOOK DAYS ***\r
It was.\r
*** END OF THE PROJECT GUTENBERG EBOOK DAYS ***\r
Section 1. General Terms of Use\r
"""


@pytest.mark.parametrize("content, text", [
    (LICENSED, "It was.\r\n"),
    (LICENSED.replace("*** ", "***", 2), "It was.\r\n"),
    (LICENSED.partition("\r\n\r\n")[2], "It was.\r\n"),  # from its first line on
    (2 * LICENSED, 2 * "It was.\r\n")])
def test_the_licence_of_gutenberg_is_noted_and_dropped(tmp_path, capsys, content, text):
    path = write(tmp_path / "book.txt", content)
    read(path)
    [note] = notes(capsys)
    assert f"of one book: {path}; awk " in note
    (command,) = re.findall("awk .* > NEW.txt", note)
    subprocess.run(command.replace("FILE", path.name), shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "NEW.txt").read_bytes().decode() == text


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="is a folder without text files$"):
        read(tmp_path)


STACK_EXCHANGE = """\
<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="1" PostTypeId="1" Title="Why?" Body="&lt;p&gt;I ask.&lt;/p&gt;" />
</posts>
"""
WIKI = """\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <page><title>Day</title><ns>0</ns><revision><text>A [[day]].</text></revision></page>
</mediawiki>
"""

ANDROID_CHAT = """\
12/31/20, 9:41\u202fPM - Messages and calls are end-to-end encrypted. Tap to learn more.
12/31/20, 9:42\u202fPM - Ann: Hi!
How are you?
12/31/20, 9:43\u202fPM - Bo: <Media omitted>
12/31/20, 9:43\u202fPM - Ann left
"""
IPHONE_CHAT = """\
\u200e[31.12.20, 21:41:05] Friends: \u200eMessages and calls are end-to-end encrypted.
[31.12.20, 21:42:00] Ann: Hi!
How are you? \u200e<This message was edited>
\u200e[31.12.20, 21:43:00] Bo: \u200eimage omitted
"""

CLIPPINGS = """\
\ufeffPlum Cake (Miller, Ann)\r
- Ihre Markierung auf Seite 9 | Position 39-41 | Hinzugef\u00fcgt am Montag, 2. Januar\r
\r
It was.\r
==========\r
\ufeffPlum Cake (Miller, Ann)\r
- Ihr Lesezeichen auf Seite 9 | Hinzugef\u00fcgt am Montag, 2. Januar\r
\r
\r
==========\r
"""
ASS = """\
[Script Info]
[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:03.00,0:00:05.00,Default,Ann,0,0,0,,{\\i1}Hi,\\Nyou, too.
"""


def make_message(text):
    message = EmailMessage()
    message["Subject"] = "Greeting"
    message.set_content(text)
    return bytes(message)


@pytest.mark.parametrize("name, content, noted, expected", [
    ("a.eml", make_message("hi"), "mail, whose headers and attachments are trained as", "hi\n"),
    ("a.mbox", b"From a@b.c\n" + make_message("hi"), "mail, whose headers and ", "hi\n"),
    ("Inbox", b"From a@b.c\n" + make_message("hi"), "mail, whose headers and ", "hi\n"),
    ("a.txt", b"Subject: A\n day\n" + make_message("hi"), "mail, whose headers and ", "hi\n"),
    ("tweets.js", 'window.YTD.tweets.part0 = [ {"tweet": {"text": "hi"}} ]', "JSON in Java", "hi"),
    ("chat.txt", ANDROID_CHAT, "chats, such as WhatsApp's, whose ", "Ann: Hi!\nHow are you?"),
    ("_chat.txt", IPHONE_CHAT, "chats, such as WhatsApp's, whose ", "Ann: Hi!\nHow are you?"),
    ("es.txt", "31/12/20 21:41 - Ann: Hola.", "chats, such as WhatsApp's", "Ann: Hola."),
    ("chat.md", "[2023-01-04 08:08] Me: Hi.  \n", "chats, such as WhatsApp's", "Me: Hi."),
    ("My Clippings.txt", CLIPPINGS, "clippings of a Kindle, whose places and", "It was."),
    ("a.ass", ASS, "subtitles, whose numbers", "Hi,\nyou, too."),
    ("a.lrc", "[ar:Ann]\n[00:03.00]La\n", "subtitles, whose numbers", "La"),
    ("wiki_00", '<doc id="0" url="a" title="Day">\nDay\n\nIt was.\n\n</doc>\n',
     "XML, whose tags are trained as text: ", "Day\n\nIt was."),
    ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n<i>Hi.</i>\n", "subtitles, whose numbers", "Hi."),
    ("page.txt", "<html><p>Hi.</html>", "web pages, whose tags are trained as text: ", "Hi."),
    ("page", "<?xml version='1.0'?>\n<!DOCTYPE html><p>Hi.", "web pages, whose tags", "Hi."),
    ("Posts.xml", STACK_EXCHANGE, "XML, whose tags are trained as text: ", "Why?\nI ask."),
    ("dump.xml", WIKI, "XML, whose tags are trained as text: ", "A [[day]].")])
def test_the_command_in_a_note_writes_the_text(tmp_path, capsys, name, content, noted, expected):
    path = write(tmp_path / name, content)
    read(path)
    [note] = [line for line in notes(capsys) if line.startswith(noted)]
    assert str(path) in note
    assert run_advised(tmp_path, note, name) == [expected]


@pytest.mark.parametrize("name, content, expected", [
    ("a.html", "<p>Hi.</p>", "Hi."), ("a.ipynb", '{"cells": [{"source": ["Hi."]}]}', "Hi."),
    ("a.json", '{"chat": [{"text": "Hi."}]}', "Hi."), ("a", '[{"text": "Hi."}]', "Hi."),
    ("a.json", '{"of": "x", "chats": {"list": [{"messages": [{"text": "Hi all."}]}]}}', "Hi all."),
    ("a.rtf", r"{\rtf1\ansi Hi.}", "Hi."), ("a", r"{\rtf1\ansi Hi.}", "Hi."),
    ("a.opml", '<opml><outline text="Hi."/></opml>', "Hi.")])
def test_the_command_in_a_refusal_writes_the_text(tmp_path, name, content, expected):
    with pytest.raises(UserError) as error:
        read(write(tmp_path / name, content))
    assert run_advised(tmp_path, str(error.value), name) == [expected]


CHATS = {
    "discord": ("==\nGuild: friends\n==\n\n" + "[1/4/2023 9:41 AM] ann\nHi: 9:41.\n\n" * 6, "ann"),
    "line": ("[LINE] Chat with Ann\n\n2023/01/04(Wed)\n" + "09:10\tAnn\tHi: 9:41.\n" * 6,
             "Ann\tHi: 9:41."),
    "irc": ("[08:25:20] <ann> Hi: 9:41.\n" * 6, "<ann> Hi: 9:41."),
    "zoom": ("08:18:20\t From  Ann : Hi: 9:41.\n" * 12, "From  Ann : Hi: 9:41."),
    "log": ("2023-01-04T08:14:31.841Z INFO Hi: 9:41.\n" * 6, "INFO Hi: 9:41."),
    "text": ("Meanwhile it was.\n" * 9 + "(08:25) Hi: 9:41.\n" * 5, "Hi: 9:41.")}


@pytest.mark.parametrize("name", CHATS)
def test_times_at_the_start_of_lines_are_noted_and_dropped(tmp_path, capsys, name):
    content, said = CHATS[name]
    path = write(tmp_path / "a.txt", content)
    read(path)
    [note] = notes(capsys)
    assert note.startswith(f"times of messages or lines are trained as text: {path}; sed ")
    (command,) = re.findall("sed .* > NEW", note)
    subprocess.run(command.replace("FILE", "a.txt"), shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "NEW").read_text().splitlines().count(said) >= 5


@pytest.mark.parametrize("content", [
    "[Ann] [\uc624\ud6c4 8:01] Hi.\n" * 6, "Speaker 1  0:03\nHi.\n\n" * 6,
    "Jan 04, 2023  8:04:45 PM (Read)\nMe\nHi.\n\n" * 6])
def test_times_behind_names_and_dates_are_noted(tmp_path, capsys, content):
    read(write(tmp_path / "a.txt", content))
    assert notes(capsys)[0].startswith("times of messages or lines are trained as text: ")


@pytest.mark.parametrize("name, content", [
    ("a.txt", "".join(f"Gen 1:{verse} And it was so.\n" for verse in range(1, 32))),
    ("a.txt", "Psalm 119:105\nIt won 3:10, or 45:30 on paper.\n" * 9),
    ("a.txt", "At noon, and not at the time that he had told us: 08:05, he came.\n" * 9),
    ("a.txt", "08:05 It began.\n" * 4), ("a.txt", "08:05 It began.\n" * 6 + "It was.\n" * 30),
    ("a.py", "# 08:05\n" * 9), ("a.md", "---\n\nA: b\n\n---\n"), ("a.md", "---\ntitle: A\n"),
    ("a.md", "A\n---\ntitle: A\n---\n"), ("a.yaml", "---\ntitle: A\n---\n"),
    ("a.txt", "O: it was\nthe night;\n\n---\n\nAnd: day.\n")])
def test_ordinary_text_has_no_times_and_no_front_matter(tmp_path, capsys, name, content):
    read(write(tmp_path / name, content))
    assert notes(capsys) == []


@pytest.mark.parametrize("start", [
    "---\ntitle: A\ntags:\n  - b\n\n---\n\n", "\ufeff---\r\ntitle: A\r\n---\r\n",
    "+++\ndate = 2023-01-01\n+++\n"])
def test_front_matter_is_noted_and_dropped(tmp_path, capsys, start):
    path = write(tmp_path / "a.md", f"{start}# A\n\n---\nIt was.\n\n---\n")
    plain = write(tmp_path / "b.md", "It was.\n\n---\n")
    read(tmp_path)
    *_, note = notes(capsys)
    assert note.startswith(f"front matter is trained as text: {path}; perl ")
    (command,) = re.findall("perl .* FILES", note)
    if shutil.which("perl") is None:
        pytest.skip("needs perl")
    subprocess.run(command.replace("FILES", "a.md b.md"), shell=True, cwd=tmp_path, check=True)
    assert path.read_text() == "# A\n\n---\nIt was.\n\n---\n"
    assert plain.read_text() == "It was.\n\n---\n"
    assert read(tmp_path) == [path.read_text(), plain.read_text()]  # without the old ones


@pytest.mark.parametrize("program", MESSAGES)
def test_the_command_in_a_refusal_of_messages_writes_the_days(tmp_path, program):
    path = write(tmp_path / "a.json", json.dumps(MESSAGES[program]))
    with pytest.raises(UserError) as error:
        read(path)
    assert "jq" not in str(error.value)  # it would write a row for each message
    assert run_advised(tmp_path, str(error.value), path.name) == ["Zo\u00eb: Hi.", "Ann: see a.b"]


def test_subtitles_are_told_by_their_times(tmp_path, capsys):
    write(tmp_path / "a.srt", "1\n00:00:01,000 --> 00:00:02,000\nHi.\n")
    write(tmp_path / "d.srt", "a text\n")
    read(tmp_path)
    assert f" as text: {tmp_path}/a.srt; python " in notes(capsys)[-1]


@pytest.mark.parametrize("content", [
    "Milk\n- a | b\n\nIt was.\n\nHeading\n=======\n", "Milk\n- one\n\nTen letters\n==========\n",
    "<doc>It was.</doc>\n"])
def test_lists_and_headings_are_no_clippings(tmp_path, capsys, content):
    read(write(tmp_path / "a.md", content))
    assert notes(capsys) == []


def test_a_drawing_is_not_called_xml(tmp_path, capsys):
    read(write(tmp_path / "a.svg", "<?xml version='1.0'?><svg/>"))
    assert len(notes(capsys)) == 1  # that it is read as plain text
