"""The settings of DDPG."""

from gymnasium_solver.algos.configs.shared import DeterministicConfig, NoiseType
from gymnasium_solver.config.schedule import NonNegativeSchedule, PositiveSchedule, Schedule


class DDPGConfig(DeterministicConfig):
    critic_lr: PositiveSchedule | None = Schedule.constant(1e-3)
    """Learning rate of the critic. null: same as policy_lr."""
    exploration_noise: NonNegativeSchedule = Schedule.constant(0.2)
    """Standard deviation of the exploration noise, where 1 is half the range of an action. Higher:
    explores more."""
    exploration_noise_type: NoiseType = "ou"
    """gaussian: independent in every step. ou: correlated (Ornstein-Uhlenbeck), keeps a direction
    for longer; its standard deviation over time is about twice exploration_noise."""
