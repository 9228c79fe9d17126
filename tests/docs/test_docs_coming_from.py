"""The tables of docs/coming-from.md for the three systems that this one follows: no name of theirs
is left out, and what stands beside it works. Commands are checked in test_docs_pages.py, with all
others; here each `field` must exist and each `field: value` must load.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from gymnasium_solver.algos.file_schema import json_schema
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.registry import config_class
from gymnasium_solver.training.prepare import load_config

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")
FIELD = re.compile(r"([a-z_]+)(?:: (.+))?")
CONFIGS = [f"CartPole-v1:{algo}" for algo in ("ppo", "a2c", "reinforce", "dqn", "sarsa", "bc")]
CONFIGS += ["Pendulum-v1:sac", "Pendulum-v1:crossq", "ALE/Breakout-v5:ppo", "CartPole-v1:random"]
# What is not a field though it stands beside one: values, and parts of another cell's command.
WORDS = {"rate", "periodic", "gsolve", "search", "shared", "synced", "schedule"}
NAMES = {
    "SLM-Lab": """
        dev train train@latest search enjoy@{spec.json} --set -s --render --log-level
        --optimize-perf --no-optimize-perf --cuda-offset --profile --log-extra --stop-ray
        --upload-hf --keep run-remote pull push list plot plot-list slm-retro random_baseline.py
        max_session max_trial distributed log_frequency eval_frequency rigorous_eval
        search_resources search_scheduler random_seed name num_envs max_t max_frame normalize_obs
        clip_obs normalize_reward clip_reward reward_scale device life_loss_info
        repeat_action_probability Reinforce ActorCritic PPO SARSA VanillaDQN DQN DoubleDQN
        HydraDQN SoftActorCritic CrossQ SIL PPOSIL Random action_pdtype action_policy
        explore_var_spec entropy_coef_spec clip_eps_spec gamma lam num_step_returns center_return
        policy_loss_coef val_loss_coef normalize_v_targets clip_vloss normalize_advantages symlog
        minibatch_size time_horizon training_epoch training_start_step training_frequency
        training_iter training_batch_iter policy_delay entropy_penalty_coef spectral_norm
        log_alpha_min log_alpha_max alpha_lr fixed_alpha alpha_anneal_frames target_entropy
        entropy_anneal sil_policy_loss_coef sil_val_loss_coef OnPolicyReplay OnPolicyBatchReplay
        OnPolicyCrossEntropy cross_entropy Replay max_size batch_size use_cer PrioritizedReplay
        alpha epsilon sil_replay_name MLPNet HydraMLPNet DuelingMLPNet ConvNet DuelingConvNet
        RecurrentNet TorchArcNet arc arc_file shared hid_layers conv_hid_layers fc_hid_layers
        hid_layers_activation out_layer_activation init_fn normalize batch_norm layer_norm
        clip_grad_val loss_spec optim_spec lr_scheduler_spec update_type update_frequency
        polyak_coef gpu log_std_init actor_init_std critic_init_std a2c_gae_* a2c_nstep_* a3c_*
        async_sac_* crossq_* dppo_* dqn_* ddqn_* ddqn_per_* dueling_* ppo_* ppo_sil_* reinforce_*
        sac_* sarsa_* sil_* *_arc ppo_playground
    """,
    "RL Gym Bench": """
        configs START_PLOT_SERVER plot_processing n_step_ablation noisynet_ablation per_ablation
        name num_envs max_episode_steps normalize_obs normalize_reward is_atari
        buffer_atari_as_uint8 stack_samples repeat_action_probability obs_norm_eps rew_norm_eps
        seed gamma n_step lr_start lr_end lr_warmup_env_steps batch_size update_every_steps
        use_action_for_steps_train use_action_for_steps_eval buffer_size buffer_type
        warmup_buffer_size overwrite_target_net_grad_updates dist_rl_vmin dist_rl_vmax
        dist_num_atoms per_alpha per_beta_start per_beta_end per_beta greedy epsilon_greedy
        boltzmann starting_epsilon ending_epsilon warmup_steps decay_until_step temperature
        run_name total_env_steps log_interval eval_interval eval_envs logging_method num_seeds
        console_log_train threshold_exit_training_on_eval_score wandb_project wandb_group
        save_result video_save_dir algo_save_dir save_video_at_end save_algo_at_end inference_only
        algo_path override_cfg single_grid mlp cnn duelingnet distributional_dueling
        cnn_distributional_dueling mlp_dims mlp_activations mlp_bias mlp_layer_type
        mlp_layer_extra_args
    """,
    "tsilva/gymnasium-solver": """
        --config_id --wandb_sweep --max-env-steps --override --env-kwargs --list-envs --resume
        --epoch --init-from-run --backend --detach --run-id --config-id --episodes --deterministic
        --headless --step-by-step --mode --seed --fps --plot-metrics --no-plot-metrics
        --plot-update-interval --plot-window-size --show-preprocessing --show-actions
        --show-cnn-filters --show-gradcam --show-obs --no-show-obs --toolbar --no-toolbar
        run_inspect.py run_publish.py smoke.py mcp_server.py benchmark_collectors.py
        benchmark_dataloaders.py brax_train_policy.py brax_eval_policy.py list_retro_roms.py
        modal_train.py modal_sweep_runner.py sweep_modal.py sweep_grid.py multistage_sweep.py
        setup_wandb_dashboard.py stable-retro-arm-install.sh upload_rom_to_modal.py
        validate_env_info.py accelerator devices enable_wandb plateau_interventions
        advantages_type ALE-Pong-v5:objects_ppo ALE-Pong-v5:objects_deterministic_ppo
        ALE-Pong-v5:rgb_ppo ALE-Pong-v5:rgb_deterministic_ppo ALE-Breakout-v5:rgb_ppo
        ALE-Breakout-v5:rgb_deterministic_ppo ALE-Breakout-v5:objects_ppo
        ALE-Breakout-v5:objects_deterministic_ppo CartPole-v1:ppo_transfer_test
        MountainCar-v0:ppo_curiosity
    """,
}
KEPT = """
    Acrobot-v1:ppo Bandit-v0:ppo Bandit-v0:reinforce CartPole-v1:ppo CartPole-v1:ppo_rewardshaped
    FrozenLake-v1:ppo FrozenLake-v1:ppo_deterministic LunarLander-v3:ppo MountainCar-v0:ppo
    MountainCar-v0:ppo_rewardshaped Taxi-v3:ppo Retro-SuperMarioBros-Nes:ppo VizDoom-Basic-v0:ppo
    VizDoom-DeadlyCorridor-v0:ppo VizDoom-Deathmatch-v0:ppo VizDoom-DefendTheCenter-v0:ppo
    VizDoom-DefendTheLine-v0:ppo VizDoom-E1M1-v0:ppo VizDoom-HealthGathering-v0:ppo
    VizDoom-MyWayHome-v0:ppo VizDoom-PredictPosition-v0:ppo VizDoom-TakeCover-v0:ppo
