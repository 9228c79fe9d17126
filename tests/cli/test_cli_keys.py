"""Keys while training: what they do, and that the terminal is given back in every case."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("termios", reason="terminals of POSIX")

import gymnasium_solver.cli.train  # noqa: F401 (it declares the verb)
from gymnasium_solver.cli.flags import read_fields
from gymnasium_solver.cli.keys import terminal_keys
from gymnasium_solver.cli.train import console_options
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.prepare import load_config
from tests.cli.terminal import Terminal

Start = Callable[..., Terminal]
PACKAGE = str(Path(__file__).parents[2])
READER = """
import select, sys, time
from gymnasium_solver.cli.keys import Suspension, terminal_keys
keys = terminal_keys()
def before():
    keys.suspend()
    print("suspended", flush=True)
def after():
    keys.resume()
    print("continued", flush=True)
suspension = Suspension(before, after)
suspension.watch()
try:
    print("ready", flush=True)
    while True:
        sources = [source for source in [keys.source()] if source is not None]
        ready = select.select(sources, [], [], 0.05)[0]
        for key in keys.read() if ready else "":
            print("got", key, flush=True)
            if key == "x":
                raise SystemExit("crashed")
finally:
    suspension.stop()
    keys.close()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Terminal] = []

    def run(*words: str) -> Terminal:
        terminal = Terminal([sys.executable, *words], tmp_path, PYTHONPATH=PACKAGE)
        started.append(terminal)
        return terminal

    yield run
    for terminal in started:
        terminal.kill()


def test_no_keys_without_a_terminal() -> None:
    assert terminal_keys() is None  # pytest gives no terminal


def test_single_keys_are_read_and_arrows_are_not(start: Start) -> None:
    terminal = start("-c", READER)
    terminal.wait_for("ready")
    terminal.until_echoes(False)
    terminal.type("c")
    terminal.wait_for("got c")
    terminal.type("\x1b[C")  # the right arrow ends with a C
    terminal.type("P")
    terminal.wait_for("got p")
    assert terminal.raw.count("got") == 2
    terminal.type("x")
    assert terminal.end() == 1


@pytest.mark.parametrize("how", ["error", "interrupt"])
def test_the_terminal_is_given_back_after_an_error(how: str, start: Start) -> None:
    terminal = start("-c", READER)
    terminal.wait_for("ready")
    terminal.until_echoes(False)
    terminal.type("x" if how == "error" else "\x03")
    terminal.until_echoes(True)
    assert terminal.end() != 0


SHELL = """
# As a shell with job control: Ctrl-Z stops the job, a line of input brings it back.
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
while True:
    status = os.waitpid(job, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    os.tcsetpgrp(0, os.getpgrp())
    print("stopped", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.kill(job, signal.SIGCONT)
"""


def test_the_terminal_is_given_back_while_suspended(start: Start) -> None:
    terminal = start("-c", SHELL, READER)
    terminal.wait_for("ready")
    for _ in range(2):
        terminal.until_echoes(False)
        terminal.type("\x1a")
        terminal.wait_for("stopped")
        assert terminal.echoes
        terminal.type("\n")
        terminal.wait_for("continued")
    terminal.until_echoes(False)
    terminal.type("x")
    terminal.end()


CONFIG = """
env_id: CartPole-v1
plugins: [slow_plugin_of_keys_test]
env_wrappers: [{id: SlowSteps}]
ppo:
  seed: 3
  n_envs: 3
  n_steps: 16
  batch_size: 24
  n_epochs: 2
  hidden_dims: [8]
  max_env_steps: 1_000_000
  eval_freq_epochs: null
  eval_episodes: 1
  reward_threshold: 1e9
  checkpoint_freq_epochs: 100_000
"""
PLUGIN = """
import time
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers import register_wrapper

@register_wrapper("SlowSteps")
class SlowSteps(VectorWrapper):
    def step(self, actions):
        time.sleep(0.02)
        return self.env.step(actions)
"""


def test_a_training_is_steered_by_keys(start: Start, tmp_path: Path) -> None:
    (tmp_path / "slow_plugin_of_keys_test.py").write_text(PLUGIN)
    (tmp_path / "slow.yaml").write_text(CONFIG)
    terminal = start("-m", "gymnasium_solver", "train", "slow.yaml:ppo")
    terminal.wait_for("h help")
    terminal.until_echoes(False)
    terminal.type("p")
    terminal.wait_for("paused")
    (folder,) = (tmp_path / "runs").glob("CartPole*")
    run = Run(folder)
    n_rows = len(read_jsonl(run.metrics_path))
    terminal.type("h")
    terminal.wait_for("stop at once")
    assert len(read_jsonl(run.metrics_path)) == n_rows, "nothing happens in a pause"
    terminal.type("hcp")
    terminal.wait_for("checkpoint saved at")
    terminal.type("e")
    terminal.wait_for("val at")
    terminal.type("q")
    terminal.wait_for("INTERRUPTED")
    assert terminal.end() == 0
    assert terminal.echoes
    meta = run.meta()
    assert (meta["stop_reason"], meta["stop_detail"]) == ("requested", "q was pressed")
    events = read_jsonl(run.events_path)
    reasons = [event["reason"] for event in events if event["kind"] == "checkpoint"]
    assert reasons == ["periodic", "best", "last"]
    assert [event["stage"] for event in events if event["kind"] == "eval"] == ["val"]
    assert "\x1b[?25h" in terminal.raw[-4000:], "the cursor is back"


def test_keys_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config("CartPole-v1:ppo")
    for flags, expected in (([], True), (["--no-keys"], False)):
        options = console_options(read_fields("train", ["CartPole-v1:ppo", *flags]), config)
        assert options["keys"] is expected
    with pytest.raises(GsolveError, match=r"--log-level loud: expected debug, info, warning"):
        console_options(read_fields("train", ["--log-level", "loud"]), config)
