"""Recorded episodes of a run, and playing new ones: what the inspector's page needs.

    GET  api/runs/{run}/episodes                        all, worst first
    POST api/runs/{run}/episodes                        play one: {checkpoint, seed, greedy,
                                                        max_steps, branch: {of, at, action}, trust}
    GET  api/runs/{run}/episodes/{episode}              facts, notable steps, parts of the reward
    GET  .../columns?from=ROW, .../derived              rows of little-endian float32
    GET  .../info?from=ROW                              actions in words, info of the steps
    GET  .../frames/{view}/{chunk}, .../frame/{view}/{t}    a pack, one image
    GET  .../csv, .../page (one file that plays), .../difference?with=EPISODE
    POST .../saliency {t, method, target}, .../stop, .../delete

Reading imports neither torch nor an environment; another process plays (inspect_process.py).
"""

import io
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gymnasium_solver.errors import RunError, TrustError
from gymnasium_solver.runs.checkpoint import list_checkpoints
from gymnasium_solver.runs.episode_tables import (
    first_difference,
    notable,
    reward_parts,
    write_csv,
)
from gymnasium_solver.runs.episodes import (
    Episode,
    get_episode,
    is_episode_id,
    list_episodes,
    worst_first,
)
from gymnasium_solver.runs.packs import CHUNK
from gymnasium_solver.serve.web.episode_page import episode_page
from gymnasium_solver.serve.web.inspect_process import InspectWorker, WorkerError
from gymnasium_solver.serve.web.respond import (
    BadRequest,
    answer,
    body_of,
    in_thread,
    number,
    run_of,
)

BASE = "/api/runs/{run}/episodes"
ONE = BASE + "/{episode}"
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
# Images are compressed already; naming an encoding keeps the gzip middleware away.
AS_IT_IS = {"content-encoding": "identity"}
BYTES = "application/octet-stream"


def routes() -> list[BaseRoute]:
    return [
        Route(BASE, in_thread(episodes), methods=["GET"]),
        Route(BASE, play, methods=["POST"]),
        Route(ONE, in_thread(episode_facts)),
        Route(ONE + "/columns", in_thread(columns)),
        Route(ONE + "/derived", in_thread(derived)),
        Route(ONE + "/info", in_thread(info)),
        Route(ONE + "/frames/{view}/{chunk:int}", in_thread(frames)),
        Route(ONE + "/frame/{view}/{t:int}", in_thread(frame)),
        Route(ONE + "/csv", in_thread(as_csv)),
        Route(ONE + "/page", in_thread(as_page)),
        Route(ONE + "/difference", in_thread(difference)),
        Route(ONE + "/saliency", saliency, methods=["POST"]),
        Route(ONE + "/stop", stop, methods=["POST"]),
        Route(ONE + "/delete", delete, methods=["POST"]),
    ]


def episode_of(request: Request, name: str | None = None) -> Episode:
    """The episode that the path names; only a whole id, which has no parts of a path."""
    name = request.path_params["episode"] if name is None else name
    run = run_of(request)
    if not is_episode_id(name):
        raise RunError(f"{run.id} has no episode {name[:80]!r}")
    return get_episode(run, name)


def worker_of(request: Request) -> InspectWorker:
    web = request.app.state.web
    worker: InspectWorker | None = getattr(request.app.state, "inspect_worker", None)
    if worker is None:
        worker = request.app.state.inspect_worker = InspectWorker(web.settings.root)
        web.closing.push_async_callback(worker.close)
    return worker


# -- reading ----------------------------------------------------------------------------------


def brief(episode: Episode) -> dict[str, Any]:
    names = (
        "env_id", "env_steps", "seed", "greedy", "created_at", "parent", "why", "max_steps",
    )  # fmt: skip
    facts = {name: episode.facts.get(name) for name in names}
    n_frames = episode.n_frames("render")
    return {"id": episode.id, "status": episode.status, "n_frames": n_frames, **facts,
            **episode.result}  # fmt: skip


def episodes(request: Request) -> dict[str, Any]:
    run = run_of(request)
    found = worst_first(list_episodes(run))
    checkpoints = [
        {"env_steps": c.env_steps, "best": c.is_best, "last": c.is_last, "score": c.score}
        for c in list_checkpoints(run.checkpoints_dir)
    ]
    return {
        "run": run.id,
        "episodes": [brief(episode) for episode in found],
        "checkpoints": checkpoints,
    }


def episode_facts(request: Request) -> dict[str, Any]:
    episode = episode_of(request)
    facts = episode.to_dict()
    if not episode.is_running:  # while it is played, only what grows is asked for
        facts |= {"notable": notable(episode), "reward_parts": reward_parts(episode)}
    return {**facts, "chunk": CHUNK}


def columns(request: Request) -> Response:
    episode = episode_of(request)
    start = number(request, "from", 0, 0, 10**9)
    return Response(episode.rows(start), media_type=BYTES)


def derived(request: Request) -> Response:
    return Response(episode_of(request).derived_bytes(), media_type=BYTES)


