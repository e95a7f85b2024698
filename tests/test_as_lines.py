"""tools/as_lines.py writes the texts of files that are not read, and the advice names it."""

import io
import json
import mailbox
import os
import sqlite3
import subprocess
import sys
import zipfile
from datetime import date
from email.message import EmailMessage

import pyarrow
import pytest
from builders import ROOT
from text_files import MESSAGES

from data import kinds
from tools.as_lines import (
    CHAT_BEGINNING,
    CLIPPINGS_BEGINNING,
    MAIL_BEGINNING,
    READERS,
    choose_reader,
    main,
    page_text,
)

PAGE = """\
<!DOCTYPE html>
<html><head><title>A day &amp; a night</title><style>p { color: red }</style></head><body>
<p>It was
 a <b>fine</b> day,<br>caf\u00e9 &eacute;.</p><script>if (a < b) { c("<p>"); }</script>
<ul><li>one</li><li>two</li></ul><pre>if x:
    y()</pre><!-- no text --></body></html>
"""
SAID = "A day & a night\nIt was a fine day,\ncaf\u00e9 \u00e9.\none\ntwo\nif x:\n    y()"


WHATSAPP = """\
[2020-12-31, 21.41] Ann: Hi!

All well?
[2020-12-31, 21.42] Ann created the group
about us
[2020-12-31, 21.43] Bo: <Medien ausgeschlossen>
[2020-12-31, 21.43] Bo: IMG-20201231-WA0001.jpg (Datei angeh\u00e4ngt)
[2020-12-31, 21.43] Bo: <3 it's 10: 00
[2021-01-01, 9.00 a. m.] Ann: Bye.
"""


def texts(*paths, capsys):
    """The texts that are written of these files."""
    with pytest.raises(SystemExit, match="0"):
        main([str(path) for path in paths])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def archive(**files):
    """A zip of these files, of which the names have _ for /."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as document:
        for name, content in files.items():
            document.writestr(name.replace("__", "/"), content)
    return file.getvalue()


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_not_a_file(option, capsys):
    main([option])
    assert "python tools/as_lines.py FILES > NEW.jsonl" in capsys.readouterr().out


def test_the_text_of_a_page_has_a_line_for_each_paragraph():
    assert page_text(PAGE) == SAID


@pytest.mark.parametrize("encoding, declared", [
    ("utf-8", ""), ("utf-8-sig", ""), ("utf-16", ""), ("cp1252", ""),
    ("koi8-r", '<meta charset="koi8-r">'),
    ("cp1251", '<meta content="text/html; charset=windows-1251">')])
def test_pages_may_have_other_encodings(tmp_path, capsys, encoding, declared):
    word = "\u0434\u0435\u043d\u044c" if declared else "caf\u00e9"
    page = write(tmp_path / "a.html", f"{declared}<p>{word}".encode(encoding))
    assert texts(page, capsys=capsys) == [{"text": word}]


def make_book():
    container = '<container xmlns="u:c"><rootfile full-path="OEBPS/book.opf"/></container>'
    package = """<package xmlns="u:o"><manifest><item id="z" href="1%20end.xhtml"/>
