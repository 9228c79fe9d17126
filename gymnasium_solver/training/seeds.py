"""All random streams of a run, derived from its seed. Streams with different names are
independent."""

import secrets
import zlib

import numpy as np

from gymnasium_solver.config.schema import Config


def draw_seed() -> int:
    """A random seed for a run without one; it is recorded, so the run can be reproduced."""
    return secrets.randbelow(2**31)


def derive(seed: int, *path: str | int) -> int:
    """The seed of a named stream, e.g. derive(seed, "train", 250_000)."""
    words = [p if isinstance(p, int) else zlib.crc32(p.encode()) for p in path]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1)[0] >> 1)


def stage_seed(config: Config, stage: str) -> int:
    """Seed of the train, val or test environments: set in the config, or derived from `seed`."""
    assert config.seed is not None, "the seed must be set before anything is built"
    own = getattr(config, f"seed_{stage}")
    return derive(config.seed, stage) if own is None else own
