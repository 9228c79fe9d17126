"""All metrics, declared once: meaning, unit, bounds, precision, direction, place in the console.

A group is a function of short declarations; `metrics.py` puts them together. A metric that is not
listed here may be logged as well; it has no description.
"""

from collections.abc import Sequence
from dataclasses import replace

from gymnasium_solver.runs.metric import Metric

FRACTION = (0.0, 1.0)
POSITIVE = (0.0, None)


def _in_group(group: str, *metrics: Metric) -> list[Metric]:
    return [replace(m, name=f"{group}/{m.name}", group=group) for m in metrics]


def _mean_and_std(name: str, what: str, precision: int = 4) -> list[Metric]:
    """Two metrics that are computed at the cadence of the details."""
    return [
        Metric(f"{name}/mean", f"Mean of {what}", precision, is_detail=True),
        Metric(
            f"{name}/std",
            f"Standard deviation of {what}",
            precision,
            bounds=POSITIVE,
            is_detail=True,
        ),
    ]


def clock() -> list[Metric]:
    steps = "Agent steps over all envs, the clock of the run"
    return [
        Metric("env_steps", steps, 0, unit="steps", bounds=POSITIVE),
        Metric("epoch", "Epochs of n_steps rows per env", 0, bounds=POSITIVE),
        Metric("wall_s", "Seconds of training, over all resumes", 1, unit="s", bounds=POSITIVE),
        Metric(
            "progress",
            "Fraction of the budget used, from 0 to 1",
            3,
            bounds=FRACTION,
            priority=100,
        ),
    ]


def episodes() -> list[Metric]:
    window = "of the last 100 training episodes"
    return _in_group(
        "train/roll",
        Metric("ep_rew/mean", f"Mean return {window}", 2, "up", priority=1),
        Metric(
            "ep_rew/best",
            "Highest mean return so far, of 100 episodes",
            2,
            "up",
            priority=2,
            may_be_null=True,
        ),
        Metric("ep_rew/last", "Return of the last finished training episode", 2, "up"),
        Metric("ep_rew/std", f"Standard deviation of the returns {window}", 2, bounds=POSITIVE),
        Metric("ep_rew/min", f"Lowest return {window}", 2, "up"),
        Metric("ep_rew/max", f"Highest return {window}", 2, "up"),
        Metric(
            "ep_len/mean",
            f"Mean length {window}, in steps",
            1,
            unit="steps",
            bounds=POSITIVE,
            priority=3,
        ),
        Metric(
            "success",
            f"Share {window} that ended in success, where the env reports it",
            2,
            "up",
            bounds=FRACTION,
            priority=4,
        ),
        Metric(
            "ep_len/last",
            "Length of the last finished training episode, in steps",
            0,
            unit="steps",
            bounds=POSITIVE,
        ),
        Metric(
            "ep_truncated",
            "Fraction of the last 100 training episodes that were truncated (time limit) and did "
            "not terminate",
            2,
            bounds=FRACTION,
        ),
        Metric(
            "ep_part/<part>/mean",
            f"Reward per episode from the reward shaper's part <part>, mean {window}",
        ),
        Metric("env_steps", "Env steps of the last epoch", 0, unit="steps", bounds=POSITIVE),
        Metric(
            "vec_steps",
            "Steps of the vector env in the last epoch, reset rows included",
            0,
            unit="steps",
            bounds=POSITIVE,
        ),
        Metric("episodes", "Episodes finished in the last epoch", 0, bounds=POSITIVE),
    )


