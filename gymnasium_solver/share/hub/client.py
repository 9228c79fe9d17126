"""The Hub's client: huggingface_hub, with errors of one line.

The token is the one of `hf auth login` or $HF_TOKEN; $HF_ENDPOINT names another server.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import ConfigError, RunError, first_line, needing

_REPO = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
FIXES = {
    401: "you are not logged in. Run: hf auth login",
    403: "your token may not write there. Run: hf auth login, with a token that may write",
    409: "it exists already",
    412: "somebody else has changed it meanwhile; try again",
    429: "too many requests; try again later",
}


def api() -> Any:
    with needing(
        "the Hub needs the package huggingface_hub: pip install 'gymnasium-solver[hub]'", RunError
    ):
        from huggingface_hub import HfApi
    # The endpoint is passed, as the package reads the variable only when it is imported.
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="gymnasium-solver")


def check_repo(repo_id: str) -> str:
    if not _REPO.fullmatch(repo_id) or ".." in repo_id:
        raise ConfigError(f"{repo_id!r} is not a repository of the Hub; expected USER/NAME.")
    return repo_id


def user_name() -> str:
    with hub_errors("your account"):
        return str(api().whoami()["name"])


@contextmanager
def hub_errors(what: str) -> Iterator[None]:
    """Turns the client's errors into one line that says what to do."""
    try:
        from huggingface_hub import errors as hub
    except ImportError:
        api()  # says what to install
        raise
    try:
        yield
    except hub.RepositoryNotFoundError:
        raise RunError(
            f"the Hub has no repository {what}, or it is private and you are not logged in "
            "(hf auth login)."
        ) from None
    except hub.LocalTokenNotFoundError:
        raise RunError(f"{what}: you are not logged in to the Hub. Run: hf auth login") from None
    except hub.RevisionNotFoundError:
        raise RunError(f"{what} has no such revision.") from None
    except hub.HfHubHTTPError as error:
        code = int(getattr(getattr(error, "response", None), "status_code", 0))
        fix = FIXES.get(code, first_line(error))
        raise RunError(f"{what}: the Hub answers {code}: {fix}") from None
    except (OSError, ValueError, RuntimeError) as error:  # no connection, a bad argument
        raise RunError(f"{what}: {first_line(error)}") from None
    except Exception as error:  # the HTTP library's own errors
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore"):
            raise
        raise RunError(f"the Hub cannot be reached: {first_line(error)}") from None


def commit(
    repo_id: str, files: Mapping[str, bytes], message: str, *, private: bool, kind: str
) -> str:
    """Create the repository if needed and add all files in one commit; return its address."""
    hub = api()
    from huggingface_hub import CommitOperationAdd

    with hub_errors(repo_id), _quiet_bars():
        hub.create_repo(repo_id, repo_type=kind, private=private, exist_ok=True)
        adds = [CommitOperationAdd(path_in_repo=n, path_or_fileobj=d) for n, d in files.items()]
        done = hub.create_commit(repo_id, adds, commit_message=message, repo_type=kind)
    return str(done.repo_url)


def listed(repo_id: str, kind: str, revision: str | None = None) -> tuple[str, list[str]]:
    """The commit that a revision means, and the names of its files."""
    with hub_errors(repo_id):
        info = api().repo_info(repo_id, repo_type=kind, revision=revision)
        names = api().list_repo_files(repo_id, repo_type=kind, revision=info.sha)
    return str(info.sha), [str(name) for name in names]


def download(repo_id: str, kind: str, sha: str, names: list[str], folder: Path) -> None:
    """Fetch files of a commit into a folder."""
    from huggingface_hub import hf_hub_download

    endpoint = os.environ.get("HF_ENDPOINT")
    with hub_errors(repo_id), _quiet_bars():
        for name in names:
            hf_hub_download(repo_id, name, repo_type=kind, revision=sha, local_dir=folder,
                            endpoint=endpoint)  # fmt: skip


@contextmanager
def _quiet_bars() -> Iterator[None]:
    from huggingface_hub import utils

    was_disabled = utils.are_progress_bars_disabled()
    utils.disable_progress_bars()
    try:
        yield
    finally:
        if not was_disabled:
            utils.enable_progress_bars()
