"""`gs.ui()`: the web app inside a notebook, as a frame of the page.

    import gymnasium_solver as gs

    gs.ui()                              # all runs
    gs.ui("compare?runs=a1b2,c3d4")      # a page of the app
    page = gs.ui(); page.url; page.close()

The server runs in a thread of this process, one for each folder of runs, until the process ends.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.errors import needing
from gymnasium_solver.runs.run import Run, runs_root

if TYPE_CHECKING:
    from gymnasium_solver.serve.web.app import BackgroundServer

# Pages that may show the app in a frame: notebooks on this machine, and those of editors.
NOTEBOOKS = "'self' http://localhost:* http://127.0.0.1:* https://localhost:* vscode-webview:"
_servers: "dict[tuple[Path, bool], BackgroundServer]" = {}


@dataclass
class Page:
    """What a notebook shows; `print(page.url)` elsewhere."""

    url: str
    height: int
    root: Path
    read_only: bool

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{escape(self.url)}" width="100%" height="{self.height}" '
            'style="border: 1px solid #8884; border-radius: 6px" title="gsolve"></iframe>'
        )

    def close(self) -> None:
        """End the server, and with it all frames that show it."""
        server = _servers.pop((self.root, self.read_only), None)
        if server is not None:
            server.close()


def ui(
    path: str | Run = "",
    *,
    runs_dir: str | Path | None = None,
    height: int = 720,
    read_only: bool = False,
) -> Page:
    """Show the web app: all runs, a run, or the page of the app that `path` names."""
    with needing("the web app is not installed: pip install 'gymnasium-solver[ui]'"):
        from gymnasium_solver.serve.web.app import BackgroundServer
        from gymnasium_solver.serve.web.security import DEFAULT_PORT, Settings
    if isinstance(path, Run):
        runs_dir = path.path.parent if runs_dir is None else runs_dir
        path = f"runs/{path.id}"
    root = runs_root(runs_dir).absolute()
    server = _servers.get((root, read_only))
    if server is None:
        settings = Settings(
            root=root, port=DEFAULT_PORT, read_only=read_only, frame_ancestors=NOTEBOOKS
        )
        server = _servers[root, read_only] = BackgroundServer(settings)
    return Page(server.settings.url + path.lstrip("/"), height, root, read_only)
