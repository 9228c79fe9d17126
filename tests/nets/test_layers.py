"""Layers listed one by one in a config: what is built, learning, exact resume, mistakes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.cli.main import main
from gymnasium_solver.config.layer_list import read_graph, read_layers
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.optimizer import Ema, FlatOptimizer, Group
from gymnasium_solver.nets.layers import BatchNorm, Dropout, Graph, Noisy, SimNorm, dense_layers
from gymnasium_solver.training import loop
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.prepare import build_config
from tests.acting import generator

ALL: list[Any] = [
    {"linear": 16},
    "layer_norm",
    "silu",
    {"residual": [{"linear": 16, "norm": "weight"}, "relu"]},
    {"dropout": 0.1},
    {"linear": 16, "norm": "spectral"},
    {"simnorm": 8},
    "rms_norm",
    {"noisy": 16},
    "batch_norm",
    {"batch_renorm": 3},
]
SMALL: dict[str, Any] = {
    "seed": 3, "n_envs": 4, "n_steps": 32, "eval_freq_epochs": None, "test_episodes": 2,
}  # fmt: skip


def test_what_is_built() -> None:
    module, width = dense_layers(read_layers(ALL), 5, generator())
    assert width == 16
    kinds = [type(part).__name__ for part in module]
    assert kinds[1:3] == ["LayerNorm", "SiLU"]
    assert kinds[-3:] == ["Noisy", "BatchNorm", "BatchNorm"]
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


def test_noise_comes_with_gradients_only_and_repeats_itself() -> None:
    x = torch.randn(5, 4)
    first, second = (Noisy(4, 3, 0.5, generator()) for _ in range(2))
    with torch.no_grad():
        plain = torch.nn.functional.linear(x, first.weight, first.bias)
        assert torch.equal(first(x), plain)
    a, b = first(x), first(x)
    assert not torch.equal(a, plain)
    assert not torch.equal(a, b)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x)), "a resumed layer draws what the first would have"
    (first(x) + first(x)).sum().backward()  # twice in one loss
    assert first.weight_sigma.grad is not None


def test_batch_norm_learns_its_statistics_and_a_target_network_has_them() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), BatchNorm(3))
    optimizer = FlatOptimizer([Group("net", net, ema=Ema(0.5))])
    target = optimizer.targets["net"].module
    x = 5 + 3 * torch.randn(400, 4, generator=generator())
    for _ in range(400):
        y = net(x)
        optimizer.step(torch.zeros_like(optimizer.flat), 0.0)
    torch.testing.assert_close(y.detach().mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(y.detach().std(0), torch.ones(3), atol=0.01, rtol=0)
    with torch.no_grad():  # by running statistics
        torch.testing.assert_close(net(x), y.detach(), atol=0.1, rtol=0)
        assert torch.equal(net(x), target(x))


def test_batch_renorm_sees_in_updates_what_acting_sees() -> None:
    layer = BatchNorm(3, warmup=50)
    for step in range(200):
        layer(torch.randn(64, 3, generator=torch.Generator().manual_seed(step)))
    shifted = torch.randn(64, 3) + 1.0
    with torch.no_grad():
        acting = layer(shifted)
    torch.testing.assert_close(layer(shifted).detach(), acting, atol=1e-4, rtol=1e-4)
    assert float(BatchNorm(3)(shifted).detach().mean().abs()) < 1e-4, "batch norm does not"


GRAPH: dict[str, Any] = {
    "a": {"of": "signal", "layers": [{"linear": 8}, "tanh"]},
    "b": {"of": "noise", "layers": [{"linear": 8}]},
    "both": {"add": ["a", "b"], "layers": ["layer_norm"]},
    "all": {"concat": ["both", "kind", "a"], "layers": [{"linear": 12}, "relu"]},
}


def test_a_graph_computes_what_its_nodes_say() -> None:
    nodes = read_graph(GRAPH)
    graph = Graph(nodes, {"signal": 1, "noise": 4, "kind": 3}, {}, generator())
    parts = {"signal": torch.randn(6, 1), "noise": torch.randn(6, 4), "kind": torch.randn(6, 3)}
    a, b, norm, last = graph.nodes
    one = a(parts["signal"])
    both = norm(one + b(parts["noise"]))
    wanted = last(torch.cat([both, parts["kind"], one], dim=1))
    assert torch.equal(graph(parts), wanted)
    assert graph.width == 12
    assert read_graph(nodes) == nodes, "what is saved is read again"


@pytest.mark.parametrize("algo_id", ["ppo", "dqn"])
def test_a_graph_learns(algo_id: str, tmp_path: Path) -> None:
    fields = SMALL | {"env_id": "Probe/DictObs-v0", "algo_id": algo_id, "layers": GRAPH}
    fields |= {"max_env_steps": 3000, "policy_lr": 0.01, "batch_size": 64}
    run = loop.train(build_config(fields), runs_root=tmp_path)
    agent = load_agent(str(run.path) + "/@last")
    quiet = {"kind": 1, "noise": np.zeros(4, np.float32)}
    seen = [{**quiet, "signal": np.array([s], np.float32)} for s in (-1.0, 1.0)]
    assert [agent.act(obs) for obs in seen] == [0, 1]


def test_a_graph_on_an_image(tmp_path: Path) -> None:
    conv = {"conv": 4, "kernel": 3, "stride": 2, "dilation": 2}
    graph = {"see": {"of": "obs", "layers": [conv, "relu", {"linear": 8}]}, "end": {"of": "see"}}
    fields = SMALL | {"env_id": "Probe/Image-v0", "env_kwargs": {"shape": [2, 12, 12]}}
    config = build_config(fields | {"algo_id": "ppo", "layers": graph, "max_epochs": 1})
    run = loop.train(config, runs_root=tmp_path)
    net: Any = load_agent(str(run.path) + "/@last").net
    assert net.actor_features.graph.nodes[0][0].dilation == (2, 2)
    assert net.actor_features.width == 8


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
        ([{"noisy": 4, "sigma": 0}], "sigma of noisy must be a number > 0"),
        ({}, "at least one node"),
        ({"a": 3}, "node a: expected {of"),
        ({"a": {"of": "x", "add": ["x", "y"]}}, "node a: expected {of"),
        ({"a": {"of": "x", "width": 3}}, "node a: .*not width"),
        ({"a": {"add": ["x"]}}, "two inputs or more"),
        ({"a": {"of": ["x"]}}, "of takes a name"),
        ({"a": {"of": "b"}, "b": {"of": "obs"}}, "takes b, which comes after it"),
        ({"a": {"of": "obs"}, "b": {"of": "obs"}}, "node a: nothing takes it"),
        ({"a": {"of": "obs", "layers": ["x"]}}, "node a: layer 1: unknown layer"),
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
        ({"a": {"of": "obz"}}, "'obz', which is not there. Did you mean obs"),
        ({"a": {"of": "obs", "layers": [{"conv": 8}]}}, "convolutions take one image"),
        (
            {"a": {"of": "obs", "layers": [{"linear": 3}]}, "b": {"add": ["a", "obs"]}},
            "different widths: a 3, obs 4",
        ),
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
