"""Copies of a vector env that are all reset with the same seed, as one vector env.

    env = GroupedEnv([make(8) for _ in range(4)])       # 32 envs in 8 groups of 4

Env i is row i % 8 of copy i // 8; its group is i % 8. After a reset the envs of a group are in the
same state. Later episodes of a group start alike only where each env has a random stream of its own
and draws from it in resets alone; an env vectorised with one stream for all rows shares only the
first episode. Used for leave-one-out baselines (REINFORCE, `baseline: rloo`).
"""

from collections.abc import Sequence

from gymnasium_solver.envs.joined import JoinedEnv
from gymnasium_solver.envs.vector import VectorEnv


class GroupedEnv(JoinedEnv):
    def __init__(self, envs: Sequence[VectorEnv]) -> None:
        super().__init__(envs)
        self.n_groups = self.envs[0].n_envs

    def seeds(self, seed: int) -> list[int]:
        return [seed] * len(self.envs)
