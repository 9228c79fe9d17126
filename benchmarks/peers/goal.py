"""When a peer's training is over: solved by the rule that holds for all, or out of time.

Evaluations of a peer come in two stages, which only saves it time: a few episodes first, and all of
them where these reach the threshold.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

STARTED = time.perf_counter()
SCREEN_EPISODES = 10


class Goal:
    def __init__(
        self,
        args: argparse.Namespace,
        score: Callable[[int], float],
        screen_episodes: int = SCREEN_EPISODES,
    ):
        self.args, self.score, self.screen_episodes = args, score, screen_episodes
        self.evals: list[dict[str, float]] = []
        self.eval_s = 0.0
        self.solved = self.is_late = False
        self.next_eval = max(args.eval_from, args.eval_every or 0)

    def reached(self, env_steps: int) -> bool:
        """Is it over? Evaluates where an evaluation is due."""
        if self.args.limit_s and time.perf_counter() - STARTED > self.args.limit_s:
            self.is_late = True
            return True
        if not self.args.eval_every or env_steps < self.next_eval:
            return False
        while self.next_eval <= env_steps:
            self.next_eval += self.args.eval_every
        start = time.perf_counter()
        episodes, threshold = self.args.eval_episodes, self.args.threshold
        few = episodes if threshold is None else min(self.screen_episodes, episodes)
        mean = self.score(few)
        if threshold is not None:
            if mean >= threshold and few < episodes:
                mean = self.score(episodes)
            self.solved = mean >= threshold
        self.eval_s += time.perf_counter() - start
        self.evals.append({"env_steps": env_steps, "mean": mean})
        return self.solved

    def record(self) -> dict[str, Any]:
        return {
            "solved": self.solved,
            "late": self.is_late,
            "evals": self.evals,
            "eval_s": self.eval_s,
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, help="env steps in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, help="the library's choice if left out")
    parser.add_argument("--eval-every", type=int, help="env steps between greedy evaluations")
    parser.add_argument("--eval-from", type=int, default=0, help="no evaluation before")
    parser.add_argument("--eval-episodes", type=int, default=10)
    parser.add_argument("--threshold", type=float, help="stop when the mean is there")
    parser.add_argument("--limit-s", type=float, help="stop then, solved or not")
    parser.add_argument("--versions", action="store_true", help="print versions and leave")
