"""Verbs that send agents elsewhere or take them from there: `export`, `publish`, `pull`, `hub`,
`import-sb3`, `import-config` and `track`."""

import os
import re
import subprocess
import sys
from pathlib import Path

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb, yaml_values
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.paths import user_path, write_output
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run, check_run_name

DATASET = "GSOLVE_HUB_DATASET"


@verb("""
export: Write the policy of a run as a file that runs without gymnasium-solver:
the raw observation in, the environment's action out. The file is compared with the
run's policy on 1,000 observations of its environment, and not written if it differs.

RUN[/CHECKPOINT]
--format onnx|torch|c=onnx
                        onnx: every policy; torch: the same as a program of torch.export (.pt2);
                        c: one C header without dependencies, for small MLPs
-o, --out FILE          default: policy-<env_steps>.onnx, .pt2 or .h in the run
--runs-dir --trust --json

examples:
  gsolve export @last --format onnx
  gsolve export a1b2/@best --format c --out policy.h
""")
def export(args: Args) -> None:
    from gymnasium_solver.share.export.export_run import export_run

    path = Path(args.out) if args.out else None
    made = export_run(args.checkpoint, args.root(), args.format, path, trust=args.trust)
    if out.told_json(args, made):
        return
    out.show(f"{made.path}: {made.size_bytes / 1e3:,.0f} kB")
    for direction, values in (("in", made.inputs), ("out", made.outputs)):
        out.show(*(f"  {direction:<3} {name:<14} {text}" for name, text in values.items()))
    out.show(
        f"same actions as {made.run}/{made.checkpoint} on {made.compared_on}; "
        f"largest difference {made.largest_difference:.1e}"
    )
    if made.without_plans:
        text = "the run is judged by plans; the file has its learnt policy, without planning"
        out.show(text, style="yellow")
    if not made.is_judged_greedy:
        text = "the run is judged by sampled actions, which scored more on validation; the file has"
        out.show(f"{text} the most likely action", style="yellow")
    if made.env_wrappers:
        names = ", ".join(made.env_wrappers)
        out.show(f"the environment must apply these wrappers of the run: {names}", style="yellow")


@verb("""
publish: Put a run on the Hugging Face Hub, in one commit: model card with the verdict, config,
curves, video, metrics and the best checkpoint. Private unless --public is given. Host
and user names, paths and secrets are removed; --dry-run lists all that would leave.

RUN
--repo USER/NAME      default: your account and <algo>-<env>
--private             only you can see it (default)
--public              everyone can see it
--dry-run             send nothing; list every file that would be sent
--card FILE           write the model card here, to read it first
--checkpoints best|last|all=best     last: the best and the last
--allow-diff          also send the diff of the working directory
--no-video            do not send replay.mp4
--onnx                also export and send policy.onnx
--license ID=mit      licence of the weights
--runs-dir --json

examples:
  gsolve publish @last --dry-run --card card.md
  gsolve publish a1b2 --repo ann/my-agent --public
""")
def publish(args: Args) -> None:
    if args.public and args.private:
        raise UsageError("--public and --private exclude each other; without both it is private")
    from gymnasium_solver.share.hub.publish import Options, plan_publication, send

    options = Options(
        checkpoints=args.checkpoints,
        allow_diff=args.allow_diff,
        video=not args.no_video,
        onnx=args.onnx,
        licence=args.license,
    )
    plan = plan_publication(args.run, args.root(), args.repo, options)
    if args.card:
        write_output(Path(args.card), "the card", plan.package.files["README.md"].decode())
    address = None if args.dry_run else send(plan, private=not args.public)
    sizes = {name: len(content) for name, content in sorted(plan.package.files.items())}
    data = {
        "run": plan.run.id,
        "repo": plan.repo_id,
        "private": not args.public,
        "url": address,
        "files": sizes,
        "changed": plan.package.changed,
        "notes": plan.notes,
        "results": plan.results,
    }
    if out.told_json(args, data):
        return
    for name, size in sizes.items() if address is None else ():
        why = plan.package.changed.get(name)
        out.show(f"  {size:>11,}  {name}" + (f"  ({why})" if why else ""))
    out.show(*plan.notes, style="yellow")
    seen_by = "public" if args.public else "private"
    what = f"{len(sizes)} files, {plan.package.size / 1e6:.2f} MB, {seen_by}"
    if address is None:
        out.show(f"dry run: nothing was sent. It would be {plan.repo_id}: {what}")
    else:
        out.show(f"{address}: {what}; {plan.results.text}")
        out.show(f"gsolve pull {plan.repo_id}", style=out.GREY)


