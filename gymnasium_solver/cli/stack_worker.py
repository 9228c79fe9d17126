"""The process of a stack: `python -m gymnasium_solver.cli.stack_worker FOLDER`.

It runs the command lines of `gsolve train` that FOLDER/lanes.json lists, together in one process.
Each starts, resumes or skips its run as it would alone. The exit code is 75 if a run can be
resumed, 1 if some have failed.
"""

import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.experiment import CNN, not_stackable, read_lanes
from gymnasium_solver.printable import printable_lines


def main(words: Sequence[str]) -> int:
    from gymnasium_solver.cli.main import call
    from gymnasium_solver.training.activity import PREEMPTED, sigterm_raises
    from gymnasium_solver.training.loop import train_stacked

    found = read_lanes(Path(words[0]))
    programs = {lane.run.name: partial(call, "train", list(lane.words)) for lane in found}
    with sigterm_raises():
        if (problem := misfit(found[0].words[0])) is not None:
            print(f"gsolve train: {problem}", file=sys.stderr)
            return 2
        lanes = train_stacked(programs)
    codes = []
    for lane in lanes:
        if lane.error is not None:
            print(
                f"gsolve train: {lane.name}: {printable_lines(repr(lane.error))}", file=sys.stderr
            )
        codes.append(1 if lane.error is not None else int(lane.result))
    if PREEMPTED in codes:
        return PREEMPTED
    return min(codes) if min(codes) else min(1, max(codes))


def misfit(target: str) -> ConfigError | None:
    """Why a config cannot be stacked, as far as its environment decides that."""
    from gymnasium_solver.config.schema import LearnerConfig
    from gymnasium_solver.envs.make import training_env
    from gymnasium_solver.nets.network import is_cnn
    from gymnasium_solver.training.prepare import load_config

    config = load_config(target)
    with closing(training_env(config)) as env:
        if isinstance(config, LearnerConfig) and is_cnn(config, env.observation_space):
            return not_stackable(f"{config.env_id}:{config.variant or config.algo_id}", CNN)
    return None


if __name__ == "__main__":
    from gymnasium_solver.cli.main import prepare_process

    prepare_process()
    sys.exit(main(sys.argv[1:]))
