"""The metrics of what happened in the environments: episodes, rollouts, evaluations, tests."""

from gymnasium_solver.runs.metric import FRACTION, POSITIVE, Metric, in_group, mean_and_std


def episodes() -> list[Metric]:
    window = "of the last 100 training episodes"
    return in_group(
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
    return in_group(
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
        *mean_and_std("obs", "the observations, over all their numbers"),
        *mean_and_std("obs/<part>", "the part <part> of a Dict observation"),
        Metric(
            "obs/outside",
            "Fraction of the observed numbers outside the bounds of the observation space",
            4,
            "down",
            bounds=FRACTION,
            is_detail=True,
        ),
        *mean_and_std("reward", "the rewards of single steps, as the environment gives them"),
        Metric("reward/min", "Lowest reward of a single step", is_detail=True),
        Metric("reward/max", "Highest reward of a single step", is_detail=True),
        *mean_and_std("return", "the returns that values are fitted to"),
        *mean_and_std("adv", "the advantages before standardisation"),
        *mean_and_std("adv_norm", "the advantages as the loss uses them"),
        *mean_and_std("baseline", "the values predicted before the update"),
        *mean_and_std("actions", "the actions in the policy's units: class index, bit, or -1 to 1"),
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
            "(MultiBinary), or are in bin <bin> from -1 to 1 (Box)",
            3,
            bounds=FRACTION,
            is_detail=True,
        ),
    )


def evaluations(stage: str, subject: str, first: int | None) -> list[Metric]:
    """`subject`: the evaluation or the test; `first`: priority of the first shown metric."""

    def place(offset: int) -> int | None:
        return None if first is None else first + offset

    return in_group(
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
    return in_group("test", Metric("solved", solved, 0, "up", bounds=FRACTION))
