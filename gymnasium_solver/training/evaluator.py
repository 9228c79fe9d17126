"""Evaluations of a run: validation during training, held-out tests, and their environments.

Every evaluation resets its environments with its own seed, derived from the stage and the clock.
Validation and tests never share episodes, nor do two tests at different env steps.
"""

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.spec import EnvSpec, closes_between_evals
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.evaluate import evaluate, n_eval_envs
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.plan import n_test_episodes
from gymnasium_solver.training.seeds import derive, stage_seed


def eval_seed(config: Config, stage: str, env_steps: int) -> int:
    """Seed of an evaluation in a stage ("val" or "test") at `env_steps`."""
    return derive(stage_seed(config, stage), env_steps)


class Evaluator:
    """Builds its environments on first use; they are separate from the training environments."""

    def __init__(self, config: Config, spec: EnvSpec, activity: Activity):
        self.activity = activity
        self._env: VectorEnv | None = None
        self.follow(config, spec)

    def follow(self, config: Config, spec: EnvSpec) -> None:
        """Evaluate as this config says from now on."""
        self.config = config
        self.test_episodes = n_test_episodes(config, spec)

    def validate(self, policy: Policy, env_steps: int, epoch: int) -> EvalResult:
        """Evaluate the current policy; the score selects the best checkpoint."""
        config = self.config
        self.activity.begin_evaluation("evaluating", config.eval_episodes)
        return self._evaluate(
            policy,
            config.eval_episodes,
            greedy=config.eval_deterministic,
            seed=eval_seed(config, "val", env_steps),
            env_steps=env_steps,
            epoch=epoch,
        )

    def test(
        self, policy: Policy, *, greedy: bool, clock: int, env_steps: int, epoch: int
    ) -> EvalResult:
        """Test a checkpoint made at `env_steps` on held-out episodes, selected by `clock`."""
        self.activity.begin_evaluation("testing", self.test_episodes)
        return self._evaluate(
            policy,
            self.test_episodes,
            greedy=greedy,
            seed=eval_seed(self.config, "test", clock),
            env_steps=env_steps,
            epoch=epoch,
        )

    def _evaluate(
        self, policy: Policy, episodes: int, *, greedy: bool, seed: int, env_steps: int, epoch: int
    ) -> EvalResult:
        env = self._env_for(episodes)
        result = evaluate(
            policy,
            env,
            episodes,
            greedy=greedy,
            seed=seed,
            env_steps=env_steps,
            epoch=epoch,
            activity=self.activity,
        )
        if closes_between_evals(self.config.env_id):
            self.close()
        return result

    def _env_for(self, episodes: int) -> VectorEnv:
        n_envs = n_eval_envs(self.config, episodes)
        if self._env is not None and self._env.n_envs != n_envs:
            self.close()
        if self._env is None:
            self._env = env_from_config(self.config, n_envs)
        return self._env

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
