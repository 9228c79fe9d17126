"""The metrics of learning: losses, optimisation, networks, scheduled hyper-parameters."""

from gymnasium_solver.runs.metric import FRACTION, POSITIVE, Metric, in_group


def losses() -> list[Metric]:
    return in_group(
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
        Metric("loss/imitation", "Loss of the demonstrated actions (bc)", priority=35),
        Metric("loss/held_out", "The same on demonstrations that are not learnt from", priority=36),
        Metric(
            "imitation/accuracy",
            "Share of held-out demonstrated choices that the most likely action repeats",
            3,
            "up",
            bounds=FRACTION,
            priority=37,
        ),
        Metric("loss/alpha", "Loss of the entropy coefficient; near 0 at the target entropy"),
    )


def optimisation() -> list[Metric]:
    return in_group(
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
    return in_group(
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


def hyper_parameters() -> list[Metric]:
    return in_group(
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
