"""Collects rollouts of environments that live on the learner's device (envs/device.py).

    if keeps_on_host(config, env, agent) is None:
        collector = DeviceCollector(env, agent, n_rows, seed)
    rollout = collector.collect(env_steps, budget)      # a DeviceRollout
    collector.metrics()                                 # reads the episodes that ended

On a GPU a whole rollout (acting and stepping, T rows of N envs) is one CUDA graph, and the host
waits for nothing until `metrics`. On a CPU the same lines run one after the other. The states of
the environments are saved with a checkpoint, so there is no journal.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import processes
from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.envs.device import Copies, DeviceStep, TensorEngine
from gymnasium_solver.envs.env_bugs import env_bug
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.vector import VectorEnv, VectorWrapper
from gymnasium_solver.errors import EnvError, EnvValueError
from gymnasium_solver.fast.cuda_graph import Recurring
from gymnasium_solver.timing import Timer
from gymnasium_solver.training.epoch_metrics import EPISODE_WINDOW, Ended, EpisodeStats
from gymnasium_solver.training.finite import check_rollout
from gymnasium_solver.training.seeds import derive

ON_DEVICE = "device"  # key of the saved state, and prefix of the saved arrays


def keeps_on_host(config: Config, env: VectorEnv, agent: Agent) -> str | None:
    """Why rollouts of device environments go through the host, as a name of a setting; None: they
    stay on the device, or `env` is none of these."""
    inner = env
    while isinstance(inner, VectorWrapper):
        inner = inner.env
    if not isinstance(inner, TensorEngine):
        return None
    if inner is not env:
        return "a wrapper"
    if config.curriculum is not None:
        return "curriculum"
    return inner.not_on(agent.device) or getattr(agent, "needs_host", "the algorithm")


class Totals(NamedTuple):
    """Returns and lengths of the episodes so far, [N], between rollouts."""

    returns: Tensor
    lengths: Tensor


class DeviceCollector(EpisodeStats):
    def __init__(
        self, env: TensorEngine, agent: Agent, n_rows: int, seed: int, check_finite: bool = True
    ):
        super().__init__()
        self.env, self.policy = JournaledEnv(env), agent.policy
        self.device, self.seed, self.n_rows = agent.device, seed, n_rows
        self.check_finite = check_finite
        self.timer = Timer()  # replaced by that of the training loop
        self._engine = env
        self._envs: Copies | None = None
        self._is_new = True  # no rollout has begun in them
        self._totals: Totals | None = None
        self._storage: DeviceRollout | None = None
        self._recurring: Recurring | None = None
        self._rollout: DeviceRollout | None = None  # the newest
        self._found: list[Tensor] = []  # not read yet

    def collect(
        self, env_steps: int, budget: int | None, n_rows: int | None = None, version: int = 0
    ) -> DeviceRollout:
        """Collect `n_rows` rows; with a budget no more than it takes, in whole rows."""
        n_rows = n_rows or self.n_rows
        if budget is not None:
            n_rows = min(n_rows, -(-budget // (self.env.n_envs * processes.count())))
        if self.activity.is_paused:
            self.activity.wait_while_paused()
        self._open()
        assert self._recurring is not None
        self.timer.switch("env")
        numbers = self.policy.choice_numbers
        (found,) = self._recurring(n_rows, lambda given: [self._roll(n_rows, given)], numbers)
        self.timer.switch()
        self._found.append(found.clone())
        assert self._storage is not None
        self._rollout = self._storage.first(n_rows)
        self._rollout.version = version
        self._rollout.is_restart, self._is_new = self._is_new, False
        self.activity.rollout_steps = self._rollout.env_steps
        return self._rollout

    def _open(self) -> None:
        """Make the environments, at the first rollout and after a restart."""
        if self._envs is not None:
            return
        seed = derive(self.seed, processes.rank(), self._restarted_at)
        self._envs = self._engine.on(self.device, seed)
        n, device = self.env.n_envs, self.device
        self._totals = Totals(
            torch.zeros(n, dtype=torch.float64, device=device),
            torch.zeros(n, dtype=torch.int64, device=device),
        )
        self._recurring = self._recurring_in(self._envs)
        self._is_new = True

    def _recurring_in(self, envs: Copies) -> Recurring:
        return Recurring(self.device, [envs.generator], captures=envs.is_capturable)

    @torch.no_grad()
    def _roll(self, n_rows: int, numbers: Sequence[Any]) -> Tensor:
        """Act and step `n_rows` times into the storage; returns what `metrics` reads."""
        envs, policy, n = self._envs, self.policy, self.env.n_envs
        assert envs is not None
        envs.begin()
        noise = policy.ready_noise((n_rows, n), envs.generator)
        assert noise is not None
        fresh, obs = envs.fresh(n_rows), envs.obs
        rows: list[tuple[Tensor, ...]] = []
        for t in range(n_rows):
            actions, outputs = policy.choose(obs, noise[t], numbers)
            step = self._step(policy.actions.to_env_tensor(actions), fresh[t])
            rows.append((obs, actions, outputs, *step[1:]))
            obs = step.obs
        rollout, outputs = self._stored(rows)
        flat_actions = rollout.actions.flatten(0, 1)
        log_prob = policy.chosen_log_prob(outputs.flatten(0, 1), flat_actions)
        rollout.log_prob.copy_(log_prob.view(n_rows, n))
        envs.settle()  # after the rows are stored: the first observations may be the states
        return self._ended(rollout)

    def _step(self, actions: Tensor, fresh: dict[str, Tensor]) -> DeviceStep:
        assert self._envs is not None
        try:
            return self._envs.step(actions, fresh)
        except RuntimeError:  # of torch, also where a graph cannot be captured
            raise
        except Exception as error:
            raise env_bug(f"{self.env.spec.env_id}: step() raised", error) from error

    def _stored(self, rows: Sequence[tuple[Tensor, ...]]) -> tuple[DeviceRollout, Tensor]:
        """The rows in the storage, always the same memory, and the outputs of the policy."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        obs, actions, outputs, final_obs, reward, terminated, truncated = columns
        if self._storage is None:
            shape = (self.n_rows, len(reward[0]))
            made = [
                torch.empty((*shape, *c[0].shape[1:]), dtype=c[0].dtype, device=self.device)
                for c in (obs, final_obs, actions, reward, reward, terminated, truncated)
            ]
            self._storage = DeviceRollout(*made)
        rollout = self._storage.first(len(rows))
        torch.stack(obs, out=rollout.obs)
        torch.stack(final_obs, out=rollout.final_obs)
        torch.stack(actions, out=rollout.actions)
        torch.stack(reward, out=rollout.reward)
        torch.stack(terminated, out=rollout.terminated)
        torch.stack(truncated, out=rollout.truncated)
        return rollout, torch.stack(outputs)

    def _ended(self, rollout: DeviceRollout) -> Tensor:
        """Whether all is finite, how many episodes ended, and the last of them: their returns,
        lengths and terminations, those of row -1 first; -1 in place of a length where there are
        fewer."""
        totals, n_rows = self._totals, rollout.n_rows
        assert totals is not None
        done = rollout.terminated | rollout.truncated
        row = torch.arange(n_rows, device=self.device).unsqueeze(1)
        sums = rollout.reward.double().cumsum(0)
        # The row of the end before each row, -1: it was in an earlier rollout.
        ends = torch.where(done, row, -1).cummax(0).values
        before = torch.cat([torch.full_like(ends[:1], -1), ends[:-1]])
        is_old, place = before < 0, before.clamp(min=0)
        returns = sums - torch.where(is_old, -totals.returns, sums.gather(0, place))
        lengths = row - torch.where(is_old, -1 - totals.lengths, before)
        totals.returns.copy_(returns[-1].masked_fill(done[-1], 0.0))
        totals.lengths.copy_(lengths[-1].masked_fill(done[-1], 0))
        index = torch.arange(done.numel(), device=self.device)
        newest = torch.where(done.flatten(), index, -1).topk(min(EPISODE_WINDOW, done.numel()))
        taken = newest.values.clamp(min=0)
        length = torch.where(newest.values < 0, -1, lengths.flatten()[taken])
        head = torch.stack([rollout.is_finite(), done.sum()])
        columns = (returns.flatten()[taken], length, rollout.terminated.flatten()[taken])
        return torch.cat([part.double() for part in (head, *columns)])

    # -- what the loop reads ----------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Read the episodes of the rollouts since the last call; none of their own as metrics."""
        found = [of_process for own in self._found for of_process in processes.gathered(own)]
        numbers = iter(torch.cat(found).tolist() if found else ())  # one transfer
        for part in found:
            is_finite, n_ended, *rest = islice(numbers, len(part))
            if self.check_finite and not is_finite:
                self._found = []
                assert self._rollout is not None
                env_id = self.env.spec.env_id
                check_rollout(self._rollout.on_host(self._rollout.env_steps), env_id)
                raise EnvValueError(f"{env_id}: values of a rollout were not finite.")
            returns, lengths, terminated = np.array(rest).reshape(3, -1)[:, ::-1]
            shown = lengths >= 0
            known = Ended(returns[shown], lengths[shown].astype(np.int64), terminated[shown] > 0)
            self.count_episodes(known)
            self.n_episodes += int(n_ended) - len(known.returns)
            self.activity.episodes = self.n_episodes
        self._found = []
        return {}

    @property
    def uncaptured(self) -> str | None:
        """Why rollouts are no CUDA graph, where that was tried."""
        return None if self._recurring is None else self._recurring.failure

    @property
    def hides_ends(self) -> bool:
        """Whether episodes ended whose final observations the environment did not give."""
        return self._envs is not None and self._envs.hides_ends and self.n_episodes > 0

    @property
    def unfinished(self) -> DeviceRollout:
        """Rows of a rollout that was interrupted: none, since it is one call."""
        self._open()
        empty = torch.zeros(0, self.env.n_envs, device=self.device)
        return DeviceRollout(*[empty] * 7)

    def use(self, agent: Agent, config: Config) -> None:
        """Continue with this agent, whose config changed."""
        if reason := keeps_on_host(config, self._engine, agent):
            raise EnvError(
                f"{reason} needs rollouts on the host, and this run keeps them on its device. "
                "Start a new run with it."
            )
        self.policy = agent.policy
        if self._envs is not None:
            self._recurring = self._recurring_in(self._envs)

    def close(self) -> None:
        self._envs = self._recurring = self._storage = None
        self.env.close()

    # -- state ------------------------------------------------------------------------------

    def state(self, with_env: bool = True) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays (the states of the environments) and the remaining state as JSON."""
        self.metrics()
        arrays: dict[str, np.ndarray] = {}
        if with_env:
            self._open()
            assert self._envs is not None
            assert self._totals is not None
            tensors = {**self._envs.state(), **self._totals._asdict()}
            arrays = {f"{ON_DEVICE}.{name}": t.cpu().numpy() for name, t in tensors.items()}
        journal = {ON_DEVICE: self.device.type} if with_env else {}
        return arrays, {"journal": journal, **self.episode_state()}

    def restore_envs(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Continue the episodes of a checkpoint."""
        saved = state["journal"].get(ON_DEVICE)
        if saved != self.device.type:
            where = "the host" if saved is None else saved
            raise EnvError(f"The environments were on {where}, and are on {self.device.type} now.")
        self._open()
        assert self._envs is not None
        assert self._totals is not None
        given = {name.removeprefix(f"{ON_DEVICE}."): array for name, array in arrays.items()}
        for name, part in self._totals._asdict().items():
            if name not in given or given[name].shape != tuple(part.shape):
                raise EnvError(f"The saved environments have no {name} of {len(part)} copies.")
            part.copy_(torch.as_tensor(given[name]))
        self._envs.load_state(given)
        self._is_new = False

    def restart_envs(self, env_steps: int) -> None:
        """Start new episodes, with a seed derived from the clock."""
        self._restarted_at, self._envs = env_steps, None
