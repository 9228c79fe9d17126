"""Demonstrations (`dataset`): what others played, learnt from in place of the environment."""

from typing import Any

import numpy as np
from torch import Tensor

from gymnasium_solver.algos.extensions.extension import Extension
from gymnasium_solver.data.demonstrations import HOW, load_demonstrations
from gymnasium_solver.errors import ConfigError, RunError


class LearntDemonstrations(Extension):
    name = "demonstrations"

    def start_training(self) -> list[str]:
        """Load them, and set some episodes aside."""
        learner, cfg = self.learner, self.learner.config
        if cfg.dataset is None:
            raise ConfigError(
                f"dataset: {cfg.algo_id} learns from demonstrations: give --dataset PATH. {HOW}."
            )
        demos = load_demonstrations(
            cfg.dataset, learner.observation_space, learner.actions, cfg.env_id
        )
        demos.split(cfg.dataset_held_out, np.random.default_rng(learner.seed), cfg.dataset_top)
        self.demonstrations = demos
        notes = [demos.summary()]
        if demos.env_id is not None and demos.env_id != cfg.env_id:
            notes.append(f"warning: the demonstrations are of {demos.env_id}, not of {cfg.env_id}")
        return notes

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {} if self.demonstrations is None else {"digest": self.demonstrations.digest}

    def load_state(self, tensors: dict[str, Any], extra: dict[str, Any]) -> None:
        if self.demonstrations is not None and self.demonstrations.digest != extra["digest"]:
            raise RunError(
                f"the dataset {self.learner.config.dataset} is not the one that this run learnt "
                "from; give that one, or start from its weights with --init-from-run"
            )
