"""A folder of runs: two configs, four seeds each."""

import shutil
from pathlib import Path

import pytest

from tests.serve.made_runs import made_run


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template")
    for lr, base in ((0.001, 480.0), (0.0003, 300.0)):
        for seed in range(4):
            made_run(root, f"cart-{lr}-{seed}", seed=seed, lr=lr, score=base + seed)
    return root


@pytest.fixture
def runs(tmp_path: Path, template: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "runs", symlinks=True))
