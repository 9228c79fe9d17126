"""What happens inside the convolutions of an agent at a moment, as pictures for the play window."""

from typing import Any

import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.media.drawing import PALETTES, channel_grid, filter_grid, overlay, stretched
from gymnasium_solver.media.explain_step import look, subject_of
from gymnasium_solver.media.layout import Layout
from gymnasium_solver.media.player import Moment, PolicyActor, encoder_of
from gymnasium_solver.media.saliency import conv_layers
from gymnasium_solver.media.session import Session

Pictures = dict[str, tuple[str, list[np.ndarray]]]
"""By panel: its title, and the pictures side by side."""


class CnnView:
    """The pictures of a session; those of a moment are made once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._moment: Moment | None = None
        self._made: dict[Any, Pictures] = {}

    @property
    def agent(self) -> Agent | None:
        """The agent, if its network has convolutions of ours."""
        actor = self.session.player.actor
        agent = actor.agent if isinstance(actor, PolicyActor) else None
        encoder = None if agent is None else encoder_of(agent)
        return agent if encoder is not None and encoder.layouts else None

    def pictures(self, layout: Layout) -> Pictures:
        """{} at the end of an episode, and for other networks."""
        agent, moment = self.agent, self.session.moment
        if agent is None or moment.decision is None or moment.decision.chosen is None:
            return {}
        if moment is not self._moment:
            self._moment, self._made = moment, {}
        key = layout.method, layout.layer, layout.palette
        if key not in self._made:
            try:
                self._made[key] = _pictures(agent, moment, layout)
            except ConfigError as error:  # a network of a plugin
                self._made[key], self.session.message = {}, str(error)
        return self._made[key]


def _pictures(agent: Agent, moment: Moment, layout: Layout) -> Pictures:
    view, colours = look(agent, moment, (layout.method,)), PALETTES[layout.palette]
    image = view.images[0]
    name = list(image.activations)[layout.layer % len(image.activations)]
    heat = stretched(image.maps[layout.method])
    layers = conv_layers(next(iter(subject_of(agent, moment, "action").stacks.values())))
    weights = layers[layout.layer % len(layers)].conv.weight.detach().cpu().numpy()
    return {
        "cam": (
            f"{layout.method} of the {view.what}; M: another method",
            [overlay(one, heat, colours.heat) for one in image.pictures()],
        ),
        "activations": (
            f"activations of {name}; L: another layer",
            [channel_grid(image.activations[name], colours.heat)],
        ),
        "filters": (f"filters of {name}", [filter_grid(weights, colours.signed)]),
    }
