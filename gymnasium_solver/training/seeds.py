"""Every random stream of a run, from its one seed. Streams with other names share nothing."""

import secrets
import zlib

import numpy as np

from gymnasium_solver.config.schema import Config


def draw_seed() -> int:
    """A seed for a run that was given none; it is recorded, so the run can be repeated."""
    return secrets.randbelow(2**31)


def derive(seed: int, *path: str | int) -> int:
    """A seed for the stream with this name, e.g. derive(seed, "train", 250_000)."""
    words = [p if isinstance(p, int) else zlib.crc32(p.encode()) for p in path]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1)[0] >> 1)


def stage_seed(config: Config, stage: str) -> int:
    """Seed of the train, val or test environments: the config's own, or derived from `seed`."""
    assert config.seed is not None, "the seed is drawn before anything is built"
    own = getattr(config, f"seed_{stage}")
    return derive(config.seed, stage) if own is None else own
