"""Sizes of runs that take a blink."""

from typing import Any

RUN: dict[str, Any] = {
    "n_envs": 2, "n_steps": 16, "eval_freq_epochs": 1, "eval_episodes": 2, "test_episodes": 3,
    "hidden_dims": [8], "batch_size": 16, "n_epochs": 1, "early_stop_on_eval_threshold": None,
}  # fmt: skip
WORLD_MODELS: dict[str, dict[str, Any]] = {
    "tdmpc2": {
        "mlp_dim": 8, "enc_dim": 8, "latent_dim": 8, "n_critics": 2, "n_samples": 8,
        "n_policy_samples": 2, "n_elites": 4, "plan_iterations": 2, "compile": False,
    },
    "dreamerv3": {
        "deter_dim": 8, "core_dim": 4, "n_classes": 2, "n_latents": 2, "units": 8, "n_blocks": 2,
        "cnn_depth": 2, "n_atoms": 5, "imagination_steps": 2, "sequence_length": 3,
        "compile": False,
    },
}  # fmt: skip
