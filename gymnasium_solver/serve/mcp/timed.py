"""`python -m gymnasium_solver.serve.mcp.timed SECONDS WORD...`: a gsolve command that sends SIGTERM
to itself after a time, so that a training saves and ends although its starter may be gone."""

import os
import runpy
import signal
import sys
import threading
from collections.abc import Sequence


def main(words: Sequence[str]) -> None:
    timer = threading.Timer(float(words[0]), os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    sys.argv = ["gsolve", *words[1:]]
    runpy.run_module("gymnasium_solver", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