<item id="a" href="../start.xhtml"/><item id="css" href="a.css"/></manifest>
<spine><itemref idref="a"/><itemref idref="z"/></spine></package>"""
    return archive(**{
        "META-INF__container.xml": container, "OEBPS__book.opf": package, "OEBPS__a.css": "p {}",
        "OEBPS__1 end.xhtml": "<html><head><title>B</title></head><p>The end.</html>",
        "start.xhtml": "<?xml version='1.0'?><html><p>It began.</p></html>"})


def make_docx():
    box = "<w:p><w:r><w:t>A box</w:t></w:r></w:p>"
    return archive(**{"word__document.xml": (
        '<w:document xmlns:w="u:w"><w:body><w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r>'
        "<w:t>It was</w:t><w:tab/><w:t>a day</w:t></w:r></w:p><w:p/><w:p>"
        f"<w:r><w:Choice>{box}</w:Choice><w:Fallback>{box}</w:Fallback></w:r>"
        "<w:r><w:t>and night.</w:t></w:r></w:p></w:body></w:document>")})


def make_odt():
    return archive(**{"content.xml": (
        '<d xmlns:text="u:t"><text:h>A<text:tab/>day</text:h><text:p>and<text:line-break/>'
        "<text:span>a</text:span> night</text:p></d>")})


def make_pptx():
    slide = '<s xmlns:a="u:a"><a:p><a:r><a:t>{}</a:t></a:r></a:p></s>'
    return archive(**{"ppt__slides__slide10.xml": slide.format("Ten"),
                      "ppt__slides__slide9.xml": slide.format("Nine"),
                      "ppt__slides___rels__slide9.xml.rels": ""})


def make_notebook():
    cells = [{"cell_type": "markdown", "source": ["# Title\n", "text"]},
             {"cell_type": "code", "source": "x = 1", "outputs": [{"text": "1"}]}]
    return json.dumps({"cells": cells})


def make_mail(text, subtype="plain", charset="utf-8"):
    message = EmailMessage()
    message["Subject"] = "Greeting"
    message.set_content(text, subtype=subtype, charset=charset)
    message.add_attachment(b"\0" * 99, maintype="image", subtype="png", filename="a.png")
    return bytes(message)


SRT = """\
1
00:00:01,000 --> 00:00:02,000
<i>Hello,</i> you.
Caf\u00e9 in
1984

2
00:00:03,000 --> 00:00:04,000
I <3 it.
3
00:00:05,000 --> 00:00:06,000
Bye.
"""
HEARD = "Hello, you.\nCaf\u00e9 in\n1984\nI <3 it.\nBye."
VTT = """\
WEBVTT
Kind: captions

NOTE by Ann

intro
00:00:01.000 --> 00:00:02.000 align:start
<v Ann>Hi <00:00:01.500><c>all</c> &amp; you

00:03.000 --> 00:04.000
Bye.
"""
SSA = """\
[Events]\r
Comment: 0,1,2,D,A,0,0,0,,No\r
Dialogue: Marked=0,1,2,D,A,0,0,0,,{\\b1}A, b\\Nc\\hd\r
Dialogue: Marked=0,3,4,D,,0,0,0,,D\r
"""

STACK_EXCHANGE = """\
\ufeff<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="1" Title="Why?" Body="&lt;p&gt;I ask, &amp;amp; you?&lt;/p&gt;&#xA;" Tags="&lt;a&gt;" />
  <row Id="2" Body="&lt;p&gt;So.&lt;/p&gt;" />
  <row Id="3" />
</posts>
"""
WIKI = """\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="en">
  <siteinfo><sitename>W</sitename></siteinfo>
  <page><title>Day</title><ns>0</ns><id>1</id>
    <revision><id>5</id><text bytes="3">An old text.</text></revision>
    <revision><id>6</id><contributor><username>Ann</username></contributor>
      <text bytes="9">A '''day''' is [[time]].</text></revision></page>
  <page><title>Days</title><ns>0</ns><redirect title="Day" />
    <revision><text>#REDIRECT [[Day]]</text></revision></page>
  <page><title>Talk:Day</title><ns>1</ns><revision><text>Is it?</text></revision></page>
</mediawiki>
"""
WORDPRESS = """\
<rss xmlns:content="u:c" xmlns:excerpt="u:e"><channel><title>My blog</title>
<item><title>One</title><excerpt:encoded></excerpt:encoded>
<content:encoded><![CDATA[<p>It was.</p>]]></content:encoded></item>
<item><title>image.png</title><content:encoded></content:encoded></item></channel></rss>
"""
FEED = """\
<feed xmlns="u:a"><title>My feed</title><entry><title>One</title><content type="xhtml">
<div xmlns="u:x"><p>It <b>was</b> a &lt; b.</p><p>So.</p></div></content></entry></feed>
"""
EXTRACTED = """\
<doc id="0" url="a?curid=0" title="T">
T

