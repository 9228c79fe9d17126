"""Wrappers that scale and clip the reward a learner sees, and the base of reward shapers: rewards
in named parts, kept apart from the true reward.

A shaper adds its parts to the reward that the learner sees. `episode_return`, and with it every
score, stays the environment's own. `Step.info` has

    info["reward_parts"]           {part: float32[N]}: what each part added at this step
    info["episode_reward_parts"]   {part: float64[N]}: its running sum over the episode, this step
                                   included; final where done, 0 at reset rows

and a run logs the means of the latter as `train/roll/ep_part/<part>/mean`. Parts are as the shaper
made them: a RewardScale or RewardClip around it does not change them.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers import id_of
from gymnasium_solver.envs.wrappers.options import require, require_actions
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import is_discrete, is_multi_binary

PARTS = "reward_parts"
EPISODE_PARTS = "episode_reward_parts"
Parts = dict[str, np.ndarray]


class RewardScale(VectorWrapper):
    """Multiplies rewards by `scale`."""

    effect = "none"

    def __init__(self, env: VectorEnv, scale: float) -> None:
        super().__init__(env)
        self._scale = np.float32(scale)

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        return step._replace(reward=step.reward * self._scale)


class RewardClip(VectorWrapper):
    """Clips rewards to [low, high]."""

    effect = "none"

    def __init__(self, env: VectorEnv, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        require(low <= high, self, f"low {low} is above high {high}")
        self._low, self._high = np.float32(low), np.float32(high)

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        reward = np.minimum(np.maximum(step.reward, self._low), self._high)
        reward[step.is_reset] = 0.0  # 0 may lie outside the bounds
        return step._replace(reward=reward)


class RewardShaper(VectorWrapper):
    """Adds the parts that a subclass works out; nothing is added at reset rows."""

    effect = "none"
    keeps_reward: ClassVar[bool] = True  # false where the parts take the place of the env's reward

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        self._sums: Parts = {}

    def open(self, obs: np.ndarray) -> None:
        """Set all state from the first observations."""

    @abstractmethod
    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        """{part: float32[N]}, fresh arrays; reset rows are overruled. A reset row opens an episode:
        state kept for it must be set from `step.obs` alone."""

    def reset(self, seed: int) -> np.ndarray:
        obs = self.env.reset(seed)
        self._sums = {}
        self.open(obs)
        return obs

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        parts = self.parts(np.asarray(actions), step)
        total = np.zeros(self.n_envs, np.float32)
        for name, part in parts.items():
            part[step.is_reset] = 0.0
            total += part
            running = self._sums.get(name, 0.0) + part.astype(np.float64)
            running[step.is_reset] = 0.0
            self._sums[name] = running
        info = {
            **step.info,
            PARTS: _added(step.info.get(PARTS, {}), parts),
            EPISODE_PARTS: _added(step.info.get(EPISODE_PARTS, {}), self._sums),
            "shaping_reward": step.info.get("shaping_reward", 0.0) + total,
        }
        return step._replace(reward=step.reward + total if self.keeps_reward else total, info=info)


def _added(inner: Mapping[str, np.ndarray], own: Parts) -> Parts:
    """Parts of the shapers within and of this one; those of the same name are added up."""
    return {**inner, **{name: inner.get(name, 0.0) + part for name, part in own.items()}}


class PotentialShaper(RewardShaper):
    """Adds gamma * P(next obs) - P(obs) for a potential P, in named parts. P = 0 once an episode
    has terminated.

    The discounted sum over an episode that terminates is -P(first obs) whatever was done in between
    (Ng et al. 1999), so the best policy stays the best. This holds if `gamma` is the discount that
    the learner uses, which is what a config's wrappers get unless they name another."""

    names: ClassVar[tuple[str, ...]]

    def __init__(self, env: VectorEnv, gamma: float = 0.99) -> None:
        super().__init__(env)
        require(0.0 <= gamma <= 1.0, self, f"gamma must be 0 to 1, got {gamma}")
        self._gamma = np.float32(gamma)

    @abstractmethod
    def potentials(self, obs: np.ndarray) -> np.ndarray:
        """float32[N, parts], a fresh array."""

    def open(self, obs: np.ndarray) -> None:
        self._before = self.potentials(obs)

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        now = self.potentials(step.obs)
        now[step.terminated] = 0.0
        change, self._before = self._gamma * now - self._before, now
        return {name: change[:, i].copy() for i, name in enumerate(self.names)}


