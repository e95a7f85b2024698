"""Folders of other people's models, damaged in one place: read, or refused in a sentence."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saved_models import edit_json, make_run, meta_folder, their_folder

import export
import generate

SECONDS, SLACK = 20, 64 * 2**20  # bytes beside four times the files: what libraries take
ODD: list[Any] = [
    None, True, -1, 0, 1, 7, 10**9, 10**30, 1e30, 1e-300, 0.5, float("inf"), float("nan"), "", "x",
    "1", "é" * 3, "\ud800", [], [None], [1, 2], ["x"], [[[]]], {}, {"a": {"b": [1]}}, [{"a": {}}],
    json.loads("[" * 900 + "]" * 900),
]


def folders(place: Path) -> list[Path]:
    """One of each kind: Hugging Face's with byte-level pairs and with byte fallback, and Meta's."""
    place.mkdir()
    found = [their_folder(place, kind) for kind in ("llama3", "llama2-json")]
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    edit_json(found[0] / "config.json", rope_parameters=scaling, layer_types=["full_attention"] * 3)
    return [*found, meta_folder(place / "meta", make_run(place), 2, False)]


def replace(value: Any, rng: random.Random) -> tuple[Any, str]:
    """The value with one odd value in one place, or that place gone; and what was done."""
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        copy = value.copy()
        keys = list(copy) if isinstance(copy, dict) else range(len(copy))
        # The first fields more often: of a vocabulary all are alike.
        key = keys[min(rng.randrange(len(keys)), rng.randrange(len(keys)))]
        if rng.random() < 0.2:
            del copy[key]  # type: ignore
            return copy, f"[{key!r}] is gone"
        copy[key], done = replace(copy[key], rng)  # type: ignore
        return copy, f"[{key!r}]{done}"
    odd = rng.choice(ODD)
    return odd, f" is {odd!r}"


def damaged(file: Path, rng: random.Random) -> str:
    """Damage a file in one place; returns what was done."""
    content = file.read_bytes()
    kind = rng.random()
    if kind < 0.1:
        at = rng.randrange(len(content))
        file.write_bytes(content[:at])
        return f"cut at {at}"
    if kind < 0.2 or file.suffix in (".model", ".pth"):
        # The first kilobyte more often: of the weights behind a header all are alike.
        at = rng.randrange(rng.choice([len(content), min(len(content), 1024)]))
        flipped = content[at] ^ 1 << rng.randrange(8)
        file.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
        return f"bit flipped at {at}"
    start = 0
    end = len(content)
    if file.suffix == ".safetensors":  # its header is JSON, after eight bytes for its length
        start = 8
        end = start + int.from_bytes(content[:8], "little")
    table, done = replace(json.loads(content[start:end]), rng)
    text = json.dumps(table).encode()
    file.write_bytes(len(text).to_bytes(8, "little")[:start] + text + content[end:])
    return done


def imports(testbed: Any) -> Iterator[tuple[str, str | None]]:
    """Damage folders, again and again: a pair of what was damaged and what went wrong, if so."""
    rng = random.Random()
    sources = folders(testbed.folder / "theirs")
    spare = testbed.folder / "spare"
    while True:
        shutil.rmtree(spare, ignore_errors=True)
        source = rng.choice(sources)
        broken = shutil.copytree(source, spare / "broken")
        file = rng.choice(sorted(broken.iterdir()))
        what = f"{source.name}/{file.name}: {damaged(file, rng)}"
        yield what, use_folder(testbed, broken, spare)


def use_folder(testbed: Any, broken: Path, spare: Path) -> str | None:
    """Import a folder, and then do what that is for: generate, and export in either format.

    Returns what went wrong. A refusal in one sentence ends it too, and is right.
    """
    size = sum(file.stat().st_size for file in broken.iterdir())
    run = spare / "run"
    for main, *argv in (
        (export.main, broken, run, "--to", "run"),
        (generate.main, "--run", run, "--prompt=def f", "--max-new-tokens=3", "--device=cpu"),
        (export.main, run, spare / "hf", "--to", "hf"),
        (export.main, run, spare / "a.gguf", "--to", "gguf")):
        ended = testbed.call(main, *argv, seconds=SECONDS)
        problem = find_problem(ended, main is generate.main, size)
        if problem is not None:
            command = f"{main.__module__} {' '.join(map(str, argv))}"
            return f"{command}: {problem}: {ended.said[-1500:]}"
        if ended.code != 0:
            return None
    return None


def find_problem(ended: Any, generates: bool, size: int) -> str | None:
    """Return what is wrong with how a command ended that read `size` bytes."""
    if ended.code not in (0, 2) or "Traceback" in ended.said:
        return f"exit {ended.code}"
    if ended.code == 2 and ended.said.count("error:") != 1:
        return "not one sentence"
    if ended.code == 2 and generates:
        return "imported, and then refused"
    if ended.grown > 4 * size + SLACK:
        return f"{ended.grown:,} bytes of memory for {size:,} on the disk"
    return None
