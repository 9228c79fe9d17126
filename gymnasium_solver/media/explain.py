"""Looks into the network of a trained agent: what it computes in an episode, and why.

    done = explain_run(find_run("@last", root), Question(steps=(0, 40), methods=("gradcam",)))
    done.page                   # runs/<id>/explain/<env_steps>-seed<seed>/index.html

The page is one file with style and pictures inside, without scripts. `explain_step.look` explains
one step without files, for other displays.
"""

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError, WriteError
from gymnasium_solver.media import drawing as draw
from gymnasium_solver.media.actors import PolicyActor, title_of, trained_agent
from gymnasium_solver.media.explain_step import (
    METHODS,
    ImageView,
    View,
    encoder_of,
    groups_of,
    look,
    pick_layer,
    subject_of,
)
from gymnasium_solver.media.labels import action_names, action_text, features
from gymnasium_solver.media.player import Moment, Player
from gymnasium_solver.media.saliency import TITLES as CAMS
from gymnasium_solver.media.saliency import TopPatches, activations, conv_layers
from gymnasium_solver.media.stage import Stage, open_stage
from gymnasium_solver.runs.html_page import Html, html_page, html_table
from gymnasium_solver.spaces.actions import DiscreteActions
from gymnasium_solver.training.score import pick_seed
from gymnasium_solver.training.targets import Found
from gymnasium_solver.training.threads import limited_threads, pick_threads
from gymnasium_solver.tree import map_tree

MOST_STEPS = 200
N_STEPS = 3  # explained unless steps are named
FRAME_HEIGHT = 150  # of the environment's picture: half of the largest, in pixels
MOST_BARS = 40
PATCH_CHANNELS = 16  # with their strongest patches
STYLE = """
figure img { image-rendering: pixelated; border-radius: 4px; } .note { color: var(--bad); }
"""


@dataclass(frozen=True)
class Question:
    """What to explain."""

    steps: tuple[int, ...] = ()
    """Steps of the episode, from 0; none: the first, the middle and the last one."""
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
class _Episode:
    agent: Agent
    title: str
    env_steps: int
    seed: int
    n_steps: int
    moments: dict[int, Moment]
    """The first `most_steps` steps, and those to explain."""
    actions: dict[int, str]
    names: list[str]
    """Names of the components of the observation."""
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
    most = max([question.most_steps, *(step + 1 for step in question.steps)])
    moments: dict[int, Moment] = {}
    actions: dict[int, str] = {}
    n_steps = 0
    try:
        seed = pick_seed(found.config, found.run, env_steps, question.seed)
        labels = action_names(stage)
        player = Player(stage, PolicyActor(agent, greedy=greedy, explains=True), seed)
        for moment in player.episode(most):
            if moment.decision is None or moment.t >= most:
                break
            n_steps += 1
            if moment.t < question.most_steps or moment.t in question.steps:
                moments[moment.t] = _kept(moment, question)
                actions[moment.t] = action_text(stage, labels, moment.decision.action)
        names = [feature.name for feature in features(stage)]
    finally:
        stage.close()
    run = "" if found.run is None else f" ({found.run.id})"
    title, notes = title_of(found, env_steps) + run, _notes(agent, stage)
    return _Episode(agent, title, env_steps, seed, n_steps, moments, actions, names, notes)


def _kept(moment: Moment, question: Question) -> Moment:
    """A copy, since engines reuse their buffers; with a frame if it may be shown."""
    frame = moment.frame
    if frame is not None and (not question.steps or moment.t in question.steps):
        frame = draw.enlarge(frame, FRAME_HEIGHT).copy()
    else:
        frame = None
    mask = None if moment.mask is None else moment.mask.copy()
    return replace(moment, frame=frame, obs=map_tree(np.array, moment.obs), raw=None, mask=mask)


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
    subject = subject_of(episode.agent, episode.moments[0], question.target)
    for stack in subject.stacks.values():
        pick_layer(stack, question.layer)
    if not subject.stacks and question.layer is not None:
        raise ConfigError(f"--layer {question.layer}: the network has no convolution layers.")


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


# -- the page -----------------------------------------------------------------------------------


