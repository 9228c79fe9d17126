"""Pictures of a sweep: each parameter against the score, the history, and score against cost."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.chart_style import COLOURS, STYLE
from gymnasium_solver.experiments.search.folder import Sweep
from gymnasium_solver.experiments.search.journal import COMPLETE, PRUNED, Trial
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.ranges import Options
from gymnasium_solver.experiments.search.ranking import front, importances
from gymnasium_solver.experiments.search.space import Param

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#999999"


def draw_all(sweep: Sweep, plan: Plan, trials: Sequence[Trial]) -> list[str]:
    """Write the pictures into the folder; returns their names."""
    over = [t for t in trials if t.state in (COMPLETE, PRUNED) and t.value is not None]
    if len(over) < 2:
        return []
    draw_params(sweep.path / "params.png", plan, over)
    draw_history(sweep.path / "history.png", plan, over)
    names = ["params.png", "history.png"]
    if plan.cost is not None or len({trial.cost for trial in over}) > 1:
        draw_pareto(sweep.path / "pareto.png", plan, over)
        names.append("pareto.png")
    return names


def draw_params(path: Path, plan: Plan, trials: Sequence[Trial]) -> None:
    """One panel per parameter, the most important first."""
    space = plan.space()
    shares = importances(plan, trials)
    order = sorted(space.params, key=lambda param: -shares.get(param.name, 0.0))
    columns = min(3, len(order))
    rows = -(-len(order) // columns)
    with _figure(path, rows, columns, (4.2 * columns, 3.1 * rows)) as axes:
        for ax, param in zip(axes, order, strict=False):
            _draw_param(ax, param, plan, trials)
            share = f", importance {shares[param.name]:.0%}" if param.name in shares else ""
            ax.set_title(f"{param.name}{share}")
        for ax in axes[len(order) :]:
            ax.set_axis_off()
        for row in range(rows):
            axes[row * columns].set_ylabel(plan.metric.name)


def _draw_param(ax: "Axes", param: Param, plan: Plan, trials: Sequence[Trial]) -> None:
    latent = param.latent()
    seen = [trial for trial in trials if param.name in trial.latents]
    values = [param.distribution.decode(trial.latents[param.name]) for trial in seen]
    if isinstance(latent, Options):
        options = [param.distribution.decode(option) for option in latent.options]
        places: list[Any] = [options.index(value) for value in values]
        ax.set_xticks(range(len(options)), [str(option) for option in options])
    else:
        places = values
        kind = str(param.distribution).partition(":")[0]
        if kind in ("log", "logint", "lognormal"):
            ax.set_xscale("log")
        elif kind == "pow2":
            ax.set_xscale("log", base=2)
        elif kind == "logit":
            ax.set_xscale("logit")
            ax.minorticks_off()
    is_max = plan.metric.goal == "maximize"
    order = sorted(range(len(seen)), key=lambda i: _value(seen[i]) * (1 if is_max else -1))
    numbers = [seen[i].number for i in order]
    ax.scatter(
        [places[i] for i in order], [_value(seen[i]) for i in order], c=numbers, cmap="viridis",
        s=26, alpha=0.85, linewidths=0, zorder=3,
    )  # fmt: skip


def draw_history(path: Path, plan: Plan, trials: Sequence[Trial]) -> None:
    """The trials in their order, and the best so far."""
    is_max = plan.metric.goal == "maximize"
    with _figure(path, 1, 1, (8, 3.8)) as (ax,):
        for state, colour, label in ((COMPLETE, COLOURS[0], "trial"), (PRUNED, GREY, "pruned")):
            some = [trial for trial in trials if trial.state == state]
            if some:
                ax.scatter([t.number for t in some], [_value(t) for t in some], s=22, color=colour,
                           label=label)  # fmt: skip
        best, xs, ys = -math.inf if is_max else math.inf, [], []
        for trial in trials:
            if trial.state == COMPLETE and trial.value is not None:
                best = max(best, trial.value) if is_max else min(best, trial.value)
                xs.append(trial.number)
                ys.append(best)
        ax.step(xs, ys, where="post", color=COLOURS[1], label="best so far")
        ax.set_xlabel("trial")
        ax.set_ylabel(plan.metric.name)
        ax.set_title("search history")
        ax.legend()


def draw_pareto(path: Path, plan: Plan, trials: Sequence[Trial]) -> None:
    """Score against cost, with the front."""
    over = [trial for trial in trials if trial.state == COMPLETE]
    with _figure(path, 1, 1, (7, 4.2)) as (ax,):
        ax.scatter([t.cost for t in over], [_value(t) for t in over], s=24, color=GREY, zorder=3)
        best = front(plan, over)
        ax.plot([t.cost for t in best], [_value(t) for t in best], "o-", color=COLOURS[1],
                label="not beaten in both")  # fmt: skip
        for trial in best:
            ax.annotate(str(trial.number), (trial.cost, _value(trial)), fontsize=8,
                        xytext=(4, 4), textcoords="offset points")  # fmt: skip
        ax.set_xlabel({"wall_s": "seconds of training"}.get(plan.cost or "", "env steps"))
        ax.set_ylabel(plan.metric.name)
        ax.set_title("score against cost")
        ax.legend()


def _value(trial: Trial) -> float:
    return 0.0 if trial.value is None else trial.value


class _figure:
    """A figure with its axes, saved at the end."""

    def __init__(self, path: Path, rows: int, columns: int, size: tuple[float, float]) -> None:
        self.path, self.rows, self.columns, self.size = path, rows, columns, size

    def __enter__(self) -> "list[Axes]":
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        self._context = matplotlib.rc_context(STYLE)
        self._context.__enter__()
        self._figure, axes = pyplot.subplots(
            self.rows, self.columns, figsize=self.size, layout="constrained", squeeze=False
        )
        return list(axes.flat)

    def __exit__(self, kind: object, *rest: object) -> None:
        from matplotlib import pyplot

        try:
            if kind is None:
                self._figure.savefig(self.path)
        finally:
            pyplot.close(self._figure)
            self._context.__exit__(None, None, None)
