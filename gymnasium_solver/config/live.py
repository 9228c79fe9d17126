"""Which fields of a config may change while a run trains.

A live edit is taken over between two epochs. Fields that decide what is built at the start (the
environments, the networks, the replay buffer, the seeds) stay as they are; all others may change.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gymnasium_solver.config.blocks import (
    EnvFields,
    IdentityFields,
    SeedFields,
    SystemFields,
)
from gymnasium_solver.config.learner_blocks import NetworkFields
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import ConfigError

_BLOCKS = (IdentityFields, SeedFields, EnvFields, NetworkFields, SystemFields)
_LIVE = ("reward_threshold", "check_finite")  # fields of these blocks that may change
_FIXED = frozenset(
    {
        *(
            "n_envs",
            "n_steps",
            "interventions",
            "collectors",
            "curriculum",
            "tasks",
            "task_one_hot",
            "max_episode_steps",
            "eval_async",
            "video",
            "optimizer",
            "optimizer_kwargs",
        ),
        *("dataset", "dataset_top", "dataset_held_out", "imitation_loss"),
        *("normalize_obs", "normalize_reward", "share_trunk", "recurrent", "recurrent_dim"),
        *("sde", "sde_sample_freq", "sde_log_std_init", "output_dims", "heads_by"),
        *("log_std_init", "train_freq", "buffer_size", "her", "replay_frame_stack", "replay_dir"),
        "replay_on_gpu",
        *("save_replay", "prioritized", "dueling", "noisy", "noisy_sigma", "distributional"),
        *("n_atoms", "v_min", "v_max", "n_critics", "critic_hidden_dims", "layer_norm"),
        *(
            "spectral_norm",
            "action_dist",
            "gumbel_temperature",
            "exploration",
            "exploration_noise_type",
        ),
    }
)


def fixed_fields() -> frozenset[str]:
    """Fields that keep their value while a run trains."""
    of_blocks = {name for block in _BLOCKS for name in block.model_fields}
    return frozenset(of_blocks - set(_LIVE)) | _FIXED


def live_fields(config_class: type[Config]) -> list[str]:
    """Fields of this class that may change while a run trains, in order."""
    fixed = fixed_fields()
    return [name for name in config_class.model_fields if name not in fixed]


def check_live(config_class: type[Config], names: Iterable[str]) -> None:
    """ConfigError if one of the fields cannot change while a run trains."""
    fixed = fixed_fields()
    wrong = [name for name in names if name in fixed]
    if wrong:
        raise ConfigError(
            f"{', '.join(wrong)} cannot change while a run trains: only what is read in every "
            f"epoch can, such as {_examples(config_class)}. Start a new run for it."
        )


def _examples(config_class: type[Config]) -> str:
    known = ("policy_lr", "ent_coef", "clip_range", "epsilon", "gamma", "eval_freq_epochs")
    return ", ".join([name for name in known if name in config_class.model_fields][:3])


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Fields with different values, as [before, after]."""
    return {
        name: [before.get(name), after.get(name)]
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    }