A &lt; b.
</doc>
<doc id="1" url="a?curid=1" title="U">
U

</doc>
"""
EVERNOTE = """\
<en-export><note><title>Milk</title><content><![CDATA[<?xml version="1.0"?><!DOCTYPE en-note SYSTEM
"x"><en-note><div>Buy it.</div></en-note>]]></content><resource><data>AAAA</data></resource></note>
</en-export>
"""
SMS = '<smses count="1"><sms address="+1" body="See you &#128512;" readable_date="May" /></smses>'
TEI = """\
<TEI xmlns="u:tei"><teiHeader><title>The edition</title></teiHeader><text><body><p>It was a
<hi>day</hi>.</p><sp><speaker>ANN</speaker><l>I know.</l></sp></body></text></TEI>
"""
OUTLINE = """\
<opml><head><title>List</title></head><body><outline text="Buy"><outline text="milk" _note="two"/>
</outline></body></opml>
"""
BOOK_OF_FB2 = '<FictionBook xmlns="u:f"><p>It was.</p><binary id="i">AAAA</binary></FictionBook>'


def make_deck(newest):
    """A deck of two notes, in the format of Anki 2.0 or in that of 2.1.50."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, flds TEXT)")
    database.execute("INSERT INTO notes VALUES (2, 'b'), (1, '<b>der</b> Tag&nbsp;\x1fday')")
    database.commit()
    data = database.serialize()
    if not newest:
        return archive(**{"collection.anki2": data, "media": "{}"})
    packed = pyarrow.compress(data, codec="zstd", asbytes=True)
    return archive(**{"collection.anki21b": packed, "collection.anki2": b"too old", "media": ""})


@pytest.mark.parametrize("name, content, expected", [
    ("a.HTML", PAGE, [SAID]), ("a", PAGE, [SAID]),
    ("book.epub", make_book(), ["It began.\nThe end."]),
    ("a.docx", make_docx(), ["It was a day\nand night.\nA box"]),
    ("a.odt", make_odt(), ["A day\nand a night"]),
    ("a.odp", make_odt(), ["A day\nand a night"]), ("a.mht", make_mail(PAGE, "html"), [SAID]),
    ("a.pptx", make_pptx(), ["Nine\nTen"]),
    ("a.ipynb", make_notebook(), ["# Title\ntext\n\nx = 1"]),
    ("a.eml", make_mail("Gr\u00fc\u00dfe = 1\n"), ["Gr\u00fc\u00dfe = 1\n"]),
    ("a.eml", make_mail("<p>Gr\u00fc\u00dfe</p>", "html", "latin-1"), ["Gr\u00fc\u00dfe"]),
    ("a.mhtml", make_mail(PAGE, "html"), [SAID]), ("a.srt", SRT, [HEARD]),
    ("b.srt", ("\ufeff" + SRT).replace("\n", "\r\n"), [HEARD]),
    ("a.txt", WHATSAPP, ["Ann: Hi!\nAll well?\nBo: <3 it's 10: 00", "Ann: Bye."]),
    ("b.txt", WHATSAPP.replace("\n", "\r\n"),
     ["Ann: Hi!\nAll well?\nBo: <3 it's 10: 00", "Ann: Bye."]),
    ("c.txt", "31/12/20 21:41 - Ann: Hola.\n1/1/21 9:00 - Bo: Adi\u00f3s.\n",
     ["Ann: Hola.", "Bo: Adi\u00f3s."]),
    ("c.VTT", VTT, ["Hi all & you\nBye."]),
    ("Posts.xml", STACK_EXCHANGE, ["Why?\nI ask, & you?", "So."]),
    ("Comments.xml", '<comments><row Text="So it is." /></comments>', ["So it is."]),
    ("wiki.xml", WIKI, ["A '''day''' is [[time]]."]), ("blog.xml", WORDPRESS, ["One\nIt was."]),
    ("a.ssa", SSA, ["A, b\nc d\nD"]),
    ("a.LRC", "[ti:Song]\r\n[00:01.00][01:05.00]Oh <00:01.50>my\r\n\r\n[00:02.00]Hey [x2]\r\n",
     ["Oh my\nHey [x2]"]),
    ("My Clippings.txt", "A | b\n- Page 1 | Monday 10:00\n\nOne.\n\nTwo.\n==========\n"
     "A\n- Page 2 | Monday\n\n\n==========\nC\n- Page 2 | Monday\n\nThree.\n==========\n",
     ["One.\n\nTwo.", "Three."]),
    ("wiki_00", EXTRACTED, ["T\n\nA < b.", "U"]),
    ("feed.xml", FEED, ["One\nIt was a < b.\nSo."]),
    ("a.enex", EVERNOTE, ["Milk\nBuy it."]), ("sms.xml", SMS, ["See you \U0001f600"]),
    ("a.tei", TEI, ["It was a\nday.\nANN\nI know."]), ("a.opml", OUTLINE, ["Buy\nmilk\ntwo"]),
    ("a.fb2", BOOK_OF_FB2, ["It was."]), ("a.apkg", make_deck(False), ["der Tag\nday", "b"]),
    ("a.colpkg", make_deck(True), ["der Tag\nday", "b"])], ids=range(34))
