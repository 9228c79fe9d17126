"""Looks into the network of a trained agent: what it computes in an episode, and why.

    done = explain_run(find_run("@last", root), Question(steps=(0, 40), methods=("gradcam",)))
    done.page                   # runs/<id>/explain/<env_steps>-seed<seed>/index.html

`explain_look.look` explains one step without files, for other displays.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError, WriteError
from gymnasium_solver.media.agents import title_of, trained_agent
from gymnasium_solver.media.episodes import Player
from gymnasium_solver.media.explain_album import PATCH_CHANNELS, Album, Step
from gymnasium_solver.media.explain_look import METHODS, encoder_of, look, pick_layer
from gymnasium_solver.media.explain_page import page
from gymnasium_solver.media.explain_pictures import bounds_of, enlarge, image_of, plane_groups
from gymnasium_solver.media.explain_subject import Trace, TracingActor, subject_of
from gymnasium_solver.media.filters import TopPatches, activations, conv_layers
from gymnasium_solver.media.labels import action_names, action_text, features
from gymnasium_solver.media.stage import Stage, open_stage
from gymnasium_solver.training.score import pick_seed
from gymnasium_solver.training.targets import Found
from gymnasium_solver.training.threads import limited_threads, pick_threads

MOST_STEPS = 200
N_STEPS = 3  # explained unless steps are named
FRAME_HEIGHT = 240  # pixels of the environment's picture


@dataclass(frozen=True)
class Question:
    """What to explain."""

    steps: tuple[int, ...] = ()
    """Of the episode, from 0; none: the first, the middle and the last one."""
    methods: tuple[str, ...] = METHODS
    target: str = "action"
    """Or value."""
    layer: int | None = None
    """Convolution layer of the class activation maps, from 1; None: the last."""
    seed: int | str = "test"
    greedy: bool | None = None
    most_steps: int = MOST_STEPS


@dataclass
class Explained:
    page: str
    folder: str
    files: list[str]
    """The pictures in `folder`."""
    env_steps: int
    seed: int
    target: str
    steps: list[dict[str, Any]] = field(default_factory=list)
    """Step, action, value, explained number and gradient x input of components."""
    n_steps: int = 0
    """Steps of the episode that were played."""
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Played:
    """A step of the episode."""

    trace: Trace
    frame: np.ndarray | None
    action: str


def explain_run(found: Found, question: Question, out: Path | None = None) -> Explained:
    """Write the pictures and the page. `out`: by default a folder in the run's explain/."""
    with limited_threads(pick_threads(found.config)):
        agent, env_steps = trained_agent(found)
        stage = open_stage(found, 1, agent=agent, must_draw=False)
        try:
            seed = pick_seed(found.config, found.run, env_steps, question.seed)
            played = _play(stage, agent, found, question, seed)
            names = [feature.name for feature in features(stage)]
        finally:
            stage.close()
        steps = _chosen(question, len(played), seed)
        _refuse_early(agent, played, question)
        if out is None:
            assert found.run is not None, "an agent without a run needs a folder"
            out = found.run.path / "explain" / f"{env_steps}-seed{seed}"
        try:
            out.mkdir(parents=True, exist_ok=True)
            return _write(found, agent, env_steps, seed, question, played, steps, names, stage, out)
        except OSError as error:
            raise WriteError(f"{out}: cannot write the pictures: {error.strerror}") from error


def _play(stage: Stage, agent: Agent, found: Found, question: Question, seed: int) -> list[_Played]:
    greedy = found.config.eval_deterministic if question.greedy is None else question.greedy
    actor = TracingActor(agent, greedy=greedy)
    labels = action_names(stage)
    most = max([question.most_steps, *(step + 1 for step in question.steps)])
    played = []
    for moment in Player(stage, actor, seed).episode(most):
        if moment.decision is None or moment.t >= most:
            break
        assert actor.trace is not None
        frame = None if moment.frame is None else enlarge(moment.frame, FRAME_HEIGHT)
        played.append(
            _Played(actor.trace, frame, action_text(stage, labels, moment.decision.action))
        )
    return played


def _chosen(question: Question, n_played: int, seed: int) -> list[int]:
    """The steps to explain."""
    beyond = [step for step in question.steps if step >= n_played]
    if beyond:
        raise ConfigError(
            f"--step {beyond[0]}: the episode with seed {seed} has steps 0 to {n_played - 1}."
        )
    if question.steps:
        return sorted(set(question.steps))
    places = np.linspace(0, n_played - 1, min(N_STEPS, n_played))
    return sorted({round(float(place)) for place in places})


