"""What the replay takes, whether it fits, and the refusal when it does not."""

import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.data.memory_check import available_memory_bytes, check_fits
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.actions import action_kind
from tests.unit.replay_stream import ACTIONS

MEGABYTE = 1000 * 1024
ATARI = spaces.Box(0, 255, (4, 84, 84), np.uint8)


# -- the estimate -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observation_space", "action_space", "options"),
    [
        (ATARI, spaces.Discrete(6), {"frame_stacks": {"": 4}}),
        (ATARI, spaces.Discrete(300), {"has_masks": True}),
        (spaces.Box(-1, 1, (17,), np.float32), spaces.Box(-1, 1, (6,), np.float32), {}),
        (spaces.Discrete(500), spaces.Discrete(6), {}),
    ],
)
def test_the_estimate_is_what_the_arrays_take(observation_space, action_space, options):
    arguments = (1000, 8, observation_space, action_kind(action_space))
    replay = Replay(*arguments, **options)
    assert Replay.estimate_bytes(*arguments, **options) == replay.nbytes


def test_the_estimate_by_hand():
    # 100 rows and the head, 2 envs: 3 floats, 1 byte of action, reward, four flags
    space = spaces.Box(-1, 1, (3,), np.float32)
    assert Replay.estimate_bytes(200, 2, space, ACTIONS) == 101 * 2 * (12 + 1 + 4 + 4)
    # 100,000 Atari frames, the head, and 3 frames before the oldest; 6 bytes of action, look-back
    # and flags, and the reward
    expected = (100_000 + 1 + 3) * (84 * 84 + 6 + 4)
    assert Replay.estimate_bytes(100_000, 1, ATARI, ACTIONS, frame_stacks={"": 4}) == expected


FILL = """
    import numpy as np
    import psutil
    from gymnasium import spaces
    from gymnasium_solver.data.memory import Memory
    from gymnasium_solver.data.replay import Replay
    from gymnasium_solver.data.rollout import Rollout
    from gymnasium_solver.spaces.actions import action_kind

    def resident():
        return psutil.Process().memory_info().rss

    actions = action_kind(spaces.Discrete(6))
    arguments = (20_000, 8, spaces.Box(0, 255, (4, 84, 84), np.uint8), actions)
    rows = Rollout.allocate(32, *arguments[1:])
    rows.obs[:], rows.valid[:] = 7, True
    before = resident()
    replay = Replay(*arguments, frame_stacks={"": 4})
    memory = Memory(replay, n_step=3, gamma=0.99, batch_size=32, rng=np.random.default_rng(0))
    while replay.oldest_row == 0:
        memory.add(rows)
    for sample in memory.samples(4):
        assert (sample.rows.obs == 7).all() and (sample.rows.next_obs == 7).all()
    print(len(memory), Replay.estimate_bytes(*arguments, frame_stacks={"": 4}), resident() - before)
"""


def test_atari_transitions_stay_under_the_estimate():
    command = [sys.executable, "-c", textwrap.dedent(FILL)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    n, estimate, grown = map(int, done.stdout.split())
    assert n == 20_000
    assert estimate < 145e6
    assert 0.95 * estimate < grown < estimate + 30e6  # slack: the batches, and the allocator's own


# -- whether it fits ----------------------------------------------------------------------------


def test_too_large_a_replay_is_refused_with_numbers_and_the_fix():
    with pytest.raises(ConfigError) as caught:
        check_fits(7 * 2**30 + 2**29, 2 * 2**30)
    text = str(caught.value)
    assert "takes 7.50 GiB, but only 2.00 GiB" in text
    assert "smaller buffer_size" in text
    assert "replay_dir" in text


def test_what_fits_passes():
    check_fits(100, 100)


@pytest.fixture(autouse=True)
def _one_megabyte(monkeypatch):
    memory = SimpleNamespace(available=MEGABYTE)
    monkeypatch.setattr("gymnasium_solver.data.memory_check.psutil.virtual_memory", lambda: memory)


INSIDE = {"memory.max": "300000\n", "memory.current": "100000\n"}
V2 = {
    "box/memory.max": "500000\n",
    "box/memory.current": "200000\n",
    "box/memory.stat": "anon 1\ninactive_file 50000\nactive_file 3\n",
}
V1 = {
    "memory/memory.limit_in_bytes": "400000\n",
    "memory/memory.usage_in_bytes": "150000\n",
    "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 50000\n",
}
CGROUPS: dict[str, tuple[str, dict[str, str], int]] = {
    "without a limit": ("0::/user\n", {"user/memory.max": "max\n"}, MEGABYTE),
    "a v2 limit less what is used": ("0::/box/inner\n", V2, 500000 - (200000 - 50000)),
    "v2, seen from inside a container": ("0::/\n", INSIDE, 200000),
    "a v1 limit": ("5:cpu,cpuacct:/x\n4:memory:/docker/1234\n0::/\n", V1, 300000),
    "v1, without a limit": (
        "4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MEGABYTE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CGROUPS)
def test_memory_of_the_cgroup(name, tmp_path):
    cgroup, files, expected = CGROUPS[name]
    assert available_memory_bytes(tmp_path) == MEGABYTE, "without cgroups: the machine's"
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    for file, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert available_memory_bytes(tmp_path) == expected


# -- memory-mapped ------------------------------------------------------------------------------


def test_a_directory_that_cannot_hold_it_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"replay_dir: .*missing cannot hold a file"):
        Replay(10, 1, ATARI, ACTIONS, directory=str(tmp_path / "missing"))
