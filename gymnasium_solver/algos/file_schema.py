"""JSON schema of a config file, for editors (`gsolve schema`) and for flags."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from gymnasium_solver.algos import algo_ids
from gymnasium_solver.config.schema import ALIASES, Config, LearnerConfig
from gymnasium_solver.config.spec import Spec
from gymnasium_solver.registry import config_class


def json_schema() -> dict[str, Any]:
    """The fields of all algorithms, at the top level of the file and in each variant."""
    fields = _fields_of_all()
    fields["algo_id"] = {**fields["algo_id"], "enum": algo_ids()}
    spec = Spec.model_json_schema()
    parts = spec.pop("$defs")
    fields["spec"] = {**spec, "description": fields["spec"]["description"]}
    fields |= {alias: {**fields[name], "deprecated": True} for alias, name in ALIASES.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gymnasium-solver config file",
        "description": "Fields shared by all variants, and variants: blocks of fields.",
        "type": "object",
        "properties": fields,
        "patternProperties": {"^_": {"description": "Shared fields (_base) or a template."}},
        "additionalProperties": {"$ref": "#/$defs/variant"},
        "$defs": {
            **parts,
            "variant": {
                "type": ["object", "null"],
                "properties": {name: {"$ref": f"#/properties/{name}"} for name in fields},
                "additionalProperties": False,
            },
        },
    }


def _fields_of_all() -> dict[str, Any]:
    """Each field once. If only some of the algorithms with a network have it, its description
    names them."""
    fields: dict[str, Any] = {}
    owners: dict[str, list[str]] = {}
    for algo_id in algo_ids():
        for name, field in _properties(config_class(algo_id)).items():
            fields.setdefault(name, field)
            owners.setdefault(name, []).append(algo_id)
    learners = {id_ for id_ in algo_ids() if issubclass(config_class(id_), LearnerConfig)}
    for name, some in owners.items():
        if not learners <= set(some):
            text = fields[name].get("description", "")
            fields[name] = {**fields[name], "description": f"{text} ({', '.join(some)})"}
    return fields


@cache  # by class: an algorithm registered again, by a plugin, has another
def _properties(config: type[Config]) -> Mapping[str, Any]:
    return MappingProxyType(config.model_json_schema()["properties"])
