"""`python -m gymnasium_solver.backends.tied -- ARGV...`: becomes ARGV, and dies with its parent.

Linux sends SIGKILL when the parent ends (PR_SET_PDEATHSIG), so that a training does not outlive the
Ray worker or the node that was lost, while another one continues the same run. Elsewhere the lock
of the run keeps two from writing it.
"""

import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def main(words: Sequence[str]) -> int:
    argv = list(words[1:])
    parent = os.getppid()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before
            return 1
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
