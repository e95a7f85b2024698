#!/usr/bin/env bash
# alignrl's reward cuts answers at points and commas: "the answer is 3.14" is right for 3.
#
# Versions: alignrl 0.3.0.
# Guess before the run: math_verify_reward is 1 for "The answer is 3.14." if the solution is 3.14,
#     and 0 if it is 3; numbers are compared as numbers, with separators of thousands or without.
#     (That answers are cut was suspected after reading the source.)
# Seen: for "the answer is" and "=", an answer ends at the first point or comma. 3.14, 0.5, and -2.5
#     are right for 3, 0, and -2, and 1,250 for 1; for themselves, all are wrong. "The answer is:
#     18" is the answer ":". Of \boxed{...} nothing is cut, but \boxed{1,250} is wrong for 1250, and
#     "$18" for 18.
# For gyre: it has no such rewards. There, take math-verify, or ask for \boxed{} without commas.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps alignrl==0.3.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from alignrl.rewards import extract_answer, math_verify_reward

for text, solution, is_right, expected in [
        ("The answer is 18.", "18", True, 1.0),
        (r"It is \boxed{3.14}.", "3.14", True, 1.0),
        (r"It is \boxed{3.140}.", "3.14", True, 1.0),
        ("The answer is 3.14.", "3.14", True, 0.0),
        ("The answer is 3.14.", "3", False, 1.0),
        ("So x = 0.5", "0.5", True, 0.0),
        ("So x = 0.5", "0", False, 1.0),
        ("The answer is -2.5", "-2.5", True, 0.0),
        ("The answer is -2.5", "-2", False, 1.0),
        ("The answer is 1,250.", "1250", True, 0.0),
        ("The answer is 1,250.", "1", False, 1.0),
        ("The answer is: 18", "18", True, 0.0),
        (r"It is \boxed{1,250}.", "1250", True, 0.0),
        ("The answer is $18.", "18", True, 0.0)]:
    reward = math_verify_reward([[{"role": "assistant", "content": text}]], [solution])[0]
    print(f"{text!r} for {solution}: {'right' if is_right else 'wrong'}, reward {reward}, answer "
          f"{extract_answer(text)!r}")
    assert reward == expected
PYTHON
