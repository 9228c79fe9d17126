"""Environments written in C: what the engine adds to the contract (test_env_contract.py), and what
is said about a file that is wrong."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.envs.engines.c import engine
from gymnasium_solver.envs.engines.c.classics import CLASSICS as classics
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import EnvError, MissingError, UnknownEnvError
from gymnasium_solver.fast.native import build

pytestmark = pytest.mark.skipif(not build.can_compile(), reason="needs a C compiler")
COUNTING, PARTS = (Path(__file__).with_name(name) for name in ("counting.c", "parts.c"))
SMALL = """
#include "gsolve_env.h"
#define OBS_SHAPE 2
#define N_ACTIONS 3
#define MAX_STEPS 5
typedef struct { float x; } State;
void reset(State *s, Rng *rng) { s->x = rng_uniform(rng, -1, 1); }
bool step(State *s, int action, float *reward, Rng *rng) { *reward = action; return false; }
void observe(const State *s, float *obs) { obs[0] = s->x, obs[1] = 1; }
"""


def made(text: str, folder: Path, n_envs: int = 2, **given: Any) -> Any:
    file = folder / "mine.c"
    file.write_text(text)
    return make_vector_env(f"c:{file}", n_envs, **given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of files that several tests write: the cache of programs knows a text by its place too."""
    return tmp_path_factory.mktemp("files")


def test_no_transition_crosses_an_episode(record):
    rollout = record(make_vector_env(f"c:{COUNTING}", 3), seed=7, n_steps=60)
    real = ~rollout.is_reset
    (episode, step), (next_episode, next_step) = rollout.obs.T, rollout.next_obs.T
    assert np.array_equal(next_episode[real.T], episode[real.T])
    assert np.array_equal(next_step[real.T], step[real.T] + 1)  # up to the true final observation
    assert (next_episode[~real.T] != episode[~real.T]).all()
    assert (next_step[~real.T] == 0).all()
    assert np.array_equal(rollout.terminated, rollout.done)
    assert len(set(rollout.lengths[rollout.done])) > 1


def test_the_time_limit_truncates(record):
    env = make_vector_env(f"c:{COUNTING}", 8, max_episode_steps=4)
    rollout = record(env, seed=7, n_steps=60)
    at_limit = rollout.lengths == 4
    assert np.array_equal(rollout.truncated, at_limit)
    both = rollout.terminated & rollout.truncated
    assert both.any()
    assert (rollout.truncated & ~rollout.terminated).any()
    assert (rollout.terminated & ~rollout.truncated).any()


def test_each_copy_has_its_stream_for_any_number_of_copies():
    few, many = (make_vector_env("c:cartpole", n).reset(9) for n in (2, 5))
    assert np.array_equal(few, many[:2])
    assert len(np.unique(many, axis=0)) == 5


def test_spaces_and_facts(folder: Path) -> None:
    text = SMALL.replace("#define OBS_SHAPE 2", "#define OBS_SHAPE 2\n#define OBS_LOW -1, 0")
    env = made(text.replace("MAX_STEPS 5", "MAX_STEPS 5\n#define SOLVED 9.5"), folder)
    assert env.observation_space.low.tolist() == [-1, 0]
    assert env.observation_space.high.tolist() == [np.inf] * 2
    assert (env.action_space.n, env.spec.max_episode_steps, env.spec.engine) == (3, 5, "c")
    assert env.spec.reward_threshold == 9.5
    assert env.render() is None
    with pytest.raises(EnvError, match="unknown env_kwargs key 'size'"):
        made(SMALL, folder, env_kwargs={"size": 3})


def test_real_numbers_as_actions_are_clipped(tmp_path: Path) -> None:
    text = SMALL.replace("N_ACTIONS 3", "ACTION_SIZE 2\n#define ACTION_HIGH 1, 3")
    text = text.replace("int action", "const float *action")
    text = text.replace("*reward = action", "*reward = 10 * action[0] + action[1]")
    env = made(text, tmp_path)
    env.reset(0)
    assert env.action_space.high.tolist() == [1, 3]
    given = np.array([[0.5, 2.0], [7.0, -9.0]], np.float32)
    assert env.step(given).reward.tolist() == [7.0, 9.0]


