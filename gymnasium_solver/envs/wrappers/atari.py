"""Atari: features of Pong and Breakout, a reward shaper for Pong, action masks for any game.

    pong = read_pong(ram)            # uint8[N, 128] -> positions in pixels

Positions are centres, read from the 128 bytes of the console's memory, whatever the engine's
observations are.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from gymnasium_solver.envs.vector import ObservationWrapper, Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers import id_of
from gymnasium_solver.envs.wrappers.actions import ActionRemap, ValidActions
from gymnasium_solver.envs.wrappers.options import require, require_actions
from gymnasium_solver.envs.wrappers.shaping import Parts, RewardShaper, made_for
from gymnasium_solver.errors import EnvError

_N_FULL = 18  # actions of the joystick, whatever the game makes of them
SCREEN_WIDTH = 160.0
PADDLE_SIZE, BALL_SIZE = 16.0, (2.0, 4.0)  # long side of a paddle; width and height of the ball
PONG_PLAYER_X, PONG_ENEMY_X = 142.0, 18.0  # the agent plays on the right
N_BLOCKS = 108
_RAM = (128,)
# Address of a byte, and what to add to it for the centre in pixels of the 210 x 160 screen. They
# were measured against drawn frames (4,000 of each game, without frame skip or sticky actions) and
# agree to 1 pixel.
_PONG = {51: -5.0, 50: -7.0, 49: -48.0, 54: -12.0}  # player y, enemy y, ball x, ball y
_BREAKOUT = {72: -39.0, 99: -48.0, 101: 11.0}  # paddle x, ball x, ball y
# Breakout keeps two bits a block in its first 36 bytes, and 24 bits there that never change.
_BLOCK_BYTES, _OTHER_BITS = 36, 24


class Pong(NamedTuple):
    player_y: np.ndarray
    enemy_y: np.ndarray
    ball: np.ndarray  # float32[N, 2]: x and y
    has_ball: np.ndarray  # bool[N]: between a point and the serve there is none


class Breakout(NamedTuple):
    paddle_x: np.ndarray
    ball: np.ndarray
    has_ball: np.ndarray
    blocks: np.ndarray  # float32[N]: blocks left, of 108


def _centres(ram: np.ndarray, places: Mapping[int, float]) -> np.ndarray:
    """float32[N, places]."""
    return ram[:, list(places)].astype(np.float32) + np.array([*places.values()], np.float32)


def read_pong(ram: np.ndarray) -> Pong:
    player, enemy, *ball = _centres(ram, _PONG).T
    return Pong(player, enemy, np.stack(ball, axis=1), ram[:, 54] != 0)


def read_breakout(ram: np.ndarray) -> Breakout:
    bits = np.bitwise_count(ram[:, :_BLOCK_BYTES]).sum(axis=1, dtype=np.int64)
    blocks = np.clip((bits - _OTHER_BITS) / 2, 0, N_BLOCKS).astype(np.float32)
    paddle, *ball = _centres(ram, _BREAKOUT).T
    return Breakout(paddle, np.stack(ball, axis=1), ram[:, 101] != 0, blocks)


def ram_of(wrapper: VectorWrapper, obs: np.ndarray) -> np.ndarray:
    """uint8[N, 128] at these observations: the observations, or the RAM in the info."""
    ram = obs if obs.shape[1:] == _RAM and obs.dtype == np.uint8 else wrapper.env.info.get("ram")
    if ram is None or np.shape(ram)[1:] != _RAM:
        raise EnvError(
            f"{wrapper.spec.env_id}: {id_of(wrapper)} reads the console's memory, which the "
            f"{wrapper.spec.engine} engine does not provide. Use vectorization_mode auto or "
            "envpool, or obs_type ram."
        )
    return np.asarray(ram, np.uint8)


def _placed(centre: Any, low: float, high: float, size: float, margin: float) -> np.ndarray:
    """A centre between two walls as -1 .. 1, for an object of this size."""
    first, last = low + size / 2 - margin, high - size / 2 + margin
    return np.asarray(2 * (centre - first) / (last - first) - 1, np.float32)


class _Motion:
    """Last place and speed of one thing in every env, while it can be seen."""

    def __init__(self, unseen: np.ndarray, n_envs: int) -> None:
        self._unseen = np.tile(np.asarray(unseen, np.float32), (n_envs, 1))
        self.place, self.speed = self._unseen, np.zeros_like(self._unseen)
        self._was_seen = np.zeros(n_envs, np.bool_)

    def update(self, place: np.ndarray, seen: np.ndarray, opened: np.ndarray) -> None:
        """Take the next row in; `opened` rows begin without a past. What is not seen stays."""
        before = np.where(opened[:, None], self._unseen, self.place)
        speed = np.where(opened[:, None], 0.0, self.speed)
        moved = (seen & self._was_seen & ~opened)[:, None]
        self.speed = np.where(moved, place - before, np.where(seen[:, None], 0.0, speed))
        self.place = np.where(seen[:, None], place, before)
        self._was_seen = seen


class _Features(ObservationWrapper):
    """Base: observations replaced by features of the memory."""

    effect = "new_obs"
    game: str

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        made_for(self, self.game)

    @abstractmethod
    def _features(self, ram: np.ndarray, opened: np.ndarray) -> np.ndarray:
        """float32[N, features]."""

    def seen(self, obs: Any, opened: np.ndarray) -> np.ndarray:
        return self._features(ram_of(self, obs), opened)

    def _bound(self, n: int, clip: bool, n_flags: int = 0) -> None:
        """n features in -1 .. 1 (without a clip they may leave it), then flags of 0 or 1."""
        edge = 1.0 if clip else np.inf
        ends = [-edge] * n + [0.0] * n_flags, [edge] * n + [1.0] * n_flags
        self.observation_space = gymnasium.spaces.Box(*np.array(ends, np.float32))
        self._clip = clip

    def _stacked(self, columns: list[np.ndarray]) -> np.ndarray:
        features = np.stack(columns, axis=1).astype(np.float32)
        return np.clip(features, -1.0, 1.0) if self._clip else features


class PongFeatures(_Features):
    """Pong as 9 numbers in -1 .. 1: player y and its speed, enemy y and its speed, ball x, y, dx,
    dy, and 1 or -1 for a ball that is there or not; then the last action, one-hot.

    Heights count from `playfield_y_min` to `playfield_y_max` (pixels), `margin_y` beyond them. The
    speed of a paddle is tanh(pixels / 24), that of the ball the change of its place; a ball that is
    not there keeps both. `action_ids` are the actions with a place in the one-hot (all by default);
    another action leaves the last one standing. `clip` cuts what leaves -1 .. 1."""

    game = "Pong"

    def __init__(
        self,
        env: VectorEnv,
        clip: bool = True,
        playfield_y_min: float = 34.0,
        playfield_y_max: float = 194.0,
        margin_y: float = 2.0,
        action_ids: list[int] | None = None,
    ) -> None:
        super().__init__(env)
        n_actions = int(require_actions(self).n)
        ids = list(range(n_actions)) if action_ids is None else list(action_ids)
        good = ids and len(set(ids)) == len(ids) and all(0 <= i < n_actions for i in ids)
        wrong = f"action_ids must be different actions of 0 to {n_actions - 1}, got {action_ids!r}"
        require(bool(good), self, wrong)
        y = f"playfield_y_min {playfield_y_min} must lie below playfield_y_max {playfield_y_max}"
        require(playfield_y_max - playfield_y_min > PADDLE_SIZE, self, f"{y} by a paddle")
        self._field = (playfield_y_min, playfield_y_max, margin_y)
        self._ids = np.array(ids)
        self._bound(9, clip, len(ids))

    def reset(self, seed: int) -> np.ndarray:
        self._ball = _Motion(np.zeros(2), self.n_envs)
        self._paddles = _Motion(np.zeros(2), self.n_envs)
        self._last_action = np.zeros((self.n_envs, len(self._ids)), np.float32)
        self._actions = np.zeros(self.n_envs, np.int64)
        return super().reset(seed)

    def step(self, actions: Any) -> Step:
        self._actions = np.asarray(actions)
        return super().step(actions)

    def _features(self, ram: np.ndarray, opened: np.ndarray) -> np.ndarray:
        pong = read_pong(ram)
        low, high, margin = self._field
        x = _placed(pong.ball[:, 0], 0.0, SCREEN_WIDTH, BALL_SIZE[0], margin)
        ball_y = _placed(pong.ball[:, 1], low, high, BALL_SIZE[1], margin)
        self._ball.update(np.stack([x, ball_y], axis=1), pong.has_ball, opened)
        heights = np.stack([pong.player_y, pong.enemy_y], axis=1)
        self._paddles.update(heights, np.ones(self.n_envs, np.bool_), opened)
        speed = np.tanh(self._paddles.speed / 24.0)
        y = _placed(heights, low, high, PADDLE_SIZE, margin)
        visible = np.where(pong.has_ball, 1.0, -1.0)
        columns = [y[:, 0], speed[:, 0], y[:, 1], speed[:, 1], *self._ball.place.T]
        features = self._stacked([*columns, *self._ball.speed.T, visible])
        taken = (self._actions[:, None] == self._ids).astype(np.float32)
        is_known = taken.any(axis=1, keepdims=True)
        self._last_action = np.where(is_known, taken, self._last_action)
        self._last_action[opened] = 0.0
        return np.concatenate([features, self._last_action], axis=1)


class BreakoutFeatures(_Features):
    """Breakout as 10 numbers in -1 .. 1: paddle x and its speed, ball x, y, dx, dy, 1 or -1 for a
    ball that is there or not, ball relative to paddle in x and y, blocks left.

    The speed of the paddle is tanh(pixels / 6), that of the ball the change of its place; a ball
    that is not there keeps both. `clip` cuts what leaves -1 .. 1."""

    game = "Breakout"
    _LOW, _HIGH, _PADDLE_Y = 32.0, 200.0, 191.0

    def __init__(self, env: VectorEnv, clip: bool = True) -> None:
        super().__init__(env)
        self._bound(10, clip)

    def reset(self, seed: int) -> np.ndarray:
        self._ball = _Motion(np.array([0.0, -1.0]), self.n_envs)
        self._paddle = _Motion(np.zeros(1), self.n_envs)
        return super().reset(seed)

    def _features(self, ram: np.ndarray, opened: np.ndarray) -> np.ndarray:
        game = read_breakout(ram)
        x = _placed(game.ball[:, 0], 0.0, SCREEN_WIDTH, 0.0, -1.0)
        y = _placed(game.ball[:, 1], self._LOW, self._HIGH, 0.0, -1.0)
        self._ball.update(np.stack([x, y], axis=1), game.has_ball, opened)
        self._paddle.update(game.paddle_x[:, None], np.ones(self.n_envs, np.bool_), opened)
        paddle_x = _placed(game.paddle_x, 0.0, SCREEN_WIDTH, PADDLE_SIZE, 2.0)
        paddle_y = _placed(self._PADDLE_Y, self._LOW, self._HIGH, 0.0, 0.0)
        (x, y), (dx, dy) = self._ball.place.T, self._ball.speed.T
        relative = [np.clip((x - paddle_x) / 2, -1, 1), np.clip((y - paddle_y) / 2, -1, 1)]
        visible = np.where(game.has_ball, 1.0, -1.0)
        speed = np.tanh(self._paddle.speed[:, 0] / 6.0)
        left = 2 * game.blocks / N_BLOCKS - 1
        return self._stacked([paddle_x, speed, x, y, dx, dy, visible, *relative, left])


class PongRewardShaper(RewardShaper):
    """Pong: pays for meeting the ball. Parts: paddle_hit, proximity, direction_change.

    A ball that turns back at the player's paddle (on the right) pays `paddle_hit_reward`, at the
    enemy's half of it; any turn in x pays `direction_change_reward`; while the ball is in the
    player's half, every step pays `proximity_reward_scale` * (1 - |ball y - player y| / 100), at
    least 0."""

    _NEAR_X, _NEAR_Y = 20.0, 16.0  # from the paddle's centre; a step of 4 frames moves the ball far

    def __init__(
        self,
        env: VectorEnv,
        paddle_hit_reward: float = 1.0,
        proximity_reward_scale: float = 0.1,
        direction_change_reward: float = 0.5,
    ) -> None:
        super().__init__(env)
        made_for(self, "Pong")
        self._hit, self._near = paddle_hit_reward, proximity_reward_scale
        self._turn = direction_change_reward

    def _read(self, obs: np.ndarray) -> Pong:
        return read_pong(ram_of(self, obs))

    def open(self, obs: np.ndarray) -> None:
        self._ball = _Motion(np.zeros(2), self.n_envs)
        pong = self._read(obs)
        self._ball.update(pong.ball, pong.has_ball, np.ones(self.n_envs, np.bool_))

    def parts(self, actions: np.ndarray, step: Step) -> Parts:
        pong = self._read(step.obs)
        came = np.where(step.is_reset, 0.0, self._ball.speed[:, 0])
        self._ball.update(pong.ball, pong.has_ball, step.is_reset)
        goes = self._ball.speed[:, 0]
        turned = pong.has_ball & (came * goes < 0)
        x, y = pong.ball.T

        def met(at_x: float, at_y: np.ndarray) -> np.ndarray:
            return turned & (np.abs(x - at_x) <= self._NEAR_X) & (np.abs(y - at_y) <= self._NEAR_Y)

        player = met(PONG_PLAYER_X, pong.player_y) & (goes < 0)
        enemy = met(PONG_ENEMY_X, pong.enemy_y) & (goes > 0)
        closeness = np.maximum(0.0, 1.0 - np.abs(y - pong.player_y) / 100.0)
        is_ours = pong.has_ball & (x > SCREEN_WIDTH / 2)
        parts = {
            "paddle_hit": (player + 0.5 * enemy) * self._hit,
            "proximity": is_ours * closeness * self._near,
            "direction_change": turned * self._turn,
        }
        return {name: part.astype(np.float32) for name, part in parts.items()}


class ALEActionMasking(ValidActions):
    """Atari: gives the agent all 18 actions of the joystick, with a mask of those that the game has
    a use for. An action without use does nothing."""

    effect = "other"

    def __init__(self, env: VectorEnv) -> None:
        used = _used_actions(env.spec.env_id)
        space = env.action_space
        n_actions = int(getattr(space, "n", 0))
        if n_actions != _N_FULL:
            wrong = f"{env.spec.env_id} has {space}, expected its {len(used)} actions or all 18"
            require(n_actions == len(used), self, wrong)
            env = ActionRemap(env, [used.index(i) if i in used else 0 for i in range(_N_FULL)])
        super().__init__(env, used)


def _used_actions(env_id: str) -> list[int]:
    """The actions that a game has a use for, among the 18; in the order of its minimal set."""
    try:
        import ale_py
    except ImportError as error:
        raise EnvError(
            f"{env_id}: ALEActionMaskingWrapper looks the actions up in ale-py: "
            'pip install "gymnasium-solver[atari]"'
        ) from error
    game = re.sub(r"-v\d+$", "", env_id.rpartition("/")[2])
    rom = re.sub(r"(?<!^)(?=[A-Z])", "_", game.removesuffix("NoFrameskip")).lower()
    if rom not in ale_py.roms.get_all_rom_ids():
        raise EnvError(f"ALEActionMaskingWrapper is for Atari games; ale-py has no {env_id}.")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    path = ale_py.roms.get_rom_path(rom)
    assert path is not None
    ale.loadROM(path)
    return [int(action.value) for action in ale.getMinimalActionSet()]