def test_the_texts_of_a_file_are_written(tmp_path, capsys, name, content, expected):
    path = write(tmp_path / name, content)
    assert texts(path, capsys=capsys) == [{"text": text} for text in expected]


@pytest.mark.parametrize("name", ["a.json", "a"])
@pytest.mark.parametrize("value, rows", [
    ([{"a": 1}, {"b": "x"}], [{"a": 1}, {"b": "x"}]), (["x", "y"], [{"text": "x"}, {"text": "y"}]),
    ({"people": [{"n": 1}], "chat": {"messages": [{"t": "hi there"}]}}, [{"t": "hi there"}]),
    ({"title": "x"}, [{"title": "x"}]),
    ({"about": "A long description", "chats": {"list": [  # as Telegram exports all chats
        {"name": "Ann", "messages": [{"text": "hi"}, {"text": "A long answer."}]},
        {"name": "Bob", "messages": [{"text": ["see ", {"type": "link", "text": "a.b"}]}]}]}},
     [{"text": "hi"}, {"text": "A long answer."},
      {"text": ["see ", {"type": "link", "text": "a.b"}]}]),
    ({"posts": [{"text": "An article.", "comments": [{"text": "A fine one, that is."}]}]},
     [{"text": "An article.", "comments": [{"text": "A fine one, that is."}]}]),
    ({"messages": [{"content": "caf\u00c3\u00a9 \u00e2\u0080\u0099"}]},  # as Facebook exports it
     [{"content": "caf\u00e9 \u2019"}]),
    ([{"title": "x", "current_node": "b", "mapping": {  # a chat of ChatGPT
        "root": {"message": None, "parent": None},
        "a": {"message": {"author": {"role": "user"}, "content": {"parts": ["Hi."]}},
              "parent": "root"},
        "b": {"message": {"author": {"role": "assistant"}, "content": {"parts": ["No.", {}]}},
              "parent": "a"}}}],
     [{"title": "x", "current_node": "b", "messages": [
         {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "No."}]}]),
    ([{"a": "\u00c3\u00a9"}, {"a": "\u00e9"}], [{"a": "\u00c3\u00a9"}, {"a": "\u00e9"}])])
def test_the_rows_of_json_stay_as_they_are(tmp_path, capsys, name, value, rows):
    assert texts(write(tmp_path / name, json.dumps(value)), capsys=capsys) == rows


