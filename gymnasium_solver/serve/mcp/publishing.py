"""The tool that publishes a run, which a server has only with --allow-publish."""

import json
import re

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult

from gymnasium_solver.errors import RunError
from gymnasium_solver.serve.mcp.answers import answer
from gymnasium_solver.serve.mcp.commands import output_of
from gymnasium_solver.serve.mcp.control import ControlTools
from gymnasium_solver.serve.mcp.names import run_named

TIMEOUT_S = 600.0
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


class PublishTools:
    def __init__(self, control: ControlTools) -> None:
        self.control, self.root = control, control.root

    def publish_run(
        self, run: str, ctx: Context, repo: str = "", public: bool = False, dry_run: bool = True
    ) -> CallToolResult:
        """Put a run with its model card on the Hugging Face Hub, private unless public. A dry run
        lists all that would leave the machine; show that to the person first."""
        self.control.require_write(ctx)
        found = run_named(run, self.root)
        if repo and not _REPO.fullmatch(repo):
            raise RunError(f"{repo[:60]!r} is not a repository: expected USER/NAME")
        words = [str(found.path.absolute()), "--json"]
        words += ["--repo", repo] if repo else []
        words += ["--public"] if public else []
        if dry_run:
            said = output_of("publish", *words, "--dry-run", timeout_s=TIMEOUT_S)
            return answer(json.loads(said))
        given = {"run": found.id, "repo": repo, "public": public}
        with self.control.audited(ctx, "publish_run", given) as outcome:
            shown = json.loads(output_of("publish", *words, timeout_s=TIMEOUT_S))
            outcome["repo"] = shown.get("repo") or repo
        return answer(shown)
