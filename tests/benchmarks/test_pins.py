"""The pinned files: exact, complete, and free of hosts and paths."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PIN_FILES = ["constraints.txt", "benchmarks/peers-constraints.txt"]
JAX_PINS = "benchmarks/peers-jax-constraints.txt"
UI_PINS = "benchmarks/peers-ui-constraints.txt"


def pins(path: str) -> dict[str, str]:
    lines = [line.strip() for line in (ROOT / path).read_text().splitlines()]
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> set[str]:
    """Names of all installed distributions that `name` with `extras` needs, itself included."""
    if (name, extras) in seen:
        return set()
    seen.add((name, extras))
    found = {name}
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *extras)):
            child = canonicalize_name(requirement.name)
            found |= needed(child, frozenset(requirement.extras), seen)
    return found


@pytest.mark.parametrize("path", [*PIN_FILES, JAX_PINS, UI_PINS])
def test_every_line_is_a_name_and_an_exact_version(path: str) -> None:
    for line in (ROOT / path).read_text().splitlines():
        assert re.fullmatch(r"(#.*)?|[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line), line


def test_every_dependency_is_pinned() -> None:
    closure = needed("gymnasium-solver", frozenset({"dev", "mujoco"}), set())
    assert closure - pins("constraints.txt").keys() == {"gymnasium-solver"}


def test_the_isolated_build_is_pinned() -> None:
    assert {"hatchling", "editables"} <= pins("constraints.txt").keys()


def test_peers_run_on_the_versions_that_we_run_on() -> None:
    ours, theirs = (pins(path) for path in PIN_FILES)
    shared = ours.keys() & theirs.keys()
    assert {"torch", "numpy", "gymnasium"} <= shared
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_jax_peers_share_one_jax_and_numpy() -> None:
    sbx, rejax = pins(PIN_FILES[1]), pins(JAX_PINS)
    for name in ("jax", "jaxlib", "flax", "optax", "numpy"):
        assert sbx[name] == rejax[name], name
    assert {"rejax", "gymnax"} <= rejax.keys()


@pytest.mark.parametrize("path", sorted(ROOT.glob("benchmarks/peers-requirements*.txt")), ids=str)
def test_what_the_peers_need_is_pinned(path: Path) -> None:
    own = {"jax": JAX_PINS, "ui": UI_PINS}
    pinned = pins(own.get(path.stem.rpartition("-")[2], PIN_FILES[1]))
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    assert {canonicalize_name(Requirement(line).name) for line in lines} <= pinned.keys()
