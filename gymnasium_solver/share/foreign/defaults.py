"""What other libraries do where a file of hyper-parameters says nothing.

SB3 2.9: the arguments of its constructors, under its names, and what its code fixes, under ours.
CleanRL: what is in the code of a script and not among its arguments; of a script that is at hand
it is read from the code instead (`read_code`).
"""

import ast
from typing import Any

_REPLAY = {"buffer_size": 1_000_000, "learning_starts": 100, "gamma": 0.99, "train_freq": 1,
           "gradient_steps": 1}  # fmt: skip
_CONTINUOUS = _REPLAY | {"batch_size": 256, "tau": 0.005}

# Arguments of SB3, and the zoo's own: one environment.
SB3: dict[str, dict[str, Any]] = {
    "ppo": {
        "learning_rate": 3e-4, "n_steps": 2048, "batch_size": 64, "n_epochs": 10, "gamma": 0.99,
        "gae_lambda": 0.95, "clip_range": 0.2, "clip_range_vf": None, "normalize_advantage": True,
        "ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5, "target_kl": None,
    },
    "a2c": {
        "learning_rate": 7e-4, "n_steps": 5, "gamma": 0.99, "gae_lambda": 1.0, "ent_coef": 0.0,
        "vf_coef": 0.5, "max_grad_norm": 0.5, "rms_prop_eps": 1e-5, "use_rms_prop": True,
        "normalize_advantage": False,
    },
    "dqn": _REPLAY
    | {
        "learning_rate": 1e-4, "batch_size": 32, "tau": 1.0, "train_freq": 4,
        "target_update_interval": 10_000, "exploration_fraction": 0.1,
        "exploration_initial_eps": 1.0, "exploration_final_eps": 0.05, "max_grad_norm": 10.0,
    },
    "sac": _CONTINUOUS | {"learning_rate": 3e-4, "ent_coef": "auto", "target_entropy": "auto"},
    "td3": _CONTINUOUS
    | {
        "learning_rate": 1e-3, "policy_delay": 2, "target_policy_noise": 0.2,
        "target_noise_clip": 0.5,
    },
    "ddpg": _CONTINUOUS | {"learning_rate": 1e-3},
}  # fmt: skip
_SB3_ON_POLICY = {
    "normalize_obs": False, "normalize_reward": False, "hidden_dims": [64, 64],
    "activation": "tanh", "share_trunk": False, "log_std_init": 0.0,
}  # fmt: skip
_SB3_REPLAY = {
    "normalize_obs": False, "normalize_reward": False, "activation": "relu", "adam_eps": 1e-8,
    "optimizer": "adam",
}  # fmt: skip
# What the code of SB3 does, in our fields.
SB3_CODE: dict[str, dict[str, Any]] = {
    "ppo": _SB3_ON_POLICY | {"adam_eps": 1e-5, "optimizer": "adam"},
    "a2c": _SB3_ON_POLICY | {"optimizer": "rmsprop"},
    "dqn": _SB3_REPLAY | {"hidden_dims": [64, 64], "loss": "huber", "double": False},
    "sac": _SB3_REPLAY
    | {"hidden_dims": [256, 256], "n_critics": 2, "critic_lr": None, "max_grad_norm": None,
       "policy_delay": 1},
    "td3": _SB3_REPLAY
    | {"hidden_dims": [400, 300], "n_critics": 2, "critic_lr": None, "max_grad_norm": None,
       "exploration_noise": 0.0},
    "ddpg": _SB3_REPLAY
    | {"hidden_dims": [400, 300], "critic_lr": None, "max_grad_norm": None,
       "exploration_noise": 0.0, "exploration_noise_type": "gaussian"},
}  # fmt: skip

_CLEANRL_CRITICS = _SB3_REPLAY | {
    "hidden_dims": [256, 256], "max_grad_norm": None, "train_freq": 1, "updates_per_step": 1.0,
}  # fmt: skip
CLEANRL_CODE: dict[str, dict[str, Any]] = {
    "ppo": _SB3_ON_POLICY | {"adam_eps": 1e-5, "optimizer": "adam"},
    "dqn": _SB3_REPLAY
    | {"hidden_dims": [120, 84], "loss": "mse", "double": False, "max_grad_norm": None},
    "sac": _CLEANRL_CRITICS | {"n_critics": 2},
    "td3": _CLEANRL_CRITICS | {"n_critics": 2, "critic_lr": None},
    "ddpg": _CLEANRL_CRITICS
    | {"n_envs": 1, "critic_lr": None, "exploration_noise_type": "gaussian"},
}
NETWORK = ("hidden_dims", "activation", "share_trunk", "normalize_obs")
"""Fields that are about networks without images."""
# Of our algorithms: arguments that only its scripts have.
_SIGNS = {
    "ppo": {"clip_coef"},
    "sac": {"autotune"},
    "td3": {"policy_noise"},
    "ddpg": {"exploration_noise"},
    "dqn": {"start_e"},
}


def algorithm_of(arguments: dict[str, Any]) -> str | None:
    """Which algorithm a script of CleanRL is, by its arguments."""
    return next((algo for algo, signs in _SIGNS.items() if signs <= arguments.keys()), None)


def read_code(tree: ast.Module) -> dict[str, Any]:
    """What the code of a script does, in our fields: layers, activation, loss, normalisation. Only
    what is plain to see: what is not is left out."""
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found: dict[str, Any] = {
        "normalize_obs": "rolling" if "NormalizeObservation" in names else False,
        "normalize_reward": "NormalizeReward" in names,
        "has_images": "Conv2d" in names,
    }
    layers = [sizes for node in ast.walk(tree) if (sizes := _hidden_sizes(node))]
    if layers and all(each == layers[0] for each in layers):
        found["hidden_dims"] = layers[0]
    activations = {"Tanh": "tanh", "ReLU": "relu", "relu": "relu"}
    used = {activations[name] for name in names & activations.keys()}
    if len(used) == 1:
        found["activation"] = used.pop()
    if (loss := names & {"mse_loss", "smooth_l1_loss"}) and len(loss) == 1:
        found["loss"] = "mse" if "mse_loss" in loss else "huber"
    if "clip_grad_norm_" not in names:
        found["max_grad_norm"] = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            eps = [word.value for word in node.keywords if word.arg == "eps"]
            if node.func.attr == "Adam" and eps and isinstance(eps[0], ast.Constant):
                found["adam_eps"] = eps[0].value
    return found


def _hidden_sizes(node: ast.AST) -> list[int]:
    """Widths of the hidden layers of an nn.Sequential, or of a module that has none."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    is_sequential = isinstance(node, ast.Call) and _name(node) == "Sequential"
    is_module = isinstance(node, ast.ClassDef) and "Sequential" not in map(_name, calls)
    if not is_sequential and not is_module:
        return []
    linear = [n for n in calls if _name(n) == "Linear" and len(n.args) == 2]
    linear.sort(key=lambda n: (n.lineno, n.col_offset))
    widths = [n.args[1].value for n in linear if isinstance(n.args[1], ast.Constant)]
    return [width for width in widths if isinstance(width, int) and width > 1]


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))
