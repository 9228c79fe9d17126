"""What the rules know of a run: its settings, the newest row, and what the rows before it had."""

import math
from collections import deque
from collections.abc import Mapping
from functools import cache, cached_property
from statistics import fmean
from typing import Any

from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.metrics import describe

SCORE, BEST = "train/roll/ep_rew/mean", "train/roll/ep_rew/best"
VAL, EPISODES = "val/roll/ep_rew/mean", "train/cnt/total_episodes"
ENTROPY, ALPHA = "train/opt/policy/entropy", "train/opt/policy/alpha"
LR, CLIP_RANGE = "train/hp/policy_lr", "train/hp/clip_range"
KL, CLIPPED = "train/opt/ppo/approx_kl", "train/opt/ppo/clip_fraction"
EXPLAINED = "train/opt/value/explained_var"
NOISY, WINDOW = (KL, CLIPPED, EXPLAINED), 10
NORMS = ("train/opt/grads/norm/all", "train/opt/grads/norm/critic")
FPS = "train/sys/timing/fps_instant"
N_EARLY = 3  # rows that count as the beginning
LEAST_EPISODES = 20  # before the first score is taken
N_SPEEDS = 20
MOST, TOLERANCE = 1.7e308, 1e-5
_PLAIN = {int, float}
LARGEST = 1e15  # larger numbers in a config are damage
BUSY, BUSIER = 1.2, 0.25  # processes per CPU; how many more than at the beginning


def _number(value: object) -> float | None:
    number = finite(value)
    return number if number is not None and abs(number) < LARGEST else None


def _mapping(value: object) -> Mapping[str, Any]:
    """A damaged file may have anything."""
    return value if isinstance(value, Mapping) else {}


def _positive(value: object) -> list[int]:
    """The whole numbers above 0 in nested lists."""
    if isinstance(value, list):
        return [number for item in value for number in _positive(item)]
    return [value] if isinstance(value, int) and 0 < value < LARGEST else []


@cache
def _limits(name: str) -> tuple[float, float]:
    """The lowest and highest possible value of a metric; infinity and NaN are beyond all limits."""
    low, high = describe(name).bounds
    lowest = -MOST if low is None else low - TOLERANCE * (1 + abs(low))
    return lowest, MOST if high is None else high + TOLERANCE * (1 + abs(high))


def _odd(row: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in row.items()
        if value is None or not (limits := _limits(name))[0] <= value <= limits[1]
    ]


