"""What all tests of runs share."""

import os

import pytest


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut tells whether fsync was called; without it the tests are quick."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
