"""Tests run in a process a core, and so does every process that they start: a second thread of
numpy's or torch's arithmetic in each would wait for the others', in a loop that costs as much as
work. Libraries read this variable when they are imported, so that it is set before them all.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
