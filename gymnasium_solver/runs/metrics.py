"""All metrics, declared once: meaning, unit, bounds, precision, direction, place in the console.

Names are `<train|val|test>/<group>/<metric>`. A row of metrics.jsonl is
    {"env_steps": int, "epoch": int, "wall_s": float, "<name>": number or null, ...}
A metric is a line of the tables below. Undeclared names may be logged too; `describe` then returns
neutral properties. Names in other systems are in metric_aliases.py.
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Self

Better = Literal["up", "down"]
Bounds = tuple[float | None, float | None]
BOUNDS: dict[str, Bounds] = {"0..1": (0.0, 1.0), ">=0": (0.0, None), "<=1": (None, 1.0)}
UNITS = ("steps", "s", "steps/s", "1/s", "nats")

TRAIN, VAL, SPREAD = "train/roll/ep_rew/mean", "val/roll/ep_rew/mean", "val/roll/ep_rew/std"
"""Names of the returns that a chart shows."""
PANELS = (
    "train/opt/loss/policy",
    "train/opt/loss/value",
    "train/opt/loss/critic",
    "train/opt/loss/td",
    "train/opt/loss/imitation",
    "train/opt/loss/held_out",
    "train/opt/imitation/accuracy",
    "train/opt/q/mean",
    "train/opt/policy/entropy",
    "train/opt/policy/alpha",
    "train/opt/value/explained_var",
    "train/opt/ppo/approx_kl",
    "train/hp/epsilon",
    "train/roll/ep_len/mean",
)
"""Drawn below the returns of a single run, if they were logged and changed."""

# Name | marks | meaning. A line in brackets names the group of those below it. Marks, in any order:
# decimal places when printed (4 without), the better direction, the unit, the possible values,
# #place in the console, `null` if a row may have null, `detail` if it is computed only every few
# epochs. `<part>` stands for any text; `mean+std` declares two metrics.
_EPISODES = """
[]
env_steps | 0 steps >=0 | Agent steps over all envs, the clock of the run
epoch     | 0 >=0       | Epochs of n_steps rows per env
wall_s    | 1 s >=0     | Seconds of training, over all resumes
progress  | 3 0..1 #100 | Fraction of the budget used, from 0 to 1
[train/roll]
ep_rew/mean         | 2 up #1        | Mean return of the last 100 training episodes
ep_rew/best         | 2 up #2 null   | Highest mean return so far, of 100 episodes
ep_rew/last         | 2 up           | Return of the last finished training episode
ep_rew/std          | 2 >=0          | Standard deviation of the returns of the last 100 training
                                       episodes
ep_rew/min          | 2 up           | Lowest return of the last 100 training episodes
ep_rew/max          | 2 up           | Highest return of the last 100 training episodes
ep_len/mean         | 1 steps >=0 #3 | Mean length of the last 100 training episodes, in steps
success             | 2 up 0..1 #4   | Share of the last 100 training episodes that ended in
                                       success, where the env reports it
ep_len/last         | 0 steps >=0    | Length of the last finished training episode, in steps
ep_truncated        | 2 0..1         | Fraction of the last 100 training episodes that were
                                       truncated (time limit) and did not terminate
ep_part/<part>/mean |                | Reward per episode from the reward shaper's part <part>,
                                       mean of the last 100 training episodes
env_steps           | 0 steps >=0    | Env steps of the last epoch
vec_steps           | 0 steps >=0    | Steps of the vector env in the last epoch, reset rows
                                       included
episodes            | 0 >=0          | Episodes finished in the last epoch
[]
train/curriculum/stage         | 0 >=0 | Stage of the curriculum, from 1
train/curriculum/score         | 3 up  | Score in the stage, which promotes or demotes
train/curriculum/kwargs/<name> |       | Argument <name> of the environments now
train/task/<task>/ep_rew/mean  | 2 up  | Mean return of the last 100 training episodes of <task>
val/task/<task>/ep_rew/mean    | 2 up  | Mean return of <task> in an evaluation
"""
_EVALUATION = """
[STAGE/roll]
ep_rew/mean | 2 up #10        | Mean return of SUBJECT
ep_rew/std  | 2 down >=0 #11  | Standard deviation of the returns of SUBJECT
ep_rew/min  | 2 up            | Lowest return of SUBJECT
ep_rew/max  | 2 up            | Highest return of SUBJECT
ep_rew/best | 2 up #12        | Highest mean return of SUBJECT so far
ep_len/mean | 1 steps >=0 #13 | Mean episode length of SUBJECT, in steps
success     | 2 up 0..1 #14   | Share of the episodes of SUBJECT that ended in success, where the
                                env reports it
