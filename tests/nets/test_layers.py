"""Layers listed one by one in a config: what is built, learning, exact resume, mistakes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.cli.main import main
from gymnasium_solver.config.layer_list import read_layers
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.layers import Dropout, SimNorm, dense_layers
from gymnasium_solver.training import loop
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.prepare import build_config

ALL: list[Any] = [
    {"linear": 16},
    "layer_norm",
    "silu",
    {"residual": [{"linear": 16, "norm": "weight"}, "relu"]},
    {"dropout": 0.1},
    {"linear": 16, "norm": "spectral"},
    {"simnorm": 8},
    "rms_norm",
]
SMALL: dict[str, Any] = {
    "seed": 3, "n_envs": 4, "n_steps": 32, "eval_freq_epochs": None, "test_episodes": 2,
}  # fmt: skip


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_what_is_built() -> None:
    module, width = dense_layers(read_layers(ALL), 5, generator())
    assert width == 16
    kinds = [type(part).__name__ for part in module]
    assert kinds[1:3] == ["LayerNorm", "SiLU"]
    out = module(torch.randn(7, 5))
    assert out.shape == (7, 16)
    x = torch.randn(3, 16)
    grouped = SimNorm(8)(x).view(3, 2, 8)
    torch.testing.assert_close(grouped.sum(-1), torch.ones(3, 2))
    torch.testing.assert_close(grouped[:, 0], torch.softmax(x[:, :8], dim=1))
    residual: Any = module[3]
    torch.testing.assert_close(residual(x), x + residual.layers(x))
    spectral: Any = module[5]
    for _ in range(50):
        spectral(x)
    assert float(torch.linalg.matrix_norm(spectral.weight.detach(), 2)) == pytest.approx(
        1.0, abs=0.02
    )


def test_dropout_drops_only_while_learning_and_repeats_itself() -> None:
    x = torch.ones(2000, 10)
    first, second = Dropout(0.3, generator()), Dropout(0.3, generator())
    with torch.no_grad():
        assert (first(x) == x).all()
    a = first(x)
    assert float((a == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    assert float(a.mean()) == pytest.approx(1.0, abs=0.02)
    assert not (first(x) == a).all()
    second.load_state_dict({"uses": torch.tensor(0)})
    assert (second(x) == a).all()


def test_listed_layers_learn(tmp_path: Path) -> None:
    layers = [{"linear": 16}, "layer_norm", "mish", {"residual": [{"linear": 16}, "relu"]}]
    fields = SMALL | {"env_id": "Probe/ObsActionReward-v0", "algo_id": "ppo", "layers": layers}
    fields |= {"max_env_steps": 4000, "policy_lr": 0.01, "batch_size": 64}
    run = loop.train(build_config(fields), runs_root=tmp_path)
    agent = load_agent(str(run.path) + "/@last")
    assert [agent.act(np.array([obs], np.float32)) for obs in (-1.0, 1.0)] == [0, 1]


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([{"liner": 4}], "layer 1: unknown layer 'liner'. Did you mean linear"),
        ([{"linear": 0}], "width of linear must be a whole number >= 1"),
        (["linear"], "linear needs a value"),
        ([{"linear": 4, "bias": 3}], "no option 'bias'"),
        ([{"linear": 4}, {"conv": 3}], "convolutions come first"),
        ([{"dropout": 1.5}], "a share from 0"),
        ("relu", "expected a list"),
    ],
)
def test_mistakes(layers: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        build_config(SMALL | {"env_id": "CartPole-v1", "algo_id": "ppo", "layers": layers})


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([{"linear": 6}, {"simnorm": 4}], "does not divide 6"),
        ([{"linear": 6}, {"residual": [{"linear": 5}]}], "must keep its width 6"),
        ([{"conv": 8}], "shows none"),
    ],
)
def test_layers_that_do_not_fit(layers: Any, why: str, capsys: Any) -> None:
    assert main(["net", "CartPole-v1:ppo", "--layers", str(layers)]) == 2
    assert why in capsys.readouterr().err


def test_gsolve_net(capsys: Any, tmp_path: Path) -> None:
    out = tmp_path / "net.svg"
    assert main(["net", "CartPole-v1:ppo", "--hidden-dims", "8", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "actor_torso.0" in text
    n = 2 * (4 * 8 + 8) + (8 * 2 + 2) + (8 + 1)
    assert f"{n:,}" in text
    assert out.read_text().startswith("<svg")
    assert main(["net", "CartPole-v1:ppo", "--hidden-dims", "8", "--json"]) == 0
    assert f'"multiply_adds": {2 * 32 + 16 + 8}' in capsys.readouterr().out