class ActionRewardShaper(RewardShaper):
    """Adds `rewards[a]` whenever action a is taken (Discrete actions, one number for each). Part:
    action_reward_bonus."""

    def __init__(self, env: VectorEnv, rewards: list[float]) -> None:
        super().__init__(env)
        space = require_actions(self)
        n, start = int(space.n), int(space.start)
        expected = f"rewards must have {n} numbers, one for each action, got {len(rewards)}"
        require(len(rewards) == n, self, expected)
        self._start, self._rewards = start, np.array(rewards, np.float32)

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        return {"action_reward_bonus": self._rewards[actions - self._start]}


# -- shapers for CartPole and MountainCar (observations), VizDoom and Mario (info) ----------------


_CAR_LOW, _CAR_HIGH, _CAR_GOAL, _CAR_SPEED = -1.2, 0.6, 0.5, 0.07
# The order of actions where an engine does not name its buttons; 8 is forward and attack.
_STANDARD = [
    *([], ["MOVE_FORWARD"], ["MOVE_BACKWARD"], ["MOVE_LEFT"], ["MOVE_RIGHT"]),
    *(["TURN_LEFT"], ["TURN_RIGHT"], ["ATTACK"], ["MOVE_FORWARD", "ATTACK"]),
]


class CartPoleRewardShaper(PotentialShaper):
    """CartPole: rewards bringing the pole upright and the cart to the middle. Parts: position,
    angle.

    The potential is angle_reward_scale * (1 - |angle| / 12°) + position_reward_scale * (1 -
    |position| / 2.4); `clip_potential` keeps both terms >= 0."""

    names = ("position", "angle")

    def __init__(
        self,
        env: VectorEnv,
        angle_reward_scale: float = 1.0,
        position_reward_scale: float = 0.25,
        clip_potential: bool = True,
        gamma: float = 0.99,
    ) -> None:
        super().__init__(env, gamma)
        made_for(self, "CartPole", (4,))
        self._scales = np.array([position_reward_scale, angle_reward_scale], np.float32)
        self._clip = clip_potential

    def potentials(self, obs: np.ndarray) -> np.ndarray:
        # Columns 0 and 2: cart position, pole angle; over the values at which the episode ends.
        closeness = 1.0 - np.abs(obs[:, ::2]) / np.array([2.4, np.deg2rad(12)], np.float32)
        if self._clip:
            closeness = np.maximum(closeness, 0.0)
        potentials: np.ndarray = closeness * self._scales
        return potentials


class MountainCarRewardShaper(PotentialShaper):
    """MountainCar: rewards position, velocity and height gained since the last observation. Parts:
    position, velocity, height.

    The potential is position_reward_scale * (x - 0.5) / 1.7 + velocity_reward_scale * v / 0.14 +
    height_reward_scale * (sin(3 x) - sin(1.5)) / 2, about 0 at the goal (x = 0.5)."""

    names = ("position", "velocity", "height")

    def __init__(
        self,
        env: VectorEnv,
        position_reward_scale: float = 100.0,
        velocity_reward_scale: float = 10.0,
        height_reward_scale: float = 50.0,
        gamma: float = 0.99,
    ) -> None:
        super().__init__(env, gamma)
        made_for(self, "MountainCar", (2,))
        scales = [position_reward_scale, velocity_reward_scale, height_reward_scale]
        self._scales = np.array(scales, np.float32)

    def potentials(self, obs: np.ndarray) -> np.ndarray:
        x, v = obs.T
        position = (x - _CAR_GOAL) / (_CAR_GOAL - _CAR_LOW)
        height = (np.sin(3 * x) - np.sin(3 * _CAR_GOAL)) / 2
        columns = [position, v / (2 * _CAR_SPEED), height]
        return np.stack(columns, axis=1).astype(np.float32) * self._scales


