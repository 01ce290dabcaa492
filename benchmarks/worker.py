"""Runs one contender in a separate process. Every line on standard input requests its next answer,
which is a line of JSON.

A contender is a generator function. Its first answer says what it computes, so that it can be
checked. Every further answer is one timed repetition.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback


def main() -> None:
    """Answers each line of standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to the log
    place, _, name = sys.argv[1].partition(":")
    options = json.loads(sys.argv[2])
    if options.pop("pinned", False):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    contender = None
    for _ in sys.stdin:
        try:
            contender = contender or getattr(importlib.import_module(place), name)(**options)
            answer = next(contender)
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
