"""Recorded episodes: packs, columns and their reader, also while they are written and damaged."""

import io
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.episode_tables import first_difference, notable, table, write_csv
from gymnasium_solver.runs.episodes import (
    CHUNK,
    DERIVED,
    HEADER,
    Episode,
    EpisodeWriter,
    PackWriter,
    get_episode,
    is_episode_id,
    list_episodes,
    offsets_of,
    pack_path,
    worst_first,
)
from gymnasium_solver.runs.run import Run

SINGLE = ("reward", "return", "is_greedy", "forced", "terminated", "truncated", "action")
FACTS: dict[str, Any] = {
    "env_steps": 100, "seed": 7, "greedy": True, "env_id": "Some-v0",
    "columns": [
        *({"name": name, "width": 1, "labels": []} for name in SINGLE),
        {"name": "obs", "width": 2, "labels": ["x", "y"]},
    ],
    "action": {"kind": "discrete", "dtype": "|u1", "shape": [], "names": ["a", "b"]},
    "frames": {"render": {"format": "png", "width": 1, "height": 1}},
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path / "r")
    made.path.mkdir()
    made.meta_path.write_text("{}")
    return made


def write(run: Run, rewards: list[float], actions: list[int], *, ends: bool = True) -> Episode:
    """An episode whose observations are its count and the last action."""
    writer = EpisodeWriter.create(run, FACTS)
    total, last = 0.0, 0
    for t, (reward, action) in enumerate(zip(rewards, actions, strict=True)):
        is_end = float(ends and t == len(rewards) - 1)
        row = np.array([reward, total, 1, 0, is_end, 0, action, t, last], np.float32)
        writer.add(row, np.array(action, np.uint8), bytes([t, last] * 4), {"action": "ab"[action]})
        writer.add_frame("render", b"frame%d" % t)
        total, last = total + reward, action
    end = np.full(9, np.nan, np.float32)
    writer.add(end, None, bytes([len(rewards), last] * 4))
    writer.add_frame("render", b"frame%d" % len(rewards))
    derived = np.zeros((len(rewards) + 1, 3), np.float32)
    return writer.finish(derived, {"steps": len(rewards), "return": total, "ended": "terminated"})


@pytest.fixture
def bare(tmp_path: Path) -> Episode:
    """An episode without frames."""
    (tmp_path / "episode.json").write_text('{"format": 1}')
    return Episode(tmp_path)


# -- packs ------------------------------------------------------------------------------------


def test_a_pack_gives_every_frame_back_across_chunks(tmp_path: Path, bare: Episode) -> None:
    writer = PackWriter(tmp_path, "render")
    bodies = [os.urandom(1 + i % 7) for i in range(2 * CHUNK + 5)]
    for t, body in enumerate(bodies):
        writer.add(body)
        assert bare.n_frames("render") == t + 1  # readable while it is written
    assert [bare.frame("render", t) for t in range(len(bodies))] == bodies
    assert len(offsets_of(bare.pack("render", 1))) == CHUNK + 1
    with pytest.raises(RunError, match=f"no frame of step {len(bodies)}"):
        bare.frame("render", len(bodies))
    with pytest.raises(RunError, match="no frames"):
        bare.frame("render", 3 * CHUNK)


def test_a_frame_that_was_being_written_at_a_kill_does_not_count(
    tmp_path: Path, bare: Episode
) -> None:
    writer = PackWriter(tmp_path, "net")
    writer.add(b"whole")
    path = pack_path(tmp_path, "net", 0)
    with path.open("ab") as file:
        file.write(b"half of the next o")
    assert bare.n_frames("net") == 1
    assert bare.frame("net", 0) == b"whole"


@pytest.mark.parametrize(
    "numbers",
    [(65, HEADER), (1, HEADER, 1 << 20), (1, 0, HEADER), (2, HEADER, HEADER + 9, HEADER + 3)],
)
def test_damaged_packs_are_refused(tmp_path: Path, bare: Episode, numbers: tuple[int, ...]) -> None:
    head = struct.pack(f"<{len(numbers)}I", *numbers)
    pack_path(tmp_path, "net", 0).write_bytes(head + bytes(HEADER - len(head)) + b"0123456789")
    with pytest.raises(RunError, match="damaged"):
        bare.frame("net", 0)


def test_a_pack_that_is_a_link_is_not_followed(tmp_path: Path, bare: Episode) -> None:
    (tmp_path / "secret").write_bytes(bytes(HEADER))
    pack_path(tmp_path, "net", 0).symlink_to(tmp_path / "secret")
    with pytest.raises(RunError, match="not a frame pack"):
        bare.pack("net", 0)


# -- episodes ---------------------------------------------------------------------------------


def test_an_episode_reads_back_as_it_was_written(run: Run) -> None:
    episode = write(run, [1.0, 1.0, -5.0], [0, 1, 1])
    again = get_episode(run, episode.id)
    assert again.status == "done"
    assert again.total == -3.0
    assert again.n_rows == 4
    assert again.actions().tolist() == [0, 1, 1]
    columns = again.columns()
    assert columns["obs"].shape == (4, 2)
    assert columns["reward"][:3].tolist() == [1, 1, -5]
    assert columns["advantage"].shape == (4,)
    assert again.frame("render", 3) == b"frame3"
    assert again.mime("render") == "image/png"
    assert [row.get("action") for row in again.info()] == ["a", "b", "b", None]
    assert get_episode(run, episode.id[-4:]).id == episode.id  # a unique part


