"""One set of config lines over another: a variant over its file's base, overrides over both."""

from collections.abc import Mapping
from typing import Any

EXCLUSIVE = (("eval_freq_epochs", "eval_freq_steps"),)
"""Fields of which a config has at most one: setting one in an upper layer removes the others."""


def layered(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The lines of both; `above` wins. Both use our field names."""
    replaced = {
        name
        for group in EXCLUSIVE
        if any(above.get(name) is not None for name in group)
        for name in group
    }
    return {name: value for name, value in below.items() if name not in replaced} | dict(above)
