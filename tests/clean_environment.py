"""Import this first: what the shell of whoever runs the tests has set is no part of them."""

import os
import signal
import sys

PREFIXES = ("HF_", "GIT_", "MASTER_", "TORCHELASTIC_", "WANDB_")
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "PYTHONUNBUFFERED")
if "pytest" in sys.modules:  # not in a test's own process
    for name in [*os.environ]:
        if name.startswith(PREFIXES) or name.lower().endswith("_proxy") or name in NAMES:
            del os.environ[name]
    # Tests are of the CPU. For `pytest -m cuda`, conftest.py sets VISIBLE_GPUS again.
    VISIBLE_GPUS = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # No test cuts the power. Those of what is on the disk, and when, watch or replace this call.
    os.fsync = lambda fd: None
# A shell that starts them in the background ignores Ctrl-C, and nohup SIGHUP. A handler is not
# inherited: the programs that the tests start take these signals as usual.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):  # not on Windows
    signal.signal(signal.SIGHUP, lambda *_: None)

# Tests run side by side, one process a core: each has one thread, and so do its children.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Half of a package's compilation is its wrapper, which only calls kernels. These are compiled as
# for users: at -O3, but without the numbers of lines.
os.environ["AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL"] = "O0"
os.environ["AOT_INDUCTOR_ENABLE_LINE_TABLES"] = "0"
# No test reaches wandb unless it says so (test_wandb_log.py removes this again).
os.environ["WANDB_MODE"] = "disabled"
