"""Tests run side by side, one process for each core: so each has one thread, and its children too."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
