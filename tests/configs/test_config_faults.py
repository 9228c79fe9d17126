"""Hostile and odd input: every case is an error of one line, at once, and never a traceback."""

import time
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.prepare import build_config, load_config

TOP = "env_id: CartPole-v1\n"
HUGE = "1" + "0" * 5000


def bomb(link: str) -> str:
    """Ten levels of tenfold aliases."""
    first = "_a: &a {x: 1}\n"
    levels = zip("abcdefghij", "bcdefghijk", strict=True)
    lines = (f"_{b}: &{b} " + link.format(", ".join([f"*{a}"] * 10)) + "\n" for a, b in levels)
    return first + "".join(lines)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(text: str, message: str) -> None:
    Path("c.yaml").write_text(text, encoding="utf-8")
    begun_s = time.perf_counter()
    with pytest.raises(ConfigError, match=message) as caught:
        load_config("c.yaml")
    assert time.perf_counter() - begun_s < 20
    assert len(str(caught.value)) < 400
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb("[{}]"), r"c.yaml:\d+: more than 100,000 values, with aliases expanded"),
        (bomb("{{<<: [{}]}}"), r"c.yaml:\d+: more than 100,000 values, with aliases expanded"),
        ("a: &a [*a]\n", r"c.yaml:1: \*a refers to the block that it is in"),
        ("ppo: &p {env_kwargs: *p}\n", r"c.yaml:1: \*p refers to the block that it is in"),
        ("x: " + "[" * 100_000, "c.yaml:1: nested more than 50 levels deep"),
        ("x:\n" + "- " * 5000 + "1", "c.yaml:2: nested more than 50 levels deep"),
        ("".join(" " * i + "a:\n" for i in range(1200)), "c.yaml:51: nested more than 50 levels"),
        ("x: [" + "1," * 600_000 + "]", "c.yaml: the text is longer than 1,000,000 characters"),
        ("x: [" + "1," * 110_000 + "]", "c.yaml:1: more than 100,000 values"),
    ],
)
def test_documents_that_would_hang_or_crash(text: str, message: str) -> None:
    refused(text + "\n" + TOP + "ppo: {}\n", message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("policy_lr: [1, 2]", "policy_lr: got .* expected a number"),
        ("policy_lr: {schedule: [1]}", "`schedule` must be one of constant, .*, not .1."),
        ("policy_lr: {schedule: {a: 1}}", "`schedule` must be one of constant"),
        (
            f"seed: {HUGE}",
            r"c.yaml:2: 1000.*\.\.\. is too large: .* must be below 2\^63",
        ),
        (f"policy_lr: {HUGE}", "c.yaml:2: 1000.* is too large"),
        ("batch_size: 1e30", r"batch_size: got 1e\+30, expected a whole number >= 1"),
        ("quiet: !!bool abc", "c.yaml:2: 'abc' is neither true nor false"),
        ("description: !!timestamp x", "c.yaml:2: could not determine a constructor for the tag"),
        ("seed: !!int x", "c.yaml:2: 'x' is not a whole number"),
        ("plugins: ['.x']", "plugins: '.x' is not a module name"),
        ("policy: mpl", "policy: got 'mpl', unknown network 'mpl'. .* Did you mean mlp?"),
        ("observers: [nope]", "observers: unknown observer 'nope'"),
        (f"project_id: {'A' * 200}", "project_id: got .* expected a name of 1 to 150 printable"),
        ("spec: {action_space: {valid: []}}", "spec.action_space: valid is empty: list at least"),
        ("spec: {action_space: {valid: [-1]}}", "valid has -1: action numbers start at 0"),
        ("spec: {action_space: {valid: [1, 1]}}", "valid has 1 more than once"),
        ("spec: {action_space: {labels: {²: a}}}", "labels has the keys ², expected action number"),
    ],
)
def test_odd_values(line: str, message: str) -> None:
    refused(f"{TOP}ppo: {{{line}}}\n", message)


@pytest.mark.parametrize("value", [[[]] * 2, {"x": {}}])
def test_values_from_python_that_are_nested_too_deep(value: Any) -> None:
    inner = value
    for _ in range(2000):
        inner = [inner]
    for name in ("env_kwargs", "policy_lr", "hidden_dims", "description"):
        with pytest.raises(ConfigError, match=f"{name}: nested more than 50 levels deep"):
            build_config({"env_id": "E-v0", "algo_id": "ppo", name: inner})
    with pytest.raises(ConfigError, match="nested more than 50 levels deep"):
        load_config("CartPole-v1:ppo", overrides={"env_kwargs" + ".a" * 2000: 1})
    for name in ("env_kwargs.x", "env_wrappers.0.x"):
        with pytest.raises(ConfigError, match="nested more than 50 levels deep"):
            load_config("CartPole-v1:ppo", overrides={name: inner})


def test_control_characters_are_not_repeated() -> None:
    for name in ("\x1b[31mred", "a\x07b", "\u202eb"):
        with pytest.raises(ConfigError) as caught:
            build_config({"env_id": "E-v0", "algo_id": "ppo", name: 1})
        assert str(caught.value).replace("\n", "").isprintable()


def test_values_of_flags() -> None:
    assert parse_value("²") == "²"
    for text in (HUGE, "[" * 3000, "[1, &a [*a]]", '{"a": !!bool abc}'):
        with pytest.raises(ConfigError) as caught:
            parse_value(text)
        assert len(str(caught.value)) < 150
    with pytest.raises(ConfigError, match="'²' is not one of them"):
        load_config(
            "CartPole-v1:ppo",
            overrides={"env_wrappers": [{"id": "RewardClip"}], "env_wrappers.².low": 1},
        )


@pytest.mark.parametrize(
    "target", ["A" * 300 + ".yaml", "A" * 5000, "~nope/x", "a\0b", "a\0b.yaml", "", ":", ":ppo"]
)
def test_names_that_no_file_can_have(target: str) -> None:
    with pytest.raises(ConfigError, match="there is no config") as caught:
        load_config(target)
    assert len(str(caught.value)) < 400


def test_a_folder_of_configs_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSOLVE_CONFIGS", "A" * 5000)
    assert load_config("CartPole-v1:ppo").env_id == "CartPole-v1"