@verb("""
pull: Download a run that was published with gsolve publish. Every file is checked against its
manifest; pickles are never downloaded, and no code of the repository is run.

USER/REPO          the repository on the Hub
--revision REV     a commit, branch or tag
--name NAME        name of the run (default: USER--REPO)
--runs-dir --json

examples:
  gsolve pull ann/ppo-CartPole-v1
  gsolve pull ann/ppo-CartPole-v1 --revision 3f2a --name reference

Most verbs also take hub:USER/REPO in place of a run, and pull it at the first use.
""")
def pull(args: Args) -> None:
    from gymnasium_solver.share.hub.pull import pull_run

    if args.name is not None:
        check_run_name(args.name)
    run = pull_run(args.repo.removeprefix("hub:"), args.root(), args.revision, args.name)
    summary = get_run(run)
    score = "" if summary.test is None else f", test {summary.test['mean']:g}"
    text = f"{run.path}: {summary.env_id} by {summary.algo_id}{score}\ngsolve eval {run.id}"
    out.tell(args, {"run": run.id, "path": str(run.path), "pulled": run.meta()["pulled"]}, text)


@verb("""
hub: Keep many runs in one dataset of the Hugging Face Hub, for a study or a team.

push|pull|list         push runs, pull or list matching ones
[RUN|PATTERN...]       runs to push, or a pattern of ids
--repo USER/NAME       the dataset (default: $GSOLVE_HUB_DATASET)
--public               make a new dataset public
--dry-run              push: list what would be sent
--scores               list: show the scores
--checkpoints best|last|all=best     push: which checkpoints
--runs-dir --json

examples:
  gsolve hub push @last a1b2 --repo ann/cartpole-study
  gsolve hub list --repo ann/cartpole-study --scores
  gsolve hub pull 'CartPole*' --repo ann/cartpole-study
""")
def hub(args: Args) -> None:
    from gymnasium_solver.share.hub.publish import plan_push, push_runs
    from gymnasium_solver.share.hub.pull import list_remote, pull_runs

    repo = args.repo or os.environ.get(DATASET)
    if not repo:
        raise UsageError(f"which dataset? Give --repo USER/NAME, or set {DATASET}")
    if args.action == "push":
        if not args.patterns:
            raise UsageError("no run given. Usage: gsolve hub push RUN... --repo USER/NAME")
        packages = plan_push(args.patterns, args.root(), checkpoints=args.checkpoints)
        url = None if args.dry_run else push_runs(packages, repo, private=not args.public)
        runs = {p.run.id: {name: len(data) for name, data in p.files.items()} for p in packages}
        lines = []
        for run_id, files in runs.items():
            lines.append(f"{run_id}: {len(files)} files, {sum(files.values()) / 1e6:.2f} MB")
            if args.dry_run:
                lines += [f"  {size:>11,}  {name}" for name, size in sorted(files.items())]
        lines.append(f"dry run: nothing was sent to {repo}" if url is None else url)
        out.tell(args, {"repo": repo, "url": url, "runs": runs}, *lines)
        return
    if len(args.patterns) > 1:
        raise UsageError(f"expected one pattern, got {', '.join(args.patterns)}")
    pattern = args.patterns[0] if args.patterns else ""
    if args.action == "pull":
        pulled, there = pull_runs(repo, pattern, args.root())
        lines = [str(run.path) for run in pulled]
        here = [f"already here: {', '.join(there)}"] if there else []
        out.tell(args, {"pulled": lines, "there": there}, *lines, *here)
        return
    found = list_remote(repo, pattern, scores=args.scores)
    scores = [(run.results or {}).get("mean_reward") for run in found]
    lines = [
        run.id + (f"  {score:.2f}" if isinstance(score, int | float) else "")
        for run, score in zip(found, scores, strict=True)
    ]
    data = [{"id": run.id, "files": run.n_files, "results": run.results} for run in found]
    out.tell(args, data, *lines or [f"{repo} has no matching runs"])