"""


def rows(system: str) -> list[tuple[str, str]]:
    """What stands there and what here, of all tables about one system."""
    section = PAGE.partition(f"\n## {system}\n")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    assert all(len(row) == 2 for row in cells)
    return [(row[0], row[1]) for row in cells if row[1] not in ("---", "here")]


@pytest.mark.parametrize("system", NAMES)
def test_every_name_of_the_system_has_a_row(system: str) -> None:
    there = {
        word for left, _ in rows(system) for text in CODE.findall(left) for word in text.split()
    }
    missing = [name for name in NAMES[system].split() if name not in there]
    assert not missing


@pytest.mark.parametrize("system", NAMES)
def test_every_row_has_an_answer(system: str) -> None:
    unanswered = [left for left, right in rows(system) if not re.search(r"`|\]\(|always", right)]
    assert not unanswered


@pytest.mark.parametrize("system", NAMES)
def test_every_field_beside_a_name_exists_and_takes_the_value(system: str) -> None:
    texts = {text for _, right in rows(system) for text in CODE.findall(right)}
    fields = [match for text in sorted(texts - WORDS) if (match := FIELD.fullmatch(text))]
    assert fields
    wrong = [
        match[0] for match in fields if match[1] not in WORDS and not is_right(*match.groups())
    ]
    assert not wrong


def is_right(field: str, value: str | None) -> bool:
    """Is this a field, and does the config of some algorithm load with this value?"""
    if value is None or field == "algo_id":
        return field in json_schema()["properties"] and (value is None or bool(config_class(value)))
    return any(loads(config, field, value) for config in having(field))


def test_a_wrong_field_would_be_noticed() -> None:
    assert not is_right("polcy_lr", None)
    assert not is_right("policy_lr", "fast")
    assert not is_right("double", "3")


@cache
def having(field: str) -> list[str]:
    """Configs of the algorithms that have a field."""
    return [c for c in CONFIGS if field in config_class(c.partition(":")[2]).model_fields]


def loads(config: str, field: str, value: str) -> bool:
    try:
        load_config(config, overrides={field: parse_value(value)})
    except GsolveError:
        return False
    return True


@pytest.mark.parametrize("config", KEPT.split())
def test_names_of_configs_that_were_kept(config: str) -> None:
    load_config(config)