class _Album:
    """Writes pictures as PNG files, and collects the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[str] = []
        self.body: list[str] = []

    def heading(self, title: str, text: str) -> None:
        self.body += [f"<h2>{escape(title)}</h2>", f'<p class="quiet">{escape(text)}</p>']

    def figure(self, name: str, picture: np.ndarray, caption: str) -> None:
        path = self.folder / f"{name}.png"
        Image.fromarray(picture).save(path, optimize=True)
        self.files.append(path.name)
        data, caption = base64.b64encode(path.read_bytes()).decode(), escape(caption)
        self.body.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )


def _write(episode: _Episode, question: Question, steps: list[int], out: Path) -> Explained:
    album = _Album(out)
    told: list[dict[str, Any]] = []
    for t in steps:
        moment = episode.moments[t]
        view = look(
            episode.agent,
            moment,
            question.methods,
            question.target,
            layer=question.layer,
            names=episode.names,
        )
        _add_step(album, episode, moment, view)
        assert moment.decision is not None
        told.append(
            {
                "step": t,
                "action": episode.actions[t],
                "value": moment.decision.value,
                "explained": view.what,
                "number": view.number,
                "contributions": dict(view.contributions),
            }
        )
    for name in encoder_of(episode.agent).layouts:
        _add_patches(album, episode, question, name)
    for name in encoder_of(episode.agent).layouts:
        _add_network(album, episode, question, name)
    facts = {
        "agent": episode.title,
        "episode": f"seed {episode.seed}, {episode.n_steps} steps played",
        "explained": told[0]["explained"],
    }
    title = f"{episode.agent.config.env_id}: inside the network"
    rows = [(Html(f"<b>{name}</b>"), text) for name, text in facts.items()]
    head = [f"<h1>{escape(title)}</h1>", html_table(None, rows)]
    head += [f'<p class="note">{escape(note)}</p>' for note in episode.notes]
    index = out / "index.html"
    index.write_text(html_page(title, [*head, *album.body], STYLE), encoding="utf-8")
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


def _add_step(album: _Album, episode: _Episode, moment: Moment, view: View) -> None:
    decision, prefix = moment.decision, f"step-{moment.t:04d}"
    assert decision is not None
    facts = [f"Chosen: {episode.actions[moment.t]}"]
    if decision.probabilities is not None and isinstance(
        episode.agent.policy.actions, DiscreteActions
    ):
        facts.append(f"probability {decision.probabilities[int(decision.chosen)]:.3g}")  # type: ignore[arg-type]
    if decision.value is not None:
        facts.append(f"value {decision.value:.4g}")
    text = f"{', '.join(facts)}. Explained: {view.what}, {view.number:.4g}."
    album.heading(f"Step {moment.t}", text)
    if moment.frame is not None:
        album.figure(f"{prefix}-frame", moment.frame, "The environment")
    for image in view.images:
        _add_image(album, prefix, image)
    if view.contributions:
        _add_bars(album, prefix, view.contributions)


def _add_image(album: _Album, prefix: str, image: ImageView) -> None:
    pictures = draw.group_pictures(image.planes, image.groups)
    stem = f"{prefix}-{_slug(image.name)}".rstrip("-")

    def tiles(name: str, made: Sequence[np.ndarray], caption: str) -> None:
        labelled = zip(image.groups, made, strict=True)
        shown = draw.strip([(group.label, draw.enlarge(picture)) for group, picture in labelled])
        album.figure(f"{stem}-{name}", shown, caption)

    tiles("input", pictures, f"Input of the network{_of(image.name)}")
    if image.gradient is not None:
        top = np.stack([image.gradient[group.planes].max(0) for group in image.groups])
        text = "Gradient saliency: how much a small change of a pixel changes the number"
        tiles("gradient", list(map(draw.overlay, pictures, draw.unit(top))), text)
    if image.occlusion is not None:
        text = "Occlusion: orange, covering it lowers the number; blue, it raises the number"
        made = map(draw.signed_overlay, pictures, draw.unit(image.occlusion))
        tiles("occlusion", list(made), text)
    if image.cams:
        shown = [
            (
                CAMS[method] if map_.max() > 0 else f"{CAMS[method]} (all 0)",
                draw.enlarge(draw.overlay(pictures[-1], draw.stretched(map_))),
            )
            for method, map_ in image.cams.items()
        ]
        titles = ", ".join(CAMS[method] for method in image.cams)
        text = f"Class activation maps of {image.layer}, over the newest frame: {titles}"
        album.figure(f"{stem}-cams", draw.strip(shown, columns=4), text)
    for layer, maps in image.activations.items():
        text = f"Activations of {layer}: {min(len(maps), draw.MOST_MAPS)} of {len(maps)} channels"
        album.figure(f"{stem}-activations-{_slug(layer)}", draw.channel_grid(maps), text)


def _add_bars(album: _Album, prefix: str, contributions: Sequence[tuple[str, float]]) -> None:
    shown, text = list(contributions), "Gradient x input of each component"
    if len(shown) > MOST_BARS:
        ranked = sorted(range(len(shown)), key=lambda i: -abs(shown[i][1]))[:MOST_BARS]
        text += f": the {MOST_BARS} largest of {len(shown)}"
        shown = [shown[i] for i in sorted(ranked)]
    names, numbers = zip(*shown, strict=True)
    album.figure(f"{prefix}-contributions", draw.bars(names, numbers), text)


def _add_patches(album: _Album, episode: _Episode, question: Question, part: str) -> None:
    """The patches of the whole episode, by layer."""
    key, newest = f"image {part}", groups_of(episode.agent, part)[-1:]
    subjects = {
        t: subject_of(episode.agent, moment, question.target)
        for t, moment in episode.moments.items()
    }
    layers = conv_layers(subjects[0].stacks[key])
    height, width = subjects[0].inputs[key].shape[2:]
    kept = {layer.name: TopPatches(layer.field, height, width) for layer in layers}
    for t, subject in subjects.items():
        maps = activations(layers, partial(subject.stacks[key], subject.inputs[key]))
        for layer_name, output in maps.items():
            kept[layer_name].see(t, output[0])
    best_of = {name: patches.best(PATCH_CHANNELS) for name, patches in kept.items()}
    if any(best_of.values()):
        text = "The parts of the images to which a channel responds most over the episode."
        album.heading(f"Maximally activating patches{_of(part)}", text)
    for layer_name, best in best_of.items():
        if not best:
            continue
        steps = sorted({patch.step for _, patches in best for patch in patches})
        images = {t: subjects[t].inputs[key][0].cpu().numpy() for t in steps}
        pictures = {t: draw.group_pictures(image, newest)[0] for t, image in images.items()}
        cuts = [
            [pictures[p.step][p.top : p.bottom, p.left : p.right] for p in patches]
            for _, patches in best
        ]
        largest = max(max(cut.shape[:2]) for channel in cuts for cut in channel)
        tiles = [
            (f"channel {channel + 1}", draw.patch_row(cut, largest))
            for (channel, _), cut in zip(best, cuts, strict=True)
        ]
        span = f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else f"{steps[0]}"
        caption = f"the strongest patches of {len(best)} channels, best first (steps {span})"
        name = f"patches-{_slug(part, layer_name)}"
        album.figure(name, draw.strip(tiles, columns=4), f"{layer_name}: {caption}")


def _add_network(album: _Album, episode: _Episode, question: Question, part: str) -> None:
    """Layers, receptive fields and filters of the convolutions of one image part."""
    subject, key = subject_of(episode.agent, episode.moments[0], question.target), f"image {part}"
    layers = conv_layers(subject.stacks[key])
    maps = activations(layers, partial(subject.stacks[key], subject.inputs[key]))
    text = (
        "Receptive field: the pixels that can influence one unit. Step: by how many pixels the "
        "fields of neighbouring units are apart."
    )
    album.heading(f"Network{_of(part)}", text)
    heads = ("layer", "channels", "output", "kernel", "stride", "receptive field", "step")
    rows = []
    for layer in layers:
        conv, seen = layer.conv, layer.field
        channels, height, width = maps[layer.name].shape[1:]
        kernel = f"{conv.kernel_size[0]} x {conv.kernel_size[1]}"
        sides = (f"{height} x {width}", kernel, conv.stride[0], f"{seen.size[0]} x {seen.size[1]}")
        rows.append((layer.name, channels, *sides, seen.jump[0]))
    album.body.append(html_table(heads, rows))
    for layer in layers:
        weights = layer.conv.weight.detach().cpu().numpy()
        n_out, n_in = weights.shape[:2]
        shown_out, shown_in = draw.filters_shown(n_out, n_in)
        shown = f"{shown_out} of {n_out} channels, {shown_in} of {n_in} inputs each"
        album.figure(
            f"filters-{_slug(part, layer.name)}",
            draw.filter_grid(weights),
            f"Filters of {layer.name}: {shown}. Orange positive, blue negative.",
        )


def _of(part: str) -> str:
    return f": {part}" if part else ""


def _slug(*words: str) -> str:
    """Words as a file name; parts of observations may have any name."""
    joined = "-".join(word for word in words if word)
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in joined).lower()
