"""Which fields of a config belong together, for help texts and forms."""

import inspect

from pydantic import BaseModel

from gymnasium_solver.config.schema import Config

# Fields that algorithms declare themselves and that belong together. The rest of an algorithm's own
# fields is listed under its name, the fields of a block under the block's title.
OWN_GROUPS = {
    "exploration": "exploration epsilon temperature exploration_noise exploration_noise_type "
    "noise_correlation",
    "entropy": "ent_coef target_entropy target_entropy_ratio alpha_lr alpha_loss log_alpha_min "
    "log_alpha_max entropy_penalty_coef",
    "replay": "buffer_size n_step prioritized per_alpha per_beta per_eps combined_replay her "
    "replay_frame_stack replay_dir replay_on_gpu save_replay",
}


def field_groups(cls: type[Config]) -> dict[str, list[str]]:
    """Field names by title: the algorithm's own first (title ""), then those of the blocks, most
    specific first."""
    titles = block_titles(cls)
    together = {name: title for title, names in OWN_GROUPS.items() for name in names.split()}
    groups: dict[str, list[str]] = {"": [], **{title: [] for title in OWN_GROUPS}}
    specific = [title for title in titles.values() if title not in block_titles(Config).values()]
    groups |= {title: [] for title in specific}
    for name in cls.model_fields:
        title = titles.get(name) or together.get(name, "")
        groups.setdefault(title, []).append(name)
    return {title: names for title, names in groups.items() if names}


def block_titles(cls: type[BaseModel]) -> dict[str, str]:
    """The title of the block that declares a field, by the name of the field."""
    titles: dict[str, str] = {}
    for block in reversed(cls.__mro__):
        title = vars(block).get("title")
        for name in inspect.get_annotations(block):
            if title and name in cls.model_fields:
                titles.setdefault(name, title)
    return titles