def info(request: Request) -> list[dict[str, Any]]:
    start = number(request, "from", 0, 0, 10**9)
    return episode_of(request).info()[start:]


def frames(request: Request) -> Response:
    episode = episode_of(request)
    view, chunk = request.path_params["view"], request.path_params["chunk"]
    pack = episode.pack(view, chunk)
    is_whole = not episode.is_running or episode.n_frames(view) >= (chunk + 1) * CHUNK
    headers = {**AS_IT_IS, **(FOREVER if is_whole else {})}
    return Response(pack, media_type=BYTES, headers=headers)


def frame(request: Request) -> Response:
    episode = episode_of(request)
    view, t = request.path_params["view"], request.path_params["t"]
    body = episode.frame(view, t)
    return Response(body, media_type=episode.mime(view), headers={**AS_IT_IS, **FOREVER})


def as_csv(request: Request) -> Response:
    episode = episode_of(request)
    file = io.StringIO()
    write_csv(episode, file)
    name = f"{episode.id}.csv"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(file.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def as_page(request: Request) -> Response:
    episode = episode_of(request)
    headers = {"content-disposition": f'attachment; filename="{episode.id}.html"'}
    text = episode_page(episode)
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


def difference(request: Request) -> dict[str, Any]:
    other = request.query_params.get("with", "")
    return first_difference(episode_of(request), episode_of(request, other))


# -- the worker -------------------------------------------------------------------------------


async def play(request: Request) -> Response:
    job = checked_job(await body_of(request))
    job["run"] = run_of(request).id
    return await _asked(worker_of(request).play(job), 202)


async def saliency(request: Request) -> Response:
    body, episode = await body_of(request), episode_of(request)
    job = {
        "op": "saliency",
        "run": run_of(request).id,
        "episode": episode.id,
        "t": whole(body, "t", 0, 10**9),
        "method": text_of(body, "method", "gradcam"),
        "target": text_of(body, "target", "action"),
        "trust": body.get("trust") is True,
    }
    return await _asked(worker_of(request).ask(job), 200)


async def _asked(question: Any, status: int) -> Response:
    try:
        return answer(await question, status)
    except TrustError as error:
        return answer({"error": str(error), "needs_trust": True}, 409)
    except WorkerError as error:
        return answer({"error": str(error)}, 503)


async def stop(request: Request) -> Response:
    episode = episode_of(request)
    return answer({"stopped": await worker_of(request).stop(episode.id)})


async def delete(request: Request) -> Response:
    episode = episode_of(request)
    episode.delete()
    return answer({"deleted": episode.id})


def checked_job(body: dict[str, Any]) -> dict[str, Any]:
    """What a page asks to play; BadRequest for anything else."""
    known = ("checkpoint", "seed", "greedy", "max_steps", "branch", "trust")
    unknown = sorted(set(body) - set(known))
    if unknown:
        raise BadRequest(f"unknown: {', '.join(unknown)[:100]}; expected {', '.join(known)}")
    job: dict[str, Any] = {"trust": body.get("trust") is True}
    checkpoint = body.get("checkpoint")
    if checkpoint is not None:
        text = str(checkpoint)
        if text not in ("@best", "@last") and not (text.isdecimal() and len(text) < 20):
            raise BadRequest("'checkpoint' must be @best, @last or env steps")
        job["checkpoint"] = text
    seed = body.get("seed", "test")
    is_seed = type(seed) is int and 0 <= seed < 2**31
    if not is_seed and seed not in ("test", "val", "train"):
        raise BadRequest("'seed' must be test, val, train or a number below 2^31")
    greedy = body.get("greedy")
    if greedy is not None and not isinstance(greedy, bool):
        raise BadRequest("'greedy' must be true or false")
    job |= {"seed": seed, "greedy": greedy}
    if body.get("max_steps") is not None:
        job["max_steps"] = whole(body, "max_steps", 1, 50_000)
    if (branch := body.get("branch")) is not None:
        job["branch"] = checked_branch(branch)
    return job


def checked_branch(branch: Any) -> dict[str, Any]:
    if not isinstance(branch, dict) or not is_episode_id(str(branch.get("of"))):
        raise BadRequest("'branch' must have 'of', the id of an episode, and 'at', a step")
    action = branch.get("action")
    numbers = action if isinstance(action, list) else [action]
    fits = all(one is None or isinstance(one, int | float | str) for one in numbers)
    if not fits or len(numbers) > 1000 or len(str(action)) > 20_000:
        raise BadRequest("'action' must be a number, a label or a list of numbers")
    return {"of": str(branch["of"]), "at": whole(branch, "at", 0, 10**9), "action": action}


def whole(body: dict[str, Any], name: str, low: int, high: int) -> int:
    value = body.get(name)
    if type(value) is not int or not low <= value <= high:
        raise BadRequest(f"{name!r} must be a whole number from {low} to {high}")
    return value


def text_of(body: dict[str, Any], name: str, default: str) -> str:
    value = body.get(name, default)
    if not isinstance(value, str) or len(value) > 40:
        raise BadRequest(f"{name!r} must be a short text")
    return value