@pytest.mark.parametrize("messages", [
    *MESSAGES.values(), {"chats": {"list": [MESSAGES["Telegram"]]}}], ids=[*MESSAGES, "all"])
def test_of_messages_each_day_is_a_row(tmp_path, capsys, messages):
    path = write(tmp_path / "a.json", json.dumps(messages))
    assert texts(path, capsys=capsys) == [{"text": "Zo\u00eb: Hi."}, {"text": "Ann: see a.b"}]


@pytest.mark.parametrize("row", [
    {"from": None, "from_id": "user7", "text": "Hi.", "date_unixtime": "1675209540"},  # deleted
    {"subtype": "bot_message", "username": "user7", "text": "Hi.", "ts": "1675209540.9"},
    {"creator": {"email": "user7"}, "text": "Hi.", "created_date": "Monday at 8:01:02 PM"}])
def test_an_author_without_a_name_has_another_one(tmp_path, capsys, row):
    path = write(tmp_path / "a.json", json.dumps([row]))
    assert texts(path, capsys=capsys) == [{"text": "user7: Hi."}]


@pytest.mark.parametrize("text, plain", [
    ("bread &amp; milk &lt;3", "bread & milk <3"), ("&amp;lt;", "&lt;"),
    ("<@U1>, hi", "@Zo\u00eb, hi"), ("<@U2> and <@U3|ann>", "@U2 and @ann"),
    ("<#C1|general>: <!here> <!subteam^S1|@team>", "#general: @here @team"),
    ("<#C1|> and <@U2|>", "#C1 and @U2"), ("<!date^1675209540^{date}|Feb 1>", "Feb 1"),
    ("<https://a.b/?c=1&amp;copy=2>", "https://a.b/?c=1&copy=2"),
    ("see <https://a.b/?c&amp;d> or <https://a.b|this>", "see https://a.b/?c&d or this")])
def test_marks_of_slack_become_plain_text(tmp_path, capsys, text, plain):
    """Of a mention, the name that the same person has in another message."""
    rows = [{"user": "U1", "user_profile": {"real_name": "Zo\u00eb"}, "ts": "1675209540.9",
             "text": text}, {"user": "U1", "ts": "1675209541.9", "text": "Yes."}]
    path = write(tmp_path / "a.json", json.dumps(rows))
    assert texts(path, capsys=capsys) == [{"text": f"Zo\u00eb: {plain}\nZo\u00eb: Yes."}]


def test_an_empty_name_in_a_message_of_slack_hides_no_other(tmp_path, capsys):
    write(tmp_path / "users.json", json.dumps([{"id": "U2", "name": "ann"}]))
    row = {"user": "U2", "user_profile": {"real_name": ""}, "ts": "1675209540.9", "text": "Hi."}
    path = write(tmp_path / "general/2023-01-31.json", json.dumps([row]))
    assert texts(path, capsys=capsys) == [{"text": "ann: Hi."}]


@pytest.mark.parametrize("users, name", [
    ([{"id": "U2", "name": "ann", "real_name": "Ann B."}, {"id": "U3"}], "Ann B."),
    ([{"id": "U2", "name": "ann", "profile": {"real_name": "Ann"}}], "Ann"),
    ([{"id": "U2", "name": "ann"}], "ann"), ({"U2": "ann"}, "U2"), ("{", "U2")])
def test_names_of_slack_come_from_its_list_of_people(tmp_path, capsys, users, name):
    content = users if isinstance(users, str) else json.dumps(users)
    write(tmp_path / "users.json", content)
    row = {"user": "U2", "ts": "1675209540.9", "text": "I am <@U2>."}
    path = write(tmp_path / "general/2023-01-31.json", json.dumps([row]))
    assert texts(path, capsys=capsys) == [{"text": f"{name}: I am @{name}."}]


