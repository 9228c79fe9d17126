"""What the inspector asks: recorded episodes of a run, and playing new ones.

Columns are rows of little-endian float32, frames come in packs of many (runs/episodes.py). Reading
imports neither torch nor an environment; a helper process plays.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from starlette.responses import Response

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.episode_tables import first_difference, notable, reward_parts, write_csv
from gymnasium_solver.runs.episodes import (
    CHUNK,
    Episode,
    get_episode,
    is_episode_id,
    list_episodes,
    worst_first,
)
from gymnasium_solver.runs.files import picked
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.questions import Answer, BadRequest, OneRun, Seed, Within
from gymnasium_solver.serve.web.episode_file import episode_page
from gymnasium_solver.serve.web.handling import Web, answer, attachment

FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
# Images are compressed already; naming an encoding keeps the gzip middleware away.
AS_IT_IS = {"content-encoding": "identity"}
BYTES = "application/octet-stream"
MOST_RUNS = 100
MOST_TRIED = 100
INDEX = "id name env_id status solved stop_reason seed created_at env_steps best_score"
BRIEF = "env_id env_steps seed greedy created_at parent why max_steps"


def _of_the_run(name: str, value: str, asked: Mapping[str, Any]) -> Episode:
    """Only a whole id, which has no parts of a path."""
    run = asked["run"]
    if not is_episode_id(value):
        raise RunError(f"{run.id} has no episode {value[:80]!r}")
    return get_episode(run, value)


OneEpisode = Annotated[Episode, _of_the_run]
FromRow = Annotated[int, Within(0, 10**9, clamps=True)]


# -- reading ----------------------------------------------------------------------------------


def episodes(web: Web, run: OneRun) -> Answer:
    found = [
        {"id": one.id, "status": one.status, "n_frames": one.n_frames("render")}
        | picked(one.facts, BRIEF)
        | one.result
        for one in worst_first(list_episodes(run))
    ]
    summary = get_run(run)
    return picked(summary, "name status checkpoints") | {"run": run.id, "episodes": found}


def inspected(web: Web) -> Answer:
    """The newest runs with a checkpoint, each with its newest recorded episode."""
    rows = []
    for summary in web.store.runs(3600.0):
        if not summary.checkpoints:
            continue
        known = list_episodes(Run(Path(summary.path)))
        newest = max(known, key=lambda one: str(one.facts.get("created_at")), default=None)
        rows.append(
            picked(summary, f"{INDEX} test=test_mean")
            | {"n_episodes": len(known), "episode": newest and newest.id}
            | {"n_frames": newest.n_frames("render") if newest else 0}
            | {"return": newest and newest.total}
        )
        if len(rows) == MOST_RUNS:
            break
    return {"runs": rows}


def episode_facts(web: Web, run: OneRun, episode: OneEpisode) -> Answer:
    facts = episode.to_dict() | {"chunk": CHUNK}
    if not episode.is_running:  # while it is played, only what grows is asked for
        facts |= {"notable": notable(episode), "reward_parts": reward_parts(episode)}
    return facts


def columns(web: Web, run: OneRun, episode: OneEpisode, from_: FromRow = 0) -> Response:
    return Response(episode.rows(from_), media_type=BYTES)


def derived(web: Web, run: OneRun, episode: OneEpisode) -> Response:
    return Response(episode.derived_bytes(), media_type=BYTES)


def info(web: Web, run: OneRun, episode: OneEpisode, from_: FromRow = 0) -> list[dict[str, Any]]:
    return episode.info()[from_:]


def frames(web: Web, run: OneRun, episode: OneEpisode, view: str, chunk: int) -> Response:
    pack = episode.pack(view, chunk)
    is_whole = not episode.is_running or episode.n_frames(view) >= (chunk + 1) * CHUNK
    return Response(pack, media_type=BYTES, headers=AS_IT_IS | (FOREVER if is_whole else {}))


def frame(web: Web, run: OneRun, episode: OneEpisode, view: str, t: int) -> Response:
    body = episode.frame(view, t)
    return Response(body, media_type=episode.mime(view), headers=AS_IT_IS | FOREVER)


def as_csv(web: Web, run: OneRun, episode: OneEpisode) -> Response:
    file = io.StringIO()
    write_csv(episode, file)
    return attachment(file.getvalue(), f"{episode.id}.csv", "text/csv")


def as_page(web: Web, run: OneRun, episode: OneEpisode) -> Response:
    return attachment(episode_page(episode), f"{episode.id}.html", "text/html")


def difference(web: Web, run: OneRun, episode: OneEpisode, with_: OneEpisode) -> Answer:
    return first_difference(episode, with_)


# -- playing ----------------------------------------------------------------------------------


def _checkpoint(name: str, value: Any, asked: Mapping[str, Any]) -> str:
    text = str(value)
    if text not in ("@best", "@last") and not (text.isdecimal() and len(text) < 20):
        raise BadRequest(f"{name!r} must be @best, @last or env steps")
    return text


def _branch(name: str, value: Any, asked: Mapping[str, Any]) -> Answer:
    if not isinstance(value, dict) or not is_episode_id(str(value.get("of"))):
        raise BadRequest(f"{name!r} must have 'of', the id of an episode, and 'at', a step")
    at, action = value.get("at"), value.get("action")
    if type(at) is not int or not 0 <= at <= 10**9:
        raise BadRequest("'at' must be a whole number from 0 to 1000000000")
    parts = action if isinstance(action, list) else [action]
    fits = all(one is None or isinstance(one, int | float | str) for one in parts)
    if not fits or len(parts) > 1000 or len(str(action)) > 20_000:
        raise BadRequest("'action' must be a number, a label or a list of numbers")
    return {"of": str(value["of"]), "at": at, "action": action}


def _short(name: str, value: str, asked: Mapping[str, Any]) -> str:
    if len(value) > 40:
        raise BadRequest(f"{name!r} must be a short text")
    return value


async def play(
    web: Web,
    run: OneRun,
    checkpoint: Annotated[Any | None, _checkpoint] = None,
    seed: Seed = "test",
    greedy: bool | None = None,
    max_steps: Annotated[int | None, Within(1, 50_000)] = None,
    branch: Annotated[Any | None, _branch] = None,
    worst_of: Annotated[int, Within(1, MOST_TRIED)] = 1,
    trust: bool = False,
) -> Response:
    """Play an episode: answered as soon as it can be read, while it goes on being played. With
    `worst_of` that of so many seeds, from `seed` on, which has the lowest return."""
    job = {"op": "play", "run": run.id, "checkpoint": checkpoint, "seed": seed, "greedy": greedy}
    job |= {"max_steps": max_steps, "branch": branch, "trust": trust, "worst_of": worst_of}
    return answer(await web.player.ask(job), 202)


def player(web: Web) -> Answer:
    """What the process that plays is doing before the first answer, in words."""
    return {"phase": web.player.phase}


async def saliency(
    web: Web,
    run: OneRun,
    episode: OneEpisode,
    t: Annotated[int, Within(0, 10**9)],
    method: Annotated[str, _short] = "gradcam",
    target: Annotated[str, _short] = "action",
    trust: bool = False,
) -> Answer:
    job = {"op": "saliency", "run": run.id, "episode": episode.id, "t": t, "method": method}
    return await web.player.ask(job | {"target": target, "trust": trust})


async def stop(web: Web, run: OneRun, episode: OneEpisode) -> Answer:
    return {"stopped": await web.player.stop(episode=episode.id)}


def delete(web: Web, run: OneRun, episode: OneEpisode) -> Answer:
    episode.delete()
    return {"deleted": episode.id}


_ALL = "/api/runs/{run}/episodes"
_ONE = _ALL + "/{episode}"
QUESTIONS = {
    "GET /api/inspect": inspected,
    "GET /api/player": player,
    f"GET {_ALL}": episodes,
    f"POST {_ALL}": play,
    f"GET {_ONE}": episode_facts,
    f"GET {_ONE}/columns": columns,
    f"GET {_ONE}/derived": derived,
    f"GET {_ONE}/info": info,
    f"GET {_ONE}/frames/{{view}}/{{chunk:int}}": frames,
    f"GET {_ONE}/frame/{{view}}/{{t:int}}": frame,
    f"GET {_ONE}/csv": as_csv,
    f"GET {_ONE}/page": as_page,
    f"GET {_ONE}/difference": difference,
    f"POST {_ONE}/saliency": saliency,
    f"POST {_ONE}/stop": stop,
    f"POST {_ONE}/delete": delete,
}