class MountainCarStateCountBonus(RewardShaper):
    """MountainCar: rewards rarely visited states. Part: exploration_bonus.

    Position and velocity are sorted into bins; each env counts its own visits n of each bin, this
    one not included and at least `min_count`, over its episodes. The bonus is bonus_scale over
    sqrt(n) (`count`), n (`inverse`) or ln(n + 1) (`log`). Counts start again where the run resets
    its environments from a seed (`env_boundary_steps`), which an exact resume needs."""

    def __init__(
        self,
        env: VectorEnv,
        position_bins: int = 50,
        velocity_bins: int = 50,
        bonus_scale: float = 1.0,
        bonus_type: Literal["count", "inverse", "log"] = "count",
        min_count: int = 1,
    ) -> None:
        super().__init__(env)
        made_for(self, "MountainCar", (2,))
        counts = {"position_bins": position_bins, "velocity_bins": velocity_bins}
        for key, value in {**counts, "min_count": min_count}.items():
            require(value >= 1, self, f"{key} must be >= 1, got {value}")
        self._bins = np.array([position_bins, velocity_bins])
        self._scale, self._type, self._least = bonus_scale, bonus_type, min_count
        self._rows = np.arange(env.n_envs)

    def open(self, obs: np.ndarray) -> None:
        self._counts = np.zeros((self.n_envs, *self._bins), np.int64)

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        low, span = np.array([_CAR_LOW, -_CAR_SPEED]), np.array([_CAR_HIGH - _CAR_LOW, 0.14])
        share = (step.obs - low) / span
        position, velocity = np.clip((share * self._bins).astype(np.int64), 0, self._bins - 1).T
        n = np.maximum(self._counts[self._rows, position, velocity], self._least)
        # A reset row is not a step: it gets no bonus and is not counted.
        self._counts[self._rows, position, velocity] += ~step.is_reset
        over = np.sqrt(n) if self._type == "count" else np.log1p(n) if self._type == "log" else n
        return {"exploration_bonus": (self._scale / over).astype(np.float32)}


def made_for(wrapper: VectorWrapper, game: str, shape: tuple[int, ...] | None = None) -> None:
    """EnvError unless the env inside is this one, with observations of this shape."""
    env_id, given = wrapper.spec.env_id, wrapper.env.observation_space.shape
    if not env_id.rpartition("/")[2].startswith(f"{game}-"):
        raise EnvError(f"Wrapper {id_of(wrapper)} is for {game}, not {env_id}.")
    if shape not in (None, given):
        raise EnvError(
            f"Wrapper {id_of(wrapper)} reads observations of shape {shape}, here they are {given}. "
            "Put it before the wrappers that change observations."
        )


class Reported:
    """Values that an info holds for all envs or, as Gymnasium marks them, for some."""

    def __init__(self, info: Mapping[str, Any], key: str, n_envs: int) -> None:
        self.values, self.known = np.zeros(n_envs), np.zeros(n_envs, np.bool_)
        if key in info:
            self.values = np.asarray(info[key], np.float64)
            self.known = np.asarray(info.get(f"_{key}", np.ones(n_envs)), np.bool_)

    def since(self, before: "Reported") -> np.ndarray:
        """float64[N]: the change, 0 where one of the two is not known."""
        return np.where(self.known & before.known, self.values - before.values, 0.0)


class VizDoomRewardShaper(RewardShaper):
    """VizDoom: penalties for idling and waste. Parts: noop, move, turn, attack, ammo_waste,
    health_loss.

    A step takes off `noop_penalty` for pressing nothing, or adds `move_reward` for walking and
    `turn_reward` for turning, and takes off `attack_penalty` for a shot while standing. A step
    without a reward of its own takes off `ammo_waste_penalty` for each bullet spent in it; a lost
    point of health takes off `health_loss_penalty`."""

    _PARTS = ("noop", "move", "turn", "attack", "ammo_waste", "health_loss")
    # Bullets, whatever is held: the ammunition of the held weapon changes with the weapon, too.
    _AMMO, _HEALTH = ("ammo", "AMMO2"), ("health", "HEALTH")

    def __init__(
        self,
        env: VectorEnv,
        noop_penalty: float = 0.005,
        move_reward: float = 0.002,
        turn_reward: float = 0.002,
        attack_penalty: float = 0.0,
        ammo_waste_penalty: float = 0.0,
        health_loss_penalty: float = 0.0,
    ) -> None:
        super().__init__(env)
        self._is_discrete = is_discrete(env.action_space)
        self._table, names = _buttons(self)
        kinds = (("MOVE", "STRAFE"), ("TURN", "LOOK"), ("ATTACK",))
        self._kinds = [np.array([name.startswith(kind) for name in names]) for kind in kinds]
        costs = (-attack_penalty, -ammo_waste_penalty, -health_loss_penalty)
        self._pays = (-noop_penalty, move_reward, turn_reward, *costs)

    def open(self, obs: np.ndarray) -> None:
        *_, per_bullet, per_point = self._pays
        self._ammo = self._tell(self._AMMO, -per_bullet)
        self._health = self._tell(self._HEALTH, -per_point)

    def _tell(self, keys: tuple[str, ...], penalty: float) -> Reported:
        info = self.env.info
        key = next((key for key in keys if key in info), None)
        if key is None and penalty:
            raise EnvError(
                f"{self.spec.env_id}: VizDoom_RewardShaper needs info[{keys[-1]!r}] for its "
                f"penalty of {penalty}, which this engine does not provide. Set it to 0."
            )
        return Reported(info, key or "", self.n_envs)

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        held = self._table[actions] if self._is_discrete else actions.astype(np.bool_)
        moves, turns, attacks = ((held & kind).any(axis=1) for kind in self._kinds)
        idle = ~held.any(axis=1)
        ammo, health = self._ammo, self._health
        self.open(step.obs)
        spent = np.maximum(-self._ammo.since(ammo), 0.0) * (step.reward <= 0)
        lost = np.maximum(-self._health.since(health), 0.0)
        counted = (idle, moves, turns, attacks & ~moves & ~turns, spent, lost)
        pays = zip(self._PARTS, counted, self._pays, strict=True)
        return {name: (count * pay).astype(np.float32) for name, count, pay in pays}


