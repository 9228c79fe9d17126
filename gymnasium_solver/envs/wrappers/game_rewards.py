"""Reward shapers for VizDoom and Super Mario Bros, from the values in `info`."""

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.parameters import require
from gymnasium_solver.envs.wrappers.shaping import Parts, RewardShaper
from gymnasium_solver.errors import EnvError

# The order of actions where an engine does not name its buttons; 8 is forward and attack.
_STANDARD = [
    *([], ["MOVE_FORWARD"], ["MOVE_BACKWARD"], ["MOVE_LEFT"], ["MOVE_RIGHT"]),
    *(["TURN_LEFT"], ["TURN_RIGHT"], ["ATTACK"], ["MOVE_FORWARD", "ATTACK"]),
]


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
    point of health takes off `health_loss_penalty`.
    """

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
        self._is_discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
        self._table, names = _buttons(env)
        self._moves = np.array([name.startswith(("MOVE", "STRAFE")) for name in names])
        self._turns = np.array([name.startswith(("TURN", "LOOK")) for name in names])
        self._attacks = np.array([name.startswith("ATTACK") for name in names])
        self._pays = (-noop_penalty, move_reward, turn_reward, -attack_penalty)
        self._ammo_penalty, self._health_penalty = ammo_waste_penalty, health_loss_penalty

    def open(self, obs: np.ndarray) -> None:
        self._ammo = self._tell(self._AMMO, self._ammo_penalty)
        self._health = self._tell(self._HEALTH, self._health_penalty)

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
        moves, turns, attacks = (
            (held & kind).any(axis=1) for kind in (self._moves, self._turns, self._attacks)
        )
        idle = ~held.any(axis=1)
        does = (idle, moves, turns, attacks & ~moves & ~turns)
        ammo, health = self._ammo, self._health
        self.open(step.obs)
        spent = np.maximum(-self._ammo.since(ammo), 0.0) * (step.reward <= 0)
        lost = np.maximum(-self._health.since(health), 0.0)
        parts = {
            name: (mask * pay).astype(np.float32)
            for name, mask, pay in zip(
                ("noop", "move", "turn", "attack"), does, self._pays, strict=True
            )
        }
        parts["ammo_waste"] = (-self._ammo_penalty * spent).astype(np.float32)
        parts["health_loss"] = (-self._health_penalty * lost).astype(np.float32)
        return parts


def _buttons(env: VectorEnv) -> tuple[np.ndarray, list[str]]:
    """bool[actions, buttons]: what each action holds down; and the names of the buttons."""
    engine = env
    while isinstance(engine, VectorWrapper):
        engine = engine.env
    names, table = getattr(engine, "button_names", None), getattr(engine, "button_table", None)
    space: Any = env.action_space
    if names is None or table is None:
        names = ["", *(pressed[0] for pressed in _STANDARD[1:8])]
        table = np.array([[name in pressed for name in names] for pressed in _STANDARD])
    if isinstance(space, gymnasium.spaces.MultiBinary):
        fit = len(names) == space.n
    else:
        fit = isinstance(space, gymnasium.spaces.Discrete) and int(space.n) <= len(table)
    wrong = (
        f"does not know which buttons the actions {space} of {env.spec.env_id} press: put it first"
    )
    require(bool(fit), "VizDoom_RewardShaper", wrong)
    return np.asarray(table, np.bool_), list(names)


class MarioRewardShaper(RewardShaper):
    """Super Mario Bros (retro): a dense reward in place of the game's own. Parts: progress, step,
    end, score, each times `reward_scale`.

    progress: `x_position_scale` a pixel to the right, none where x jumps by more than
    |`x_reset_threshold`| (another area); step: `step_penalty`; end: `death_penalty` for a life
    lost, `level_complete_bonus` for an episode that terminates without one; score: `score_scale` a
    point. Scores (`episode_return`) stay the game's own.
    """

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
        self._x, self._score, self._lives = self._read()
        self._has_died = np.zeros(self.n_envs, np.bool_)

    def _read(self) -> tuple[Reported, Reported, Reported]:
        info, n = self.env.info, self.n_envs
        x = Reported(info, "x", n)
        if "x" not in info:
            x, low = Reported(info, "xscrollHi", n), Reported(info, "xscrollLo", n)
            x.values, x.known = x.values * 256 + low.values, x.known & low.known
        return x, Reported(info, "score", n), Reported(info, "lives", n)

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        x, score, lives = self._read()
        if not lives.known.any() and not step.is_reset.all():
            raise EnvError(
                f"{self.spec.env_id}: RetroSuperMarioBros_RewardShaper needs info['lives'] and "
                "info['x'] (or xscrollHi and xscrollLo), which this engine does not provide."
            )
        moved = x.since(self._x)
        moved[np.abs(moved) > self._longest_jump] = 0.0
        gained = score.since(self._score)
        died = lives.since(self._lives) < 0
        self._has_died = (self._has_died | died) & ~step.is_reset
        completed = step.terminated & ~self._has_died
        self._x, self._score, self._lives = x, score, lives
        parts = {
            "progress": self._per_pixel * moved,
            "step": np.full(self.n_envs, self._step),
            "end": self._death * died + self._complete * completed,
            "score": self._per_point * gained,
        }
        return {name: (self._scale * part).astype(np.float32) for name, part in parts.items()}
