"""Looks into the network of a trained agent: what it computes in an episode, and why.

    done = explain_run(find_run("@last", root), Question(steps=(0, 40), methods=("gradcam",)))
    done.page                   # runs/<id>/explain/<env_steps>-seed<seed>/index.html

`explain_look.look` explains one step without files, for other displays.
"""

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError, WriteError
from gymnasium_solver.media.agents import title_of, trained_agent
from gymnasium_solver.media.episodes import Player
from gymnasium_solver.media.explain_album import PATCH_CHANNELS, Album, Step
from gymnasium_solver.media.explain_look import METHODS, groups_of, look, pick_layer
from gymnasium_solver.media.explain_page import page
from gymnasium_solver.media.explain_pictures import bounds_of, enlarge, image_of
from gymnasium_solver.media.explain_subject import Trace, TracingActor, encoder_of, subject_of
from gymnasium_solver.media.filters import TopPatches, activations, conv_layers
from gymnasium_solver.media.labels import action_names, action_text, features
from gymnasium_solver.media.stage import Stage, open_stage
from gymnasium_solver.training.score import pick_seed
from gymnasium_solver.training.targets import Found
from gymnasium_solver.training.threads import limited_threads, pick_threads

MOST_STEPS = 200
N_STEPS = 3  # explained unless steps are named
FRAME_HEIGHT = 150  # of the environment's picture: half of the largest, in pixels


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


@dataclass(frozen=True)
class _Episode:
    agent: Agent
    title: str
    env_steps: int
    seed: int
    n_steps: int
    played: dict[int, _Played]
    """The first `most_steps` steps, and those to explain."""
    names: list[str]
    """Of the components of the observation."""
    notes: list[str]


def explain_run(found: Found, question: Question, out: Path | None = None) -> Explained:
    """Write the pictures and the page. `out`: by default a folder in the run's explain/."""
    with limited_threads(pick_threads(found.config)):
        episode = _episode(found, question)
        steps = _chosen(question, episode)
        _refuse_early(episode, question)
        if out is None:
            assert found.run is not None, "an agent without a run needs a folder"
            out = found.run.path / "explain" / f"{episode.env_steps}-seed{episode.seed}"
        try:
            out.mkdir(parents=True, exist_ok=True)
            return _write(episode, question, steps, out)
        except OSError as error:
            raise WriteError(f"{out}: cannot write the pictures: {error.strerror}") from error


def _episode(found: Found, question: Question) -> _Episode:
    agent, env_steps = trained_agent(found)
    greedy = found.config.eval_deterministic if question.greedy is None else question.greedy
    stage = open_stage(found, 1, agent=agent, must_draw=False)
    try:
        seed = pick_seed(found.config, found.run, env_steps, question.seed)
        n_steps, played = _play(stage, TracingActor(agent, greedy=greedy), question, seed)
        names = [feature.name for feature in features(stage)]
    finally:
        stage.close()
    run = "" if found.run is None else f" ({found.run.id})"
    title = title_of(found, env_steps) + run
    return _Episode(agent, title, env_steps, seed, n_steps, played, names, _notes(agent, stage))


def _play(
    stage: Stage, actor: TracingActor, question: Question, seed: int
) -> tuple[int, dict[int, _Played]]:
    labels, n_steps = action_names(stage), 0
    most = max([question.most_steps, *(step + 1 for step in question.steps)])
    played: dict[int, _Played] = {}
    for moment in Player(stage, actor, seed).episode(most):
        if moment.decision is None or moment.t >= most:
            break
        n_steps += 1
        if moment.t >= question.most_steps and moment.t not in question.steps:
            continue
        assert actor.trace is not None
        frame = None
        if moment.frame is not None and (not question.steps or moment.t in question.steps):
            frame = enlarge(moment.frame, FRAME_HEIGHT).copy()  # engines reuse their buffers
        action = action_text(stage, labels, moment.decision.action)
        played[moment.t] = _Played(actor.trace, frame, action)
    return n_steps, played


