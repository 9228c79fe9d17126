"""Where things are in Pong and Breakout, read from the 128 bytes of the console's memory.

    pong = read_pong(ram)            # uint8[N, 128] -> positions in pixels of the 210 x 160 screen

Addresses and offsets were measured against the drawn frames (4,000 frames each, without frame skip
or sticky actions): the ball agrees to 1 pixel, paddles to 1 pixel. Positions are centres.
"""

from typing import NamedTuple

import numpy as np

from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError

SCREEN_WIDTH, SCREEN_HEIGHT = 160.0, 210.0
PADDLE_SIZE, BALL_SIZE = 16.0, (2.0, 4.0)  # long side of a paddle; width and height of the ball
PONG_PLAYER_X, PONG_ENEMY_X = 142.0, 18.0  # the agent plays on the right
N_BLOCKS = 108
_HALF_BALL = np.array(BALL_SIZE, np.float32) / 2
_RAM = (128,)
# Breakout keeps two bits a block in its first 36 bytes, and 24 bits there that never change.
_BLOCK_BYTES, _OTHER_BITS = 36, 24


class Pong(NamedTuple):
    player_y: np.ndarray
    enemy_y: np.ndarray
    ball: np.ndarray
    """float32[N, 2]: x and y."""
    has_ball: np.ndarray
    """bool[N]: between a point and the serve there is none."""


class Breakout(NamedTuple):
    paddle_x: np.ndarray
    ball: np.ndarray
    has_ball: np.ndarray
    blocks: np.ndarray
    """float32[N]: blocks left, of 108."""


def read_pong(ram: np.ndarray) -> Pong:
    ram = ram.astype(np.float32)
    half = PADDLE_SIZE / 2
    ball = np.stack([ram[:, 49] - 49, ram[:, 54] - 14], axis=1) + _HALF_BALL
    return Pong(ram[:, 51] - 13 + half, ram[:, 50] - 15 + half, ball, ram[:, 54] != 0)


def read_breakout(ram: np.ndarray) -> Breakout:
    bits = np.bitwise_count(ram[:, :_BLOCK_BYTES]).sum(axis=1, dtype=np.int64)
    blocks = np.clip((bits - _OTHER_BITS) / 2, 0, N_BLOCKS).astype(np.float32)
    ram = ram.astype(np.float32)
    ball = np.stack([ram[:, 99] - 49, ram[:, 101] + 9], axis=1) + _HALF_BALL
    return Breakout(ram[:, 72] - 47 + PADDLE_SIZE / 2, ball, ram[:, 101] != 0, blocks)


def require_game(env: VectorEnv, wrapper: str, game: str) -> None:
    """EnvError unless the env plays this game of Atari."""
    if not env.spec.env_id.rpartition("/")[2].startswith(f"{game}-"):
        raise EnvError(f"Wrapper {wrapper} is for {game}, not {env.spec.env_id}.")


def ram_of(env: VectorEnv, obs: np.ndarray, wrapper: str) -> np.ndarray:
    """uint8[N, 128] at these observations: the observations, or the RAM in the info."""
    ram = obs if obs.shape[1:] == _RAM and obs.dtype == np.uint8 else env.info.get("ram")
    if ram is None or np.shape(ram)[1:] != _RAM:
        raise EnvError(
            f"{env.spec.env_id}: {wrapper} reads the console's memory, which the "
            f"{env.spec.engine} engine does not provide. Use vectorization_mode auto or envpool, "
            "or obs_type ram."
        )
    return np.asarray(ram, np.uint8)
