"""The range in which a search varies a field.

`gsolve sweep CONFIG` searches the main fields of the algorithm, `--param FIELD` any other with a
range. The text is that of `--param` (experiments/search/text.py). A field states its range where it
is declared, or in RANGES under the class that declares it:

    td_lambda: Annotated[float, searched("0.0..0.95", main=True)] = 0.65

A class has the ranges of the classes that it derives from, unless it states others.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema


@dataclass(frozen=True)
class searched:  # lower case: it is used like a function, Annotated[Float, searched("0..1")]
    """The default search range of a field."""

    text: str
    """The distribution, e.g. log:1e-5..1e-2. Empty: the field is not searched by default."""
    main: bool = False
    """Searched when no parameters are named."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "x-search": self.text} if self.text else handler(schema)


RANGES: dict[str, dict[str, searched]] = {
    "NetworkFields": {
        "hidden_dims": searched("[[64, 64], [128, 128], [256, 256]]"),
        "activation": searched("tanh,relu"),
    },
    "LearningFields": {
        "policy_lr": searched("log:1e-5..1e-2", main=True),
        "adam_eps": searched("log:1e-8..1e-3"),
        "weight_decay": searched("log:1e-6..1e-2"),
        "max_grad_norm": searched("log:0.1..10"),
        "gamma": searched("logit:0.9..0.9995", main=True),
    },
    "MinibatchFields": {"batch_size": searched("pow2:32..1024", main=True)},
    "RecurrentFields": {"recurrent_dim": searched("pow2:32..256")},
    "ActorCriticFields": {
        "log_std_init": searched("-3..0.5"),
        "ent_coef": searched("log:1e-5..0.1", main=True),
    },
    "PPOConfig": {
        "n_steps": searched("pow2:32..2048", main=True),
        "n_epochs": searched("int:3..20", main=True),
        "gae_lambda": searched("logit:0.8..0.995", main=True),
        "clip_range": searched("0.1..0.4", main=True),
        "vf_coef": searched("0.1..1.0"),
        "target_kl": searched("log:0.003..0.1"),
        "normalize_advantages": searched("rollout,batch"),
    },
    "A2CConfig": {
        "n_steps": searched("pow2:4..128", main=True),
        "gae_lambda": searched("logit:0.8..0.995", main=True),
        "vf_coef": searched("0.1..1.0"),
    },
    "ReinforceConfig": {
        "policy_lr": searched("log:1e-4..0.1", main=True),
        "n_steps": searched("pow2:128..4096", main=True),
        "batch_size": searched("0.25,0.5,1.0"),
    },
    "SarsaConfig": {
        "n_steps": searched("pow2:4..128", main=True),
        "batch_size": searched("0.25,0.5,1.0"),
        "td_lambda": searched("0.0..0.95", main=True),
    },
    "PQNConfig": {
        "n_steps": searched("pow2:4..128", main=True),
        "n_epochs": searched("int:1..8", main=True),
        "td_lambda": searched("0.0..0.95", main=True),
    },
    "OffPolicyConfig": {
        "policy_lr": searched("log:3e-5..3e-3", main=True),
        "batch_size": searched("pow2:32..512", main=True),
        "buffer_size": searched("10_000,100_000,1_000_000"),
        "learning_starts": searched("100,1000,5000,10000"),
        "train_freq": searched("pow2:1..16"),
        "updates_per_step": searched("0.25,0.5,1.0,2.0"),
        "n_step": searched("int:1..5"),
    },
    "DQNConfig": {"target_update_freq": searched("logint:50..10_000", main=True)},
    "DeterministicConfig": {
        "tau": searched("log:0.001..0.05", main=True),
        "exploration_noise": searched("log:0.03..0.5", main=True),
    },
    "SACConfig": {"tau": searched("log:0.001..0.05", main=True)},
}


def search_range(config: type[BaseModel], field: str) -> searched | None:
    """The range that the class, or the nearest one below it, states for the field."""
    for owner in config.__mro__:
        info = getattr(owner, "model_fields", {}).get(field)
        declared = [item for item in (info.metadata if info else ()) if isinstance(item, searched)]
        stated = RANGES.get(owner.__name__, {}).get(field)
        found = declared[0] if declared else stated
        if found is not None:
            return found if found.text and field in config.model_fields else None
    return None


def search_ranges(config: type[BaseModel]) -> dict[str, searched]:
    """All fields of a config that have a range, in the order of the config."""
    found = {name: search_range(config, name) for name in config.model_fields}
    return {name: item for name, item in found.items() if item is not None}