episodes    | 0 >=0           | Episodes of SUBJECT
"""
_LEARNING = """
[test]
solved | 0 up 0..1 | 1 if the held-out test reached the threshold, 0 if it fell short
[train/cnt]
lost_collectors | 0 down          | Collectors that were lost and replaced
total_env_steps | 0 steps >=0 #20 | Agent steps over all envs
total_vec_steps | 0 steps >=0     | Steps of the vector env, reset rows included
total_episodes  | 0 >=0 #21       | Finished episodes
total_rollouts  | 0 >=0           | Rollouts collected
total_updates   | 0 >=0           | Updates: one per rollout, or gradient steps with a replay
epoch           | 0 >=0 #22       | Epochs of n_steps rows per env
[train/plateau]
env_steps | 0 down steps >=0 | Env steps since the highest mean return of training
epochs    | 0 down >=0       | Epochs since the highest mean return of training
[train/roll]
intrinsic/raw       |                  | Novelty of the rollout's states before normalisation, mean
intrinsic/mean      | >=0              | Intrinsic reward of a step, mean, before its coefficient
intrinsic/max       |                  | Highest intrinsic reward, before its coefficient
policy_lag/mean     | 2 down >=0       | Updates that the collectors' weights were behind the
                                         learner's, mean
policy_lag/max      | 0 down >=0       | Updates that the collectors' weights were behind the
                                         learner's, at most
intrinsic/states    | 0 up             | Different states visited (intrinsic: count)
obs/mean+std        | detail           | the observations, over all their numbers
obs/<part>/mean+std | detail           | the part <part> of a Dict observation
obs/outside         | down 0..1 detail | Fraction of the observed numbers outside the bounds of the
                                         observation space
reward/mean+std     | detail           | the rewards of single steps, as the environment gives them
reward/min          | detail           | Lowest reward of a single step
reward/max          | detail           | Highest reward of a single step
return/mean+std     | detail           | the returns that values are fitted to
adv/mean+std        | detail           | the advantages before standardisation
adv_norm/mean+std   | detail           | the advantages as the loss uses them
baseline/mean+std   | detail           | the values predicted before the update
actions/mean+std    | detail           | the actions in the policy's units: class index, bit, or -1
                                         to 1
actions/legal       | 3 0..1 detail    | Mean fraction of the actions that are legal, where the
                                         environment has masks
actions/hist/<bin>  | 3 0..1 detail    | Fraction of the actions that were number <bin> (Discrete),
                                         pressed button <bin> (MultiBinary), or are in bin <bin>
                                         from -1 to 1 (Box)
[train/opt]
loss/total               | #48                | Total loss, the weighted sum of its terms
weights/norm/<part>      | 3                  | Norm of the weights of <part> (monitor: weights)
updates/ratio/<part>     | 5                  | Size of the epoch's update of <part> relative to
                                                its weights (monitor: updates)
rank/<part>              | 1                  | Effective rank of the last hidden layer of <part>
                                                (monitor: rank)
intrinsic/loss           | 5 >=0              | Loss of RND's predictor
loss/policy              | #31                | Policy loss
loss/value               | >=0 #32            | Value loss, before its weight
loss/value_scaled        | >=0                | Value loss times vf_coef
loss/entropy             |                    | Minus the entropy of the policy
loss/entropy_scaled      |                    | Minus the entropy times ent_coef
loss/td                  | #33                | TD loss of the Q-values
loss/critic              | >=0 #34            | TD loss of the critics, summed
loss/imitation           | #35                | Loss of the demonstrated actions (bc)
loss/held_out            | #36                | The same on demonstrations that are not learnt from
imitation/accuracy       | 3 up 0..1 #37      | Share of held-out demonstrated choices that the
                                                most likely action repeats
loss/alpha               |                    | Loss of the entropy coefficient; near 0 at the
                                                target entropy
q/mean                   | 3 #40              | Mean Q-value of the actions taken
policy/entropy           | 3 nats #41         | Entropy of the policy in nats; lower means less
                                                exploration