def test_an_episode_can_be_read_while_it_is_played(run: Run) -> None:
    writer = EpisodeWriter.create(run, FACTS)
    writer.add(np.arange(9, dtype=np.float32), np.array(1, np.uint8), bytes(8))
    episode = get_episode(run, writer.facts["id"])
    assert episode.is_running
    assert episode.n_rows == 1
    assert not set(DERIVED) & episode.columns().keys()
    with pytest.raises(RunError, match="being played"):
        episode.delete()
    writer.fail("it broke")
    failed = get_episode(run, episode.id)
    assert failed.status == "failed"
    assert failed.facts["why"] == "it broke"
    failed.delete()
    assert list_episodes(run) == []


def test_an_episode_whose_player_was_killed_is_interrupted(run: Run) -> None:
    code = (
        "import os, sys, numpy as np; from pathlib import Path\n"
        "from gymnasium_solver.runs.run import Run\n"
        "from gymnasium_solver.runs.episodes import EpisodeWriter\n"
        "from tests.runs.test_episode_files import FACTS\n"
        "writer = EpisodeWriter.create(Run(Path(sys.argv[1])), FACTS)\n"
        "writer.add(np.zeros(9, np.float32), np.array(1, np.uint8), bytes(8))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(run.path)], check=False)
    (episode,) = list_episodes(run)
    assert episode.status == "interrupted"
    assert episode.n_rows == 1


def test_reading_episodes_imports_no_torch(run: Run) -> None:
    episode = write(run, [1.0], [0])
    code = (
        "import sys; from pathlib import Path\n"
        "from gymnasium_solver.runs.run import Run\n"
        "from gymnasium_solver.runs.episodes import get_episode\n"
        "from gymnasium_solver.runs.episode_tables import notable\n"
        "one = get_episode(Run(Path(sys.argv[1])), sys.argv[2])\n"
        "one.columns(), one.frame('render', 0), notable(one)\n"
        "assert not {'torch', 'gymnasium'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code, str(run.path), episode.id], check=True)


@pytest.mark.parametrize("name", ["../x", "1-seed1-greedy-ab/..", "", "/etc", "1-seed1-greedy-zz"])
def test_ids_with_paths_name_no_episode(run: Run, name: str) -> None:
    write(run, [1.0], [0])
    assert not is_episode_id(name)
    with pytest.raises(RunError, match=r"no episode|matches"):
        get_episode(run, name)


@pytest.mark.parametrize(
    "facts",
    [
        "{}",
        "[1]",
        '{"format": 2}',
        '{"format": 1, "columns": [{"name": "x", "width": -1}]}',
        '{"format": 1, "columns": []}',
        '{"format": 1, "columns": [{"name": "x", "width": 1}], "action": {"dtype": "O"}}',
    ],
)
def test_damaged_facts_are_an_error_of_one_line(run: Run, facts: str) -> None:
    name = write(run, [1.0], [0]).id
    (run.path / "episodes" / name / "episode.json").write_text(facts)
    with pytest.raises(RunError) as error:  # noqa: PT012
        episode = get_episode(run, name)
        episode.columns()
        episode.actions()
    assert "\n" not in str(error.value)


def test_worst_first(run: Run) -> None:
    totals = [3.0, -1.0, 2.0]
    for total in totals:
        write(run, [total], [0])
    assert [one.total for one in worst_first(list_episodes(run))] == sorted(totals)


# -- what is read out of them -----------------------------------------------------------------


def test_notable_steps_are_unusual_rewards_and_ends(run: Run) -> None:
    rewards = [1.0] * 10 + [-100.0]
    assert notable(write(run, rewards, [0] * 11)) == [
        {"step": 10, "why": ["reward -100", "terminated"]}
    ]


def test_the_first_difference_is_the_first_other_action(run: Run) -> None:
    one = write(run, [1.0] * 4, [0, 1, 0, 0])
    other = write(run, [1.0] * 4, [0, 1, 1, 0])
    longer = write(run, [1.0] * 6, [0, 1, 0, 0, 1, 1])
    assert first_difference(one, other) == {"step": 2, "what": "action", "same_start": True}
    assert first_difference(one, longer)["step"] is None


def test_the_table_has_a_row_for_each_state_and_no_formulas(run: Run) -> None:
    writer = EpisodeWriter.create(run, FACTS)
    told = {"action": "=SUM(A1)", "info": {"lives": 3}}
    writer.add(np.arange(9, dtype=np.float32), np.array(1, np.uint8), bytes(8), told)
    episode = writer.finish(None, {"return": 1.0})
    file = io.StringIO()
    write_csv(episode, file)
    head, row = file.getvalue().splitlines()
    assert head.split(",") == table(episode)[0]
    assert "obs x" in head
    assert "lives" in head
    assert row.split(",")[:2] == ["0", "'=SUM(A1)"]
