"""A training of several processes that learn together (processes.py): the first one leads.

    lead(trainer, checkpoint)               # in the first process, once there is a run
    run = follow_first(make_trainer, learn)          # in the others, until the first one ends

The first process runs the loop as always: it alone writes the run folder, evaluates, tests and
stops. The others build the same learner and environments of their own, and take part in each epoch
and, when a checkpoint is made, in the state that it holds.
"""

import json
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver import processes
from gymnasium_solver.config.load import dump_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.config.yaml_file import parse_yaml
from gymnasium_solver.runs.checkpoint import LoadedCheckpoint, load_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.training.trainer import Trainer

RETURNS = "reward_returns"  # of the environments, for the scale of rewards
TrainerMaker = Callable[[Config, Sequence[Observer]], AbstractContextManager[Trainer]]
EpochMaker = Callable[[Trainer], Any]


def lead(trainer: Trainer, checkpoint: LoadedCheckpoint | None = None) -> None:
    """Let the other processes begin, from the checkpoint if there is one."""
    if processes.count() == 1:
        return
    processes.tell(processes.START)
    path = None if checkpoint is None else str(checkpoint.path.resolve())
    run = str(trainer.run.path.resolve())
    facts = {"config": dump_config(trainer.config), "run": run, "checkpoint": path}
    processes.text_of_first(json.dumps(facts))
    _equal_weights(trainer)


def follow_first(make: TrainerMaker, learn: EpochMaker) -> Run | None:
    """Take part in the training of the first process until it ends; returns its run. `make`: a
    trainer of a config; `learn`: an epoch of it."""
    with processes.joined():
        for number in (signal.SIGINT, signal.SIGTERM):  # the first process saves, then all end
            signal.signal(number, signal.SIG_IGN)
        if processes.told() != processes.START:
            return None
        facts = json.loads(processes.text_of_first())
        run = Run(Path(facts["run"]))
        config = build_config(parse_yaml(facts["config"], "the config of the first process"))
        with make(config.replace(observers=[], video="off"), ()) as trainer:
            if facts["checkpoint"] is not None:
                checkpoint = load_checkpoint(Path(facts["checkpoint"]))
                trainer.load(run, checkpoint)
                _restore(trainer, checkpoint)
            _equal_weights(trainer)
            while (order := processes.told()) != processes.END:
                if order == processes.STATE:
                    processes.gathered_arrays(_own_arrays(trainer))
                else:
                    trainer.progress.epoch += 1
                    learn(trainer)
        return run


def _own_arrays(trainer: Trainer) -> dict[str, np.ndarray]:
    agent: Any = trainer.agent
    agent.device_update.pull()
    return {**trainer.collector.state()[0], RETURNS: agent.reward_normalizer.running_return}


def _restore(trainer: Trainer, checkpoint: LoadedCheckpoint) -> None:
    """Continue this process's environments."""
    prefix, saved = processes.OF_PROCESS.format(processes.rank()), checkpoint.tensors.get("env", {})
    own = {k.removeprefix(prefix): v for k, v in saved.items() if k.startswith(prefix)}
    agent: Any = trainer.agent
    normalizer = agent.reward_normalizer
    returns = own.pop(RETURNS, np.zeros(0))
    if returns.shape != normalizer.running_return.shape:
        returns = np.zeros_like(normalizer.running_return)
    normalizer.running_return = returns
    agent.device_update.push()
    trainer.restore_envs(replace(checkpoint, tensors={**checkpoint.tensors, "env": own}))


def _equal_weights(trainer: Trainer) -> None:
    """All processes begin with the weights, statistics and moments of the first one."""
    agent: Any = trainer.agent
    for tensor in agent.flat_tensors().values():
        processes.from_first(tensor)
    for optimizer in agent.optimizers.values():
        moments = {name: processes.from_first(t) for name, t in optimizer.state().items()}
        optimizer.load_state(moments)