@verb("""
import-sb3: Turn a model of Stable-Baselines3 (PPO, A2C, DQN, SAC, TD3, DDPG with MLP policies,
PPO, A2C and DQN with CNN policies) or of CleanRL (a .cleanrl_model file) into a run
that can be evaluated, watched, exported and trained further. Only tensors and plain
values are read; nothing is unpickled.

FILE                      model.zip of SB3, or a .cleanrl_model
--env-id ID               its environment (default: as the file name says)
--vec-normalize FILE      statistics of VecNormalize (vec_normalize.pkl)
--name NAME               name of the run
--episodes N=100          held-out episodes to score it
--no-eval                 do not score it
-s, --set KEY=VALUE       a field of the config; repeatable
--runs-dir --json

examples:
  gsolve import-sb3 ppo-CartPole-v1.zip
  gsolve import-sb3 model.zip --env-id HalfCheetah-v5 --vec-normalize vec_normalize.pkl
  gsolve import-sb3 ppo.cleanrl_model --env-id CartPole-v1
""")
def import_sb3(args: Args) -> None:
    path = Path(args.file)
    if not path.is_file():
        raise UsageError(f"{args.file}: there is no such file")
    from gymnasium_solver.share.foreign.imported_model import import_model
    from gymnasium_solver.share.foreign.model_files import read_cleanrl, read_sb3

    statistics = Path(args.vec_normalize) if args.vec_normalize else None
    is_sb3 = path.suffix == ".zip"
    if statistics is not None and not is_sb3:
        raise UsageError("--vec-normalize belongs to a model of SB3 (.zip)")
    fields = yaml_values(args.set, "--set")
    model = read_sb3(path, statistics) if is_sb3 else read_cleanrl(path)
    # ppo-CartPole-v1.zip, as the zoo names its models
    in_name = re.search(r"([A-Z][A-Za-z0-9]+(?:-[A-Za-z0-9]+)*-v\d+)", path.stem)
    if not args.env_id and in_name is None:
        raise UsageError(f"{path.name} does not say which environment it plays; give --env-id ID")
    run, mapped = import_model(
        model,
        args.env_id or (in_name[1] if in_name else ""),
        args.root(),
        source=path.name,
        name=args.name,
        overrides={key.replace("-", "_"): value for key, value in fields.items()},
        episodes=None if args.no_eval else args.episodes,
        command=["gsolve", "import-sb3", path.name],
    )
    meta, score = run.meta(), ""
    data = {"run": run.id, "path": str(run.path), "test": meta.get("test")}
    if out.told_json(args, data | {"fields": mapped.fields, "unmapped": mapped.unmapped}):
        return
    if test := meta.get("test"):
        stderr = "" if test["stderr"] is None else f" ± {test['stderr']:.3g}"
        score = f", {test['mean']:.2f}{stderr} over {test['episodes']} episodes"
    out.show(f"{run.path}: {meta['env_id']} by {meta['algo_id']}{score}")
    unused = [f"  not used: {name} ({why})" for name, why in sorted(mapped.unmapped.items())]
    more = f"gsolve eval {run.id}; gsolve train ... --init-from-run {run.id}"
    out.show(*unused, more, style=out.GREY)


@verb("""
import-config: Translate hyper-parameters of the RL zoo (ppo.yml), CleanRL (a script, or its
arguments as YAML or JSON) or SLM-Lab (a spec) into our YAML. Every field is translated or named
as not translated, with the reason; what the file leaves to the library's defaults is written out.
Nothing in the file is executed.

FILE               YAML, JSON or a Python script
[ARGUMENT...]      of the script's command line, after --
--env-id ID        the environment, where a file has several
--algo NAME        the algorithm (default: as the file or its name says)
-o, --out FILE     write here instead of printing
--json

examples:
  gsolve import-config hyperparams/ppo.yml --env-id CartPole-v1
  gsolve import-config cleanrl/ppo.py --out configs/cleanrl.yaml
  gsolve import-config cleanrl/dqn.py -- --learning-rate 5e-4 --num-envs 4
  gsolve import-config ppo_cartpole.json
""")
def import_config(args: Args) -> None:
    from gymnasium_solver.share.foreign.settings import read_foreign
    from gymnasium_solver.training.prepare import build_config

    found = read_foreign(Path(args.file), args.env_id, args.algo, args.arguments)
    names, mapped = {"env_id": found.env_id, "algo_id": found.algo_id}, found.mapped
    build_config({**names, **mapped.fields})
    facts = {"library": found.made_by, **names}
    if out.told_json(args, facts | {"fields": mapped.fields, "unmapped": mapped.unmapped}):
        return
    if args.out is None:
        print(found.text(), end="")
        return
    path = Path(args.out)
    if path.exists():
        raise ConfigError(f"{path} exists; choose another name, or remove it.")
    write_output(path, "the config", found.text())
    for name, why in sorted(mapped.unmapped.items()):
        print(f"not translated: {name}: {why}", file=sys.stderr)
    print(f"{path}: gsolve train {path}:{found.algo_id}")


