"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

An update trains both critics on the minimum of the target critics, at the target actor's action
plus clipped noise (target policy smoothing). Every `policy_delay` updates, the actor is trained to
maximise the first critic, and the target networks are updated. With `recurrent`, all networks learn
from sequences of the replay (algos/batch_rows.py). Differences from common
implementations: truncated episodes bootstrap from their true final observation; noise is in the
policy's units, in which the action bounds are [-1, 1]; layers use torch's default initialisation.
"""

from gymnasium_solver.algos.configs.td3 import TD3Config
from gymnasium_solver.algos.deterministic import DeterministicLearner


class TD3(DeterministicLearner):
    Config = TD3Config
