"""Models and hyper-parameters of other libraries.

Small files are built here by hand; the real Stable-Baselines3 is used where it is installed or can
be (marked services).
"""

import io
import json
import math
import os
import pickle
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import gymnasium_solver as gs
from gymnasium_solver.cli.main import main
from gymnasium_solver.config.yaml_file import parse_yaml
from gymnasium_solver.errors import ConfigError, GsolveError, RunError
from gymnasium_solver.share.foreign.imported_model import ForeignModel, import_model
from gymnasium_solver.share.foreign.model_files import (
    Inert,
    as_array,
    read_cleanrl,
    read_inert,
    read_sb3,
)
from gymnasium_solver.share.foreign.settings import read_foreign
from gymnasium_solver.training.prepare import build_config

RNG = np.random.default_rng(0)
SENTINEL = "unpickled"


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(0))


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder / SENTINEL),)


def dense(sizes: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    pairs = pairwise(sizes)
    return [
        (torch.tensor(RNG.normal(size=(b, a)) / a**0.5), torch.tensor(RNG.normal(size=b)))
        for a, b in pairs
    ]


def forward(layers: Any, x: np.ndarray, activation: Any) -> np.ndarray:
    """An MLP in plain NumPy, the reference of these tests."""
    for i, (weight, bias) in enumerate(layers):
        x = x @ weight.numpy().T + bias.numpy()
        x = activation(x) if i < len(layers) - 1 else x
    return x


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def named(layers: Any, *names: str) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for (weight, bias), name in zip(layers, names, strict=True):
        found |= {f"{name}.weight": weight.float(), f"{name}.bias": bias.float()}
    return found


def write_zip(path: Path, module: str, tensors: dict[str, torch.Tensor], **data: Any) -> Path:
    """A model as SB3 writes it; its pickled parts must never be decoded."""
    evil = pickle.dumps(Evil(path.parent)).hex()
    policy = {":type:": "<class 'abc.ABCMeta'>", ":serialized:": evil, "__module__": module}
    everything = {"policy_class": policy, "num_timesteps": 1000, **data}
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps(everything))
        archive.writestr("policy.pth", buffer.getvalue())
    return path


def ppo_zip(
    folder: Path, n_out: int = 2, n_in: int = 4, sde: bool = False, **data: Any
) -> tuple[Path, Any]:
    actor, critic = dense([n_in, 8, 6, n_out]), dense([n_in, 8, 6, 1])
    tensors = named(actor, "mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net")
    tensors |= named(critic, "mlp_extractor.value_net.0", "mlp_extractor.value_net.2", "value_net")
    if n_out == 1:
        tensors["log_std"] = torch.full((6, 1), -0.3) if sde else torch.zeros(1)
    path = folder / "ppo-CartPole-v1.zip"
    return write_zip(path, "stable_baselines3.common.policies", tensors, **data), actor


def imported(model: ForeignModel, env_id: str, folder: Path) -> Any:
    """The agent of the run that a model becomes."""
    return gs.load(import_model(model, env_id, folder, source="x", episodes=None)[0])


def observations(width: int, n: int = 1000) -> np.ndarray:
    return RNG.normal(size=(n, width)).astype(np.float32)


