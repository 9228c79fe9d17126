"""One collector: its share of the environments, the policy, and rollouts on demand.

    worker = Worker(start_message)      # builds, and restores environments where a state is given
    worker.hear(weights_message)        # from any thread; the newest one counts
    message = worker.rollout(j)         # waits for weights that are new enough

The messages are explained in remote.py.
"""

import threading
import time
from typing import Any

import numpy as np
import torch

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.algos.on_policy import acting_log_prob
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.goals import successes
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.vector import Step
from gymnasium_solver.envs.wrappers.shaping import EPISODE_PARTS
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import Collector
from gymnasium_solver.training.collectors.messages import Message, prefixed
from gymnasium_solver.training.collectors.parts import EnvState, rollout_arrays
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.training.seeds import derive, stage_seed

NO_BOUNDARY = 2**62


class PartCollector(Collector):
    """Collects a share of a rollout. It restarts the environments only when told to, and keeps the
    episodes that ended for the learner to count."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.restart: list[int] | None = None  # boundary and clock of the restart that is due
        self.episodes: list[dict[str, Any]] = []

    def next_boundary(self, env_steps: int) -> int | None:
        if self.restart is None:
            return None
        boundary, self._restarted_at = self.restart
        self.restart = None
        return boundary

    def note_episodes(self, row: int, step: Step, over: np.ndarray) -> None:
        success = successes(step.info, self.env.n_envs)
        parts = step.info.get(EPISODE_PARTS, {})
        for i in np.flatnonzero(over):
            self.episodes.append(
                {
                    "row": row,
                    "env": int(i),
                    "return": float(step.episode_return[i]),
                    "length": int(step.episode_length[i]),
                    "terminated": bool(step.terminated[i]),
                    "success": None if success is None else bool(success[i]),
                    "parts": {name: float(totals[i]) for name, totals in parts.items()},
                }
            )

    def env_state(self, actions_from: int) -> EnvState:
        """Where the envs stand, with the actions from this step after the last reset on."""
        assert self._obs is not None
        state = self.env.state()
        return EnvState(
            seed=state["seed"],
            actions=self.env.actions_since(actions_from),
            obs=self._obs,
            episode_return=state["episode_return"],
            episode_length=state["episode_length"],
            is_first=self._is_first,
            carry=self._carry,
            rng=dict(self.policy.rng.bit_generator.state),
        )

    def take_up(self, state: EnvState) -> None:
        """Bring envs and policy to where `state` was taken; EnvError if the envs are not
        deterministic."""
        self._obs = self.env.restore(
            {
                "seed": state.seed,
                "actions": state.actions,
                "obs": state.obs,
                "episode_return": state.episode_return,
                "episode_length": state.episode_length,
            }
        )
        self._is_first = state.is_first
        self._carry = {name: part.copy() for name, part in state.carry.items()}
        self.policy.rng.bit_generator.state = state.rng


class Worker:
    def __init__(self, start: Message):
        fields = start.fields
        self.index, self.n = fields["index"], fields["n"]
        self.max_staleness = fields["max_staleness"]
        self._config_text: dict[str, Any] = fields["config"]
        config = self._own(build_config(fields["config"]))
        self.env = JournaledEnv(env_from_config(config, config.n_envs // self.n))
        self.agent: Agent = build_agent(config, self.env.observation_space, self.env.action_space)
        self.collector = PartCollector(
            self.env,
            self.agent.policy,
            config.rollout_rows,
            stage_seed(config, "train"),
            NO_BOUNDARY,
        )
        # Alone it makes the rollouts of a run without collectors. Several keep in step instead: all
        # have the same number of rows.
        self.collector.adds_row = self.n == 1
        if "state" in fields:
            self.collector.take_up(EnvState.from_message(fields["state"], start.part("state.")))
        self._newest: Message | None = None
        self._news = threading.Condition()

    def _own(self, config: Config) -> Config:
        """The config of this collector: on the CPU, with streams of its own. The first one has
        those of a run without collectors."""
        changes: dict[str, Any] = {"device": "cpu", "collectors": None, "interventions": []}
        if getattr(config, "compile", False):
            # Actions must not depend on which machine of several has a C compiler.
            changes["compile"] = "numpy"
        if self.index:
            assert config.seed is not None
            changes["seed"] = derive(config.seed, "collector", self.index)
            if config.seed_train is not None:
                changes["seed_train"] = derive(config.seed_train, "collector", self.index)
        return config.replace(**changes)

    def hear(self, message: Message) -> None:
        """Take newer weights; called while `rollout` waits or works."""
        with self._news:
            self._newest = message
            self._news.notify()

    def rollout(self, j: int) -> Message:
        """Rollout number j, with the newest weights that have arrived."""
        with self._news:
            while self._newest is None or self._newest.fields["version"] < j - self.max_staleness:
                self._news.wait()
            order = self._newest
        began_s = time.perf_counter()
        fields, collector = order.fields, self.collector
        if fields["config"] != self._config_text:
            self._reconfigure(fields["config"])
        self.agent.import_flat(order.arrays)
        clock = fields["env_steps"], fields["total_steps"]
        self.agent.set_clock(*clock)
        self.agent.before_rollout(*clock)
        collector.restart = fields["restarts"].get(str(j))
        collector.episodes = []
        known = 0 if collector.restart is not None else self.env.n_steps
        rollout = collector.collect(clock[0], None, fields["rows"][str(j)], self.agent.n_updates)
        self._record_log_prob(rollout)
        state_fields, state_arrays = collector.env_state(known).to_message()
        return Message(
            {
                "kind": "rollout",
                "round": j,
                "version": fields["version"],
                "n_updates": rollout.version,
                "is_restart": rollout.is_restart,
                "episodes": collector.episodes,
                "seconds": time.perf_counter() - began_s,
                "state": state_fields,
            },
            prefixed("rollout.", rollout_arrays(rollout)) | prefixed("state.", state_arrays),
        )

    @torch.no_grad()
    def _record_log_prob(self, rollout: Rollout) -> None:
        """Replace the distribution by the log-probabilities of the actions: the policies of several
        collectors may differ, and it is less to send."""
        if rollout.outputs is None:
            return
        learner: Any = self.agent
        actions = torch.from_numpy(rollout.actions).flatten(0, 1)
        log_prob = acting_log_prob(learner, rollout, actions)
        rollout.log_prob = log_prob.view(rollout.valid.shape).numpy()

    def _reconfigure(self, text: dict[str, Any]) -> None:
        """After a live edit: a new agent with the random stream of the old one."""
        rng = self.agent.policy.rng
        config = self._own(build_config(text))
        self.agent = build_agent(config, self.env.observation_space, self.env.action_space)
        self.agent.policy.rng.bit_generator.state = rng.bit_generator.state
        self.collector.policy = self.agent.policy
        self._config_text = text

    def close(self) -> None:
        self.env.close()