def _chosen(question: Question, episode: _Episode) -> list[int]:
    """The steps to explain."""
    last = episode.n_steps - 1
    beyond = [step for step in question.steps if step > last]
    if beyond:
        raise ConfigError(
            f"--step {beyond[0]}: the episode with seed {episode.seed} has steps 0 to {last}."
        )
    if question.steps:
        return sorted(set(question.steps))
    places = np.linspace(0, last, min(N_STEPS, episode.n_steps))
    return sorted({round(float(place)) for place in places})


def _refuse_early(episode: _Episode, question: Question) -> None:
    """Raise the errors of a question before anything is written."""
    subject = subject_of(episode.agent, episode.played[0].trace, question.target)
    for stack in subject.stacks.values():
        pick_layer(stack, question.layer)
    if not subject.stacks and question.layer is not None:
        raise ConfigError(f"--layer {question.layer}: the network has no convolution layers.")


def _write(episode: _Episode, question: Question, steps: list[int], out: Path) -> Explained:
    album = Album(out)
    told: list[dict[str, Any]] = []
    for t in steps:
        one = episode.played[t]
        view = look(
            episode.agent,
            one.trace,
            question.methods,
            question.target,
            layer=question.layer,
            names=episode.names,
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
    _add_patches(album, episode, question)
    _add_network(album, episode, question)
    facts = [
        ("agent", episode.title),
        ("episode", f"seed {episode.seed}, {episode.n_steps} steps played"),
        ("explained", told[0]["explained"]),
    ]
    index = out / "index.html"
    title = f"{episode.agent.config.env_id}: inside the network"
    text = page(title, facts, episode.notes, album.sections, out)
    index.write_text(text, encoding="utf-8")
    return Explained(
        page=str(index),
        folder=str(out),
        files=album.files,
        env_steps=episode.env_steps,
        seed=episode.seed,
        target=question.target,
        steps=told,
        n_steps=episode.n_steps,
        notes=episode.notes,
    )


def _notes(agent: Agent, stage: Stage) -> list[str]:
    notes = [f"{note[0].upper()}{note[1:]}." for note in (stage.note,) if note]
    encoder = encoder_of(agent)
    if stage.no_frames:
        notes.append(f"{stage.no_frames}. Only the input of the network is shown.")
    if not encoder.layouts:
        notes.append("The network has no convolutions: gradient x input is shown instead of maps.")
    if encoder.index_sizes:
        parts = ", ".join(name or "obs" for name in encoder.index_sizes)
        notes.append(f"Embedded, without a gradient: {parts}.")
    return notes


def _add_network(album: Album, episode: _Episode, question: Question) -> None:
    subject = subject_of(episode.agent, episode.played[0].trace, question.target)
    for key, stack in subject.stacks.items():
        layers = conv_layers(stack)
        maps = activations(layers, partial(stack, subject.inputs[key]))
        shapes = {name: output.shape[1:] for name, output in maps.items()}
        album.add_network(key.removeprefix("image "), layers, shapes)


def _add_patches(album: Album, episode: _Episode, question: Question) -> None:
    """The patches of the whole episode, by layer."""
    encoder = encoder_of(episode.agent)
    subjects = {
        t: subject_of(episode.agent, one.trace, question.target)
        for t, one in episode.played.items()
        if encoder.layouts
    }
    for name, layout in encoder.layouts.items():
        key = f"image {name}"
        newest = groups_of(episode.agent, name)[-1]
        layers = conv_layers(subjects[0].stacks[key])
        kept = {
            layer.name: TopPatches(layer.field, layout.height, layout.width) for layer in layers
        }
        for t, subject in subjects.items():
            maps = activations(layers, partial(subject.stacks[key], subject.inputs[key]))
            for layer_name, output in maps.items():
                kept[layer_name].see(t, output[0])
        for layer_name, patches in kept.items():
            best = patches.best(PATCH_CHANNELS)
            if not best:
                continue
            pictures = {}
            for t in {patch.step for _, found in best for patch in found}:
                shown = subjects[t].inputs[key][0].cpu().numpy()
                pictures[t] = image_of(shown, newest, bounds_of(shown))
            album.add_patches(name, layer_name, best, pictures)