def test_messages_of_one_day_stand_below_each_other(tmp_path, capsys):
    times = ("1675209540.1", "1675209550.1")
    rows = [{"user": "Ann", "ts": time, "text": "Hi."} for time in times]
    path = write(tmp_path / "a.json", json.dumps(rows))
    assert texts(path, capsys=capsys) == [{"text": "Ann: Hi.\nAnn: Hi."}]


@pytest.mark.parametrize("row", [
    {"author": "Ann", "content": "An article.", "date": "2023-01-31"},
    {"from": "a@b.c", "date": "2023-01-31", "text": "A letter."},
    {"sender_name": "Ann", "timestamp_ms": 1675209550000, "photos": []}])
def test_rows_with_an_author_are_not_always_messages(tmp_path, capsys, row):
    assert texts(write(tmp_path / "a.json", json.dumps([row])), capsys=capsys) == [row]


def test_objects_over_several_lines_are_rows(tmp_path, capsys):
    content = '\n{\n "a": 1\n}\n{"a": 2} {"a": "\\u00f0\\u009f\\u0098\\u0082"}\n'
    path = write(tmp_path / "a.jsonl", content)
    assert texts(path, capsys=capsys) == [{"a": 1}, {"a": 2}, {"a": "\U0001f602"}]


def test_utf8_that_was_read_in_another_encoding_is_mended_if_all_is_so(tmp_path, capsys):
    words = ["don\u2019t", "Zo\u00eb", "\U0001f602"]
    for encoding in ("latin-1", "cp1252"):
        rows = [{"a": word.encode().decode(encoding)} for word in words]
        path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
        assert texts(path, capsys=capsys) == [{"a": word} for word in words]
        kept = [*rows, {"a": "Zo\u00eb"}]
        path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, kept)))
        assert texts(path, capsys=capsys) == kept


def test_rows_that_a_browser_read_as_cp1252_are_mended(tmp_path, capsys):
    path = write(tmp_path / "a.jsonl", json.dumps({"a": "\u00e2\u20ac\u0153Hi\u00e2\u20ac\x9d"}))
    assert texts(path, capsys=capsys) == [{"a": "\u201cHi\u201d"}]


def test_rows_of_arrow_stay_as_they_are(tmp_path, capsys):
    table = pyarrow.table({"text": ["one", "two"], "day": [date(2024, 5, 1), None]})
    for name, new in {"a.arrow": pyarrow.ipc.new_stream, "b.arrow": pyarrow.ipc.new_file}.items():
        with new(str(tmp_path / name), table.schema) as writer:
            writer.write(table)
        assert texts(tmp_path, capsys=capsys) == [
            {"text": "one", "day": "2024-05-01"}, {"text": "two", "day": None}]
        (tmp_path / name).unlink()


YOUTUBE = """\
WEBVTT

00:00:00.160 --> 00:00:02.389 align:start position:0%
\x20
hello<00:00:00.400><c> you</c>

00:00:02.389 --> 00:00:02.399 align:start position:0%
hello you
\x20

00:00:02.399 --> 00:00:04.000 align:start position:0%
hello you
how<00:00:03.000><c> are</c>
"""


def test_lines_that_go_on_from_cue_to_cue_are_written_once(tmp_path, capsys):
    path = write(tmp_path / "a.vtt", YOUTUBE)
    assert texts(path, capsys=capsys) == [{"text": "hello you\nhow are"}]


def test_posts_of_an_archive_of_x_are_written(tmp_path, capsys):
    posts = json.dumps([{"tweet": {"id": "1", "full_text": "Hi."}}], indent=1)
    path = write(tmp_path / "tweets.js", f"window.YTD.tweets.part0 = {posts}")
    assert texts(path, capsys=capsys) == [{"id": "1", "full_text": "Hi."}]