def test_a_ppo_of_sb3_acts_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedule = {":type:": "x", ":serialized:": "?", "value_schedule": "ConstantSchedule(val=0.1)"}
    path, actor = ppo_zip(tmp_path, learning_rate=0.0007, clip_range=schedule, use_sde=False)
    words = ["import-sb3", str(path), "--runs-dir", str(tmp_path / "runs"), "--episodes", "4"]
    assert main([*words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["fields"]["policy_lr"] == 0.0007
    assert shown["fields"]["clip_range"] == 0.1
    agent = gs.load(shown["path"])
    obs = observations(4)
    expected = forward(actor, obs, np.tanh).argmax(axis=1)
    assert (agent.act(obs) == expected).mean() > 0.998  # rounding may decide a tie
    run = gs.open_run(shown["path"])
    assert gs.evaluate(run, 4).mean == shown["test"]["mean"]
    assert run.meta()["stop_reason"] == "imported"
    assert not (tmp_path / SENTINEL).exists()


def test_continuous_actions_are_in_the_envs_units(tmp_path: Path) -> None:
    path, actor = ppo_zip(tmp_path, n_out=1, n_in=3)
    agent = imported(read_sb3(path), "Pendulum-v1", tmp_path)
    obs = observations(3)
    expected = np.clip(forward(actor, obs, np.tanh), -2, 2)  # SB3 clips to the bounds
    np.testing.assert_allclose(agent.act(obs), expected, atol=2e-5)


def test_state_dependent_exploration_of_sb3(tmp_path: Path) -> None:
    path, actor = ppo_zip(tmp_path, n_out=1, n_in=3, sde=True, use_sde=True, sde_sample_freq=4)
    agent = imported(read_sb3(path), "Pendulum-v1", tmp_path)
    obs = observations(3, 50)
    expected = forward(actor, obs, np.tanh)
    np.testing.assert_allclose(agent.act(obs), np.clip(expected, -2, 2), atol=2e-5)
    outputs = agent.net.actor(torch.from_numpy(obs)).detach().numpy()
    latent = forward(actor[:-1], obs, np.tanh)
    std = np.sqrt(np.tanh(latent) ** 2 @ np.full((6, 1), np.exp(-0.6)) + 1e-6)
    # Here the bounds of +-2 are +-1.
    np.testing.assert_allclose(np.exp(outputs[:, 1:]), std / 2, rtol=1e-3)
    assert agent.config.sde_sample_freq == 4


def test_statistics_of_vec_normalize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, actor = ppo_zip(tmp_path, n_out=1, n_in=3)
    mean, var = RNG.normal(size=3), RNG.uniform(0.5, 2, size=3)
    statistics = tmp_path / "vec_normalize.pkl"
    statistics.write_bytes(pickled_vec_normalize(mean, var, monkeypatch))
    model = read_sb3(path, statistics)
    agent = imported(model, "Pendulum-v1", tmp_path)
    obs = observations(3)
    seen = np.clip((obs - mean) / np.sqrt(var + 1e-8), -5, 5)
    expected = np.clip(forward(actor, seen, np.tanh), -2, 2)
    np.testing.assert_allclose(agent.act(obs), expected, atol=2e-5)


def pickled_vec_normalize(
    mean: np.ndarray, var: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> bytes:
    """A pickle with SB3's class names, made without SB3."""
    names = ("stable_baselines3", "stable_baselines3.common", "stable_baselines3.common.vec_env")
    module = ModuleType("stable_baselines3.common.vec_env.vec_normalize")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)

    class VecNormalize:
        pass

    class RunningMeanStd:
        pass

    for kind in (VecNormalize, RunningMeanStd):
        kind.__module__, kind.__qualname__ = module.__name__, kind.__name__
        setattr(module, kind.__name__, kind)
    rms, vec = RunningMeanStd(), VecNormalize()
    rms.__dict__ |= {"mean": mean, "var": var, "count": np.float64(1000.5)}
    vec.__dict__ |= {"obs_rms": rms, "norm_obs": True, "clip_obs": 5.0, "others": [1, (2, {"a"})]}
    return pickle.dumps(vec)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_is_read_without_unpickling(tmp_path: Path, protocol: int) -> None:
    array = RNG.normal(size=(2, 3))
    data = {"evil": Evil(tmp_path), "array": array, "n": np.float32(2.5), "list": [1, None, True]}
    found = read_inert(pickle.dumps(data, protocol))
    assert isinstance(found["evil"], Inert)
    assert found["evil"].name.endswith("mkdir")
    assert not (tmp_path / SENTINEL).exists()
    assert found["list"] == [1, None, True]
    if protocol >= 2:
        np.testing.assert_array_equal(as_array(found["array"]), array)
        assert float(as_array(found["n"])) == 2.5
    for broken in (b"", b"\x80\x04", b"garbage", pickle.dumps(data)[:-20]):
        with pytest.raises(RunError):
            read_inert(broken)


def test_q_networks_and_actor_critics_of_sb3(tmp_path: Path) -> None:
    q = dense([4, 8, 8, 2])
    tensors = named(q, "q_net.q_net.0", "q_net.q_net.2", "q_net.q_net.4")
    path = write_zip(tmp_path / "dqn.zip", "stable_baselines3.dqn.policies", tensors)
    agent = imported(read_sb3(path), "CartPole-v1", tmp_path)
    obs = observations(4)
    assert (agent.act(obs) == forward(q, obs, relu).argmax(axis=1)).mean() > 0.998
    obs = observations(3)
    critics = named(dense([4, 8, 1]), "critic.qf0.0", "critic.qf0.2")
    critics |= named(dense([4, 8, 1]), "critic.qf1.0", "critic.qf1.2")
    latent, mu, log_std = dense([3, 8]), dense([8, 1]), dense([8, 1])
    tensors = named([*latent, *mu, *log_std], "actor.latent_pi.0", "actor.mu", "actor.log_std")
    path = write_zip(tmp_path / "sac.zip", "stable_baselines3.sac.policies", tensors | critics)
    agent = imported(read_sb3(path), "Pendulum-v1", tmp_path)
    expected = 2 * np.tanh(forward([*latent, *mu], obs, relu))
    np.testing.assert_allclose(agent.act(obs), expected, atol=2e-5)
    tensors = named([*latent, *mu], "actor.mu.0", "actor.mu.2")
    path = write_zip(tmp_path / "td3.zip", "stable_baselines3.td3.policies", tensors | critics)
    agent = imported(read_sb3(path), "Pendulum-v1", tmp_path)
    np.testing.assert_allclose(agent.act(obs), expected, atol=2e-5)


def test_models_of_cleanrl(tmp_path: Path) -> None:
    actor, critic = dense([4, 8, 8, 2]), dense([4, 8, 8, 1])
    path = tmp_path / "ppo.cleanrl_model"
    tensors = named(actor, "actor.0", "actor.2", "actor.4")
    torch.save(tensors | named(critic, "critic.0", "critic.2", "critic.4"), path)
    agent = imported(read_cleanrl(path), "CartPole-v1", tmp_path)
    obs = observations(4)
    assert (agent.act(obs) == forward(actor, obs, np.tanh).argmax(axis=1)).mean() > 0.998
    layers = dense([3, 8, 8, 1])
    state = named(layers, "fc1", "fc2", "fc_mu") | {"action_scale": torch.tensor([2.0])}
    critics = [named(dense([4, 8, 8, 1]), "fc1", "fc2", "fc3") for _ in range(2)]
    torch.save((state, *critics), path)
    agent = imported(read_cleanrl(path), "Pendulum-v1", tmp_path)
    obs = observations(3)
    expected = 2 * np.tanh(forward(layers, obs, relu))
    np.testing.assert_allclose(agent.act(obs), expected, atol=2e-5)


def test_bad_models_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = tmp_path / "evil.cleanrl_model"
    evil.write_bytes(pickle.dumps(Evil(tmp_path)))
    with pytest.raises(RunError, match="not loaded"):
        read_cleanrl(evil)
    path, _ = ppo_zip(tmp_path)
    with pytest.raises(RunError, match="does not fit Acrobot-v1"):
        import_model(read_sb3(path), "Acrobot-v1", tmp_path, source="x", episodes=None)
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr(
            "data", '{"policy_class": {"__module__": "stable_baselines3.dqn.policies"}}'
        )
        archive.writestr("policy.pth", pickle.dumps(Evil(tmp_path)))
    (tmp_path / "text.zip").write_text("no zip")
    for name in ("evil.zip", "text.zip", "missing.zip"):
        with pytest.raises(GsolveError):
            read_sb3(tmp_path / name)
    assert not (tmp_path / SENTINEL).exists()
    path.rename(tmp_path / "model.zip")
    assert main(["import-sb3", str(tmp_path / "model.zip")]) == 2
    assert "give --env-id" in capsys.readouterr().err


ODD_VALUES: list[Any] = [
    None, "x", "9" * 5000, math.nan, math.inf, -1, 10**40, 0.5, [], [1], {}, {"a": {}}, True,
]  # fmt: skip


def odd_tensors(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor in the place of this one."""
    kinds: list[Callable[[], torch.Tensor]] = [
        lambda: torch.full_like(tensor, rng.choice([math.nan, math.inf, -math.inf])),
        lambda: torch.zeros(()),
        lambda: torch.zeros(0),
        lambda: tensor.reshape(-1)[:1],
        lambda: tensor.unsqueeze(0),
        lambda: tensor[:-1],
        lambda: tensor.to_sparse(),
        lambda: tensor.to(torch.complex64),
        lambda: tensor.long(),
        lambda: torch.zeros(1).expand(10**9),
    ]
    return rng.choice(kinds)()


def hostile_zip(seed: int, folder: Path) -> Path:
    """A model of SB3 with something wrong in it: values, tensors, files or bytes."""
    rng = random.Random(seed)
    path, _ = ppo_zip(folder)
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    fault = rng.choice(["value", "tensor", "missing", "bytes", "cut", "file", "whole"])
    if fault == "value":
        data = json.loads(files["data"])
        names = [
            "num_timesteps",
            "n_envs",
            "policy_kwargs",
            "policy_class",
            "learning_rate",
            "gamma",
        ]
        data[rng.choice(names)] = rng.choice(ODD_VALUES)
        files["data"] = json.dumps(data).encode()
    elif fault in ("tensor", "missing"):
        state = torch.load(io.BytesIO(files["policy.pth"]), weights_only=True)
        name = rng.choice(list(state))
        found = state.pop(name)
        state |= {name: odd_tensors(rng, found)} if fault == "tensor" else {}
        buffer = io.BytesIO()
        torch.save(state, buffer)
        files["policy.pth"] = buffer.getvalue()
    elif fault == "file":
        evil = pickle.dumps(Evil(folder))
        odd = [b"", b"\x80", b"null", b"[" * 5000, b"\xff\xfe", evil, b"{}"]
        files[rng.choice(list(files))] = rng.choice(odd)
    elif fault != "whole":
        name = rng.choice(list(files))
        found = bytearray(files[name])
        if fault == "cut":
            found = found[: rng.randrange(len(found))]
        else:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
        files[name] = bytes(found)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    if fault == "whole":
        whole = bytearray(path.read_bytes())
        for _ in range(8):
            whole[rng.randrange(len(whole))] = rng.randrange(256)
        path.write_bytes(bytes(whole[: rng.randrange(len(whole))] if rng.random() < 0.5 else whole))
    return path


@pytest.mark.sample(25)
@pytest.mark.parametrize("seed", range(400))
def test_a_hostile_zip_is_one_line_or_a_finite_policy(seed: int, tmp_path: Path) -> None:
    path = hostile_zip(seed, tmp_path)
    root = tmp_path / "runs"
    try:
        run, _ = import_model(read_sb3(path), "CartPole-v1", root, source=path.name, episodes=None)
        said = ""
    except GsolveError as error:
        said = str(error)
    if not said:
        assert np.isfinite(gs.load(run).act(observations(4, 3))).all()
    assert "weights_only" not in said
    assert len(said) < 600
    assert not (tmp_path / SENTINEL).exists()
    assert {each.name for each in tmp_path.iterdir()} <= {path.name, "runs"}


@pytest.mark.parametrize("name", ["value_net.weight", "action_net.bias"])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, name: str) -> None:
    path, _ = ppo_zip(tmp_path)
    model = read_sb3(path)
    layers = model.critics[0] if "value" in name else model.actor
    getattr(layers[-1], name.partition(".")[2])[...] = math.nan
    with pytest.raises(RunError, match="not finite"):
        import_model(model, "CartPole-v1", tmp_path, source="x", episodes=None)


def test_a_file_that_is_no_zip_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.zip").write_text("no zip")
    assert main(["import-sb3", str(tmp_path / "model.zip")]) == 2
    assert "not a zip file" in capsys.readouterr().err


# -- hyper-parameters -------------------------------------------------------------------------

ZOO = """
CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: 'MlpPolicy'
  n_steps: 32
  batch_size: 256
  learning_rate: lin_0.001
  clip_range: lin_0.2
  policy_kwargs: "dict(net_arch=dict(pi=[32], vf=[32]), activation_fn=nn.ReLU, log_std_init=-1.5)"
  normalize: "{'norm_obs': True, 'norm_reward': False}"
  use_sde: True
  strange: 3
Other-v0:
  n_envs: 1
"""
DQN = """
CartPole-v1:
  n_timesteps: !!float 5e4
  learning_rate: !!float 2.3e-3
  target_update_interval: 10
  train_freq: 256
  gradient_steps: 128
  exploration_fraction: 0.16
  exploration_final_eps: 0.04
  policy_kwargs: "dict(net_arch=[256, 256])"
"""
CLEANRL = """
import os
class Args:
    exp_name: str = os.path.basename(__file__)
    seed: int = 1
    env_id: str = "CartPole-v1"
    total_timesteps: int = 500000
    learning_rate: float = 2.5e-4
    num_envs: int = 4
    num_steps: int = 128
    anneal_lr: bool = True
    num_minibatches: int = 4
    update_epochs: int = 4
    norm_adv: bool = True
    clip_coef: float = 0.2
    clip_vloss: bool = True
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float = None
    batch_size: int = 0
raise SystemExit("this script must not be run")
"""
SLM = """
{"ppo_cartpole": {
  "agent": [{
    "name": "PPO",
    "algorithm": {
      "name": "PPO", "gamma": 0.99, "lam": 0.95, "time_horizon": 32, "minibatch_size": 64,
      "training_epoch": 4,
      "clip_eps_spec": {"name": "no_decay", "start_val": 0.2, "end_val": 0.2}},
    "memory": {"name": "OnPolicyBatchReplay"},
    "net": {
      "type": "MLPNet", "shared": false, "hid_layers": [64, 64], "clip_grad_val": 0.5,
      "hid_layers_activation": "tanh", "optim_spec": {"name": "Adam", "lr": 0.01},
      "lr_scheduler_spec": {"name": "LinearToZero", "frame": 1e5}, "init_fn": "orthogonal_"}}],
  "env": [{"name": "CartPole-v1", "num_envs": 4, "max_t": null, "max_frame": 100000}],
  "meta": {"max_trial": 1}}}
"""


def translated(tmp_path: Path, name: str, text: str, **more: Any) -> Any:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    found = read_foreign(path, **more)
    build_config({"env_id": found.env_id, "algo_id": found.algo_id, **found.mapped.fields})
    return found


def test_the_zoos_fields(tmp_path: Path) -> None:
    found = translated(tmp_path, "ppo.yml", ZOO, env_id="CartPole-v1")
    fields = found.mapped.fields
    assert fields["max_env_steps"] == 1e5
    assert fields["policy_lr"] == "lin_0.001"
    assert (fields["hidden_dims"], fields["activation"]) == ([32], "relu")
    assert (fields["normalize_obs"], fields["normalize_reward"]) == ("rolling", False)
    assert fields["normalize_advantages"] == "batch"
    assert (fields["sde"], fields["sde_log_std_init"]) == (True, -1.5)
    assert found.mapped.unmapped.keys() == {"strange"}
    assert "# not translated: strange" in found.text()
    found = translated(tmp_path, "dqn.yml", DQN)
    assert found.mapped.fields["train_freq"] == 256
    assert found.mapped.fields["updates_per_step"] == 0.5
    assert found.mapped.fields["epsilon"] == {"start": 1.0, "end": 0.04, "to": 0.16}
    assert not found.mapped.unmapped


def test_cleanrls_script_is_parsed_not_run(tmp_path: Path) -> None:
    """The result is the config that docs/coming-from.md derives by hand."""
    found = translated(tmp_path, "ppo.py", CLEANRL)
    expected = {
        "n_envs": 4,
        "n_steps": 128,
        "batch_size": 0.25,
        "n_epochs": 4,
        "max_env_steps": 500000,
        "policy_lr": "lin_0.00025",
        "clip_range": 0.2,
        "clip_range_vf": 0.2,
        "vf_coef": 0.25,
        "ent_coef": 0.01,
        "normalize_advantages": "batch",
        "max_grad_norm": 0.5,
        "target_kl": None,
        "hidden_dims": [64, 64],
        "activation": "tanh",
        "share_trunk": False,
        "normalize_obs": False,
        "normalize_reward": False,
        "log_std_init": 0.0,
        "optimizer": "adam",
        "adam_eps": 1e-5,
    }
    assert found.mapped.fields == expected
    assert not found.mapped.unmapped


# What SB3 2.9 and CleanRL do where a file says nothing, read from their sources.
OMITTED: dict[str, dict[str, Any]] = {
    "dqn": {"policy_lr": 1e-4, "batch_size": 32, "buffer_size": 1_000_000, "learning_starts": 100,
            "target_update_freq": 10_000, "train_freq": 4, "updates_per_step": 0.25, "n_envs": 1,
            "hidden_dims": [64, 64], "activation": "relu", "max_grad_norm": 10.0, "tau": 1.0,
            "epsilon": {"start": 1.0, "end": 0.05, "to": 0.1}, "adam_eps": 1e-8, "loss": "huber"},
    "sac": {"policy_lr": 3e-4, "learning_starts": 100, "batch_size": 256, "tau": 0.005,
            "hidden_dims": [256, 256], "ent_coef": "auto", "updates_per_step": 1.0, "n_envs": 1,
            "max_grad_norm": None, "critic_lr": None},
    "td3": {"policy_lr": 1e-3, "learning_starts": 100, "hidden_dims": [400, 300],
            "exploration_noise": 0.0, "policy_delay": 2, "target_noise": 0.2},
    "ddpg": {"policy_lr": 1e-3, "critic_lr": None, "hidden_dims": [400, 300],
             "exploration_noise": 0.0},
    "ppo": {"policy_lr": 3e-4, "n_steps": 2048, "batch_size": 64, "n_epochs": 10, "vf_coef": 0.5,
            "gae_lambda": 0.95, "clip_range": 0.2, "ent_coef": 0.0, "adam_eps": 1e-5, "n_envs": 1,
            "normalize_advantages": "batch", "share_trunk": False, "normalize_reward": False},
    "a2c": {"policy_lr": 7e-4, "rollout_steps": 5, "gae_lambda": 1.0, "optimizer": "rmsprop",
            "adam_eps": 1e-5, "normalize_advantages": "off", "n_envs": 1},
}  # fmt: skip


@pytest.mark.parametrize("algo", OMITTED)
def test_what_a_zoo_entry_omits_is_written_out(tmp_path: Path, algo: str) -> None:
    env_id = "CartPole-v1" if algo in ("dqn", "ppo", "a2c") else "Pendulum-v1"
    text = f"{env_id}:\n  n_timesteps: 20000\n  policy: MlpPolicy\n"
    found = translated(tmp_path, f"{algo}.yml", text).mapped
    expected = OMITTED[algo] | {"normalize_obs": False, "max_env_steps": 20000}
    assert {name: found.fields.get(name, "nothing") for name in expected} == expected
    assert not found.unmapped


def test_an_initialisation_that_differs_is_named(tmp_path: Path) -> None:
    text = 'A-v0:\n  n_timesteps: 10\n  policy_kwargs: "dict(ortho_init=False)"\n'
    found = translated(tmp_path, "ppo.yml", text).mapped
    assert found.fields["init"] == "uniform"
    assert "policy_kwargs.ortho_init" in found.unmapped


CLEANRL_DQN = """
class Args:
    env_id: str = "CartPole-v1"
    total_timesteps: int = 500000
    learning_rate: float = 2.5e-4
    num_envs: int = 1
    buffer_size: int = int(1e4)
    tau: float = 1.0
    target_network_frequency: int = 500
    batch_size: int = 128
    start_e: float = 1
    end_e: float = 0.05
    exploration_fraction: float = 0.5
    learning_starts: int = 1e4
    train_frequency: int = 10
class QNetwork(nn.Module):
    def __init__(self, env):
        self.network = nn.Sequential(
            nn.Linear(np.array(shape).prod(), 120), nn.ReLU(),
            nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, env.single_action_space.n))
loss = F.mse_loss(td_target, old_val)
optimizer = optim.Adam(q_network.parameters(), lr=args.learning_rate)
"""
CLEANRL_SAC = """
class Args:
    env_id: str = "Pendulum-v1"
    total_timesteps: int = 1000000
    policy_lr: float = 3e-4
    q_lr: float = 1e-3
    policy_frequency: int = 2
    target_network_frequency: int = 1
    alpha: float = 0.2
    autotune: bool = True
"""
CLEANRL_WRAPPERS = """
def make_env():
    env = gym.wrappers.NormalizeObservation(env)
    env = gym.wrappers.NormalizeReward(env, gamma=gamma)
"""


def test_a_script_is_recognised_and_its_code_read(tmp_path: Path) -> None:
    arguments = ["--learning-rate", "5e-4", "--num_envs=2"]
    found = translated(tmp_path, "mine.py", CLEANRL_DQN, arguments=arguments)
    fields = found.mapped.fields
    assert found.algo_id == "dqn"
    assert (fields["policy_lr"], fields["n_envs"], fields["buffer_size"]) == (5e-4, 2, 1e4)
    assert (fields["hidden_dims"], fields["activation"]) == ([120, 84], "relu")
    assert (fields["loss"], fields["max_grad_norm"], fields["adam_eps"]) == ("mse", None, 1e-8)
    assert fields["normalize_obs"] is False
    with pytest.raises(ConfigError, match="learning_rate"):
        translated(tmp_path, "mine.py", CLEANRL_DQN, arguments=["--learning-rates", "1"])
    found = translated(tmp_path, "mine.py", CLEANRL_SAC)
    assert found.algo_id == "sac"
    assert (found.mapped.fields["policy_delay"], found.mapped.fields["alpha_lr"]) == (1, 1e-3)
    assert "policy_frequency" in found.mapped.unmapped
    found = translated(tmp_path, "mine.py", CLEANRL + CLEANRL_WRAPPERS)
    assert found.algo_id == "ppo"
    assert found.mapped.fields["normalize_obs"] == "rolling"
    assert found.mapped.fields["normalize_reward"] is True
    arguments = ["--no-anneal-lr"]
    assert translated(tmp_path, "x.py", CLEANRL, arguments=arguments).mapped.fields[
        "policy_lr"
    ] == pytest.approx(2.5e-4)


def test_slm_labs_specs(tmp_path: Path) -> None:
    found = translated(tmp_path, "spec.json", SLM)
    fields = found.mapped.fields
    assert (found.env_id, found.algo_id, fields["n_steps"]) == ("CartPole-v1", "ppo", 32)
    assert (fields["policy_lr"], fields["hidden_dims"]) == ("lin_0.01", [64, 64])
    assert found.mapped.unmapped.keys() == {"net.init_fn", "meta"}


def test_the_verb_writes_a_config_that_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ppo.yml").write_text(ZOO)
    out = tmp_path / "mine.yaml"
    words = ["import-config", str(tmp_path / "ppo.yml"), "--out", str(out)]
    assert main(words) == 2
    assert "2 environments" in capsys.readouterr().err
    assert main([*words, "--env-id", "CartPole-v1"]) == 0
    assert gs.load_config(f"{out}:ppo").n_envs == 8
    capsys.readouterr()
    for name, text in (("x.json", "{"), ("y.py", "x = 1"), ("what.yml", "CartPole-v1: {n: 1}")):
        (tmp_path / name).write_text(text)
        assert main(["import-config", str(tmp_path / name)]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


# -- images -----------------------------------------------------------------------------------

KERNELS = ((6, 4, 8), (5, 6, 4), (4, 5, 3))  # channels out, channels in, size; strides 4, 2, 1


def kernels(names: list[str]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for (out, n_in, size), name in zip(KERNELS, names, strict=True):
        weight = 3 * RNG.normal(size=(out, n_in, size, size)) / (n_in * size * size) ** 0.5
        found |= {f"{name}.weight": torch.tensor(weight).float(), f"{name}.bias": torch.zeros(out)}
    return found


def seen_by(tensors: dict[str, torch.Tensor], names: list[str], obs: np.ndarray) -> torch.Tensor:
    """The convolutions in plain torch: pixels from 0 to 1, ReLU after each."""
    x = torch.tensor(obs).float() / 255
    for name, stride in zip(names, (4, 2, 1), strict=True):
        weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        x = torch.relu(torch.nn.functional.conv2d(x, weight, bias, stride))
    return x.flatten(1)


def expected_actions(
    tensors: dict[str, torch.Tensor], names: list[str], linear: str, out: str, obs: np.ndarray
) -> tuple[np.ndarray, torch.Tensor]:
    """Greedy actions and features. The bias of the output layer is set so that every action is the
    best one of some frames."""
    x = seen_by(tensors, names, obs)
    x = torch.relu(x @ tensors[f"{linear}.weight"].T + tensors[f"{linear}.bias"])
    y = x @ tensors[f"{out}.weight"].T
    tensors[f"{out}.bias"] = -y.mean(dim=0)
    best = (y + tensors[f"{out}.bias"]).argmax(1).numpy()
    assert len(set(best.tolist())) > 2
    return best, x


def frames(n: int = 40) -> np.ndarray:
    """Large squares: noise of single pixels would look alike to convolutions."""
    coarse = RNG.integers(0, 256, size=(n, 4, 6, 6)).astype(np.uint8)
    return np.kron(coarse, np.ones((1, 1, 14, 14), np.uint8))


def image_policy(algo: str) -> tuple[str, dict[str, torch.Tensor]]:
    """A CnnPolicy as SB3 has it for Pong: 4 frames of 84 x 84, 6 actions."""
    head = "q_net.features_extractor" if algo == "dqn" else "features_extractor"
    tensors = kernels([f"{head}.cnn.{i}" for i in (0, 2, 4)])
    n_flat = 4 * 7 * 7
    tensors |= named(dense([n_flat, 16]), f"{head}.linear.0")
    if algo == "dqn":
        tensors |= named(dense([16, 6]), "q_net.q_net.0")
        module = "stable_baselines3.dqn.policies"
    else:
        for who in ("pi", "vf"):
            tensors |= {f"{who}_{k}": v for k, v in tensors.items() if k.startswith(head)}
        tensors |= named(dense([16, 6]), "action_net") | named(dense([16, 1]), "value_net")
        module = "stable_baselines3.common.policies"
    return module, tensors


@pytest.mark.parametrize("algo", ["ppo", "a2c", "dqn"])
def test_a_policy_of_images_of_sb3_acts_the_same(algo: str, tmp_path: Path) -> None:
    clipped = {"clip_range": 0.1} if algo == "ppo" else {}
    module, tensors = image_policy(algo)
    head = "q_net.features_extractor" if algo == "dqn" else "features_extractor"
    obs, names = frames(), [f"{head}.cnn.{i}" for i in (0, 2, 4)]
    out = "q_net.q_net.0" if algo == "dqn" else "action_net"
    expected, x = expected_actions(tensors, names, f"{head}.linear.0", out, obs)
    path = write_zip(tmp_path / "Pong.zip", module, tensors, n_steps=8, **clipped)
    model = read_sb3(path)
    assert model.algo_id == algo
    run, mapped = import_model(model, "ALE/Pong-v5", tmp_path, source=path.name, episodes=None)
    if algo == "a2c":
        assert mapped.fields["rollout_steps"] == 8
    agent = gs.load(run)
    assert (agent.act(obs, as_trained=True) == expected).mean() > 0.95  # rounding decides ties
    if algo != "dqn":
        value = (x @ tensors["value_net.weight"].T + tensors["value_net.bias"])[:, 0]
        net: Any = agent.net
        ours = net.value(torch.tensor(obs)).detach()
        torch.testing.assert_close(ours, value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("script", ["ppo_atari", "dqn_atari"])
def test_a_policy_of_images_of_cleanrl_acts_the_same(script: str, tmp_path: Path) -> None:
    names = [f"network.{i}" for i in (0, 2, 4)]
    tensors = kernels(names) | named(dense([4 * 7 * 7, 16]), "network.7")
    if script == "ppo_atari":
        tensors |= named(dense([16, 6]), "actor") | named(dense([16, 1]), "critic")
        out = "actor"
    else:
        tensors |= named(dense([16, 6]), "network.9")
        out = "network.9"
    path, obs = tmp_path / f"{script}.cleanrl_model", frames()
    expected, _ = expected_actions(tensors, names, "network.7", out, obs)
    torch.save(tensors, path)
    agent = imported(read_cleanrl(path), "ALE/Pong-v5", tmp_path)
    assert (agent.act(obs, as_trained=True) == expected).mean() > 0.95


def test_networks_of_images_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    (module, tensors), path = image_policy("ppo"), tmp_path / "model.zip"
    tensors["features_extractor.cnn.2.weight"] = torch.zeros(5, 6, 3, 3)
    other = write_zip(path, module, tensors, clip_range=0.1)
    with pytest.raises(RunError, match="NatureCNN"):
        import_model(read_sb3(other), "ALE/Pong-v5", tmp_path, source="x", episodes=None)
    tensors |= named(dense([16, 8]), "mlp_extractor.policy_net.0")
    with pytest.raises(RunError, match="further layers"):
        read_sb3(write_zip(path, module, tensors, clip_range=0.1))
    images = {k.replace("features_extractor", "actor.features_extractor"): v
              for k, v in tensors.items()}  # fmt: skip
    with pytest.raises(RunError, match="only MLPs"):
        read_sb3(write_zip(path, "stable_baselines3.sac.policies", images))


# -- the real Stable-Baselines3 ---------------------------------------------------------------

TRAIN = """
import sys, json, numpy as np, gymnasium
import stable_baselines3 as sb3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
algo, env_id, folder = sys.argv[1:]
env = DummyVecEnv([lambda: gymnasium.make(env_id)])
if algo == "A2C": env = VecNormalize(env, clip_obs=5.0)
arch = {"policy_kwargs": {"net_arch": [32, 16]}}
if algo == "PPO": arch["n_steps"] = 256
model = getattr(sb3, algo)("MlpPolicy", env, seed=1, **arch)
model.learn(600)
model.save(folder + "/model.zip")
if algo == "A2C": env.save(folder + "/vec_normalize.pkl")
obs = np.stack([model.observation_space.sample() for _ in range(1000)])
obs = np.clip(obs, -10, 10)
seen = env.normalize_obs(obs) if algo == "A2C" else obs
np.savez(folder + "/acts.npz", obs=obs, actions=model.predict(seen, deterministic=True)[0])
"""
IMAGES = """
import sys, numpy as np, gymnasium
import stable_baselines3 as sb3
algo, share, folder = sys.argv[1], sys.argv[2] == "shared", sys.argv[3]
class Frames(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), float(action == 2), False, False, {}
options = {"PPO": {"n_steps": 16, "batch_size": 16}, "DQN": {"buffer_size": 100}}.get(algo, {})
if not share: options["policy_kwargs"] = {"share_features_extractor": False}
model = getattr(sb3, algo)("CnnPolicy", Frames(), seed=1, **options)
model.learn(32)
model.save(folder + "/model.zip")
obs = np.stack([model.observation_space.sample() for _ in range(200)])
np.savez(folder + "/acts.npz", obs=obs, actions=model.predict(obs, deterministic=True)[0])
"""
PEERS = Path(__file__).parents[2] / ".venv-peers/bin/python"  # by `make peers`
PYTHONS = (os.environ.get("GSOLVE_SB3_PYTHON", ""), str(PEERS))


def sb3_python(tmp_path: Path) -> str:
    """A Python with SB3: named, at hand, or made here for this test."""
    for python in filter(None, PYTHONS):
        if Path(python).exists():
            return python
    venv = tmp_path / "sb3"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    python = str(venv / "bin" / "python")
    command = [python, "-m", "pip", "install", "-q", "stable-baselines3>=2.7"]
    if subprocess.run(command, check=False).returncode:
        pytest.skip("Stable-Baselines3 cannot be installed here")
    return python


@pytest.mark.services
@pytest.mark.parametrize(
    ("algo", "env_id"),
    [
        *(("PPO", "CartPole-v1"), ("PPO", "Pendulum-v1"), ("A2C", "Pendulum-v1")),
        *(("DQN", "CartPole-v1"), ("SAC", "Pendulum-v1"), ("TD3", "Pendulum-v1")),
        ("DDPG", "Pendulum-v1"),
    ],
)
def test_models_trained_by_sb3(algo: str, env_id: str, tmp_path: Path) -> None:
    python = sb3_python(tmp_path)
    subprocess.run([python, "-c", TRAIN, algo, env_id, str(tmp_path)], check=True)
    statistics = tmp_path / "vec_normalize.pkl"
    model = read_sb3(tmp_path / "model.zip", statistics if statistics.exists() else None)
    run, _ = import_model(model, env_id, tmp_path, source="model.zip", episodes=5)
    acts = np.load(tmp_path / "acts.npz")
    ours = gs.load(run).act(acts["obs"])
    if ours.dtype.kind == "f":
        np.testing.assert_allclose(ours, acts["actions"], atol=1e-4)
    else:
        assert (ours == acts["actions"]).mean() >= 0.999


@pytest.mark.services
@pytest.mark.parametrize(
    ("algo", "share"), [("PPO", "shared"), ("PPO", "own"), ("A2C", "shared"), ("DQN", "shared")]
)
def test_policies_of_images_made_by_sb3(algo: str, share: str, tmp_path: Path) -> None:
    python = sb3_python(tmp_path)
    subprocess.run([python, "-c", IMAGES, algo, share, str(tmp_path)], check=True)
    model = read_sb3(tmp_path / "model.zip")
    assert model.algo_id == algo.lower()
    run, _ = import_model(model, "ALE/Pong-v5", tmp_path, source="model.zip", episodes=None)
    acts = np.load(tmp_path / "acts.npz")
    ours = gs.load(run).act(acts["obs"], as_trained=True)
    assert (ours == acts["actions"]).mean() >= 0.99


# Entries of the zoo, and the returns of the last fifth of a training that both sides must share.
ENTRIES = {
    "ppo CartPole-v1": "{n_envs: 8, n_timesteps: 40000, n_steps: 32, batch_size: 256, gamma: 0.98, "
    "gae_lambda: 0.8, n_epochs: 20, learning_rate: lin_0.001, clip_range: lin_0.2}",
    "a2c CartPole-v1": "{n_envs: 8, n_timesteps: 60000}",
    "dqn CartPole-v1": "{n_timesteps: 30000, learning_rate: 0.0023, batch_size: 64, "
    "buffer_size: 100000, learning_starts: 1000, target_update_interval: 10, train_freq: 256, "
    "gradient_steps: 128, exploration_fraction: 0.16, exploration_final_eps: 0.04}",
    "sac Pendulum-v1": "{n_timesteps: 6000, learning_rate: 0.001}",
    "td3 Pendulum-v1": "{n_timesteps: 8000, gamma: 0.98, learning_starts: 2000, noise_std: 0.1, "
    "noise_type: normal}",
}
RANGES = {"CartPole-v1": 500.0, "Pendulum-v1": 1300.0}
WITH_SB3 = """
import sys, json, numpy as np, stable_baselines3 as sb3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
algo, env_id, seed, fields = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
steps = fields.pop("n_timesteps")
env = make_vec_env(env_id, fields.pop("n_envs", 1), seed=seed)
if fields.pop("noise_type", None):
    n = env.action_space.shape[0]
    fields["action_noise"] = NormalActionNoise(np.zeros(n), fields.pop("noise_std") * np.ones(n))
for name, value in fields.items():
    if str(value).startswith("lin_"):
        start = float(value[4:])
        fields[name] = lambda left, start=start: start * left
model = getattr(sb3, algo.upper())("MlpPolicy", env, seed=seed, device="cpu", **fields)
found = []
class Watch(sb3.common.callbacks.BaseCallback):
    def _on_step(self):
        for info in self.locals["infos"]:
            if "episode" in info:
                found.append((self.num_timesteps, info["episode"]["r"]))
        return True
model.learn(steps, callback=Watch())
print(json.dumps([[int(t), float(r)] for t, r in found]))
"""


@pytest.mark.learning
@pytest.mark.parametrize("entry", ENTRIES)
def test_an_imported_entry_learns_as_in_sb3(entry: str, tmp_path: Path) -> None:
    python = sb3_python(tmp_path)
    algo, env_id = entry.split()
    found = translated(tmp_path, f"{algo}.yml", f"{env_id}: {ENTRIES[entry]}")
    fields = parse_yaml(ENTRIES[entry], "entry")
    ours, theirs = [], []
    for seed in (1, 2, 3):
        settings = {**found.data()[algo], "seed": seed, "early_stop_on_eval_threshold": False}
        metric = "train/roll/ep_rew/mean"
        if env_id == "Pendulum-v1":  # a row for each episode: the mean is one of up to 100 episodes
            settings["n_steps"], metric = 200, "train/roll/ep_rew/last"
        run = gs.train(env_id, algo_id=algo, runs_dir=tmp_path, **settings)
        rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        last = 0.8 * settings["max_env_steps"]
        means = [row.get(metric) for row in rows if row["env_steps"] > last]
        ours.append(np.mean([mean for mean in means if mean is not None]))
        command = [python, "-c", WITH_SB3, algo, env_id, str(seed), json.dumps(fields)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        episodes = json.loads(done.stdout.splitlines()[-1])
        theirs.append(np.mean([r for t, r in episodes if t > last]))
    assert abs(np.mean(ours) - np.mean(theirs)) < 0.2 * RANGES[env_id], (ours, theirs)
