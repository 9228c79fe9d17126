"""The plugins that docs/plugins.md shows are trained as they stand on the page."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import gymnasium_solver as gs
from gymnasium_solver import registry
from gymnasium_solver.config.find import read_config_file
from gymnasium_solver.envs import wrappers
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.plugins import import_plugins
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import load_checkpoint

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
BLOCK = re.compile(r"^```(?:python|yaml)\n(# ([\w./]+)\n.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = {name: content for content, name in BLOCK.findall(PAGE.read_text(encoding="utf-8"))}
CONFIGS = [name for name in FILES if name.endswith(".yaml")]
REGISTRIES = (registry.algorithms, registry.networks, registry.heads, registry.observers)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with the page's files; what they register is forgotten afterwards."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for one in REGISTRIES:
        monkeypatch.setattr(one, "items", dict(one.items))
    known = set(gymnasium.registry)
    monkeypatch.setattr(wrappers, "registered", dict(wrappers.registered))
    yield tmp_path
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)
    for env_id in set(gymnasium.registry) - known:
        del gymnasium.registry[env_id]


def train(name: str, **fields: Any) -> query.RunSummary:
    """A run of a few hundred steps of the page's config."""
    (variant,) = read_config_file(Path(name)).variants
    settings = {"max_env_steps": 600, "n_envs": 2, "eval_episodes": 2, "test_episodes": 2}
    run = gs.train(
        f"{Path(name).stem}:{variant}", runs_dir="runs", **{"seed": 1, **settings, **fields}
    )
    return query.get_run(run.path.name, Path("runs"))


def test_the_page_has_an_example_of_each() -> None:
    text = "".join(FILES.values())
    for kind in ("algorithm", "network", "head", "wrapper", "env", "observer"):
        assert f"@gs.register_{kind}(" in text
    assert len(CONFIGS) == 6


@pytest.mark.parametrize("name", CONFIGS)
def test_the_example_trains(name: str) -> None:
    summary = train(name)
    assert summary.status == "finished"
    assert 500 < summary.env_steps <= 600


def test_the_algorithm_learns_and_can_be_loaded() -> None:
    train("configs/PlainGradient.yaml", max_env_steps=20_480, n_envs=8)
    curve = query.get_metrics("@last", ["train/roll/ep_rew/mean"], Path("runs"))
    returns = [value for _, value in curve["train/roll/ep_rew/mean"] if value is not None]
    assert max(returns) > 2 * returns[0]


def test_state_in_attributes_of_a_plugin_is_resumed(caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {"max_env_steps": 4_000, "n_envs": 2, "seed": 1}
    settings |= {"eval_episodes": 2, "test_episodes": 2}

    def stop(row: dict[str, Any]) -> bool:
        return bool(row["env_steps"] > 1_500)

    target = "CrossEntropy:cross_entropy"
    whole = gs.train(target, runs_dir="whole", **settings)
    cut = gs.train(target, runs_dir="cut", on_epoch=stop, **settings)
    assert cut.meta()["stop_reason"] == "requested"
    gs.resume(cut, runs_dir="cut")
    weights = [(r.checkpoints_dir / "last/model.safetensors").read_bytes() for r in (whole, cut)]
    assert weights[0] == weights[1]
    assert not caplog.records
    # Candidates act in training; what is evaluated and saved is the mean.
    tensors = load_checkpoint(whole.checkpoints_dir / "last").tensors
    model, own = tensors["model"], tensors["attributes"]
    names = [name for name, _ in whole.agent("@last").net.named_parameters()]
    net = np.concatenate([np.ravel(model[name]) for name in names])
    np.testing.assert_allclose(net, own["mean"], rtol=1e-6)
    assert not np.allclose(own["candidate"], own["mean"], rtol=0.1)


def test_the_observer_stops_the_run() -> None:
    summary = train("configs/StopWhenLong.yaml", max_env_steps=100_000, n_envs=8)
    assert summary.env_steps < 50_000
    assert summary.stop_reason == "requested"


def test_a_plugin_named_on_the_command_line_is_imported_first() -> None:
    config = gs.load_config(
        "CartPole-v1:plain_gradient", overrides={"plugins": "plain_gradient", "baseline": False}
    )
    assert (config.algo_id, config.env_id) == ("plain_gradient", "CartPole-v1")


# -- names ----------------------------------------------------------------------------------------


def test_names_that_are_taken_or_unknown() -> None:
    import_plugins(["residual_net", "stop_when_long", "coin_env", "plain_gradient"])
    import_plugins(["residual_net"])  # a second time is nothing
    taken: list[tuple[Any, str]] = [
        (gs.register_network, "residual"),
        (gs.register_network, "mlp"),
        (gs.register_head, "linear"),
        (gs.register_observer, "stop_when_long"),
        (gs.register_algorithm, "ppo"),
    ]
    for register, name in taken:
        other = type("Other", (), {"Config": registry.algorithms.get("ppo").Config})
        with pytest.raises(ConfigError, match=f"named '{name}' exists already"):
            register(name)(other)
    with pytest.raises(ConfigError, match="an environment named 'Coin-v0' exists already"):
        gs.register_env("Coin-v0")(gymnasium.Env)
    no_config: Any = type("Other", (), {})
    with pytest.raises(ConfigError, match=r"Other\.Config must be a class that derives from"):
        gs.register_algorithm("other")(no_config)
    with pytest.raises(ConfigError, match="a network cannot be named 'my torso'"):
        gs.register_network("my torso")
    for fields, message in (
        ({"policy": "residul"}, "unknown network 'residul'.* Did you mean residual?"),
        ({"observers": ["stop_when_short"]}, "unknown observer .* Did you mean stop_when_long?"),
        ({"algo_id": "plain_gradien"}, "unknown algorithm .* Did you mean plain_gradient?"),
        ({"head": "two_layer"}, "unknown head 'two_layer'.* Did you mean two_layers?"),
    ):
        with pytest.raises(ConfigError, match=message):
            gs.load_config("CartPole-v1:ppo", overrides=fields)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nothing_like_it", "plugins: cannot import 'broken': No module named"),
        ("x = 1 / 0", r"importing 'broken' failed: ZeroDivisionError.*broken.py, line 1"),
        ("def f(:", r"plugins: 'broken' is not valid Python: .*broken.py, line 1"),
        (
            "import gymnasium_solver as gs\ngs.register_head('linear')(object)",
            "plugins: broken: a head named 'linear' exists already",
        ),
    ],
)
def test_a_plugin_that_fails_is_one_line(code: str, message: str) -> None:
    Path("broken.py").write_text(code, encoding="utf-8")
    sys.modules.pop("broken", None)
    with pytest.raises(ConfigError, match=message):
        import_plugins(["broken"])
