"""DDPG: deep deterministic policy gradient (Lillicrap et al. 2016).

TD3 as it was before its three additions: one critic, targets without noise, and an actor that is
trained, like all targets, at every update. TD3 fixes its overestimation and is nearly always the
better choice. Differences from the paper: no batch norm, no weight decay on the critic
(`weight_decay`), a larger `tau` (0.005), and truncated episodes bootstrap from their true final
observation.
"""

from gymnasium_solver.algos.configs.ddpg import DDPGConfig
from gymnasium_solver.algos.deterministic import DeterministicLearner


class DDPG(DeterministicLearner):
    Config = DDPGConfig