@verb("""
track: Send the metrics, events, videos and checkpoints of a run to a tracker. Each row is sent
once, even if this process is killed and started again, and after a resume.

RUN
--to NAME                  csv, tensorboard, wandb, trackio; or several; required
--follow                   continue until the run has ended
--out PATH                 the CSV file, or the folder of TensorBoard's runs
--project NAME             project at the tracker
--entity NAME              W&B user or team
--mode online|offline      W&B (default: online with an account)
--no-checkpoints           W&B: do not store checkpoints
--json --runs-dir

examples:
  gsolve track @last --to tensorboard
  gsolve track @last --to wandb --follow
  gsolve track a1b2 --to csv --out metrics.csv
  gsolve track dashboard --project CartPole-v1 --dry-run
  gsolve track fetch RUN_ID

gsolve train ... --track wandb,tensorboard follows a new run from its start.
""")
def track(args: Args) -> int:
    from gymnasium_solver.share.trackers.follow import Follower, Options, read_names

    names = read_names(args.to)
    if not names:
        raise UsageError("--to needs a tracker: csv, tensorboard, wandb or trackio")
    run = args.resolved_run()
    if args.follow and len(names) > 1:
        return _follow_all(args, run, names)
    options = Options(
        out=None if args.out is None else user_path(args.out).absolute(),
        project=args.project,
        entity=args.entity,
        mode=args.mode,
        checkpoints=not args.no_checkpoints,
    )
    if args.follow and hasattr(os, "nice"):
        os.nice(10)  # training comes first
    done = {}
    for name in names:
        follower = Follower(run, name, options)
        done[name] = follower.follow() if args.follow else follower.send()
        if not args.json:
            print(f"{name}: {done[name]}", flush=True)
    out.told_json(args, {"run": run.id, "sent": done})
    return 0


def _follow_all(args: Args, run: Run, names: list[str]) -> int:
    """One process per tracker: a slow one does not hold up the others."""
    words = [sys.executable, "-m", "gymnasium_solver", "track", str(run.path), "--follow"]
    for name in ("out", "project", "entity", "mode"):
        words += [] if getattr(args, name) is None else [f"--{name}", getattr(args, name)]
    words += ["--no-checkpoints"] * args.no_checkpoints + ["--json"] * args.json
    processes = [subprocess.Popen([*words, "--to", name]) for name in names]
    return max(process.wait() for process in processes)


@verb("""
track dashboard: Create a W&B workspace for the runs of a project: panels over env steps.

--project NAME     default: $WANDB_PROJECT
--entity NAME      default: $WANDB_ENTITY
--dry-run          print it, send nothing
--json

examples:
  gsolve track dashboard --project CartPole-v1 --dry-run
  gsolve track dashboard --entity me --project CartPole-v1
""")
def dashboard(args: Args) -> None:
    from gymnasium_solver.share.trackers.wandb_run import DEFAULT_PROJECT, as_json, save, workspace

    entity = args.entity or os.environ.get("WANDB_ENTITY")
    project = args.project or os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT
    if entity is None and not args.dry_run:
        raise UsageError("--entity NAME or $WANDB_ENTITY is needed: your W&B user or team")
    made = workspace(entity or "entity", project)
    if not args.dry_run:
        print(save(made))
        return
    lines = [f"workspace {made.name} in {entity or 'your entity'}/{project}, x axis env_steps"]
    for section in made.sections:
        lines.append(f"  {section.name}: {len(section.panels)} panels")
        names = [getattr(panel, "title", None) or type(panel).__name__ for panel in section.panels]
        lines += [f"    {name}" for name in names]
    lines.append("nothing was sent; --json prints all of it")
    out.tell(args, lambda: as_json(made), *lines)


@verb("""
track fetch: Download a run that gsolve track sent to W&B: config, metrics, events, checkpoints.

RUN_ID             the whole id of the run
--project NAME     default: $WANDB_PROJECT
--entity NAME      default: $WANDB_ENTITY, or your own
--json --runs-dir

examples:
  gsolve track fetch CartPole-v1-ppo-20260101-120000-a1b2 --project CartPole-v1
""")
def fetch(args: Args) -> None:
    from gymnasium_solver.share.trackers.wandb_run import fetch as fetch_run

    project = args.project or os.environ.get("WANDB_PROJECT")
    if project is None:
        raise UsageError("--project NAME or $WANDB_PROJECT is needed: where the run was sent")
    entity = args.entity or os.environ.get("WANDB_ENTITY")
    run = fetch_run(args.run_id, args.root(), project, entity)
    out.tell(args, {"run": run.id, "path": str(run.path)}, run.path)
