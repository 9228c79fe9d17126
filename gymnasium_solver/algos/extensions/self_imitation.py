"""Self-imitation (Oh et al. 2018): learn again from one's own good episodes; for PPO and A2C.

Finished episodes in which the environment gave a positive reward are kept as rows (observation,
action, discounted return R). After each update, `sil_updates` steps follow the gradient of

    sil_coef * ( -log pi(a|s) (R - V)+  +  sil_vf_coef * (R - V)+^2 / 2 )

over rows sampled by (R - V)+ ^ 0.6: where the past did better than the critic expects now. The sum
is divided by the number of such rows, but not by less than 64. `sil_elite` keeps only the best
share of recent episodes, like the elites of the cross-entropy method.

R is made of the environment's rewards, as the critic learns them; what extensions add (an intrinsic
reward) is not imitated. The return of a truncated episode continues with the value of its final
observation. The memory, and the episodes not yet finished, are part of a checkpoint.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos.extensions.extension import Extension, Learnt
from gymnasium_solver.algos.policy_loss import Batch, evaluate_actions
from gymnasium_solver.data.priorities import Priorities
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import obs_arrays

if TYPE_CHECKING:
    from gymnasium_solver.algos.learner import Learner

LEAST_GOOD = 64.0
ALPHA, EPS = 0.6, 1e-6
N_RECENT = 100  # episodes that an elite is the best share of
Rows = dict[str, np.ndarray]


class SelfImitation(Extension):
    name = "sil"
    descent: Descent

    def __init__(self, learner: "Learner"):
        super().__init__(learner)
        self.size: int = learner.config.sil_buffer_size
        self.priorities = Priorities(self.size, alpha=ALPHA, eps=EPS)
        self.columns: Rows = {}
        self.n_added = 0
        self.pending: list[list[Rows]] = [[] for _ in range(learner.config.n_envs)]
        self.recent: deque[float] = deque(maxlen=N_RECENT)

    def attach(self) -> None:
        share = self.learner.descents["policy"]
        self.descent = self.learner.add_descent("sil", self._loss, share=share)

    def __len__(self) -> int:
        return min(self.n_added, self.size)

    # -- memory -----------------------------------------------------------------------------

    def add(self, learnt: Learnt) -> None:
        """Take the episodes that ended in a rollout."""
        rollout = learnt.rollout
        if rollout.is_restart:
            self.pending = [[] for _ in self.pending]
        for env in range(rollout.valid.shape[1]):
            start = 0
            for end in [*np.flatnonzero(rollout.done[:, env] & rollout.valid[:, env]), None]:
                stop = len(rollout.valid) if end is None else int(end) + 1
                rows = start + np.flatnonzero(rollout.valid[start:stop, env])
                if len(rows):
                    self.pending[env].append(_rows_of(rollout, learnt.reward, rows, env))
                if end is not None and self.pending[env]:
                    is_over = rollout.terminated[end, env]
                    value = 0.0 if is_over else float(learnt.values[end + 1, env])
                    self._finish(_joined(self.pending[env]), value)
                    self.pending[env] = []
                start = stop

    def _finish(self, episode: Rows, value: float) -> None:
        """Keep a good episode. `value`: of its final observation, 0 if it terminated."""
        cfg, reward, given = self.learner.config, episode.pop("reward"), episode.pop("given")
        total = float(given.sum())
        self.recent.append(total)
        if cfg.sil_elite is not None and total < np.quantile(self.recent, 1 - cfg.sil_elite):
            return
        if not (given > 0).any():
            return
        returns, running = np.zeros(len(reward), np.float32), value
        for t in range(len(reward) - 1, -1, -1):
            running = float(reward[t]) + cfg.gamma * running
            returns[t] = running
        self._put(episode | {"returns": returns})

    def _put(self, rows: Rows) -> None:
        size = self.size
        rows = {name: column[-size:] for name, column in rows.items()}
        n = len(rows["returns"])
        for name, column in rows.items():
            if name not in self.columns:
                self.columns[name] = np.zeros((size, *column.shape[1:]), column.dtype)
        index = np.arange(self.n_added, self.n_added + n) % size
        for name, column in rows.items():
            self.columns[name][index] = column
        self.priorities.put_new(index, np.ones(n, bool))
        self.n_added += n

    # -- learning ---------------------------------------------------------------------------

    def learn(self, learnt: Learnt) -> dict[str, float]:
        """The steps after an update, and their metrics; none while the memory is empty."""
        self.add(learnt)
        cfg = self.learner.config
        numbers = {"coef": cfg.sil_coef, "vf_coef": cfg.sil_vf_coef}
        terms: list[Tensor] = []
        for _ in range(cfg.sil_updates if len(self) else 0):
            index = self.priorities.sample(cfg.sil_batch_size, self.learner.rng)
            steps = self.descent(self._batch(index), numbers, learnt.lr)
            gain = steps.by_sample["gain"]
            self.priorities.update(index, gain.cpu().numpy())
            terms.append(torch.stack([steps.values[0, 0], (gain > 0).float().mean()]))
        if not terms:
            return {"opt/sil/rows": float(len(self))}
        loss, good = torch.stack(terms).mean(0).tolist()
        return {"opt/sil/rows": float(len(self)), "opt/sil/loss": loss, "opt/sil/good": good}

    def _batch(self, index: np.ndarray) -> Batch:
        to_device, columns = self.learner.to_device, self.columns
        parts = {
            name.removeprefix("obs."): to_device(column[index])
            for name, column in columns.items()
            if name.startswith("obs.")
        }
        returns = to_device(columns["returns"][index])
        return Batch(
            obs=parts[""] if list(parts) == [""] else parts,
            actions=to_device(columns["actions"][index]),
            returns=returns,
            mask=to_device(columns["mask"][index]) if "mask" in columns else None,
        )

    def _loss(self, batch: Batch, c: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        total, gain = sil_loss(self.learner.net, self.learner.actions, batch, **c)
        return total, {"loss": total, "gain": gain}

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        arrays: Rows = {f"memory.{n}": c[: len(self)] for n, c in self.columns.items()}
        arrays["priorities"] = self.priorities.leaves.copy()
        for env, parts in enumerate(self.pending):
            if parts:
                arrays |= {f"pending{env}.{n}": c for n, c in _joined(parts).items()}
        extra = {
            "n_added": self.n_added,
            "recent": list(self.recent),
            "max_priority": self.priorities.max_leaf,
        }
        return {n: torch.from_numpy(np.ascontiguousarray(c)) for n, c in arrays.items()}, extra

    def load_state(self, tensors: dict[str, Any], extra: dict[str, Any]) -> None:
        arrays = {name: torch.as_tensor(value).numpy().copy() for name, value in tensors.items()}
        size = self.size
        self.n_added = extra["n_added"]
        self.recent.extend(extra["recent"])
        self.priorities.load(arrays.pop("priorities"), extra["max_priority"])
        self.columns = {}
        pending: dict[int, Rows] = {}
        for name, column in arrays.items():
            where, _, key = name.partition(".")
            if where == "memory":
                self.columns[key] = np.zeros((size, *column.shape[1:]), column.dtype)
                self.columns[key][: len(column)] = column
            else:
                pending.setdefault(int(where.removeprefix("pending")), {})[key] = column
        self.pending = [
            [pending[env]] if env in pending else [] for env in range(len(self.pending))
        ]


def sil_loss(
    net: ActorCritic, actions: ActionKind, batch: Batch, coef: Tensor, vf_coef: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss, and (R - V)+ of each row [B]."""
    log_prob, _, outputs = evaluate_actions(net, actions, batch)
    assert outputs is not None
    gain = (batch.returns - net.value_of(outputs)).clamp(min=0.0)
    kept = gain.detach()
    n_good = (kept > 0).to(kept.dtype).sum().clamp(min=LEAST_GOOD)
    policy, critic = -(log_prob * kept).sum() / n_good, 0.5 * gain.square().sum() / n_good
    if net.value_scale is not None:  # as PPO's own loss of normalised values
        critic = critic / net.value_scale.std.square()
    return coef * (policy + vf_coef * critic), kept


def _rows_of(rollout: Rollout, reward: np.ndarray, rows: np.ndarray, env: int) -> Rows:
    """Rows of one environment; `reward` as the critic learns it, "given" as it was given."""
    found = {f"obs.{name}": part[rows, env].copy() for name, part in obs_arrays(rollout.obs)}
    found |= {"actions": rollout.actions[rows, env].copy(), "reward": reward[rows, env].copy()}
    found["given"] = rollout.reward[rows, env].copy()
    return found if rollout.mask is None else found | {"mask": rollout.mask[rows, env].copy()}


def _joined(parts: list[Rows]) -> Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