def rollout() -> list[Metric]:
    """Statistics of what was collected and of what is learnt from it."""
    return _in_group(
        "train/roll",
        Metric("intrinsic/raw", "Novelty of the rollout's states before normalisation, mean", 4),
        Metric(
            "intrinsic/mean",
            "Intrinsic reward of a step, mean, before its coefficient",
            4,
            bounds=POSITIVE,
        ),
        Metric("intrinsic/max", "Highest intrinsic reward, before its coefficient", 4),
        Metric(
            "policy_lag/mean",
            "Updates that the collectors' weights were behind the learner's, mean",
            2,
            "down",
            bounds=POSITIVE,
        ),
        Metric(
            "policy_lag/max",
            "Updates that the collectors' weights were behind the learner's, at most",
            0,
            "down",
            bounds=POSITIVE,
        ),
        Metric("intrinsic/states", "Different states visited (intrinsic: count)", 0, "up"),
        *_mean_and_std("obs", "the observations, over all their numbers"),
        *_mean_and_std("obs/<part>", "the part <part> of a Dict observation"),
        Metric(
            "obs/outside",
            "Fraction of the observed numbers outside the bounds of the observation space",
            4,
            "down",
            bounds=FRACTION,
            is_detail=True,
        ),
        *_mean_and_std("reward", "the rewards of single steps, as the environment gives them"),
        Metric("reward/min", "Lowest reward of a single step", is_detail=True),
        Metric("reward/max", "Highest reward of a single step", is_detail=True),
        *_mean_and_std("return", "the returns that values are fitted to"),
        *_mean_and_std("adv", "the advantages before standardisation"),
        *_mean_and_std("adv_norm", "the advantages as the loss uses them"),
        *_mean_and_std("baseline", "the values predicted before the update"),
        *_mean_and_std(
            "actions", "the actions in the policy's units: class index, bit, or -1 to 1"
        ),
        Metric(
            "actions/legal",
            "Mean fraction of the actions that are legal, where the environment has masks",
            3,
            bounds=FRACTION,
            is_detail=True,
        ),
        Metric(
            "actions/hist/<bin>",
            "Fraction of the actions that were number <bin> (Discrete), pressed button <bin> "
            "(MultiBinary), or lie in bin <bin> from -1 to 1 (Box)",
            3,
            bounds=FRACTION,
            is_detail=True,
        ),
    )


def evaluations(stage: str, subject: str, first: int | None) -> list[Metric]:
    """`subject`: the evaluation or the test; `first`: priority of the first shown metric."""

    def place(offset: int) -> int | None:
        return None if first is None else first + offset

    return _in_group(
        f"{stage}/roll",
        Metric("ep_rew/mean", f"Mean return of {subject}", 2, "up", priority=place(0)),
        Metric(
            "ep_rew/std",
            f"Standard deviation of the returns of {subject}",
            2,
            "down",
            bounds=POSITIVE,
            priority=place(1),
        ),
        Metric("ep_rew/min", f"Lowest return of {subject}", 2, "up"),
        Metric("ep_rew/max", f"Highest return of {subject}", 2, "up"),
        Metric(
            "ep_rew/best",
            f"Highest mean return of {subject} so far",
            2,
            "up",
            priority=place(2),
        ),
        Metric(
            "ep_len/mean",
            f"Mean episode length of {subject}, in steps",
            1,
            unit="steps",
            bounds=POSITIVE,
            priority=place(3),
        ),
        Metric(
            "success",
            f"Share of the episodes of {subject} that ended in success, where the env reports it",
            2,
            "up",
            bounds=FRACTION,
            priority=place(4),
        ),
        Metric("episodes", f"Episodes of {subject}", 0, bounds=POSITIVE),
    )


def verdict() -> list[Metric]:
    solved = "1 if the held-out test reached the threshold, 0 if it fell short"
    return _in_group("test", Metric("solved", solved, 0, "up", bounds=FRACTION))


def counters() -> list[Metric]:
    return _in_group(
        "train/cnt",
        Metric("lost_collectors", "Collectors that were lost and replaced", 0, "down"),
        Metric(
            "total_env_steps",
            "Agent steps over all envs",
            0,
            unit="steps",
            bounds=POSITIVE,
            priority=20,
        ),
        Metric(
            "total_vec_steps",
            "Steps of the vector env, reset rows included",
            0,
            unit="steps",
            bounds=POSITIVE,
        ),
        Metric("total_episodes", "Finished episodes", 0, bounds=POSITIVE, priority=21),
        Metric("total_rollouts", "Rollouts collected", 0, bounds=POSITIVE),
        Metric(
            "total_updates",
            "Updates: one per rollout, or gradient steps with a replay",
            0,
            bounds=POSITIVE,
        ),
        Metric("epoch", "Epochs of n_steps rows per env", 0, bounds=POSITIVE, priority=22),
    )


def plateau() -> list[Metric]:
    best = "since the highest mean return of training"
    return _in_group(
        "train/plateau",
        Metric("env_steps", f"Env steps {best}", 0, "down", unit="steps", bounds=POSITIVE),
        Metric("epochs", f"Epochs {best}", 0, "down", bounds=POSITIVE),
    )


