"""`gsolve doctor run RUN`: a run judged from its files."""

from pathlib import Path

import pytest

from gymnasium_solver.runs.run import Run
from tests.cli.conftest import Gsolve
from tests.runs.alert_rows import CONFIG, META, Change, rows


def write_run(root: Path, change: Change | None = None) -> Run:
    yaml = "".join(f"{name}: {value}\n" for name, value in CONFIG.items())
    run = Run.create(yaml, {"env_id": "CartPole-v1", "algo_id": "ppo"}, root)
    run.update_meta(**META)
    for row in rows(change):
        run.log_metrics(row)
    run.close()
    return run


pytestmark = pytest.mark.usefixtures("here")


def high_kl(last: int) -> Change:
    high = {"train/opt/ppo/approx_kl": 0.4, "train/opt/ppo/kl": 0.4}
    return lambda epoch, share: dict(high) if epoch < last else {}


def test_a_healthy_run(gsolve: Gsolve) -> None:
    write_run(Path("runs"))
    text = gsolve("doctor run @last")
    assert "rules found nothing in 100 rows" in text
    assert "not judged" in text
    assert "q_diverging" in text, "a PPO run has no Q-values"


def test_an_ill_run(gsolve: Gsolve) -> None:
    run = write_run(Path("runs"), high_kl(last=1000))
    text = gsolve("doctor run @last", code=1)
    assert run.id in text
    assert "kl_high  since 3,072 env steps" in text
    assert "approx_kl 0.4 nats per update, median of 10" in text
    assert "gsolve train CartPole-v1:ppo --policy-lr 0.0001" in text


def test_an_alert_that_is_over(gsolve: Gsolve) -> None:
    write_run(Path("runs"), high_kl(last=50))
    text = gsolve("doctor run @last")
    assert "kl_high  from 3,072 to" in text


def test_as_json(gsolve: Gsolve) -> None:
    run = write_run(Path("runs"), high_kl(last=1000))
    found = gsolve.json("doctor run @last", code=1)
    assert (found["run"], found["healthy"], found["rows"]) == (run.id, False, 100)
    [alert] = found["alerts"]
    assert (alert["name"], alert["times"], alert["is_active"]) == ("kl_high", 1, True)
    assert "alpha_high" in found["not_judged"]


def test_a_run_without_rows_and_a_wrong_name(gsolve: Gsolve) -> None:
    Run.create("env_id: X\n", {"env_id": "X", "algo_id": "ppo"}, Path("runs"))
    text = gsolve("doctor run @last")
    assert "found nothing" not in text, "nothing was judged"
    assert "nosuch" in gsolve("doctor run nosuch", code=2)
