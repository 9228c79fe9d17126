"""`gsolve train` as the program of a W&B sweep: `wandb agent` starts it once per trial.

The agent writes the trial's parameters to the file $WANDB_SWEEP_PARAM_PATH and names the run in
$WANDB_RUN_ID. wandb itself is not imported here.
"""

import json
import os
from pathlib import Path

from gymnasium_solver.cli.flags import FieldArgs, UsageError

PARAMS, RUN_ID = "WANDB_SWEEP_PARAM_PATH", "WANDB_RUN_ID"


def with_agent(args: FieldArgs) -> FieldArgs:
    """The command line with the parameters of the agent's trial; flags that are given win. The run
    gets the agent's id, so that a trial that is started again continues."""
    path = os.environ.get(PARAMS)
    if path is None:
        if args.has("wandb_sweep"):
            raise UsageError(
                f"--wandb-sweep: ${PARAMS} is not set; `wandb agent SWEEP` starts trials with it"
            )
        return args
    from gymnasium_solver.experiments.search.files import given_params

    params = {name: value for name, value in given_params(Path(path)).items()
              if name not in args.fields}  # fmt: skip
    settings = [f"{name}={json.dumps(value)}" for name, value in params.items()]
    args.options["set"] = [*settings, *args.options.get("set", [])]
    run_id = os.environ.get(RUN_ID)
    if run_id and not (args.has("run_name") or args.has("run_dir")):
        args.options["run_name"] = [run_id]
        args.options.setdefault("if_exists", ["resume"])
    return args
