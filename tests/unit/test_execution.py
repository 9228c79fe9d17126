"""What a config says about how its updates are executed, before torch is imported."""

import pytest

from gymnasium_solver.fast import execution
from gymnasium_solver.registry import ALGOS, config_class


@pytest.mark.parametrize("algo_id", ALGOS)
def test_the_compiler_is_started_for_what_has_gradients(
    algo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config without gradient steps has no batch to ask for, as `gsolve train` once did."""
    started: list[int] = []
    monkeypatch.setattr(execution, "start_compiling", lambda: started.append(1))
    config = config_class(algo_id)(env_id="x", algo_id=algo_id, compile="native", device="cpu")
    execution.compile_ahead(config)
    assert bool(started) is (algo_id not in ("random", "mbie"))