def test_masks(tmp_path: Path) -> None:
    mask = "void mask(const State *s, bool *legal) { legal[s->t % 3] = false; }"
    text = SMALL.replace("{ float x; }", "{ float x; int t; }").replace(
        "return false", "return !++s->t"
    )
    env = made(text + "#define HAS_MASK\n" + mask, tmp_path)
    env.reset(0)
    for t in range(8):
        illegal = env._copies.state.view(np.int32)[:, 1] % 3
        assert illegal[0] == t % 6 % 3  # the state of a reset row begins at 0 again
        assert np.array_equal(env.action_mask, np.arange(3) != illegal[:, None])
        env.step(np.array([(t + 1) % 3] * 2))


def test_a_dict_has_the_parts_of_the_array(tmp_path: Path) -> None:
    """The same states are seen with and without OBS_PARTS, also after a resume."""
    text = re.sub("#define OBS_PARTS.*", "", PARTS.read_text())
    flat = made(text, tmp_path)
    env: Any = make_vector_env(f"c:{PARTS}", 2)
    assert {name: part.shape for name, part in env.observation_space.items()} == {
        "seen": (3,), "clock": (1,), "goal": (3,)
    }  # fmt: skip
    assert env.observation_space["clock"].high.tolist() == [20]
    rng = np.random.default_rng(0)
    whole, seen = flat.reset(3), env.reset(3)
    for _ in range(40):
        assert all(env.observation_space[k].contains(v[0]) for k, v in seen.items())
        joined = np.concatenate([seen[name] for name in ("seen", "clock", "goal")], axis=1)
        np.testing.assert_array_equal(joined, whole)
        np.testing.assert_array_equal(env.action_mask, flat.action_mask)
        actions = (rng.random((2, 3)) * env.action_mask).argmax(axis=1)
        whole, seen = flat.step(actions).obs, env.step(actions).obs
    later: Any = make_vector_env(f"c:{PARTS}", 2)
    for name, part in later.restore(env.saved(), *env.totals[1:]).items():
        np.testing.assert_array_equal(part, seen[name])


def test_threads_change_nothing() -> None:
    """Copies have their own states and random numbers, whichever thread steps them."""
    one, two, seven = (make_vector_env("c:snake", 7, env_kwargs={"threads": n}) for n in (1, 2, 7))
    seen = [env.reset(5) for env in (one, two, seven)]
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert all(np.array_equal(seen[0], obs) for obs in seen)
        actions = rng.integers(4, size=7)
        steps = [env.step(actions) for env in (one, two, seven)]
        for step in steps[1:]:
            assert np.array_equal(step.reward, steps[0].reward)
            assert np.array_equal(step.is_over, steps[0].is_over)
        seen = [step.obs for step in steps]
    with pytest.raises(EnvError, match="threads is 0, expected a whole number from 1 to 16"):
        make_vector_env("c:snake", 1, env_kwargs={"threads": 0})


def test_a_headers_change_is_seen(tmp_path: Path) -> None:
    """Other files that it includes, also in a file that it includes, count for the cache and for a
    resume."""
    text = SMALL.replace("#define OBS", '#include "level.h"\n#define OBS', 1)
    (tmp_path / "level.h").write_text('#pragma once\n  # include "pays.h"\n')
    saved = []
    for pays in (2, 3):
        (tmp_path / "pays.h").write_text(f"#define PAYS {pays}\n")
        env = JournaledEnv(made(text.replace("*reward = action", "*reward = PAYS"), tmp_path))
        env.reset(0)
        assert env.step(np.zeros(2, np.int64)).reward[0] == pays
        saved.append(env.state())
    env.restore(saved[1])
    with pytest.raises(EnvError, match="or a file that it includes has changed"):
        env.restore(saved[0])


def test_a_changed_file_is_not_resumed(folder: Path) -> None:
    env = JournaledEnv(made(SMALL, folder))
    env.reset(1)
    state = env.state()
    assert len(state["actions"]) == 0  # the states themselves are saved
    assert np.array_equal(JournaledEnv(made(SMALL, folder)).restore(state), state["obs"])
    other = JournaledEnv(made(SMALL.replace("= action", "= 2 * action"), folder))
    with pytest.raises(EnvError, match="is not the file that was saved with the run"):
        other.restore(state)


# -- what is wrong --------------------------------------------------------------------------------


