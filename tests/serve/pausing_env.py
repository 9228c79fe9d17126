"""The counting environment, slowed down or killed while a file exists; a plugin for the worker."""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium

from tests.media.counting import Counting

PAUSING = "GsolveServe/Pausing-v0"
FILE = "GSOLVE_TEST_PAUSE"
"""Environment variable: the file."""


class Pausing(Counting):
    def step(self, action: Any) -> Any:
        name = os.environ.get(FILE)
        if name and Path(name).exists():
            if Path(name).read_text() == "die":
                os._exit(9)
            time.sleep(0.1)
        return super().step(action)


if PAUSING not in gymnasium.registry:
    gymnasium.register(PAUSING, Pausing)  # type: ignore[arg-type]
