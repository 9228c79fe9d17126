"""Code that the config of somebody else's run names is imported only if the user agrees."""

import io
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gymnasium_solver as gs
from gymnasium_solver.cli import main as cli
from gymnasium_solver.config import code as code_of_configs
from gymnasium_solver.config.code import accept, code_named, distrust, import_code
from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.envs.make import env_from_config, make_vector_env
from gymnasium_solver.errors import GsolveError, TrustError
from gymnasium_solver.registry import ALGOS, config_class
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop, prepare
from gymnasium_solver.training.prepare import build_config, load_config
from tests.cli.conftest import Gsolve
from tests.experiments.fake_runs import FakeBackend

TINY = {
    "env_id": "Bandit-v0", "algo_id": "ppo", "seed": 1, "n_envs": 2, "n_steps": 16, "max_epochs": 2,
    "batch_size": 16, "hidden_dims": [4], "eval_freq_epochs": None, "test_episodes": 1,
}  # fmt: skip
MODULE = "module_of_a_stranger"
C_FILE = """
#include "gsolve_env.h"
#include <stdio.h>
#define OBS_SHAPE 1
#define N_ACTIONS 2
#define MAX_STEPS 3
typedef struct { int t; } State;
void reset(State *s, Rng *rng) {}
bool step(State *s, int action, float *reward, Rng *rng) { return false; }
void observe(const State *s, float *obs) { obs[0] = 0; }
__attribute__((constructor)) static void loaded(void) { fclose(fopen("imported", "w")); }
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the working folder; the file `imported` beside it tells that it was imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    (tmp_path / f"{MODULE}.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    (tmp_path / f"{MODULE}.c").write_text(C_FILE)
    monkeypatch.setattr(code_of_configs, "_strange", {})
    monkeypatch.setattr(code_of_configs, "_own", set())
    yield tmp_path / "imported"
    sys.modules.pop(MODULE, None)


@pytest.fixture
def run(module: Path, tmp_path: Path) -> Run:
    """A run that names the module, made by somebody else."""
    run = loop.train(build_config(TINY), runs_root=tmp_path / "runs")
    with run.config_path.open("a") as file:
        file.write(f"plugins: [{MODULE}]\n")
    lines = [line for line in run.config_path.read_text().splitlines() if line != "plugins: []"]
    run.config_path.write_text("\n".join(lines) + "\n")
    return run


RESUME = ["train", "--resume", "@last", "--max-epochs", "3", "-q"]
EVAL = ["eval", "@last", "--episodes", "1", "--greedy"]


def test_reading_never_imports(run: Run, module: Path, capsys: Any, gsolve: Gsolve) -> None:
    config = str(run.config_path)
    for argv in (["runs"], ["run", "@last"], ["plot", "@last"], ["report", "@last"], ["list"],
                 ["show", config], ["show", config, "--json"]):  # fmt: skip
        assert cli.main(argv) == 0, argv
        assert not module.exists(), argv
    out, err = capsys.readouterr()
    assert "was not made here" in gsolve("check", config, code=1)
    assert not module.exists()
    assert json.loads(out[out.rindex("\n{") :])["plugins"] == [MODULE]
    assert f"names code, {MODULE}, which is not imported" in err
    gsolve("show", config, "--trust")
    assert module.exists()


@pytest.mark.parametrize("argv", [EVAL, RESUME, ["train", "CONFIG", "-q"]])
def test_running_it_needs_trust(run: Run, module: Path, argv: list[str], gsolve: Gsolve) -> None:
    argv = [str(run.config_path) if word == "CONFIG" else word for word in argv]
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    (line,) = gsolve(*argv, code=2).splitlines()
    assert f"was not made here, and its config names code to import: {MODULE}" in line
    assert "--trust" in line
    assert not module.exists()
    assert {p: p.read_bytes() for p in before} == before
    gsolve(*argv, "--trust")
    assert module.exists()


def test_from_python(run: Run, module: Path) -> None:
    for call in (gs.load, gs.evaluate, gs.make_env, gs.resume):
        with pytest.raises(TrustError, match="trust=True"):
            call("@last")
    backend, config = FakeBackend(lambda config, seed: 1.0), str(run.config_path)
    for train in (gs.train, partial(gs.experiment, backend=backend, seeds=1)):
        with pytest.raises(TrustError, match="trust=True"):
            train(config)
    with pytest.raises(TrustError):
        run.agent()
    assert not module.exists()
    assert run.agent("@last", trust=True)
    assert module.exists()
    assert gs.evaluate("@last", 1, trust=True).episodes == 1
    gs.make_env("@last", trust=True).close()
    assert gs.train(config, trust=True).status == "finished"
    assert gs.experiment(config, 1, backend=backend, trust=True, max_env_steps=64).scores


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("YES\n", 0), ("\n", 2), ("", 2)])
def test_on_a_terminal_the_user_is_asked(
    run: Run, module: Path, answer: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", screen)
    assert cli.main(EVAL) == code
    assert "[y/N]" in screen.getvalue()
    assert module.exists() == (code == 0)


def test_ones_own_run_is_not_asked_about(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gsolve: Gsolve
) -> None:
    config = build_config({**TINY, "plugins": [MODULE]})
    run = loop.train(config, runs_root=tmp_path / "runs")
    assert cli.main(EVAL) == 0
    assert cli.main(RESUME) == 0
    moved = run.path.rename(run.path.with_name("renamed"))  # folders may be moved
    gsolve("eval", str(moved), "--episodes", "1")
    text = Run(moved).config_path.read_text()
    Run(moved).config_path.write_text(text.replace(MODULE, "other_module"))
    gsolve("eval", str(moved), "--episodes", "1", code=2)  # not what was signed
    Run(moved).config_path.write_text(text)
    key = tmp_path / "settings" / "gymnasium-solver" / "key"
    assert key.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of_somebody_else"))
    gsolve("eval", str(moved), "--episodes", "1", code=2)
    again = ["train", "--resume", str(moved), "-q", "--max-epochs", "4"]
    assert cli.main([*again, "--trust"]) == 0
    gsolve("eval", str(moved), "--episodes", "1")  # trusted once, signed again


def test_a_signature_cannot_be_taken_from_another_run(module: Path) -> None:
    code = ["a", "b"]
    meta = {"id": "x", "signature": machine.signature("x", code)}
    assert machine.is_made_here(meta, ["b", "a"])
    for forged in ({"id": "y"}, {"signature": None}, {"signature": 3}, {"signature": "é\ud800"}):
        assert not machine.is_made_here(meta | forged, code)
    assert not machine.is_made_here(meta, ["a"])
    assert machine.signature("x", []) is None


def test_without_a_home_folder_nothing_is_trusted(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert machine.signature("x", ["a"]) is None
    assert not machine.is_made_here({"id": "x", "signature": "ab"}, ["a"])


def test_what_counts_as_code() -> None:
    wrappers = [{"id": "my.mod:Wrap"}, {"id": "gymnasium.wrappers.Clip"}, "TimeLimit", {"id": 3}]
    fields: dict[str, Any] = {"plugins": ["p"], "env_id": "mod:Env-v0", "env_wrappers": wrappers}
    assert code_named(fields) == ["gymnasium.wrappers", "mod", "my.mod", "p"]
    deep = {"tasks": ["a:A-v0", {"env_id": "b.c:B-v0"}], "x": {"y": [{"Gymnax/d:E": 1}]}}
    assert code_named(deep) == ["a", "b.c", "d"]
    for given in ("c:my.c", "c:./a b.c", "c:/tmp/x.c", "c:../x", "c:", "c:a b.c/", "c:a b.c/."):
        assert code_named({"tasks": [{"env_id": given}]}) == [given]
    told = "c:a b.c, fields chosen by its spaces."
    fields = {"env_id": "c:a b.c", "tasks": ["c:a b.c:ppo"], "description": told}
    assert code_named(fields) == ["c:a b.c"]
    assert code_named({"files": [fields, {"goal": told}]}) == ["c:a b.c"]
    for several in ("c:a.c, c:b b.c", "[c:b b.c, Bandit-v0, 'c:a.c:ppo']", "c:a.c,c:b b.c"):
        assert {"c:a.c", "c:b b.c"} <= {*code_named({"params": {"tasks.0": several}})}
    assert code_named({"env_kwargs": {"description": "mod:Env"}}) == ["mod"]
    for several in ("CartPole-v1, mod:A-v0", "['CartPole-v1', \"mod:A-v0\"]", "1,mod:A-v0"):
        assert code_named({"params": {"tasks.0": several}}) == ["mod"]
    for plain in (
        {}, {"plugins": None, "env_id": "ALE/Pong-v5"}, {"plugins": 3, "env_id": []},
        {"description": "see https://a.b/c: it is good", "env_kwargs": {"xml_file": "ant.xml"}},
        {"env_id": "c:snake"}, {"tasks": ["c:snake:ppo"]}, {"description": "c: see car.c"},
        {"description": "c:Fast!"}, {"description": "todo:this"},
        {"spec": {"goal": "c: as fast as it can."}},
        {"init_from_run": "runs/a/@best", "n_steps": "1:2", "policy_lr": "lin_0.001"},
    ):  # fmt: skip
        assert code_named(plain) == []


# -- whichever field names it -----------------------------------------------------------------

IN_A_RUN: dict[str, dict[str, Any]] = {
    "plugins": {"plugins": [MODULE]},
    "env_id": {"env_id": f"{MODULE}:Bandit-v0"},
    "gymnax": {"env_id": f"Gymnax/{MODULE}:Env"},
    "tensors": {"env_id": f"Torch/{MODULE}:Env"},
    "tasks": {"tasks": [f"{MODULE}:CartPole-v1", "CartPole-v1"]},
    "task blocks": {"tasks": [{"env_id": f"{MODULE}:CartPole-v1"}, "CartPole-v1"]},
    "curriculum": {
        "curriculum": {"stages": [{"env_id": f"{MODULE}:CartPole-v1", "promote_at": 1.0}]}
    },
    "env_wrappers": {"env_wrappers": [{"id": f"{MODULE}.Wrap"}]},
    "wrapper in a wrapper": {
        "env_wrappers": [{"id": "gymnasium.wrappers.TransformReward", "func": f"{MODULE}.func"}]
    },
    "env_kwargs": {"env_kwargs": {"env_id": [f"{MODULE}:Old-v0"]}},
    "a C file": {"env_id": f"c:{MODULE}.c"},
    "a C file by its path": {"tasks": [{"env_id": f"c:./{MODULE}.c"}, "CartPole-v1"]},
}
VERBS = (
    "net CONFIG", "train CONFIG --dev", "train CONFIG --seeds 2 -q", "play RUN --headless",
    "video RUN", "inspect RUN", "record RUN --out data", "explain RUN", "export RUN",
    "show CONFIG", "check CONFIG", "run RUN", "report RUN", "doctor run RUN", "repro RUN",
    "set RUN policy_lr=1e-4", "sweep CONFIG --trials 1", "tune-envs CONFIG", "plot RUN",
    "publish RUN --dry-run",
)  # fmt: skip


@pytest.fixture
def plain_run(module: Path, tmp_path: Path) -> Run:
    """A run without code, whose config a test rewrites."""
    return loop.train(build_config(TINY), runs_root=tmp_path / "runs")


def test_running_what_a_stranger_names_needs_trust(
    plain_run: Run, module: Path, gsolve: Gsolve
) -> None:
    for kind, fields in IN_A_RUN.items():
        plain_run.config_path.write_text(dump_yaml({**TINY, **fields}))
        for argv in (EVAL, RESUME, ["train", str(plain_run.config_path), "-q"]):
            assert "--trust" in gsolve(*argv, code=2), (kind, argv)
        assert not module.exists(), kind


def test_the_refusal_names_a_c_file_once_and_no_description(
    plain_run: Run, module: Path, gsolve: Gsolve
) -> None:
    file = f"c:{MODULE}.c"
    told = f"{file}, fields chosen by its spaces."
    plain_run.config_path.write_text(dump_yaml({**TINY, "env_id": file, "description": told}))
    assert f"its config names code to import: {file}. Look at it" in gsolve(*EVAL, code=2)
    plain_run.config_path.write_text(dump_yaml({**TINY, "description": "c: see bandit.c"}))
    assert cli.main(EVAL) == 0
    assert not module.exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", IN_A_RUN)
def test_no_verb_imports_what_a_stranger_names(
    plain_run: Run, module: Path, kind: str, capsys: Any
) -> None:
    plain_run.config_path.write_text(dump_yaml({**TINY, **IN_A_RUN[kind]}))
    for line in VERBS:
        words = line.replace("CONFIG", str(plain_run.config_path)).replace("RUN", "@last")
        cli.main(words.split())
        assert not module.exists(), line
        assert "Traceback" not in capsys.readouterr().err, line


FORMS = (
    MODULE, f"{MODULE}:CartPole-v1", f"{MODULE}.Name", f"Gymnax/{MODULE}:Name",
    f"Torch/{MODULE}:Name", [{"env_id": f"Torch/{MODULE}:Name"}, "CartPole-v1"],
    [MODULE], [f"{MODULE}:CartPole-v1", "CartPole-v1"], [{"id": f"{MODULE}.Name"}],
    [{"id": f"{MODULE}:Name"}], [{"env_id": f"{MODULE}:CartPole-v1"}, "CartPole-v1"],
    f"c:{MODULE}.c", f"c:./{MODULE}.c", [{"env_id": f"c:{MODULE}.c"}, "CartPole-v1"],
    {"id": f"{MODULE}:Name"}, {"env_id": f"{MODULE}:CartPole-v1"}, {"a": {"b": [MODULE]}},
    {"stages": [{"env_id": f"{MODULE}:CartPole-v1", "promote_at": 1.0}]},
)  # fmt: skip
FIELDS = {field for algo_id in ALGOS for field in config_class(algo_id).model_fields}
NESTED = ("tasks", "curriculum", "env_wrappers")


@pytest.mark.parametrize("is_searched_first", [True, False])
@pytest.mark.parametrize("field", NESTED)
def test_no_nested_field_of_a_stranger_imports(
    field: str, is_searched_first: bool, module: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """Also where nothing is found beforehand: the refusal stands where modules are imported."""
    if not is_searched_first:
        monkeypatch.setattr(prepare, "code_named", lambda fields: [])
    check_no_import(field, module, tmp_path)


@pytest.mark.sample(5)
@pytest.mark.parametrize("is_searched_first", [True, False])
@pytest.mark.parametrize("field", sorted(FIELDS.difference(NESTED)))
def test_no_field_of_a_stranger_imports(
    field: str, is_searched_first: bool, module: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    if not is_searched_first:
        monkeypatch.setattr(prepare, "code_named", lambda fields: [])
    check_no_import(field, module, tmp_path)


def check_no_import(field: str, module: Path, tmp_path: Path) -> None:
    owner = next(algo_id for algo_id in ALGOS if field in config_class(algo_id).model_fields)
    path = tmp_path / "config.yaml"
    (tmp_path / "meta.json").write_text('{"id": "x", "signature": "forged"}')
    for form in FORMS:
        path.write_text(dump_yaml({**TINY, "algo_id": owner, "n_envs": 2, field: form}))
        try:
            config = load_config(str(path))
            env_from_config(config, 2).close()
        except GsolveError:
            pass
        assert not module.exists(), form
        assert MODULE not in sys.modules, form


def test_the_users_own_names_are_imported_whatever_a_stranger_says(module: Path) -> None:
    distrust("runs/x", {"project_id": MODULE, "tasks": [f"{MODULE}:A-v0"]})
    with pytest.raises(TrustError, match=f"runs/x was not made here.*{MODULE}"):
        import_code(MODULE)
    with pytest.raises(TrustError):
        make_vector_env(f"{MODULE}:A-v0", 1)
    import_code("json.tool")
    accept({"plugins": [MODULE]})
    assert import_code(MODULE).__name__ == MODULE
    with pytest.raises(ImportError, match="not the name of a module"):
        import_code("a b")


def test_a_c_file_is_compiled_if_the_user_names_it(module: Path) -> None:
    distrust("runs/x", {"env_id": f"c:{MODULE}.c"})
    accept(f"{MODULE}.config.yaml")  # what the user names must be the file itself
    with pytest.raises(TrustError, match=f"runs/x was not made here.*{MODULE}"):
        make_vector_env(f"c:{MODULE}.c", 1)
    assert not module.exists()
    accept(f"c:{MODULE}.c:ppo")
    make_vector_env(f"c:{MODULE}.c", 1).close()
    assert module.exists()


def test_check_imports_nothing_unasked(module: Path, tmp_path: Path, gsolve: Gsolve) -> None:
    path = tmp_path / "mine.yaml"
    for name, fields in IN_A_RUN.items():
        path.write_text(dump_yaml({**TINY, **fields}))
        said = gsolve("check", str(path), code=1)
        assert all(word in said for word in (MODULE, "not imported", "--trust")), name
        assert not module.exists(), name
    path.write_text(dump_yaml({**TINY, "plugins": [MODULE]}))
    gsolve("check", str(path), "--trust")
    assert module.exists()
    path.write_text(
        dump_yaml({**TINY, "env_wrappers": [{"id": "gymnasium.wrappers.TimeAwareObservation"}]})
    )
    gsolve("check", str(path))
