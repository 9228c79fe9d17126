"""The components of one run: environments, agent, collector, evaluator, plan and progress.

loop.py has the loop over them. What else is done with them has one file per purpose: judging.py
(evaluations, goals, tests), saving.py (checkpoints), lifecycle.py (start and end of the run).
"""

from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.runs.run import Run
from gymnasium_solver.timing import Timer
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.alerting import Alerts
from gymnasium_solver.training.async_eval import BackgroundEvaluator, check_async
from gymnasium_solver.training.cadence import checkpoint_cadence, eval_cadence
from gymnasium_solver.training.collect import Collector
from gymnasium_solver.training.curriculum import stages_of
from gymnasium_solver.training.demo_feed import collector_for
from gymnasium_solver.training.details import detail_epochs
from gymnasium_solver.training.evaluator import Evaluator
from gymnasium_solver.training.live import check_interventions
from gymnasium_solver.training.memory import check_rollout_fits
from gymnasium_solver.training.observer import Control, Observer
from gymnasium_solver.training.plan import Plan
from gymnasium_solver.training.profile import collect_seconds
from gymnasium_solver.training.progress import EpochStart, Progress
from gymnasium_solver.training.ray_collectors import RemoteCollector
from gymnasium_solver.training.replay_log import ReplayLog
from gymnasium_solver.training.videos import can_record


class Trainer:
    """The components of one run; the functions of the loop read and change them."""

    def __init__(
        self,
        config: Config,
        env: VectorEnv,
        observer: Observer,
        timer: Timer | None = None,
    ):
        """`env`: the training environment; the trainer closes it."""
        self.observer = observer
        self.timer = timer or Timer(detailed=config.profile)
        self.activity = Activity(self.timer)
        self.activity.epoch_size = config.n_envs * config.n_steps
        self.control = Control(self.activity)
        self.control.can_record_video = can_record(config)
        self.run: Run
        self.progress = Progress()
        self.notes: list[str] = []
        self.stop_detail: str | None = None
        self.is_over = False
        self.beside: BackgroundEvaluator | None = None  # once there is a run, for eval_async
        self.replay_log: ReplayLog | None = None
        check_interventions(config)
        check_rollout_fits(config, env.observation_space, env.action_space)
        if config.eval_async:
            check_async(config)
        self.alerts: Alerts | None = None  # once there is a run
        self.agent = build_agent(config, env.observation_space, env.action_space)
        self.update_mode = self.agent.update_mode  # as the user knows it
        self.agent.use_goals(env.goal_functions)
        self.agent.start_training()
        self.spec = env.spec
        """Of the environment of the config; a stage of a curriculum has another one."""
        self.stages = stages_of(config, env, self.agent)
        self.collector: Collector | RemoteCollector
        if config.collectors is not None:
            self.collector = RemoteCollector(config, env, self.agent, observer.on_message)
        else:
            self.collector = collector_for(config, env, self.agent)
        self.agent.timer = self.collector.timer = self.timer
        self.collector.activity = self.activity
        self.evaluator = Evaluator(config, env.spec, self.activity)
        self.follow(config)

    def follow(self, config: Config) -> None:
        """Plan by this config from now on: at the start, and after a live edit."""
        self.config = config
        spec = self.spec
        self.plan = Plan(config, spec.reward_threshold)
        self.evaluator.follow(config, spec)
        self.should_eval = eval_cadence(config, self.plan.planned_epochs)
        self.should_checkpoint = checkpoint_cadence(config.checkpoint_freq_epochs)
        self.details_freq = detail_epochs(config)

    def clocks(self) -> EpochStart:
        """The clocks now."""
        p, episodes = self.progress, self.collector.n_episodes
        collect_s = collect_seconds(self.timer)
        return EpochStart(self.activity.clock_s(), p.env_steps, p.vec_steps, episodes, collect_s)

    def update_meta(self, **fields: Any) -> None:
        """Write the progress, and these fields, to meta.json."""
        p = self.progress
        self.run.update_meta(
            env_steps=p.env_steps,
            epoch=p.epoch,
            episodes=self.collector.n_episodes,
            wall_s=p.wall_s,
            best=p.best,
            last_eval=p.last_eval,
            **{"test": None, "solved": self.plan.solved(None), **fields},
        )

    def close(self) -> None:
        if self.beside is not None:
            self.beside.close()
        self.collector.close()
        self.evaluator.close()
        if self.stages is not None:
            self.stages.close()
