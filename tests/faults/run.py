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

Prints how many faults were tried and what was found; exits with 1 where something was. Needs gcc.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/faults.so"
        source = str(HERE / "preload.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        environment = {
            **os.environ, "LD_PRELOAD": library, "DESCRIPTION": str(__doc__),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parents[1])]),
        }
        command = [sys.executable, str(HERE / "trials.py"), *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment).returncode)
