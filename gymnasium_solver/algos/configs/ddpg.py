"""The settings of DDPG."""

from typing import Any, ClassVar

from gymnasium_solver.algos.configs.shared import DeterministicConfig
from gymnasium_solver.config.schedule import Schedule


class DDPGConfig(DeterministicConfig):
    defaults: ClassVar[dict[str, Any]] = {
        "critic_lr": Schedule.constant(1e-3),
        "exploration_noise": Schedule.constant(0.2),
        "exploration_noise_type": "ou",
    }

    # TD3 without its additions.
    n_critics: ClassVar[int] = 1
    policy_delay: ClassVar[int] = 1