policy/alpha             | 5 >=0 #42          | Current entropy coefficient, learnt or scheduled
value/explained_var      | 3 up <=1 #43 null  | Fraction of the variance of returns explained by
                                                the value: 1 perfect, 0 no better than a constant,
                                                below 0 worse; null if the returns do not vary
ppo/approx_kl            | nats >=0 #44       | KL divergence of the update, estimated as the mean
                                                of (r - 1) - log r; typically 0.001 to 0.05
ppo/kl                   | nats               | KL divergence of the update, estimated as the mean
                                                of -log r: unbiased, noisier than approx_kl, may be
                                                negative
ppo/clip_fraction        | 3 0..1 #45         | Fraction of samples outside the clip range
ppo/clip_fraction_vf     | 3 0..1             | Fraction of values that moved beyond clip_range_vf
ppo/kl_stop_triggered    | 0 0..1             | 1 if target_kl stopped the update before n_epochs
grads/norm/all           | 3 >=0 #46          | Gradient norm before clipping
grads/norm/policy        | 3                  | Gradient norm of the actor before clipping
grads/norm/critic        | 3 >=0 #47          | Gradient norm of the critics before clipping
grads/norm/<part>        | 3 >=0 detail       | Gradient norm of <part> (a part of the network) in
                                                the first minibatch of an update
activations/dead         | 3 down 0..1 detail | Fraction of all hidden units whose output hardly
                                                varies over a batch of observations
activations/dead_max     | 3 down 0..1 detail | The same of the layer that has most: units whose
                                                output hardly varies over a batch of observations
activations/<layer>/mean | detail             | Mean output of the hidden layer <layer>
activations/<layer>/std  | >=0 detail         | Standard deviation of the outputs of the hidden
                                                layer <layer>
activations/<layer>/dead | 3 down 0..1 detail | The same of the layer <layer>: units whose output
                                                hardly varies over a batch of observations
replay/size              | 0 >=0 detail       | Transitions in the replay buffer
replay/priority_evenness | 0..1 detail        | How evenly prioritised replay samples, (sum p)^2 /
                                                (n sum p^2): 1 uniformly, near 0 a few transitions
                                                only
sil/rows                 | 0                  | Rows in the memory of self-imitation
sil/loss                 |                    | Loss of self-imitation
sil/good                 | 3 0..1             | Share of its sampled rows whose return is above the
                                                value
[train/hp]
policy_lr   | 6 >=0 #50 | Current learning rate (scheduled)
clip_range  | >=0       | Current clip range of PPO (scheduled)
ent_coef    | 5 >=0     | Current weight of the entropy bonus (scheduled)
vf_coef     | >=0       | Current weight of the value loss (scheduled)
epsilon     | 0..1 #51  | Current fraction of random actions (scheduled)
temperature | >=0       | Current exploration temperature (scheduled)
<field>     | 6         | Current value of <field> (scheduled)
[train/sys/timing]
time_elapsed   | 1 s >=0 #60          | Seconds of training, over all resumes
fps            | 0 up steps/s >=0 #61 | Env steps per second over the whole run
fps_instant    | 0 up steps/s >=0     | Env steps per second in the last epoch
collect_fps    | 0 up steps/s >=0     | Env steps per second of collecting in the last epoch,
                                        without learning and evaluating
collectors_fps | 0 up steps/s >=0     | Env steps per second of all collectors together, while they
                                        collect
eps            | 2 up 1/s >=0         | Episodes per second over the whole run
eta_s          | 0 down s >=0 #62     | Estimated seconds until the budget is used up
env_share      | 3 0..1               | Fraction of the time spent in the envs
act_share      | 3 0..1               | Fraction of the time spent choosing actions
update_share   | 3 0..1               | Fraction of the time spent learning
eval_share     | 3 0..1               | Fraction of the time spent evaluating
[train/sys]
load | 2 down >=0 detail | Processes that wanted a CPU in the last minute, per CPU; above 1 the
                           machine is busy
[alert]
<rule> | 0 down 0..1 | 1 where the alert <rule> was raised, 0 where it ended (read from
                       events.jsonl)
