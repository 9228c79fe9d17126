"""Trains several seeds in one process: each is an ordinary training in a lane (lanes.py).

    lanes = train_stacked({"seed 1": train_one, "seed 2": train_two})

A lane runs the same loop as a training alone, with its own agent, environments, random streams and
run folder. What costs most is done together for all of them: steps of environments written in
NumPy, forward passes of small networks, gradients where that pays (fast/stacked.py), and whole
updates on a GPU (fast/stacked_descent.py). A lane that ends leaves the others to go on.
"""

import signal
from collections.abc import Mapping
from types import FrameType

from gymnasium_solver.envs.engines.array_envs import ArraySteps
from gymnasium_solver.fast.stacked import Gradients, Inferences
from gymnasium_solver.fast.stacked_descent import Descents
from gymnasium_solver.lanes import Lane, Lanes, Program, Work
from gymnasium_solver.training.activity import Terminated, signals_handled
from gymnasium_solver.training.threads import limited_threads


def train_stacked(programs: Mapping[str, Program]) -> list[Lane]:
    """Run trainings together to their ends; the lanes hold their results and errors.

    SIGINT and SIGTERM ask every lane to stop after its epoch; a second signal stops at once."""
    # Steps last: there the lanes meet that are collecting, evaluating and testing.
    works: dict[str, Work] = {
        "descent": Descents(),
        "gradient": Gradients(),
        "inference": Inferences(),
        "env step": ArraySteps(),
    }
    lanes = Lanes(works)

    def on_signal(number: int, frame: FrameType | None) -> None:
        error = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        for lane in list(lanes.active):
            if lane.on_signal is None or not lane.on_signal(signal.Signals(number).name):
                lane.interruption = error

    with limited_threads(1), signals_handled(on_signal):
        return lanes.run(programs)