def losses() -> list[Metric]:
    return _in_group(
        "train/opt",
        Metric("loss/total", "Total loss, the weighted sum of its terms", priority=48),
        Metric("weights/norm/<part>", "Norm of the weights of <part> (monitor: weights)", 3),
        Metric(
            "updates/ratio/<part>",
            "Size of the epoch's update of <part> relative to its weights (monitor: updates)",
            5,
        ),
        Metric(
            "rank/<part>", "Effective rank of the last hidden layer of <part> (monitor: rank)", 1
        ),
        Metric("intrinsic/loss", "Loss of RND's predictor", 5, bounds=POSITIVE),
        Metric("loss/policy", "Policy loss", priority=31),
        Metric("loss/value", "Value loss, before its weight", bounds=POSITIVE, priority=32),
        Metric("loss/value_scaled", "Value loss times vf_coef", bounds=POSITIVE),
        Metric("loss/entropy", "Minus the entropy of the policy"),
        Metric("loss/entropy_scaled", "Minus the entropy times ent_coef"),
        Metric("loss/td", "TD loss of the Q-values", priority=33),
        Metric("loss/critic", "TD loss of the critics, summed", bounds=POSITIVE, priority=34),
        Metric("loss/alpha", "Loss of the entropy coefficient; near 0 at the target entropy"),
    )


def optimisation() -> list[Metric]:
    return _in_group(
        "train/opt",
        Metric("q/mean", "Mean Q-value of the actions taken", 3, priority=40),
        Metric(
            "policy/entropy",
            "Entropy of the policy in nats; lower means less exploration",
            3,
            unit="nats",
            priority=41,
        ),
        Metric(
            "policy/alpha",
            "Current entropy coefficient, learnt or scheduled",
            5,
            bounds=POSITIVE,
            priority=42,
        ),
        Metric(
            "value/explained_var",
            "Fraction of the variance of returns explained by the value: 1 perfect, 0 no better "
            "than a constant, below 0 worse; null if the returns do not vary",
            3,
            "up",
            bounds=(None, 1.0),
            priority=43,
            may_be_null=True,
        ),
        Metric(
            "ppo/approx_kl",
            "KL divergence of the update, estimated as the mean of (r - 1) - log r; typically "
            "0.001 to 0.05",
            4,
            unit="nats",
            bounds=POSITIVE,
            priority=44,
        ),
        Metric(
            "ppo/kl",
            "KL divergence of the update, estimated as the mean of -log r: unbiased, noisier than "
            "approx_kl, may be negative",
            4,
            unit="nats",
        ),
        Metric(
            "ppo/clip_fraction",
            "Fraction of samples outside the clip range",
            3,
            bounds=FRACTION,
            priority=45,
        ),
        Metric(
            "ppo/clip_fraction_vf",
            "Fraction of values that moved beyond clip_range_vf",
            3,
            bounds=FRACTION,
        ),
        Metric(
            "ppo/kl_stop_triggered",
            "1 if target_kl stopped the update before n_epochs",
            0,
            bounds=FRACTION,
        ),
        Metric("grads/norm/all", "Gradient norm before clipping", 3, bounds=POSITIVE, priority=46),
        Metric("grads/norm/policy", "Gradient norm of the actor before clipping", 3),
        Metric(
            "grads/norm/critic",
            "Gradient norm of the critics before clipping",
            3,
            bounds=POSITIVE,
            priority=47,
        ),
        Metric(
            "grads/norm/<part>",
            "Gradient norm of <part> (a part of the network) in the first minibatch of an update",
            3,
            bounds=POSITIVE,
            is_detail=True,
        ),
    )


