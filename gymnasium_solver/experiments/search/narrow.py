"""A distribution with a part of another's latent range, for search from coarse to fine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from gymnasium_solver.experiments.search.distributions import (
    Distribution,
    Latent,
    Numbers,
    Options,
    spread,
)

LEAST = 0.1
"""A narrowed range keeps at least this share of the whole one, per standard deviation."""


@dataclass(frozen=True)
class Narrowed:
    whole: Distribution
    part: Latent

    @classmethod
    def around(cls, whole: Distribution, latents: Sequence[Any], deviations: float) -> "Narrowed":
        """The part within some standard deviations of these latents; all of it without any."""
        latent = whole.latent()
        if not latents:
            return cls(whole, latent)
        if isinstance(latent, Options):
            kept = tuple(option for option in latent.options if option in latents)
            return cls(whole, Options(kept or latent.options))
        low, high = latent.low, latent.high
        points = [math.log(x) for x in latents] if latent.is_log else [float(x) for x in latents]
        if latent.is_log:
            low, high = math.log(low), math.log(high)
        half = max(deviations * pstdev(points), LEAST * deviations * (high - low) / 2)
        ends = max(low, fmean(points) - half), min(high, fmean(points) + half)
        if latent.is_log:
            ends = math.exp(ends[0]), math.exp(ends[1])
        if latent.is_int:
            ends = math.floor(ends[0]), math.ceil(ends[1])
        inside = max(latent.low, ends[0]), min(latent.high, ends[1])
        return cls(whole, Numbers(*inside, latent.is_log, latent.is_int))

    def latent(self) -> Latent:
        return self.part

    def decode(self, latent: Any) -> Any:
        return self.whole.decode(latent)

    def encode(self, value: Any) -> Any:
        return self.whole.encode(value)

    def contains(self, value: Any) -> bool:
        return self.whole.contains(value)

    def grid(self, points: int) -> list[Any]:
        return [self.whole.decode(latent) for latent in spread(self.part, points)]
