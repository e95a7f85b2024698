"""Tests run side by side, one process a core: each has one thread, and so do its children."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
