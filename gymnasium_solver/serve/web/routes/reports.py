"""`GET api/report.html?runs&episodes`: one file about runs that opens without a server;
`episodes` of the run, by id, play in it."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gymnasium_solver.experiments.report import comparison_page
from gymnasium_solver.runs.episodes import get_episode
from gymnasium_solver.runs.report_facts import read_facts
from gymnasium_solver.runs.report_page import run_page
from gymnasium_solver.serve.web.episode_page import with_episodes
from gymnasium_solver.serve.web.respond import BadRequest, in_thread, runs_of

MOST_RUNS = 50
MOST_EPISODES = 4


def routes() -> list[BaseRoute]:
    return [Route("/api/report.html", in_thread(report))]


def report(request: Request) -> Response:
    runs = runs_of(request, most=MOST_RUNS)
    facts = [read_facts(run) for run in runs]
    root = runs[0].path.parent
    text = run_page(facts[0]) if len(facts) == 1 else comparison_page(facts, root)
    names = [name for name in request.query_params.get("episodes", "").split(",") if name]
    if len(names) > MOST_EPISODES or (names and len(facts) > 1):
        raise BadRequest(f"'episodes': up to {MOST_EPISODES}, of one run")
    text = with_episodes(text, [get_episode(facts[0].run, name) for name in names])
    headers = {
        "content-disposition": 'attachment; filename="report.html"',
        # Should a browser show it after all, then without rights on this server.
        "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; "
        "img-src data:; media-src data:",
    }
    return Response(text.encode(errors="replace"), media_type="text/html", headers=headers)
