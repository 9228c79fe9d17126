"""One task of a job array: `python -m gymnasium_solver.backends.task FOLDER INDEX`.

`FOLDER/tasks.json` has the argv of every task. This process becomes the argv with that index, so
that signals reach the training itself.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

TASKS = "tasks.json"


def write_tasks(folder: Path, argvs: Sequence[Sequence[str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TASKS).write_text(json.dumps([list(argv) for argv in argvs], indent=1) + "\n")


def main(words: Sequence[str]) -> int:
    folder, index = Path(words[0]), int(words[1])
    argv = json.loads((folder / TASKS).read_text())[index]
    # The Python of this machine: another one may have it in another place.
    if argv[1:3] == ["-m", "gymnasium_solver"]:
        argv[0] = sys.executable
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