@pytest.mark.parametrize("text, expected", [
    (r"Hello, {\b you}.\par Bye\tab now.", "Hello, you.\nBye\tnow."),
    (r"{\fonttbl{\f0 Arial;}}{\*\generator X;}{\info{\author Ann}}\pard\f0 Hi", "Hi"),
    (r"caf\'e9 \ldblquote x\rdblquote  \{a\\b\}", "caf\u00e9 \u201cx\u201d {a\\b}"),
    (r"\uc1\u1076?\u-4000? \uc0\u8217 s {\uc2\u233\'c3\'a9}t", "\u0434\uf060 \u2019s \u00e9t"),
    (r"\u-10179?\u-8704?", "\U0001f600"), ("one\\\ntwo\nthree", "one\ntwothree")])
def test_the_text_of_rtf_is_written(tmp_path, capsys, text, expected):
    path = write(tmp_path / "a.rtf", f"{{\\rtf1\\ansi\\ansicpg1252 {text}}}")
    assert texts(path, capsys=capsys) == [{"text": expected}]


def test_rtf_has_its_own_encoding(tmp_path, capsys):
    path = write(tmp_path / "a", rb"{\rtf1\ansi\ansicpg932 \'93\'fa\'96\'7b}")
    assert texts(path, capsys=capsys) == [{"text": "\u65e5\u672c"}]


@pytest.mark.parametrize("start, expected", [("From a@b.c Mon\n", ["hi\n"]), ("", ["hi\n"])])
def test_mail_without_a_suffix_is_told_by_its_start(tmp_path, capsys, start, expected):
    path = write(tmp_path / "Inbox", start.encode() + make_mail("hi"))
    assert texts(path, capsys=capsys) == [{"text": text} for text in expected]


def test_of_a_database_the_table_with_most_text_is_written(tmp_path, capsys):
    database = sqlite3.connect(tmp_path / "chat 1.db")
    database.execute("CREATE TABLE people (name TEXT)")
    database.execute('CREATE TABLE "the ""texts" (id INTEGER, said TEXT, image BLOB)')
    database.execute("INSERT INTO people VALUES ('Ann')")
    database.execute("""INSERT INTO "the ""texts" VALUES (1, 'See you.', x'00'), (2, NULL, NULL)""")
    database.commit()
    database.close()
    assert texts(tmp_path / "chat 1.db", capsys=capsys) == [
        {"id": 1, "said": "See you."}, {"id": 2, "said": None, "image": None}]


def test_every_message_of_a_mailbox_is_written(tmp_path, capsys):
    box = mailbox.mbox(tmp_path / "a.mbox")
    for text in ("one", "two"):
        box.add(make_mail(text))
    box.close()
    assert texts(tmp_path / "a.mbox", capsys=capsys) == [{"text": "one\n"}, {"text": "two\n"}]


def test_a_folder_means_its_files_of_known_kinds(tmp_path, capsys):
    for name in ("b.html", "a/c.HTM", "d.txt", "package.json", "._b.html", ".git/e.html"):
        write(tmp_path / name, name)
    assert texts(tmp_path, capsys=capsys) == [{"text": "a/c.HTM"}, {"text": "b.html"}]


@pytest.mark.parametrize("name", ["a.txt", "a/Ann", "chat.md"])
def test_of_a_folder_chats_are_read_too(tmp_path, capsys, name):
    for other in ("b.txt", "c", "d.md"):
        write(tmp_path / other, "[It] is text.")
    write(tmp_path / name, "[2023-01-04 08:08] Me: Hi.\n")
    assert texts(tmp_path, capsys=capsys) == [{"text": "Me: Hi."}]


@pytest.mark.parametrize("names, words", [
    (["b/c.json", "b/d.json", "e.txt"], "2 .json, 1 .txt: files of .json have to be named, such as "
     "{}/b/*.json"),
    (["e", "e.txt", "f.txt"], "2 .txt, 1 without a suffix: train.py reads plain text and tables "),
    ([".hidden.html"], "no files: ")])
