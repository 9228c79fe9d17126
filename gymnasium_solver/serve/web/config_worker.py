"""A process that knows the config classes, which need torch; the server asks it by JSON lines.

    {"id": 1, "target": "CartPole-v1:ppo", "fields": {"policy_lr": "1e-3"}}
    {"id": 1, "done": {"ok": true, "values": {...}, "groups": [...]}}

It ends when its input does (see helper.py).
"""

import json
import sys
from typing import Any

from gymnasium_solver.errors import GsolveError, TrustError


def main() -> int:
    replies = sys.stdout
    sys.stdout = sys.stderr  # whatever a plugin prints must not become a reply
    for line in sys.stdin:
        request = json.loads(line)
        reply = {"id": request.get("id"), "done": reply_to(request)}
        replies.write(json.dumps(reply, default=str) + "\n")
        replies.flush()
    return 0


def reply_to(request: dict[str, Any]) -> dict[str, Any]:
    """What `answer` returns, or what is wrong."""
    try:
        return answer(
            request["target"], request.get("fields") or {}, bool(request.get("trust", False))
        )
    except TrustError as error:
        return {"ok": False, "error": str(error), "needs_trust": True}
    except GsolveError as error:
        return {"ok": False, "error": str(error)}
    except Exception as error:  # a plugin may raise anything
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def answer(target: str, fields: dict[str, str], trust: bool) -> dict[str, Any]:
    """The config with these changes: every field with its value, documentation and kind."""
    from gymnasium_solver.config.field_groups import field_groups
    from gymnasium_solver.config.load import config_dict
    from gymnasium_solver.config.yaml_file import parse_value
    from gymnasium_solver.training.prepare import changed_from_shipped, load_config

    overrides = {name: parse_value(text) for name, text in fields.items()}
    config = load_config(target, overrides=overrides, trust=trust)
    schema = type(config).model_json_schema()["properties"]
    values = config_dict(config)
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in type(config).model_fields.items()
    }
    groups = []
    for title, names in field_groups(type(config)).items():
        fields_of = [
            {
                "name": name,
                "doc": " ".join(schema[name].get("description", "").split()),
                "kind": schema[name].get("type"),
                "choices": choices_of(schema[name]),
                "is_default": getattr(config, name) == defaults[name],
            }
            for name in names
        ]
        groups.append({"title": title or config.algo_id, "fields": fields_of})
    told = {"ok": True, "values": values, "groups": groups, "description": config.description}
    return told | {"changed": changed_from_shipped(config)}


def choices_of(schema: dict[str, Any]) -> list[Any]:
    """The values of a field that takes nothing else."""
    options = schema.get("anyOf") or [schema]
    allowed = [option for option in options if option.get("type") != "null"]
    if not allowed or not all("enum" in option or "const" in option for option in allowed):
        return []
    values = [v for option in allowed for v in option.get("enum", [option.get("const")])]
    return [*values, None] if len(allowed) < len(options) else values


if __name__ == "__main__":
    sys.exit(main())
