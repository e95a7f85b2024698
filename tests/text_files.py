"""Write text files of all kinds, and read them as a training does."""

import gzip
import io
import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from itertools import chain

import pyarrow.parquet
import pytest

from data.prepare import copy_parts
from data.sources import SOURCES, DataConfig
from errors import UserError
from tools import as_lines

# "Hi." of Zo\u00eb at 23:59 UTC, and "see a.b" of Ann on the next day, as programs export it.
TELEGRAM = [
    {"type": "message", "date_unixtime": "1675209540", "from": "Zo\u00eb", "text": "Hi."},
    {"type": "service", "date_unixtime": "1675209541", "actor": "Ann", "text": ""},
    {"type": "message", "date_unixtime": "1675209550", "from": "Ann", "text": ""},
    {"type": "message", "date_unixtime": "1675209660", "from": "Ann",
     "text": ["see ", {"type": "link", "text": "a.b"}]}]
DISCORD = [
    {"timestamp": "2023-01-31T23:59:00.8", "timestampEdited": None, "content": "Hi.",
     "author": {"name": "Zo\u00eb"}},
    {"timestamp": "2023-02-01T00:01:00.8", "timestampEdited": None, "content": "see a.b",
     "author": {"name": "Ann"}}]
FACEBOOK = [  # the newest first
    {"sender_name": "Ann", "timestamp_ms": 1675209660000, "content": "see a.b"},
    {"sender_name": "Ann", "timestamp_ms": 1675209550000, "photos": []},
    {"sender_name": "Zo\u00c3\u00ab", "timestamp_ms": 1675209540000, "content": "Hi."}]
SLACK = [
    {"client_msg_id": "a", "user": "U1", "user_profile": {"real_name": "Zo\u00eb"},
     "ts": "1675209540.9", "text": "Hi."},
    {"user": "Ann", "ts": "1675209660.9", "text": "see a.b"}]
GOOGLE = [
    {"creator": {"name": "Zo\u00eb"}, "text": "Hi.", "topic_id": "t",
     "created_date": "Monday, January 2, 2023 at 11:59:00\u202fPM UTC"},
    {"creator": {"name": "Ann"}, "text": "see a.b", "topic_id": "t",
     "created_date": "Tuesday, January 3, 2023 at 12:01:00\u202fAM UTC"}]
MESSAGES = {
    "Telegram": {"messages": TELEGRAM}, "Discord": {"messages": DISCORD},
    "Facebook": {"messages": FACEBOOK}, "Slack": SLACK, "Google": {"messages": GOOGLE}}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(*paths, **options):
    """The documents of files and folders."""
    config = DataConfig(files=[str(path) for path in paths], **options)
    config.check()
    documents = chain.from_iterable(SOURCES["files"](config).parts())
    return ["".join(document) for document in documents]


def copied(*paths, **options):
    """The text of files and folders as it is prepared."""
    config = DataConfig(files=[str(path) for path in paths], **options)
    with io.BytesIO() as file:
        copy_parts(SOURCES["files"](config).parts(), file)
        return file.getvalue().decode()


def gz(content):
    return gzip.compress(content, mtime=0)  # the same bytes in every worker of pytest-xdist


def zstd(content):
    return pyarrow.compress(content, codec="zstd", asbytes=True)


def short(value):
    """The id of a parameter."""
    return repr(value)[:40]


def notes(capsys):
    """What was said, without "note: "."""
    return [line.removeprefix("note: ") for line in capsys.readouterr().err.splitlines()]


def write_parquet(path, table):
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    return path


def find_command(path, command, **options):
    """What this pattern finds in the error for a table."""
    with pytest.raises(UserError) as error:
        read(path, **options)
    (words,) = re.findall(command, str(error.value))
    return words


def run_command(path, command, **options):
    """Run it."""
    words = find_command(path, command, **options)
    words = words.replace("FILE", path.name).replace("python", shlex.quote(sys.executable), 1)
    subprocess.run(words, shell=True, cwd=path.parent, check=True)


def run_advised(folder, advice, *files, **options):
    """Do what the command in a note or an error does, and read what it has written.

    test_as_lines.py starts the program in a process of its own.
    """
    assert advice.count("python tools/as_lines.py FILES > NEW.jsonl") == 1
    new = folder / "NEW.jsonl"
    with (pytest.raises(SystemExit, match="^0$"), new.open("w", encoding="utf-8") as file,
          redirect_stdout(file), chdir(folder)):
        as_lines.main([*files])
    return read(new, **options)
