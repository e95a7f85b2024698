"""Tries to make gyre lose something, for as long as one likes.

    python tests/faults/run.py --minutes 60
    python tests/faults/run.py --minutes 5 kills errors

kills           SIGKILL at every call of a training that changes the disk, half of a write done:
                resumed, it must be bitwise the run that was never killed
errors          no space, an input/output error and a read-only disk at each of those calls, and at
                all after it, six for each call: exit 0 or 2 without a traceback, then resumed
                bitwise
damage          flipped bytes and cuts in every file of a run (but metrics.jsonl) and of prepared
                data: found, or without effect
imports         folders of Hugging Face's and Meta's, damaged in one place: a run that generates
                and exports, or one sentence, within 20 s and four times the folder's size
conversions     kills and the same errors in exports to hf, gguf and web, and in the import of a
                GGUF: the target is whole or not there, and a second attempt makes the same

Prints how many faults were tried and what was found; exits with 1 where something was. Needs gcc.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help="Default: all of them.")
    parser.add_argument("--minutes", type=float, default=10.0, help="For all of them together.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/faults.so"
        compiling = ["gcc", "-shared", "-fPIC", "-o", library, HERE / "preload.c", "-ldl"]
        subprocess.run(compiling, check=True)
        environment = os.environ | {"LD_PRELOAD": library, "OMP_NUM_THREADS": "1",
                                    "PYTHONPATH": os.pathsep.join(map(str, HERE.parents[:2]))}
        command = [sys.executable, HERE / "trials.py", str(options.minutes), *options.trials]
        sys.exit(subprocess.run(command, env=environment).returncode)