NAMED = '#define OBS_NAMES "x", "y"\n#define OBS_PARTS {"a", 2}'


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("s->x =", "s->y =", r"mine.c:7:\d+: error: .*has no member named"),
        ("return false; }", "return false }", r"mine.c:8:\d+: error: expected"),
        ("= action", "= speed(action)", r"mine.c:8:\d+: error: .*declaration of function"),
        ("State *s, int action", "State *s, float *action", "mine.c: the C compiler rejects it"),
        ("#define OBS_SHAPE 2", "", "define OBS_SHAPE, the numbers of an observation"),
        ("#define N_ACTIONS 3", "", "define either N_ACTIONS .* or ACTION_SIZE"),
        ("#define MAX_STEPS 5", "", "define MAX_STEPS"),
        ("void observe", "void observed", "observe"),
        ('"gsolve_env.h"', '"gsolve_environment.h"', r"mine.c:2:\d+: fatal error: gsolve_envir"),
        ("OBS_SHAPE 2", "OBS_SHAPE 2\n#define OBS_LOW 1, 2, 3", "OBS_LOW has 3 numbers, expected"),
        (
            "OBS_SHAPE 2",
            'OBS_SHAPE 2\n#define OBS_PARTS {"a", 1}',
            "add up to 1, and OBS_SHAPE is 2",
        ),
        ("OBS_SHAPE 2", 'OBS_SHAPE 2\n#define OBS_PARTS {"a", 1}, {"a", 1}', "different names"),
        ("OBS_SHAPE 2", 'OBS_SHAPE 2\n#define OBS_PARTS {"", 2}', "different names"),
        ("OBS_SHAPE 2", f"OBS_SHAPE 2\n{NAMED}", "OBS_NAMES and OBS_PARTS exclude each other"),
        ("N_ACTIONS 3", "N_ACTIONS 0", "N_ACTIONS is 0, expected at least 1"),
        ("return false;", "return *(volatile int *)8;", r"it crashes \(Segmentation fault\)"),
        ("return false;", "exit(0);", r"it crashes \(it exits\)"),
    ],
)
def test_bad_files(old: str, new: str, said: str, folder: Path) -> None:
    assert old in SMALL
    with pytest.raises(EnvError, match=said) as error:
        made(SMALL.replace(old, new, 1), folder)
    assert "stdin" not in str(error.value)
    made(SMALL, folder).close()  # and the next file is compiled


ONLY_COPIED = pytest.mark.skipif(sys.platform != "linux", reason="no trial in another process")

EXITS = """
import ctypes, os
from gymnasium_solver.fast.native.build import _said_by_child

libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.pause, ctypes.c_void_p), None, None)  # as a library that waits
print(_said_by_child(lambda: str(libc.exit(0)), 3), flush=True)
os._exit(0)
"""


@ONLY_COPIED
def test_an_exit_does_not_wait_for_libraries() -> None:
    run = [sys.executable, "-c", EXITS]
    said = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.startswith("it crashes (it exits)")


@ONLY_COPIED
@pytest.mark.parametrize(
    ("old", "new"), [("*reward =", "for (;;); *reward ="), ("s->x = ", "for (;;);")]
)
def test_a_loop_without_an_end_is_told_soon(
    old: str, new: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.TRIAL_SECONDS <= 10
    monkeypatch.setattr(engine, "TRIAL_SECONDS", 1)
    with pytest.raises(EnvError, match=r"it does not end within 1 s\. Look for a loop") as error:
        made(SMALL.replace(old, new, 1), folder)
    assert "crash" not in str(error.value)


@ONLY_COPIED
def test_a_slow_file_is_no_loop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps of the trial would take 3 s; it ends after half of its second."""
    monkeypatch.setattr(engine, "TRIAL_SECONDS", 1)
    text = SMALL.replace("#define", "#include <unistd.h>\n#define", 1)
    made(text.replace("*reward =", "usleep(1000); *reward ="), folder).close()


DRAWING = """
#define FRAME_WIDTH 4
#define FRAME_HEIGHT 3
void render(const State *s, Canvas *canvas) { canvas->rgb[35] = 1; }
"""
MASKED = """
#define HAS_MASK
void mask(const State *s, bool *legal) { legal[0] = false; }
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("obs[1] = 1", "obs[3] = 7", r"it writes obs\[3\], but OBS_SHAPE has 2 numbers"),
        ("obs[1] = 1", "obs[-1] = 7", r"obs\[-1\]"),
        ("obs[1] = 1", "obs[5000] = 7", r"obs\[5000\]"),
        ("*reward = action", "(&s->x)[1] = 7", "it writes byte 4 of a State of 4 bytes"),
        ("s->x = rng", "s[-1].x = rng", "byte -1 of a State"),
        ("legal[0]", "legal[3]", r"legal\[3\], but N_ACTIONS is 3"),
        ("rgb[35]", "rgb[36]", r"canvas->rgb\[36\], but a frame has 36 bytes"),
    ],
)
def test_a_write_outside_an_array_is_named(old: str, new: str, said: str, folder: Path) -> None:
    whole = SMALL + DRAWING + MASKED
    assert whole.count(old) == 1
    with pytest.raises(EnvError, match=said) as error:
        made(whole.replace(old, new), folder)
    assert "\n" not in str(error.value)
    made(whole, folder).close()


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UnknownEnvError, match=r"there is no C file nowhere/mine\.c"):
        make_vector_env("c:nowhere/mine.c", 1)
    with pytest.raises(UnknownEnvError, match=r"Did you mean cartpole\?|cartpole"):
        make_vector_env("c:cartpol", 1)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "can_compile", lambda: False)
    with pytest.raises(MissingError, match="no C compiler: install gcc or clang") as error:
        make_vector_env("c:cartpole", 1)
    assert "\n" not in str(error.value)


