"""`gsolve pull USER/REPO`: a published run as a run folder."""

from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "pull",
        "Download a run that was published with gsolve publish. Every file is checked against its\n"
        "manifest; pickles are never downloaded, and no code of the repository is run.",
        "examples:\n  gsolve pull ann/ppo-CartPole-v1\n"
        "  gsolve pull ann/ppo-CartPole-v1 --revision 3f2a --name reference\n\n"
        "Most verbs also take hub:USER/REPO in place of a run, and pull it at the first use.",
    )
    parser.add_argument("repo", metavar="USER/REPO", help="the repository on the Hub")
    parser.add_argument("--revision", metavar="REV", help="a commit, branch or tag")
    parser.add_argument("--name", metavar="NAME", help="name of the run (default: USER--REPO)")
    parser.add_runs_dir()
    parser.add_json()
    args = parser.read(argv)
    from gymnasium_solver.runs.query import get_run
    from gymnasium_solver.runs.run import check_run_name, runs_root
    from gymnasium_solver.share.hub.pull import pull_run

    if args.name is not None:
        check_run_name(args.name)
    repo = args.repo.removeprefix("hub:")
    run = pull_run(repo, runs_root(args.runs_dir), args.revision, args.name)
    summary = get_run(run)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        print_json({"run": run.id, "path": str(run.path), "pulled": run.meta()["pulled"]})
    else:
        score = "" if summary.test is None else f", test {summary.test['mean']:g}"
        print(f"{run.path}: {summary.env_id} by {summary.algo_id}{score}")
        print(f"gsolve eval {run.id}")
    return 0
