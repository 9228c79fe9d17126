"""What can be added to a learner: intrinsic reward, self-imitation, hindsight and others.

An extension is an object on the learner's list, with one protocol (extension.py). A learner asks
all of them at the same points and does not know which there are; which of them a config asks for is
decided here.
"""

from typing import TYPE_CHECKING

from gymnasium_solver.algos.configs.shared import (
    DatasetFields,
    OffPolicyConfig,
    SelfImitationFields,
)
from gymnasium_solver.algos.extensions.demonstrations import LearntDemonstrations
from gymnasium_solver.algos.extensions.extension import Extension
from gymnasium_solver.algos.extensions.hindsight import HindsightReplay
from gymnasium_solver.algos.extensions.intrinsic import IntrinsicReward
from gymnasium_solver.algos.extensions.monitor import Monitor
from gymnasium_solver.algos.extensions.self_imitation import SelfImitation

if TYPE_CHECKING:
    from gymnasium_solver.algos.learner import Learner


def extensions_for(learner: "Learner") -> list[Extension]:
    """The extensions that a learner's config asks for."""
    cfg = learner.config
    wanted: dict[type[Extension], bool] = {
        LearntDemonstrations: isinstance(cfg, DatasetFields),
        HindsightReplay: isinstance(cfg, OffPolicyConfig) and cfg.her is not None,
        IntrinsicReward: cfg.intrinsic is not None,
        SelfImitation: isinstance(cfg, SelfImitationFields) and cfg.sil,
        Monitor: bool(cfg.monitor),
    }
    return [extension(learner) for extension, is_on in wanted.items() if is_on]