def network() -> list[Metric]:
    dead = "units whose output hardly varies over a batch of observations"
    return _in_group(
        "train/opt",
        Metric(
            "activations/dead",
            f"Fraction of all hidden {dead}",
            3,
            "down",
            bounds=FRACTION,
            is_detail=True,
        ),
        Metric(
            "activations/dead_max",
            f"The same of the layer that has most: {dead}",
            3,
            "down",
            bounds=FRACTION,
            is_detail=True,
        ),
        Metric(
            "activations/<layer>/mean", "Mean output of the hidden layer <layer>", is_detail=True
        ),
        Metric(
            "activations/<layer>/std",
            "Standard deviation of the outputs of the hidden layer <layer>",
            bounds=POSITIVE,
            is_detail=True,
        ),
        Metric(
            "activations/<layer>/dead",
            f"The same of the layer <layer>: {dead}",
            3,
            "down",
            bounds=FRACTION,
            is_detail=True,
        ),
        Metric(
            "replay/size",
            "Transitions in the replay buffer",
            0,
            bounds=POSITIVE,
            is_detail=True,
        ),
        Metric(
            "replay/priority_evenness",
            "How evenly prioritised replay samples, (sum p)^2 / (n sum p^2): 1 uniformly, near 0 "
            "a few transitions only",
            4,
            bounds=FRACTION,
            is_detail=True,
        ),
        Metric("sil/rows", "Rows in the memory of self-imitation", 0),
        Metric("sil/loss", "Loss of self-imitation", 4),
        Metric(
            "sil/good",
            "Share of its sampled rows whose return is above the value",
            3,
            bounds=FRACTION,
        ),
    )


def timing() -> list[Metric]:
    shares = {
        "env": "in the envs",
        "act": "choosing actions",
        "update": "learning",
        "eval": "evaluating",
    }
    return _in_group(
        "train/sys/timing",
        Metric(
            "time_elapsed",
            "Seconds of training, over all resumes",
            1,
            unit="s",
            bounds=POSITIVE,
            priority=60,
        ),
        Metric(
            "fps",
            "Env steps per second over the whole run",
            0,
            "up",
            unit="steps/s",
            bounds=POSITIVE,
            priority=61,
        ),
        Metric(
            "fps_instant",
            "Env steps per second in the last epoch",
            0,
            "up",
            unit="steps/s",
            bounds=POSITIVE,
        ),
        Metric(
            "collect_fps",
            "Env steps per second of collecting in the last epoch, without learning and evaluating",
            0,
            "up",
            unit="steps/s",
            bounds=POSITIVE,
        ),
        Metric(
            "collectors_fps",
            "Env steps per second of all collectors together, while they collect",
            0,
            "up",
            unit="steps/s",
            bounds=POSITIVE,
        ),
        Metric(
            "eps", "Episodes per second over the whole run", 2, "up", unit="1/s", bounds=POSITIVE
        ),
        Metric(
            "eta_s",
            "Estimated seconds until the budget is used up",
            0,
            "down",
            unit="s",
            bounds=POSITIVE,
            priority=62,
        ),
        *(
            Metric(f"{name}_share", f"Fraction of the time spent {what}", 3, bounds=FRACTION)
            for name, what in shares.items()
        ),
    )


def machine() -> list[Metric]:
    load = "Processes that wanted a CPU in the last minute, per CPU; above 1 the machine is busy"
    return _in_group("train/sys", Metric("load", load, 2, "down", bounds=POSITIVE, is_detail=True))


def hyper_parameters() -> list[Metric]:
    return _in_group(
        "train/hp",
        Metric("policy_lr", "Current learning rate (scheduled)", 6, bounds=POSITIVE, priority=50),
        Metric("clip_range", "Current clip range of PPO (scheduled)", bounds=POSITIVE),
        Metric("ent_coef", "Current weight of the entropy bonus (scheduled)", 5, bounds=POSITIVE),
        Metric("vf_coef", "Current weight of the value loss (scheduled)", bounds=POSITIVE),
        Metric(
            "epsilon",
            "Current fraction of random actions (scheduled)",
            bounds=FRACTION,
            priority=51,
        ),
        Metric("temperature", "Current exploration temperature (scheduled)", bounds=POSITIVE),
        Metric("<field>", "Current value of <field> (scheduled)", 6),
    )


def alerts() -> list[Metric]:
    raised = "1 where the alert <rule> was raised, 0 where it ended (read from events.jsonl)"
    return _in_group("alert", Metric("<rule>", raised, 0, "down", bounds=FRACTION))


def all_metrics() -> Sequence[Metric]:
    """In the order of the documentation."""
    return [
        *clock(),
        *episodes(),
        *evaluations("val", "the evaluation", first=10),
        *evaluations("test", "the held-out test", first=None),
        *verdict(),
        *counters(),
        *plateau(),
        *rollout(),
        *losses(),
        *optimisation(),
        *network(),
        *hyper_parameters(),
        *timing(),
        *machine(),
        *alerts(),
    ]
