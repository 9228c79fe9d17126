"""Ablation files: a YAML list of overlays, each of which changes some fields of a config.

    - {name: no clipping, clip_range: null}
    - {gae_lambda: 1.0}                      # named after its fields
    - {name: small, hidden_dims: [16], policy_lr: lin_0.001}

A mapping from names to overlays means the same.
"""

import json
from pathlib import Path
from typing import Any

from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.errors import ConfigError

_EXPECTED = "expected a list of overlays such as `- {name: no clipping, clip_range: null}`"


def read_ablations(path: Path) -> dict[str, dict[str, Any]]:
    """The overlays of a file by name."""
    content, _ = read_file(path)
    if isinstance(content, dict):
        content = [
            {"name": name, **(overlay if isinstance(overlay, dict) else {"": overlay})}
            for name, overlay in content.items()
        ]
    if not isinstance(content, list) or not content:
        raise ConfigError(f"{path}: {_EXPECTED}")
    overlays: dict[str, dict[str, Any]] = {}
    for entry in content:
        if not isinstance(entry, dict) or not set(entry) - {"name"} or "" in entry:
            raise ConfigError(f"{path}: {json.dumps(entry, default=str)[:80]}: {_EXPECTED}")
        fields = {str(key): value for key, value in entry.items() if key != "name"}
        name = str(entry.get("name") or ", ".join(f"{k}={_short(v)}" for k, v in fields.items()))
        if name in overlays:
            raise ConfigError(f"{path}: two overlays are called {name!r}; give one another name")
        overlays[name] = fields
    return overlays


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 24 else text[:21] + "..."