def _buttons(wrapper: VectorWrapper) -> tuple[np.ndarray, list[str]]:
    """bool[actions, buttons]: what each action holds down; and the names of the buttons."""
    engine: VectorEnv = wrapper
    while isinstance(engine, VectorWrapper):
        engine = engine.env
    names, table = getattr(engine, "button_names", None), getattr(engine, "button_table", None)
    if names is None or table is None:
        names = ["", *(pressed[0] for pressed in _STANDARD[1:8])]
        table = np.array([[name in pressed for name in names] for pressed in _STANDARD])
    space: Any = wrapper.action_space
    fits = is_discrete(space) and int(space.n) <= len(table)
    if is_multi_binary(space):
        fits = len(names) == space.n
    actions = f"the actions {space} of {wrapper.spec.env_id}"
    require(fits, wrapper, f"does not know which buttons {actions} press: put it first")
    return np.asarray(table, np.bool_), list(names)


class MarioRewardShaper(RewardShaper):
    """Super Mario Bros (retro): a dense reward in place of the game's own. Parts: progress, step,
    end, score, each times `reward_scale`.

    progress: `x_position_scale` a pixel to the right, none where x jumps by more than
    |`x_reset_threshold`| (another area); step: `step_penalty`; end: `death_penalty` for a life
    lost, `level_complete_bonus` for an episode that terminates without one; score: `score_scale` a
    point. Scores (`episode_return`) stay the game's own."""

    keeps_reward: ClassVar[bool] = False

    def __init__(
        self,
        env: VectorEnv,
        reward_scale: float = 0.01,
        death_penalty: float = -150.0,
        level_complete_bonus: float = 50.0,
        step_penalty: float = -0.1,
        x_position_scale: float = 1.0,
        score_scale: float = 0.1,
        x_reset_threshold: float = -100.0,
    ) -> None:
        super().__init__(env)
        self._scale, self._step = reward_scale, step_penalty
        self._death, self._complete = death_penalty, level_complete_bonus
        self._per_pixel, self._per_point = x_position_scale, score_scale
        self._longest_jump = abs(x_reset_threshold)

    def open(self, obs: np.ndarray) -> None:
        self._last = self._read()
        self._has_died = np.zeros(self.n_envs, np.bool_)

    def _read(self) -> tuple[Reported, Reported, Reported]:
        info, n = self.env.info, self.n_envs
        x = Reported(info, "x", n)
        if "x" not in info:
            x, low = Reported(info, "xscrollHi", n), Reported(info, "xscrollLo", n)
            x.values, x.known = x.values * 256 + low.values, x.known & low.known
        return x, Reported(info, "score", n), Reported(info, "lives", n)

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        before, self._last = self._last, self._read()
        if not self._last[2].known.any() and not step.is_reset.all():
            raise EnvError(
                f"{self.spec.env_id}: RetroSuperMarioBros_RewardShaper needs info['lives'] and "
                "info['x'] (or xscrollHi and xscrollLo), which this engine does not provide."
            )
        moved, gained, lost = (now.since(old) for now, old in zip(self._last, before, strict=True))
        moved[np.abs(moved) > self._longest_jump] = 0.0
        died = lost < 0
        self._has_died = (self._has_died | died) & ~step.is_reset
        completed = step.terminated & ~self._has_died
        parts = {
            "progress": self._per_pixel * moved,
            "step": np.full(self.n_envs, self._step),
            "end": self._death * died + self._complete * completed,
            "score": self._per_point * gained,
        }
        return {name: (self._scale * part).astype(np.float32) for name, part in parts.items()}