class History:
    def __init__(self, config: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        """The content of the run's config.yaml and meta.json."""
        self.config, self.meta = config, meta
        self.row: Mapping[str, Any] = {}
        self.numbers: Mapping[str, float] = {}
        """The finite numbers of the newest row, by metric."""
        self.progress = 0.0
        self.steps_before: float | None = None  # env steps of the row before
        self.n_rows = 0
        self.odd: list[str] = []
        """Metrics of the newest row that are null, not finite or outside their bounds."""
        self.early_entropy: list[float] = []
        self.first_score: float | None = None
        self.first_spread = 0.0  # standard deviation of the returns at the first score
        self.best_score = self.best_eval = -math.inf
        self.lowest_return, self.highest_return = math.inf, -math.inf
        self.largest_reward = 0.0
        self.reward_size = 0.0
        """|mean| + standard deviation of the rewards in the last row that had them."""
        self.peak_lr = self.peak_clip = self.peak_kl = 0.0
        self._windows: dict[str, deque[float]] = {name: deque(maxlen=WINDOW) for name in NOISY}
        self.ever_terminated = False
        self.early_speeds: list[float] = []
        self.speeds: deque[float] = deque(maxlen=N_SPEEDS)
        self.first_load: float | None = None
        self.last_load = 0.0

    # -- the settings that the rules depend on ------------------------------------------------

    def number(self, name: str) -> float | None:
        """A field that is a plain number; None for anything else, such as a schedule."""
        return _number(self.config.get(name))

    def shipped_number(self, name: str) -> float | None:
        """The shipped value of a field that this run changed, of a schedule its start."""
        pair = _mapping(self.meta.get("changed")).get(name)
        shipped = pair[0] if isinstance(pair, list) and pair else None
        return _number(shipped.get("start") if isinstance(shipped, Mapping) else shipped)

    @cached_property
    def target(self) -> float | None:
        """The return that counts as good: the threshold, or the spec's reference return."""
        returns = _mapping(_mapping(self.config.get("spec")).get("returns"))
        threshold = _number(self.meta.get("threshold"))
        return _number(returns.get("reference")) if threshold is None else threshold

    def _sizes(self, kind: str, entry: str) -> list[int] | None:
        """The numbers that describe the action space, if it is of this kind."""
        space = _mapping(self.meta.get("action_space"))
        return _positive(space.get(entry)) if space.get("kind") == kind else None

    @cached_property
    def n_action_numbers(self) -> int | None:
        """Numbers in an action of a Box; None for other spaces, and where it is not known."""
        sizes = self._sizes("Box", "shape")
        return None if sizes is None else math.prod(sizes)

    @cached_property
    def n_actions(self) -> int | None:
        """Number of discrete actions; None for other spaces, and where it is not known."""
        sizes = self._sizes("Discrete", "n")
        return sizes[0] if sizes else None

    @cached_property
    def uniform_entropy(self) -> float | None:
        """Entropy of a uniform policy in nats; None for a Box, and where the space is not known."""
        if self.n_actions is not None:
            return math.log(self.n_actions)
        if (bits := self._sizes("MultiBinary", "shape")) is not None:
            return math.prod(bits) * math.log(2)
        choices = self._sizes("MultiDiscrete", "nvec")
        return None if choices is None else sum(math.log(n) for n in choices)

    # -- the rows -----------------------------------------------------------------------------

    def value(self, name: str) -> float | None:
        """None if the newest row does not have the metric, or it is not finite."""
        return self.numbers.get(name)

    def recent(self, name: str) -> float | None:
        """The median of 10 values of a noisy metric; None until there are 10, and without it."""
        window = self._windows[name]
        if len(window) < WINDOW or name not in self.numbers:
            return None
        ordered = sorted(window)
        return (ordered[WINDOW // 2 - 1] + ordered[WINDOW // 2]) / 2

    @property
    def env_steps(self) -> int:
        return int(self.value("env_steps") or 0)

    @property
    def total_steps(self) -> float | None:
        """Env steps of the whole budget."""
        return self.env_steps / self.progress if self.progress else None

    @property
    def is_good(self) -> bool:
        """Whether training or an evaluation has reached the target."""
        target = self.target
        return target is not None and max(self.best_score, self.best_eval) >= target

    @property
    def has_improved(self) -> bool:
        """Whether the mean return rose clearly above the first one."""
        if self.first_score is None:
            return False
        noise = max(self.first_spread, 1e-3 * abs(self.first_score))
        return self.best_score - self.first_score > noise

    @property
    def seems_solved(self) -> bool:
        """Whether the target is reached or, without a target, the return rose clearly."""
        return self.is_good or (self.target is None and self.has_improved)

    @property
    def learns_fast(self) -> bool:
        """Whether the learning rate is a fair share of its peak: schedules end in small updates."""
        return self.numbers.get(LR, math.inf) >= 0.2 * self.peak_lr

    @property
    def clips_wide(self) -> bool:
        """Whether the clip range is a fair share of its peak: one that falls to 0 clips much."""
        return self.numbers.get(CLIP_RANGE, math.inf) >= 0.2 * self.peak_clip

    def see(self, row: Mapping[str, Any]) -> None:
        self.steps_before = self.value("env_steps")
        try:
            self.row, self.odd = row, _odd(row)
        except TypeError:  # texts and lists in a damaged file
            self.row = {n: v for n, v in row.items() if isinstance(v, int | float)}
            self.odd = _odd(self.row)
        self.numbers = self.row
        if self.odd or not set(map(type, self.row.values())) <= _PLAIN:
            self.numbers = {n: v for n, v in self.row.items() if finite(v) is not None}
        self.progress = self.value("progress") or 0.0
        self.n_rows += 1
        self._see_scores()
        self._see_learning()
        self._see_speed()

    def _see_scores(self) -> None:
        get = self.numbers.get
        score, n_episodes = get(SCORE), get(EPISODES) or 0
        if score is not None and n_episodes >= LEAST_EPISODES:
            if self.first_score is None:
                self.first_score = score
                self.first_spread = get("train/roll/ep_rew/std") or 0.0
            # The best of full windows, as logged; the mean of a few episodes until there is one.
            best = get(BEST)
            self.best_score = score if best is None else best
        for name in ("train/roll/ep_rew/min", "train/roll/ep_rew/max"):
            if (value := get(name)) is not None:
                self.lowest_return = min(self.lowest_return, value)
                self.highest_return = max(self.highest_return, value)
        if (evaluation := get(VAL)) is not None:
            self.best_eval = max(self.best_eval, evaluation)
        if (cut := get("train/roll/ep_truncated")) is not None and cut < 1:
            self.ever_terminated = True

    def _see_learning(self) -> None:
        get = self.numbers.get
        if (entropy := get(ENTROPY)) is not None and len(self.early_entropy) < N_EARLY:
            self.early_entropy.append(entropy)
        self.peak_lr = max(self.peak_lr, get(LR) or 0.0)
        self.peak_clip = max(self.peak_clip, get(CLIP_RANGE) or 0.0)
        self.peak_kl = max(self.peak_kl, get(KL) or 0.0)
        for name, window in self._windows.items():
            if (value := get(name)) is not None:
                window.append(value)
        low, high = get("train/roll/reward/min"), get("train/roll/reward/max")
        if low is not None and high is not None:
            self.largest_reward = max(self.largest_reward, abs(low), abs(high))
            mean, std = get("train/roll/reward/mean"), get("train/roll/reward/std")
            self.reward_size = abs(mean or 0.0) + (std or 0.0)

    def _see_speed(self) -> None:
        """Speeds of epochs that learn and do not evaluate."""
        if (load := self.value("train/sys/load")) is not None:
            self.first_load = load if self.first_load is None else self.first_load
            self.last_load = load
        learns = any(name in self.row for name in NORMS) and VAL not in self.row
        if learns and (speed := self.value(FPS)) is not None:
            if len(self.early_speeds) < N_SPEEDS:
                self.early_speeds.append(speed)
            self.speeds.append(speed)

    @property
    def entropy_at_first(self) -> float | None:
        return fmean(self.early_entropy) if len(self.early_entropy) == N_EARLY else None

    @property
    def is_machine_busy(self) -> bool:
        """Whether other processes want the CPUs: the load is high, or higher than at first."""
        return self.last_load > BUSY or self.last_load - (self.first_load or 0.0) > BUSIER

    # -- parts of an advice -------------------------------------------------------------------

    @property
    def env_id(self) -> Any:
        return self.config.get("env_id")

    @property
    def again(self) -> str:
        """The command that trains the same again, to be followed by flags."""
        name = self.config.get("variant") or self.config.get("algo_id") or "ALGO"
        return f"gsolve train {self.env_id or 'ENV'}:{name}"

    @property
    def lower_lr(self) -> str:
        """The further the policy moved, the lower; never above that of the shipped config."""
        factor = 3 if self.peak_kl < 0.5 else 10 if self.peak_kl < 5 else 100
        rate = self.value(LR) or self.peak_lr
        if not rate:
            return f"{self.again} --policy-lr LOWER"
        shipped = self.shipped_number("policy_lr") or rate
        return f"{self.again} --policy-lr {min(rate / factor, shipped):.1g}"

    @property
    def higher_lr(self) -> str:
        rate = self.peak_lr
        return f"{self.again} --policy-lr {f'{rate * 10:.1g}' if rate else 'HIGHER'}"

    @property
    def explore(self) -> str:
        if self.peak_kl > 0.5:  # one update ruined the policy
            return f"{self.lower_lr}; or target_kl: 0.02"
        return f"{self.again} --ent-coef {self.more_entropy}; or a lower policy_lr"

    @property
    def more_entropy(self) -> str:
        now = self.config.get("ent_coef")
        return f"{3 * now:g}" if isinstance(now, int | float) and now >= 0.01 else "0.01"

    @property
    def more_exploration(self) -> str:
        if self.peak_kl > 0.5:
            return "a much lower policy_lr"
        if self.value(ENTROPY) is not None:
            return f"{self.again} --ent-coef {self.more_entropy}"
        return "explore longer (epsilon, exploration_noise, noise_correlation)"

    @property
    def or_memory(self) -> str:
        """Nothing for an algorithm without memory, or a policy that has one."""
        has_none = "recurrent" in self.config and not self.config["recurrent"]
        if not has_none or self.config.get("frame_stack"):
            return ""
        return f"; {self.again} --recurrent gru if the task needs memory"