def test_a_folder_of_which_nothing_is_written_is_named(tmp_path, capsys, names, words):
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in names:
        write(folder / name, "text")
    page = write(tmp_path / "z.html", "<p>Hi.")
    with pytest.raises(SystemExit, match="1"):
        main([str(folder), str(page)])
    said = capsys.readouterr()
    assert said.err.startswith(f"error: nothing is written of {folder}: it is a folder with "
                               + words.format(folder))
    assert said.out == '{"text": "Hi."}\n'


@pytest.mark.parametrize("content, words", [
    (None, "No such file or directory"), ("[LINE] Chat", "it has none of the suffixes .html"),
    ("", "it has none of the suffixes .html")])
def test_what_is_wrong_with_a_file_is_said_in_words(tmp_path, capsys, content, words):
    path = tmp_path / "a.txt"
    if content is not None:
        write(path, content)
    with pytest.raises(SystemExit, match="2"):
        main([str(path)])
    assert capsys.readouterr().err.startswith(f"error: {path} cannot be read: {words}")


@pytest.mark.parametrize("name, content", [
    ("a.txt", "text"), ("a.epub", "no zip"), ("a.xml", "<a>"), ("a.ipynb", "{}"), ("a.json", "{"),
    ("b.json", "[5]"), ("b.txt", "Note: this is no mail.\n\nMessage-ID: no.\n")])
def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys, name, content):
    """And those after it are read."""
    path = write(tmp_path / name, content)
    page = write(tmp_path / "z.html", "<p>Hi.")
    with pytest.raises(SystemExit, match="2"):
        main([str(path), str(page)])
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {path} cannot be read: ")
    assert said.out == '{"text": "Hi."}\n'


def test_a_file_without_text_is_noted(tmp_path, capsys):
    """As Apple writes records of health."""
    path = write(tmp_path / "export.xml", '<HealthData><Record type="a" value="5"/></HealthData>')
    with pytest.raises(SystemExit, match="0"):
        main([str(path)])
    assert capsys.readouterr().err == f"note: {path} has no text\n"


def test_it_knows_what_the_advice_sends_to_it():
    """It imports nothing of gyre, so both have their own lists."""
    assert set(READERS) == kinds.CONVERTIBLE | kinds.SUBTITLES | {".json"}
    assert CLIPPINGS_BEGINNING == kinds.CLIPPINGS_BEGINNING
    assert MAIL_BEGINNING == kinds.MAIL_BEGINNING
    assert CHAT_BEGINNING == kinds.CHAT_BEGINNING


@pytest.mark.parametrize("padding", range(3))
def test_a_chat_is_known_wherever_its_first_4096_bytes_end(tmp_path, capsys, padding):
    """Of three bytes to a character, two of the paddings end within one."""
    first = f"\u200e[31.12.20, 21:41:05] Ann: {'a' * padding}Hi\n"
    line = 9 * "\u4e2d" + "\n"
    path = write(tmp_path / "chat.txt", first + 200 * line)
    [row] = texts(path, capsys=capsys)
    assert row["text"].startswith(f"Ann: {'a' * padding}Hi\n\u4e2d")


def test_it_runs_anywhere_without_the_packages_of_gyre(tmp_path):
    page = write(tmp_path / "a.html", PAGE)
    command = [sys.executable, "-I", "-S", str(ROOT / "tools" / "as_lines.py"), str(page)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert json.loads(done.stdout) == {"text": SAID}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_full_disk_is_not_blamed_on_a_file(tmp_path, size):
    page = write(tmp_path / "a.html", "<p>" + "word " * size)
    command = [sys.executable, "-I", "-S", str(ROOT / "tools" / "as_lines.py"), str(page)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: the lines cannot be written: No space left on device\n"


def test_records_of_a_large_file_are_read_one_by_one(tmp_path):
    """The first is there before the file is found to be cut off."""
    path = write(tmp_path / "Posts.xml", '<posts>' + '<row Body="a" />' * 50_000)
    assert next(choose_reader(path)(path)) == "a"