# -- the classics ---------------------------------------------------------------------------------


CLASSICS = {
    "cartpole": "CartPole-v1",
    "acrobot": "Acrobot-v1",
    "mountain_car": "MountainCar-v0",
    "mountain_car_continuous": "MountainCarContinuous-v0",
    "pendulum": "Pendulum-v1",
}


def state_of(name: str, env: Any) -> list[np.ndarray]:
    """The numbers of the state of all copies, in place."""
    own = env._copies.state.view(next(c.state for c in classics.values() if c.name == name))
    if own.dtype.names:
        return [own["position"][:, 0], own["velocity"][:, 0]]
    return list(own.T)


@pytest.mark.parametrize("name", CLASSICS)
def test_the_classics_are_gymnasiums(name: str) -> None:
    """From equal states, equal steps. Gymnasium's sine is NumPy's, which may differ from that of
    the C library in the last bit of a double: rarely in an observation, a float."""
    theirs: Any = gymnasium.make(CLASSICS[name])
    env: Any = make_vector_env(f"c:{name}", 8)
    assert env.observation_space == theirs.observation_space
    assert env.action_space == theirs.action_space
    assert env.spec.max_episode_steps == theirs.spec.max_episode_steps
    assert env.spec.reward_threshold == theirs.spec.reward_threshold
    theirs = theirs.unwrapped
    env.action_space.seed(0)
    theirs.reset(seed=0)
    env.reset(0)
    own, equal = state_of(name, env), []
    for t in range(60):
        if name.startswith("mountain") and t == 30:  # near the goal
            own[0][:], own[1][:] = np.linspace(0.3, 0.45, 8, dtype=np.float32), 0.06
        before = np.stack(own, axis=1)
        if name == "mountain_car_continuous" and t:
            before = before.astype(np.float32)
        actions = np.stack([env.action_space.sample() for _ in range(8)])
        step = env.step(actions)
        for i in np.flatnonzero(~step.is_reset):
            theirs.state, theirs.steps_beyond_terminated = before[i].copy(), None
            obs, reward, terminated, _, _ = theirs.step(actions[i])
            np.testing.assert_allclose(step.obs[i], obs, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(step.reward[i], reward, rtol=1e-6)
            assert step.terminated[i] == terminated
            equal.append(np.array_equal(step.obs[i], obs))
    assert np.mean(equal) > 0.99


# -- what is shipped, and the page about it -------------------------------------------------------


def test_the_example_of_the_docs(tmp_path: Path, record) -> None:
    page = Path(__file__).parents[2] / "docs" / "c_environments.md"
    blocks = re.findall(r"```c\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 3
    env = made("\n".join(blocks), tmp_path, n_envs=4)
    rollout = record(env, seed=1, n_steps=150)
    assert set(rollout.reward.ravel()) == {0.0, 1.0}
    assert env.render().shape == (240, 180, 3)
    assert env.described["action_space"] == {"labels": ["left", "stay", "right"]}
    assert env.spec.reward_threshold == 9.5


def played(env: Any, n_steps: int) -> Iterator[Any]:
    """Random legal actions."""
    rng = np.random.default_rng(0)
    for _ in range(n_steps):
        if env.action_mask is not None:
            yield env.step((rng.random(env.action_mask.shape) * env.action_mask).argmax(axis=1))
        else:
            yield env.step(np.stack([env.action_space.sample() for _ in range(env.n_envs)]))


@pytest.mark.parametrize("name", engine.shipped_names())
def test_shipped_files(name: str) -> None:
    env: Any = make_vector_env(f"c:{name}", 4)
    facts = env.program.facts
    assert env.observation_space.contains(env.reset(3)[0])
    n_over, rewards = 0, []
    for step in played(env, 300):
        assert all(map(env.observation_space.contains, step.obs))
        n_over += int(np.count_nonzero(step.is_over))
        rewards.append(step.reward[~step.is_reset])
    paid = np.concatenate(rewards)
    assert facts.reward_low <= paid.min() <= paid.max() <= facts.reward_high
    assert n_over or facts.max_steps > 300
    frame = env.render(1)
    assert frame.shape == (facts.frame_height, facts.frame_width, 3)
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 2
    assert env.described["action_space"]["labels"]


def test_2048_by_hand() -> None:
    env: Any = make_vector_env("c:2048", 1)
    env.reset(0)
    board = env._copies.state.reshape(4, 4)
    board[...] = [[1, 1, 2, 2], [0, 0, 0, 3], [3, 0, 3, 4], [0, 0, 0, 0]]
    env._copies.observe()
    step = env.step(np.array([3]))  # left: 4 + 8 + 16
    assert step.reward[0] == 28
    slid = np.array([[2, 3, 0, 0], [3, 0, 0, 0], [4, 4, 0, 0], [0, 0, 0, 0]])
    new = board != slid
    assert new.sum() == 1  # a new tile, on a free cell
    assert slid[new] == 0
    board[...] = [[1, 2, 1, 2], [2, 1, 2, 1], [1, 2, 1, 2], [2, 1, 2, 0]]
    step = env.step(np.array([1]))  # right
    assert not step.is_over[0] or board.min() > 0


SANITIZED = """
#include "gsolve_vector.h"
int main(void) {
    enum { copies = 5, room = 4096 };
    static State state[copies];
    static Rng rng[copies];
    static int64_t length[copies];
    static uint8_t done[copies], terminated[copies], truncated[copies];
    static uint8_t frame[3 * FRAME_WIDTH * FRAME_HEIGHT + 1];
    static gsolve_action actions[copies * 64];
    static gsolve_obs obs[copies * room];
    static float reward[copies];
    static bool legal[copies * 64];
    int64_t size = 1;
    for (int i = 0; i < gsolve_about.shape.n; i++) size *= gsolve_shape[i];
    double low[64], high[64];
    for (int i = 0; i < 64; i++) low[i] = gsolve_low[0], high[i] = gsolve_high[0];
    gsolve_envs e = {copies, MAX_STEPS, size, 1, 0, state, rng, length, done, low, high, 0, 0,
                     0, 0, actions, obs, reward, terminated, truncated, legal};
    const uint64_t seeds[copies] = {1, 2, 3, 4, 5};
    Rng random = {7};
    gsolve_reset(&e, seeds);
    for (int t = 0; t < 4000; t++) {
        for (int i = 0; i < copies * (ACTION_SIZE ? ACTION_SIZE : 1); i++)
            actions[i] = N_ACTIONS ? rng_below(&random, N_ACTIONS) : rng_normal(&random);
        gsolve_step(&e);
        if (t % 100 == 0) gsolve_render(&e, t % copies, frame);
    }
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", engine.shipped_names())
def test_sanitizers_find_nothing(name: str, tmp_path: Path) -> None:
    """Also with actions that a mask forbids."""
    main, program = tmp_path / "main.c", tmp_path / "main"
    main.write_text(f'#include "{engine.SHIPPED / name}.c"\n{SANITIZED}')
    flags = ["-O1", "-g", "-std=gnu11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    compiler = build.find_compiler() or ()
    command = [*compiler, *flags, "-I", str(engine.FOLDER), "-o", str(program), str(main), "-lm"]
    made = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in made.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert made.returncode == 0, made.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
