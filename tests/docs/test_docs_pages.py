"""What README.md and docs/*.md show works: commands, configs, Python, links, JSON fields.

Every `gsolve ...` line is held against the real flags and loads the config it names; the first
session of the README and all Python are run for real, with tiny budgets. Blocks of YAML or Python
that begin with a comment like `# configs/Balance.yaml` are files, and stand in the working folder.
"""

import inspect
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

import gymnasium_solver
from gymnasium_solver.algos import file_schema
from gymnasium_solver.cli import flags
from gymnasium_solver.cli import sweep as sweep_verb
from gymnasium_solver.cli.doctor import Check
from gymnasium_solver.cli.flags import TEXTS, read_fields
from gymnasium_solver.cli.main import main, module_of, verb_names
from gymnasium_solver.cli.solve import budget_of
from gymnasium_solver.cli.train import is_many
from gymnasium_solver.config.find import read_config_file
from gymnasium_solver.envs import wrappers
from gymnasium_solver.experiments.auto.solve import Solve
from gymnasium_solver.experiments.search.plan import prepare
from gymnasium_solver.experiments.train_many import expand, parse_seeds
from gymnasium_solver.runs import query
from gymnasium_solver.runs.metrics import METRICS
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.targets import EVAL_FIELDS

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|/\*) ([\w./-]+\.(?:yaml|py|c))(?: \*/)?\n")
INLINE = re.compile(r"`(gsolve [^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILL = {"env": "CartPole-v1", "lr": "0.001"}
TINY = ["--eval-episodes", "2", "--test-episodes", "2", "--n-eval-envs", "2", "--max-env-steps"]


def blocks(text: str, language: str) -> list[str]:
    return [content for name, content in BLOCK.findall(text) if name == language]


def commands() -> Iterator[tuple[str, str]]:
    """(page, command line) of every `gsolve ...` shown, in blocks and in sentences."""
    for page, text in PAGES.items():
        for line in "".join(blocks(text, "bash")).splitlines():
            if line.startswith("gsolve "):
                yield page, line
        for line in INLINE.findall(BLOCK.sub("", text)):
            yield page, line


COMMANDS = sorted(set(commands()))
SCHEMA = cache(file_schema.json_schema)


def arguments(command: str) -> list[str]:
    """The words after `gsolve`, without comment and redirection; RUN stands for any run."""
    words = shlex.split(command, comments=True)[1:]
    words = words[: words.index(">")] if ">" in words else words
    return [word.replace("RUN", "@last") for word in words]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder with the files that the pages show."""
    modules = []
    for text in PAGES.values():
        for content in (one for kind in ("yaml", "python", "c") for one in blocks(text, kind)):
            if match := FILE.match(content):
                path = tmp_path / match[1]
                path.parent.mkdir(exist_ok=True)
                path.write_text(content, encoding="utf-8")
                modules += [path.stem] if path.suffix == ".py" else []
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("GSOLVE_RUNS", "GSOLVE_CONFIGS"):
        monkeypatch.delenv(name, raising=False)
    known = set(gymnasium.registry)
    yield tmp_path
    for name in modules:
        sys.modules.pop(name, None)
    for env_id in set(gymnasium.registry) - known:
        del gymnasium.registry[env_id]


# -- commands -------------------------------------------------------------------------------


class Parsed(Exception):
    """The command line was read without complaint."""


@pytest.fixture
def only_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verbs without fields stop as soon as they have read their flags."""
    read = flags.Parser.read

    def read_and_stop(parser: flags.Parser, argv: Any) -> Any:
        args = read(parser, argv)
        if parser.prog.removeprefix("gsolve ") in TEXTS:
            return args
        raise Parsed

    monkeypatch.setattr(flags.Parser, "read", read_and_stop)
    monkeypatch.setattr(file_schema, "json_schema", SCHEMA)  # asked for by every command


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 60, "the pattern that finds commands finds too few"


@pytest.mark.sample(20)
@pytest.mark.usefixtures("only_parse")
@pytest.mark.parametrize("page", sorted({page for page, _ in COMMANDS}))
def test_every_command_shown_is_understood(page: str, folder: Path) -> None:
    wrong = []
    for command in (command for where, command in COMMANDS if where == page):
        try:
            check(arguments(command))
        except (flags.GsolveError, AssertionError) as error:
            wrong.append(f"`{command}`: {error}")
    assert not wrong, "\n".join(wrong)


def check(words: list[str]) -> None:
    verb, *argv = words
    if verb.startswith("-"):
        assert verb == "--help", "not a flag of gsolve itself"
        return
    assert verb in verb_names(), f"there is no verb {verb}"
    import_module(f"gymnasium_solver.cli.{module_of(verb)}")
    if verb == "eval":
        check_eval(argv)
        return
    if verb == "sweep" and argv[:1] not in (["show"], ["best"], ["list"]):
        check_sweep(argv)
        return
    if verb == "solve":
        args = read_fields(verb, argv)
        assert args.config_name() in gymnasium.registry, "no environment"
        budget_of(args)
        return
    if verb not in ("train", "show", "net", "tune-envs"):
        with pytest.raises(Parsed):
            flags.run_verb(verb, argv)
        return
    args = read_fields(verb, argv)
    resumes = verb == "train" and args.resume is not None
    if verb == "train" and is_many(args) and not resumes:
        parse_seeds(args.seeds, None)
        for name in expand(args.words):
            args.load_config(name)
        return
    target = args.config_name()
    if resumes:
        assert target is None, "a resume takes no target"
    elif target is None:
        assert args.help or not argv, "no target"
    # A run that is only spoken of is stood for by a config with the same fields.
    is_run = target is None or target.startswith("runs/")
    args.load_config("CartPole-v1:ppo" if is_run else str(target))


def check_sweep(argv: list[str]) -> None:
    args = read_fields("sweep", argv)
    target = args.config_name()
    if args.resume is not None or not argv:
        assert target is None, "a resume takes no target"
        return
    assert target is not None, "no target"
    if not target.endswith(".yaml") and target != "CONFIG":  # files and CONFIG are spoken of only
        prepare(sweep_verb.plan_of(args)[0])


def check_eval(argv: list[str]) -> None:
    args = read_fields("eval", argv)
    assert len(args.words) == 1 or not argv, "one run"
    unknown = {name.partition(".")[0] for name in args.fields} - {*EVAL_FIELDS}
    assert not unknown, f"{unknown}: not a field of the environment"


@pytest.mark.usefixtures("only_parse")
@pytest.mark.parametrize(
    "wrong",
    [
        "gsolve trian CartPole-v1:ppo",
        "gsolve train CartPole-v1:pppo",
        "gsolve train CartPole-v1:ppo --hidden-dim 64",
        "gsolve train CartPole-v1:ppo --learning-rate 0.1",
        "gsolve eval @last --episode 3",
        "gsolve eval @last --policy-lr 3",
        "gsolve plot",
        "gsolve sweep CartPole-v1:ppo --param polcy_lr=0..1",
        "gsolve sweep CartPole-v1:ppo --trails 3",
    ],
)
def test_a_wrong_command_would_be_noticed(wrong: str, folder: Path) -> None:
    with pytest.raises((flags.GsolveError, AssertionError)):
        check(arguments(wrong))


def test_make_targets_shown_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page, text in PAGES.items():
        for target in re.findall(r"^make ([\w-]+)|`make ([\w-]+)[^`]*`", text, re.MULTILINE):
            assert f"\n{''.join(target)}:" in makefile, f"{page}: make {target}"


# -- configs and Python -----------------------------------------------------------------------


def test_every_config_shown_loads(folder: Path) -> None:
    paths = sorted(folder.rglob("*.yaml"))
    assert len(paths) == sum(len(blocks(text, "yaml")) for text in PAGES.values()), (
        "a block of YAML begins with a comment that names its file, and no name is used twice"
    )
    for path in paths:
        for variant in read_config_file(path).variants:
            load_config(str(path), variant, fill=FILL if path.stem == "generic" else None)


def session() -> list[list[str]]:
    """The commands of the README's first session."""
    text = PAGES["README.md"].partition("## A first session")[2]
    return [arguments(line) for line in blocks(text, "bash")[0].splitlines()]


def run_tiny(words: list[str]) -> None:
    if words[0] == "train":
        words = [*words, *TINY, "600"]
    assert main(words) == 0, words


def printed_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0, words
    return json.loads(capsys.readouterr().out)


def test_the_first_session_python_and_json(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(session()) == 7
    for words in session():
        run_tiny(words)
    assert query.get_run("@last").env_steps == 600
    json_fields_are_documented(capsys)
    logged = query.get_metrics("@last", ["train/opt/*"])
    declared = {m.name for m in METRICS.values() for name in logged if m.name == name or m.of(name)}
    missing = [name for name in declared if f"`{name.removeprefix('train/')}`" not in PPO]
    assert not missing, f"docs/ppo.md does not explain {missing}"
    python_runs(monkeypatch)


PPO = PAGES["docs/ppo.md"]


def json_fields_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    run = printed_json(["run", "@last"], capsys)
    score = printed_json(["eval", "@last", "--episodes", "1"], capsys)
    greedy = score["scores"]["greedy"]
    printed: dict[str, list[Any]] = {
        "eval": [score, score["scores"], greedy],
        "list": printed_json(["list", "cartpole"], capsys),
        "runs": [*printed_json(["runs"], capsys), run["best"], *run["checkpoints"]],
        "run": [["evals"], [key for key in run["evals"][0] if key not in greedy]],
        "plot": [printed_json(["plot", "@last", "--metric", "entropy"], capsys)],
        "doctor": [[field.name for field in fields(Check)]],
    }
    for verb, documents in printed.items():
        keys = {key for document in documents for key in document}
        missing = [key for key in keys if f"`{key}`" not in section("docs/cli.md", verb)]
        assert not missing, f"docs/cli.md, {verb}: --json has {missing}"


def section(page: str, title: str) -> str:
    after = PAGES[page].partition(f"\n## {title}\n")[2]
    assert after, f"{page} has no section {title}"
    return after.partition("\n## ")[0]


def python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All Python that is shown and is no file, with a tiny budget, where a run exists."""
    train = gymnasium_solver.train

    def train_little(target: Any, **given: Any) -> Any:
        return train(
            target, **{**given, "max_env_steps": 600, "eval_episodes": 2, "test_episodes": 2}
        )

    solve = gymnasium_solver.solve

    def solve_nothing(*args: Any, **given: Any) -> Any:
        inspect.signature(solve).bind(*args, **given)
        found = SimpleNamespace(verdict={"text": ""}, best_run=gymnasium_solver.open_run("@last"))
        assert all(hasattr(Solve, name) for name in vars(found))
        return found

    monkeypatch.setattr(gymnasium_solver, "train", train_little)
    monkeypatch.setattr(gymnasium_solver, "solve", solve_nothing)
    for page, text in PAGES.items():
        for content in blocks(text, "python"):
            if not FILE.match(content) and page != "docs/python.md":  # test_docs_python.py
                exec(compile(content, page, "exec"), {})


# -- the pages themselves -----------------------------------------------------------------------


def test_every_verb_and_every_wrapper_is_told_of() -> None:
    for verb in verb_names():
        assert section("docs/cli.md", verb)
    for name in (*wrappers.SHIPPED, *wrappers.LOWERED):
        assert f"| `{name}` |" in PAGES["docs/wrappers.md"]


def anchor(title: str) -> str:
    """The address that a heading gets."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in LINK.findall(BLOCK.sub("", PAGES[page])):
        if link.startswith("https://"):
            continue
        path, _, place = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if place:
            titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert place in [anchor(title) for title in titles], f"{page}: {link}"


@pytest.mark.parametrize(
    "picture", ["train.svg", "console-80x24.svg", "console-slow.svg", "curves.png"]
)
def test_pictures_are_small_and_load_nothing(picture: str) -> None:
    path = ROOT / "docs" / "images" / picture
    assert path.stat().st_size < 300_000
    if path.suffix == ".svg":
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text
