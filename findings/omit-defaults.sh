#!/usr/bin/env bash
# Two equal Structs with omit_defaults are encoded differently: one was read, one was made.
#
# Version: msgspec 0.22.0.
# Guess before the run: a field is left out if its value equals the default, so equal Structs have
#     equal JSON, and reading and writing again leaves out what is at its default.
# Seen: the value must be the same object as the default. A decoded float, str, tuple or int of
#     1000 is another object, so it is written; small integers, booleans and empty collections are
#     left out. Writing what was read never gets back to "{}". msgspec.convert keeps the objects:
#     "{}" again.
# For gyre: plan.json of a study has omit_defaults (ablation/plan.py). Plans are compared as
#     values, never as bytes or hashes of them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile msgspec==0.22.0
"$folder/env/bin/python" - <<'PYTHON'
import msgspec


class Options(msgspec.Struct, omit_defaults=True):
    lr: float = 0.01
    steps: int = 1000
    warmup: int = 10
    name: str = "run"
    betas: tuple[float, float] = (0.9, 0.95)
    resume: bool = False
    tags: list[str] = []


TEXT = (b'{"lr":0.01,"steps":1000,"warmup":10,"name":"run","betas":[0.9,0.95],'
        b'"resume":false,"tags":[]}')
made = Options()
read = msgspec.json.decode(TEXT, type=Options)
read_again = msgspec.json.decode(msgspec.json.encode(read), type=Options)
converted = msgspec.convert({"lr": made.lr, "steps": made.steps, "name": made.name}, Options)
texts = {}
for name, options in {"made": made, "read": read, "read, written, read": read_again,
                      "converted": converted}.items():
    texts[name] = msgspec.json.encode(options).decode()
    print(f"{name}: equal to the defaults: {options == made}, written as {texts[name]}")

assert read == made and read_again == made and converted == made
long = '{"lr":0.01,"steps":1000,"name":"run","betas":[0.9,0.95]}'
assert texts == {"made": "{}", "read": long, "read, written, read": long, "converted": "{}"}
PYTHON
