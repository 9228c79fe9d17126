"""The header says how updates run; a loss that cannot be recorded corrects it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.fast import recorded
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer, TrainInfo


class Listener(Observer):
    def __init__(self) -> None:
        self.announced = ""
        self.messages: list[str] = []

    def on_start(self, run: Any, config: Any, info: TrainInfo) -> None:
        self.announced = info.update_mode

    def on_message(self, level: str, text: str) -> None:
        self.messages.append(text)


@pytest.mark.parametrize("is_recordable", [True, False])
def test_a_fall_back_to_torch_is_reported(
    make_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, is_recordable: bool
) -> None:
    if not is_recordable:
        monkeypatch.setattr(recorded, "record_gradient", lambda *args, **options: None)
    listener = Listener()
    train(make_config("ppo", "Bandit-v0"), runs_root=Path("runs"), observers=[listener])
    assert listener.announced == "recorded NumPy programs"
    corrections = [text for text in listener.messages if text.startswith("updates run in")]
    assert corrections == ([] if is_recordable else ["updates run in plain torch"])
