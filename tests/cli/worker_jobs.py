"""What a job can do to the process it runs in, for test_config_tests.py. Standard library only: a
worker imports it."""

import os
import signal
import time


def job(item: str) -> str:
    """Run in a worker: what a config could do to its process."""
    if item == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if item == "exit":
        os._exit(3)
    if item == "hang":
        time.sleep(60)
    if item == "raise":
        raise RuntimeError("first line\nsecond line")
    print("noise on the standard output")
    return item.upper()
