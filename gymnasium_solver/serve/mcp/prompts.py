"""Prompts for the usual jobs, which a person picks in the client."""

from mcp.server import MCPServer


def debug_run(run: str) -> str:
    """Find out why a run does not learn, and fix it."""
    return f"""Debug the training run {run} with the tools of gymnasium-solver.

1. diagnose("{run}"): active problems, score against random actions and threshold, trends.
2. plot(["{run}"]) and look at the curves; get_metrics with names for what is suspicious, with
   around for the env step where it broke; get_logs if it failed.
3. play("{run}") and look at the frames: does the agent do something sensible?
4. get_run("{run}", ["config", "hyperparams"]): which fields differ from the shipped config, and
   get_config(..., explain=[...]) for what they mean.
5. State the most likely cause with the evidence, then one change that tests it. Ask before
   start_training. Compare with compare_runs against the old run; one seed proves nothing.
"""


def tune_config(config: str, budget: str = "10 trainings") -> str:
    """Improve the hyper-parameters of a config within a budget."""
    return f"""Tune {config} with the tools of gymnasium-solver. Budget: {budget}.

1. get_config("{config}") and list_runs(filter="env=...", sort="test"): what was tried already.
2. Train the config as it is first, with four seeds: that is the baseline.
3. Change one thing at a time, the most influential first: policy_lr, n_steps and batch_size,
   ent_coef or exploration, gamma, network size. Tag every run with tags=["tune"].
4. diagnose each run and read its problems before choosing the next change.
5. Judge by compare_runs over at least four seeds a side. It says "cannot tell" if the seeds do
   not show a difference: believe it.
6. Report the best overrides, the scores with their intervals, and what did not help.
"""


def beat_score(config: str, score: str) -> str:
    """Reach a score in an environment."""
    return f"""Reach a held-out test score of {score} on {config} with gymnasium-solver.

1. list_runs(filter="env=...", sort="test", limit=5): is there a run that already does?
2. list_configs for the same environment: which algorithms have a tuned config?
3. start_training with the most promising one; wait_for(until="evaluation"), and stop_training when
   its curve clearly cannot reach {score} within the budget.
4. If it falls short, diagnose, plot and play; then change what they point at, or the algorithm.
5. The score counts only as a test (get_run: test), not as the best validation. Confirm it with
   four seeds before claiming it.
"""


def add_prompts(server: MCPServer) -> None:
    for prompt in (debug_run, tune_config, beat_score):
        server.prompt()(prompt)
