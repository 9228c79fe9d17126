"""The topics of the API. A topic is a module with `routes() -> list[Route]`; add it to TOPICS."""

from collections.abc import Sequence
from typing import Protocol

from starlette.routing import BaseRoute

from gymnasium_solver.serve.web.routes import (
    archive,
    episodes,
    groups,
    jobs,
    reports,
    run,
    runs,
    series,
    session,
    start,
    stream,
)


class Topic(Protocol):
    def routes(self) -> list[BaseRoute]: ...


TOPICS: Sequence[Topic] = (
    session,
    runs,
    archive,
    series,
    groups,
    jobs,
    start,
    reports,
    stream,
    run,
    episodes,
)
