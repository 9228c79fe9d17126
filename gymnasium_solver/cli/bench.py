"""Verbs that measure this machine: `bench` and `tune-envs`."""

from pathlib import Path

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb
from gymnasium_solver.paths import output_file, write_output

LONGEST_S = 60.0  # of a case of `tune-envs`


@verb("""
bench: Measure speed on this machine. Parts:
  training   steps/s against SB3, sbx, rejax and CleanRL, same hyper-parameters and networks
  solve      seconds from the shell to solved, each library with its own best published config
  engines    env-only steps/s by engine and number of envs
  scaling    steps/s against n_envs (1 to 4,096), batch size and hidden size
  startup    seconds before a command does anything
  video      training with and without videos of its evaluations
  trackers   training with and without each tracker that follows it
  logging    CPU time of metrics, details and alerts

training, solve, trackers and logging need a source checkout, where make bench installs the other
libraries first; the others run anywhere. All sides take turns in each repeat; results are medians
and ranges. Keep the machine idle meanwhile: the result says if other processes used it.

--only PART...               these parts (default: all)
--tasks TASK...              only these tasks: of training ppo, dqn or sac, of solve an env id
--quick                      a short pass, to check that it works
--repeats N                  repeats (3; quick: 1)
--name NAME                  name of the result files (speed or quick, and the tasks)
--out DIR                    folder of the result files (in a checkout benchmarks/results, elsewhere
                             bench; quick: build/bench)
--peers-python FILE          Python with SB3 and sbx (.venv-peers/bin/python)
--peers-jax-python FILE      Python with rejax (.venv-peers-jax/bin/python)
--json

examples:
  gsolve bench --only engines scaling startup
  gsolve bench --only training --tasks sac
  gsolve bench --quick
  make bench
""")
def bench(args: Args) -> None:
    from gymnasium_solver.bench import report
    from gymnasium_solver.bench.harness import IN_CHECKOUT, ROOT, Options

    parts = args.only or (list(report.PARTS) if IN_CHECKOUT else report.OWN_PARTS)
    if unknown := [part for part in parts if part not in report.PARTS]:
        raise UsageError(f"--only {unknown[0]}: unknown part; expected {', '.join(report.PARTS)}")
    repeats = args.repeats or (1 if args.quick else 3)
    pythons = {
        name: Path(given).absolute()  # links of a venv must stay
        for name in ("peers_python", "peers_jax_python")
        if (given := getattr(args, name))
    }
    options = Options(repeats=repeats, quick=args.quick, tasks=tuple(args.tasks), **pythons)
    home = ROOT if IN_CHECKOUT else Path()
    folder = "build/bench" if args.quick else "benchmarks/results" if IN_CHECKOUT else "bench"
    results = Path(args.out) if args.out else home / folder
    published = IN_CHECKOUT and not args.quick and not args.out
    # The command that repeats this measurement, without this machine's paths.
    words = ["gsolve bench", *["--quick"] * args.quick]
    words += ["--only", *args.only] if args.only else []
    words += ["--tasks", *args.tasks] if args.tasks else []
    result = report.run(
        parts,
        options,
        results,
        args.name or "_".join(["quick" if args.quick else "speed", *args.tasks]),
        images=ROOT / "docs/images" if published else results,
        command=" ".join([*words, f"--repeats {repeats}"]),
    )
    if not out.told_json(args, result):
        print(report.markdown(result))


@verb("""
usage: gsolve tune-envs <env>[:<variant>] [flags]

Measure how fast the environments of a config step on this machine: engine x number of
environments x threads, without learning, each in a process of its own.

--try-envs N...          numbers of environments to try (default: the config's, half and double)
--engines NAME...        engines to try: envpool vector sync async (default: all)
--threads N...           threads of EnvPool to try (default: 1 and all CPUs)
--seconds S              seconds for each case (default: 0.5)
--write FILE.yaml        write the config with the fastest engine and number of environments;
                         n_steps is changed so that a rollout keeps its size
--FIELD VALUE            change a field of the config first
--set --trust --json

examples:
  gsolve tune-envs CartPole-v1:ppo
  gsolve tune-envs HalfCheetah-v5:ppo --try-envs 8 16 --threads 1 2 4 --write tuned.yaml
""")
def tune_envs(args: Args) -> int:
    from gymnasium_solver.backends.isolated import run_isolated
    from gymnasium_solver.bench import tune
    from gymnasium_solver.config.cpus import cpu_count
    from gymnasium_solver.config.yaml_file import dump_yaml

    target = args.needed_config()
    config = args.load_config(target)
    n = config.n_envs
    span_s, engines = args.seconds or 0.5, args.engines or list(tune.ENGINES)
    if unknown := [name for name in engines if name not in tune.ENGINES]:
        raise UsageError(f"--engines {unknown[0]}: expected {', '.join(tune.ENGINES)}")
    if span_s > LONGEST_S:
        raise UsageError(f"--seconds {span_s:g}: expected at most {LONGEST_S:g}")
    output = None
    if args.write is not None:
        if not args.write.endswith((".yaml", ".yml")):
            raise UsageError(f"--write {args.write}: expected a .yaml file")
        output = output_file(args.write, "the config")
        if output.exists():
            raise UsageError(f"--write {args.write}: the file exists; choose another name")
    overrides, fill = args.changes()
    job = {"target": target, "overrides": {**fill, **overrides}, "seconds": span_s}
    n_envs = args.try_envs or sorted({max(1, n // 2), n, 2 * n})
    cases = tune.cases(n_envs, engines, args.threads or sorted({1, cpu_count()}))
    items = [{**job, **vars(case)} for case in cases]
    found = {}
    for outcome in run_isolated(tune.TASK, items, jobs=1, timeout_s=60 + 4 * span_s):
        case = tune.Case(*(outcome.item[name] for name in ("engine", "n_envs", "threads")))
        found[case] = tune.Speed(case, outcome.value, outcome.error or "")
    speeds = [found[case] for case in cases]
    top, here = tune.best(speeds), tune.best(speeds, n)
    table = out.table("engine", ">envs", ">threads", ">steps/s", "")
    for speed in sorted(speeds, key=lambda s: -(s.steps_per_s or 0.0)):
        mark = "fastest" if speed is top else "fastest for this config" if speed is here else ""
        case = speed.case
        rate = "-" if speed.steps_per_s is None else f"{speed.steps_per_s:,.0f}"
        threads = str(case.threads) if case.engine == "envpool" else ""
        table.add_row(case.engine, str(case.n_envs), threads, rate, speed.error or mark)
    advice = []
    if here is not None:
        is_threaded = here.case.engine == "envpool"
        cpus = f"GSOLVE_CPUS={here.case.threads} " if is_threaded else ""
        command = f"{cpus}gsolve train {target} --vectorization-mode {here.case.engine}"
        advice = [f"with its {n} environments: {command}"]
    data = {
        "cases": [speed.to_dict() for speed in speeds],
        "fastest": top.to_dict() if top else None,
        "fastest_for_config": here.to_dict() if here else None,
    }
    out.tell(args, data, table, *advice)
    if output is not None:
        write_output(output, "the config", dump_yaml(tune.tuned(config, speeds)))
        print(f"wrote {output}; train it with gsolve train {output}")
    return 0 if top else 1