"""


@dataclass(frozen=True)
class Metric:
    name: str
    """`<train|val|test>/<group>/<metric>`. A part in angle brackets stands for any text:
    `train/hp/<field>`."""
    description: str
    precision: int = 4
    """Decimal places when printed."""
    better: Better | None = None
    """Which direction is better; None if neither is."""
    group: str = ""
    """Its section of the table: `train/roll`, `train/opt`, `val/roll`, ..."""
    unit: str = ""
    """`steps`, `s`, `nats`, ...; empty for a plain number."""
    bounds: Bounds = (None, None)
    """Values outside are impossible and raise an alert."""
    priority: int | None = None
    """Place in the console table, the lowest first; None: not shown there."""
    may_be_null: bool = False
    """Whether a row may have null for it: where it is not defined, or not yet."""
    is_detail: bool = False
    """Computed only every few epochs (`log_details_freq_epochs`)."""

    @property
    def show(self) -> bool:
        """Whether the console table shows it."""
        return self.priority is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        """The names that a name with angle brackets stands for; None for a single name."""
        if "<" not in self.name:
            return None
        return re.compile(re.sub(r"<(\w+)>", r"(?P<\1>.+)", self.name))

    @property
    def is_pattern(self) -> bool:
        return self._pattern is not None

    def of(self, name: str) -> Self | None:
        """The declaration for one name that this pattern stands for; None if it does not."""
        match = self._pattern.fullmatch(name) if self._pattern else None
        if match is None:
            return None
        text = self.description
        for part, value in match.groupdict().items():
            text = text.replace(f"<{part}>", value)
        return replace(self, name=name, description=text)

    def format(self, value: float | None) -> str:
        return "-" if value is None else f"{value:,.{self.precision}f}"


def _read(table: str) -> list[Metric]:
    """The metrics of a table."""
    found, group = [], ""
    for line in re.sub(r"\n +", " ", table.strip()).splitlines():  # indented: continues the line
        if line.startswith("["):
            group = line[1:-1]
            continue
        name, marks, text = (part.strip() for part in line.split(" | "))
        metric = Metric(f"{group}/{name}" if group else name, text, group=group, **_marked(marks))
        if name.endswith("mean+std"):
            stem = metric.name.removesuffix("mean+std")
            found.append(replace(metric, name=f"{stem}mean", description=f"Mean of {text}"))
            spread = f"Standard deviation of {text}"
            metric = replace(metric, name=f"{stem}std", description=spread, bounds=BOUNDS[">=0"])
        found.append(metric)
    return found


def _marked(marks: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for mark in marks.split():
        if mark.isdecimal():
            fields["precision"] = int(mark)
        elif mark[0] == "#":
            fields["priority"] = int(mark[1:])
        elif mark in BOUNDS:
            fields["bounds"] = BOUNDS[mark]
        elif mark in UNITS:
            fields["unit"] = mark
        elif mark in ("up", "down"):
            fields["better"] = mark
        else:
            fields[{"null": "may_be_null", "detail": "is_detail"}[mark]] = True
    return fields


def _evaluation(stage: str, subject: str) -> list[Metric]:
    return _read(_EVALUATION.replace("STAGE", stage).replace("SUBJECT", subject))


DECLARED = [
    *_read(_EPISODES),
    *_evaluation("val", "the evaluation"),
    *(replace(metric, priority=None) for metric in _evaluation("test", "the held-out test")),
    *_read(_LEARNING),
]
"""All metrics, in the order of the documentation."""
_SHOWN_LAST = 1_000

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in sorted(DECLARED, key=lambda m: _SHOWN_LAST if m.priority is None else m.priority)
}
"""Declared metrics; those of the console table first, in its order."""
_PATTERNS = [metric for metric in METRICS.values() if metric.is_pattern]


@lru_cache(maxsize=4096)
def describe(name: str) -> Metric:
    """The declaration of this metric, or neutral properties."""
    metric = METRICS.get(name)
    if metric is not None:
        return metric
    for pattern in _PATTERNS:
        if (found := pattern.of(name)) is not None:
            return found
    return Metric(name, "", group="/".join(name.split("/")[:2]))


def find_metrics(text: str | None = None) -> list[Metric]:
    """The declared metrics that have every word of `text` in their name or description."""
    words = (text or "").lower().split()
    return [
        metric
        for metric in METRICS.values()
        if all(word in f"{metric.name} {metric.description}".lower() for word in words)
    ]