def _refuse_early(agent: Agent, played: list[_Played], question: Question) -> None:
    """Raise the errors of a question before anything is written."""
    subject = subject_of(agent, played[0].trace, question.target)
    for stack in subject.stacks.values():
        pick_layer(stack, question.layer)
    if not subject.stacks and question.layer is not None:
        raise ConfigError(f"--layer {question.layer}: the network has no convolution layers.")


def _write(
    found: Found,
    agent: Agent,
    env_steps: int,
    seed: int,
    question: Question,
    played: list[_Played],
    steps: list[int],
    names: list[str],
    stage: Stage,
    out: Path,
) -> Explained:
    album = Album(out)
    notes = _notes(agent, stage)
    told: list[dict[str, Any]] = []
    for t in steps:
        one = played[t]
        view = look(
            agent, one.trace, question.methods, question.target, layer=question.layer, names=names
        )
        album.add_step(Step(t, one.frame, one.action, one.trace.value, one.trace.chance, view))
        told.append(
            {
                "step": t,
                "action": one.action,
                "value": one.trace.value,
                "explained": view.what,
                "number": view.number,
                "contributions": dict(view.contributions),
            }
        )
    _add_patches(album, agent, played, question)
    _add_network(album, agent, played[0].trace, question)
    title = f"{found.config.env_id}: inside the network"
    facts = [
        ("agent", title_of(found, env_steps)),
        *([("run", found.run.id)] if found.run is not None else []),
        ("episode", f"seed {seed}, {len(played)} steps played"),
        ("explained", told[0]["explained"]),
    ]
    index = out / "index.html"
    index.write_text(page(title, facts, notes, album.sections, out), encoding="utf-8")
    return Explained(
        str(index),
        str(out),
        album.files,
        env_steps,
        seed,
        question.target,
        told,
        len(played),
        notes,
    )


def _notes(agent: Agent, stage: Stage) -> list[str]:
    notes = [note for note in (stage.note,) if note]
    encoder = encoder_of(agent)
    if stage.no_frames:
        notes.append(f"{stage.no_frames}. Only the input of the network is shown.")
    if not encoder.layouts:
        notes.append("The network has no convolutions: gradient x input is shown instead of maps.")
    if encoder.index_sizes:
        parts = ", ".join(name or "obs" for name in encoder.index_sizes)
        notes.append(f"Embedded, without a gradient: {parts}.")
    return notes


def _add_network(album: Album, agent: Agent, trace: Trace, question: Question) -> None:
    subject = subject_of(agent, trace, question.target)
    for key, stack in subject.stacks.items():
        layers = conv_layers(stack)
        maps = activations(layers, lambda: stack(subject.inputs[key]))  # noqa: B023
        shapes = {name: output.shape[1:] for name, output in maps.items()}
        album.add_network(key.removeprefix("image "), layers, shapes)


def _add_patches(album: Album, agent: Agent, played: list[_Played], question: Question) -> None:
    """The patches of the whole episode, by layer."""
    encoder = encoder_of(agent)
    for name, layout in encoder.layouts.items():
        key = f"image {name}"
        groups = plane_groups(layout, encoder.parts[name].shape or ())
        first = subject_of(agent, played[0].trace, question.target)
        stack = first.stacks[key]
        layers = conv_layers(stack)
        kept = {
            layer.name: TopPatches(layer.field, layout.height, layout.width) for layer in layers
        }
        for t, one in enumerate(played):
            planes = subject_of(agent, one.trace, question.target).inputs[key]
            maps = activations(layers, lambda: stack(planes))  # noqa: B023
            for layer_name, output in maps.items():
                kept[layer_name].see(t, output[0])
        for layer_name, patches in kept.items():
            best = patches.best(PATCH_CHANNELS)
            if not best:
                continue
            pictures = {}
            for t in {patch.step for _, found in best for patch in found}:
                inputs = subject_of(agent, played[t].trace, question.target).inputs
                shown = inputs[key][0].cpu().numpy()
                pictures[t] = image_of(shown, groups[-1], bounds_of(shown))
            album.add_patches(name, layer_name, best, pictures)
