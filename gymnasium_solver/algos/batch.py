"""A batch from the replay as tensors to learn from."""

from typing import NamedTuple

from torch import Tensor

from gymnasium_solver.algos.off_policy import OffPolicyLearner
from gymnasium_solver.data.memory import Sample


class Batch(NamedTuple):
    """In this order a loss gets them; what one needs besides (noise, masks) follows."""

    x: Tensor  # encoded observations [B, width]
    actions: Tensor  # [B] discrete, or [B, A]
    reward: Tensor  # n-step, discounted [B]
    discount: Tensor  # of the value that follows, 0 after a termination [B]
    next_x: Tensor  # [B, width]
    weight: Tensor  # of prioritised replay, or ones [B]

    @classmethod
    def of(cls, learner: OffPolicyLearner, sample: Sample) -> "Batch":
        return cls(
            x=learner.encode(sample.obs),
            actions=learner.to_device(sample.actions),
            reward=learner.to_device(sample.reward),
            discount=learner.to_device(sample.discount),
            next_x=learner.encode(sample.next_obs),
            weight=learner.to_device(sample.weight),
        )
