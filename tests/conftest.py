"""One thread for each test process: networks this small lose by sharing, badly on a busy machine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
