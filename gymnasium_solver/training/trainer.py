"""The components of one run: environments, agent, collector, evaluator, plan and progress.

loop.py has the loop over them; judge.py (evaluations, goals, tests, the verdict) and save.py
(checkpoints, resuming, failures) do the rest.
"""

from typing import Any

from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.memory_check import available_memory_bytes, check_fits
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.treatment import treatment_of
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.run import Run
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.spaces.json_form import space_to_json
from gymnasium_solver.timing import Timer
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.alerting import Alerts, rows_together
from gymnasium_solver.training.collect import Collector, collector_for
from gymnasium_solver.training.curriculum import stages_of
from gymnasium_solver.training.epoch_metrics import EpochStart, detail_epochs
from gymnasium_solver.training.evaluate import BackgroundEvaluator, Evaluator, check_async
from gymnasium_solver.training.observer import Control, Observer, TrainInfo, observer_class
from gymnasium_solver.training.profile import collect_seconds
from gymnasium_solver.training.progress import CheckpointCadence, Plan, Progress, eval_cadence
from gymnasium_solver.training.ray_collectors import RemoteCollector
from gymnasium_solver.training.replay_log import ReplayLog
from gymnasium_solver.training.videos import VideoRecorder, can_record


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
        self.alerts: Alerts | None = None  # once there is a run
        self.replay_log: ReplayLog | None = None
        check_rollout_fits(config, env.observation_space, env.action_space)
        if config.eval_async:
            check_async(config)
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
        self.plan = Plan(config, self.spec.reward_threshold)
        self.evaluator.follow(config, self.spec)
        self.should_eval = eval_cadence(config, self.plan.planned_epochs)
        self.should_checkpoint = CheckpointCadence(config.checkpoint_freq_epochs)
        self.details_freq = detail_epochs(config)

    def announce(self, resumed_from: int | None) -> None:
        """Write the facts of the run to meta.json and tell the observers that it starts."""
        test_episodes = self.evaluator.test_episodes if self.plan.tests else None
        notes = [*self.config.notices(), *self.spec.notes, *self.agent.notes, *self.notes]
        info = TrainInfo(
            env_spec=self.spec,
            n_parameters=sum(p.numel() for p in self.agent.net.parameters()),
            device=str(self.agent.device),
            update_mode=self.update_mode,
            threshold=self.plan.threshold,
            planned_epochs=self.plan.planned_epochs,
            test_episodes=test_episodes,
            resumed_from=resumed_from,
            wall_s=self.progress.wall_s,
            notes=notes,
            control=self.control,
            activity=self.activity,
        )
        self.run.update_meta(
            status="running",
            engine=self.spec.engine,
            max_episode_steps=self.spec.max_episode_steps,
            action_space=space_to_json(self.collector.env.action_space),
            **({"protocol": self.spec.protocol} if self.spec.protocol else {}),
            device=info.device,
            treatment=treatment_of(self.collector.env.env, self.config).to_json(),
            threshold=self.plan.threshold,
            test_episodes=test_episodes,
            max_env_steps=self.config.max_env_steps,
        )
        self.observer.on_start(self.run, self.config, info)
        self.alerts = Alerts(self.run, self.observer, rows_together(self.config))

    def clocks(self) -> EpochStart:
        """The clocks now."""
        p, episodes = self.progress, self.collector.n_episodes
        collect_s = collect_seconds(self.timer)
        return EpochStart(self.activity.clock_s(), p.env_steps, p.vec_steps, episodes, collect_s)

    def update_meta(self, **fields: Any) -> None:
        """Write the progress, and these fields, to meta.json."""
        p = self.progress
        untested = {"test": None, "solved": None if self.plan.threshold is None else False}
        self.run.update_meta(
            env_steps=p.env_steps,
            epoch=p.epoch,
            episodes=self.collector.n_episodes,
            wall_s=p.wall_s,
            best=p.best,
            last_eval=p.last_eval,
            **{**untested, **fields},
        )

    def close(self) -> None:
        for component in (self.beside, self.collector, self.evaluator, self.stages):
            if component is not None:
                component.close()


def configured_observers(config: Config) -> list[Observer]:
    """Build the observers named in `config.observers`, and the recorder of videos."""
    built: list[Observer] = []
    for name in config.observers:
        try:
            built.append(observer_class(name)())
        except Exception as error:
            raise ConfigError(
                f"observers: {name} could not be built, {type(error).__name__}: {error}. The "
                "class of an observer is called without arguments."
            ) from error
    return [*built, VideoRecorder(config.video)]


def check_rollout_fits(config: Config, observation_space: Any, action_space: Any) -> None:
    """ConfigError if the rollout of a config does not fit into memory. Checked before the networks
    are built, which for very large observations takes minutes."""
    rows = config.rollout_rows
    estimate = Rollout.estimate_bytes(
        rows, config.n_envs, observation_space, action_kind(action_space)
    )
    # The update copies the valid rows, so they exist twice for a while.
    check_fits(
        2 * estimate,
        available_memory_bytes(),
        f"{config.env_id}: the rollout of {rows:,} rows and {config.n_envs:,} envs",
        "Reduce n_steps or n_envs, or make the observations smaller (resize_obs, obs_keys).",
    )
