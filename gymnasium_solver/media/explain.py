"""Looks into the network of a trained agent: what it computes in an episode, and why.

    done = explain_run(find_run("@last", root), Question(steps=(0, 40), methods=("gradcam",)))
    done.page                   # runs/<id>/explain/<env_steps>-seed<seed>/index.html

The page is one file with style and pictures inside, without scripts. `explain_step.look` explains
one step without files, for other displays.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError, WriteError
from gymnasium_solver.media import drawing as draw
from gymnasium_solver.media.explain_step import (
    METHODS,
    ImageView,
    View,
    explained_encoder,
    groups_of,
    look,
    pick_layer,
    subject_of,
)
from gymnasium_solver.media.labels import action_names, action_text, features
from gymnasium_solver.media.player import Moment, Scene, open_scene
from gymnasium_solver.media.saliency import TITLES as CAMS
from gymnasium_solver.media.saliency import TopPatches, activations, conv_layers
from gymnasium_solver.media.stage import Stage
from gymnasium_solver.runs.html_page import Html, html_page, html_table
from gymnasium_solver.spaces.actions import DiscreteActions
from gymnasium_solver.training.targets import Found
from gymnasium_solver.tree import map_tree

MOST_STEPS = 200
N_STEPS = 3  # explained unless steps are named
FRAME_HEIGHT = 150  # of the environment's picture: half of the largest, in pixels
MOST_BARS = 40
PATCH_CHANNELS = 16  # with their strongest patches
STYLE = """
figure img { image-rendering: pixelated; border-radius: 4px; } .note { color: var(--bad); }
"""
HEAT_TEXTS = {
    "gradient": "Gradient saliency: how much a small change of a pixel changes the number",
    "occlusion": "Occlusion: orange, covering it lowers the number; blue, it raises the number",
}


@dataclass(frozen=True)
class Question:
    """What to explain."""

    steps: tuple[int, ...] = ()
    """Steps of the episode, from 0; none: the first, the middle and the last one."""
    methods: tuple[str, ...] = METHODS
    target: str = "action"  # or value
    layer: int | None = None
    """Convolution layer of the class activation maps, from 1; None: the last."""
    seed: int | str = "test"
    greedy: bool | None = None
    most_steps: int = MOST_STEPS


@dataclass
class Explained:
    page: str = ""
    folder: str = ""
    files: list[str] = field(default_factory=list)  # the pictures in `folder`
    env_steps: int = 0
    seed: int = 0
    target: str = "action"
    steps: list[dict[str, Any]] = field(default_factory=list)
    """Step, action, value, explained number and gradient x input of components."""
    n_steps: int = 0  # steps of the episode that were played
    notes: list[str] = field(default_factory=list)


def explain_run(found: Found, question: Question, out: Path | None = None) -> Explained:
    """Write the pictures and the page. `out`: by default a folder in the run's explain/."""
    with open_scene(found, must_draw=False) as scene:
        page = _Page(scene, question)
        page.check()
        if out is None:
            assert found.run is not None, "an agent without a run needs a folder"
            out = found.run.path / "explain" / f"{scene.env_steps}-seed{page.done.seed}"
        try:
            out.mkdir(parents=True, exist_ok=True)
            return page.write(out)
        except OSError as error:
            raise WriteError(f"{out}: cannot write the pictures: {error.strerror}") from error


class _Page:
    """Plays the episode, writes pictures as PNG files, and collects the page."""

    def __init__(self, scene: Scene, question: Question) -> None:
        assert scene.agent is not None, "the network of an agent is explained"
        self.agent, self.question = scene.agent, question
        self.title = scene.title + ("" if scene.found.run is None else f" ({scene.found.run.id})")
        self.names = [feature.name for feature in features(scene.stage)]
        """Names of the components of the observation."""
        self.moments: dict[int, Moment] = {}
        """The first `most_steps` steps, and those to explain."""
        self.actions: dict[int, str] = {}
        self.body: list[str] = []
        most = max([question.most_steps, *(step + 1 for step in question.steps)])
        labels = action_names(scene.stage)
        player = scene.player(question.seed, question.greedy, explains=True)
        self.done = Explained(env_steps=scene.env_steps, seed=player.seed, target=question.target)
        for moment in player.episode(most):
            if moment.decision is None or moment.t >= most:
                break
            self.done.n_steps += 1
            if moment.t < question.most_steps or moment.t in question.steps:
                self.moments[moment.t] = _kept(moment, question)
                action = moment.decision.action
                self.actions[moment.t] = action_text(scene.stage, labels, action)
        self.done.notes = _notes(self.agent, scene.stage)

    def check(self) -> None:
        """Raise the errors of a question before anything is written."""
        question, last = self.question, self.done.n_steps - 1
        if beyond := [step for step in question.steps if step > last]:
            raise ConfigError(
                f"--step {beyond[0]}: the episode with seed {self.done.seed} has steps 0 to {last}."
            )
        subject = subject_of(self.agent, self.moments[0], question.target)
        for stack in subject.stacks.values():
            pick_layer(stack, question.layer)
        if not subject.stacks and question.layer is not None:
            raise ConfigError(f"--layer {question.layer}: the network has no convolution layers.")

    def write(self, folder: Path) -> Explained:
        done = self.done
        done.folder, done.page = str(folder), str(folder / "index.html")
        places = np.linspace(0, done.n_steps - 1, min(N_STEPS, done.n_steps))
        for t in sorted({*self.question.steps} or {round(float(place)) for place in places}):
            self._add_step(self.moments[t])
        parts = list(explained_encoder(self.agent).layouts)
        for part in parts:
            self._add_patches(part)
        for part in parts:
            self._add_network(part)
        facts = {
            "agent": self.title,
            "episode": f"seed {done.seed}, {done.n_steps} steps played",
            "explained": done.steps[0]["explained"],
        }
        title = f"{self.agent.config.env_id}: inside the network"
        rows = [(Html(f"<b>{name}</b>"), text) for name, text in facts.items()]
        head = [f"<h1>{escape(title)}</h1>", html_table(None, rows)]
        head += [f'<p class="note">{escape(note)}</p>' for note in done.notes]
        Path(done.page).write_text(html_page(title, [*head, *self.body], STYLE), encoding="utf-8")
        return done

    def _heading(self, title: str, text: str) -> None:
        self.body += [f"<h2>{escape(title)}</h2>", f'<p class="quiet">{escape(text)}</p>']

    def _figure(self, name: str, picture: np.ndarray, caption: str) -> None:
        path = Path(self.done.folder) / f"{name}.png"
        Image.fromarray(picture).save(path, optimize=True)
        self.done.files.append(path.name)
        data, caption = base64.b64encode(path.read_bytes()).decode(), escape(caption)
        self.body.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )

    # -- one step ---------------------------------------------------------------------------

    def _add_step(self, moment: Moment) -> None:
        question, decision, prefix = self.question, moment.decision, f"step-{moment.t:04d}"
        assert decision is not None
        view = look(
            self.agent, moment, question.methods, question.target,
            layer=question.layer, names=self.names,
        )  # fmt: skip
        told = {"step": moment.t, "action": self.actions[moment.t], "value": decision.value}
        told |= {"explained": view.what, "number": view.number}
        self.done.steps.append(told | {"contributions": dict(view.contributions)})
        facts = [f"Chosen: {self.actions[moment.t]}"]
        chances, chosen = decision.probabilities, decision.chosen
        if chances is not None and isinstance(self.agent.policy.actions, DiscreteActions):
            assert chosen is not None
            facts.append(f"probability {chances[int(chosen)]:.3g}")
        if decision.value is not None:
            facts.append(f"value {decision.value:.4g}")
        text = f"{', '.join(facts)}. Explained: {view.what}, {view.number:.4g}."
        self._heading(f"Step {moment.t}", text)
        if moment.frame is not None:
            self._figure(f"{prefix}-frame", moment.frame, "The environment")
        for image in view.images:
            self._add_image(prefix, image)
        if view.contributions:
            self._add_bars(prefix, view)

    def _add_image(self, prefix: str, image: ImageView) -> None:
        stem = f"{prefix}-{_slug(image.name)}".rstrip("-")

        def tiles(name: str, made: Sequence[np.ndarray], caption: str) -> None:
            labelled = zip(image.groups, made, strict=True)
            shown = [(group.label, draw.enlarge(picture)) for group, picture in labelled]
            self._figure(f"{stem}-{name}", draw.strip(shown), caption)

        tiles("input", image.pictures(), f"Input of the network{_of(image.name)}")
        for method, text in HEAT_TEXTS.items():
            if method in image.maps:
                tiles(method, image.pictures(method), text)
        if cams := [method for method in image.maps if method in CAMS]:
            labels = [CAMS[m] + " (all 0)" * (not image.maps[m].max() > 0) for m in cams]
            maps = [draw.enlarge(image.pictures(method)[-1]) for method in cams]
            shown = list(zip(labels, maps, strict=True))
            titles = ", ".join(CAMS[method] for method in cams)
            text = f"Class activation maps of {image.layer}, over the newest frame: {titles}"
            self._figure(f"{stem}-cams", draw.strip(shown, columns=4), text)
        for layer, outputs in image.activations.items():
            shown_maps = f"{min(len(outputs), draw.MOST_MAPS)} of {len(outputs)} channels"
            name = f"{stem}-activations-{_slug(layer)}"
            self._figure(name, draw.channel_grid(outputs), f"Activations of {layer}: {shown_maps}")

    def _add_bars(self, prefix: str, view: View) -> None:
        shown, text = view.contributions, "Gradient x input of each component"
        if len(shown) > MOST_BARS:
            ranked = sorted(range(len(shown)), key=lambda i: -abs(shown[i][1]))[:MOST_BARS]
            text += f": the {MOST_BARS} largest of {len(shown)}"
            shown = [shown[i] for i in sorted(ranked)]
        names, numbers = zip(*shown, strict=True)
        self._figure(f"{prefix}-contributions", draw.bars(names, numbers), text)

    # -- the network ------------------------------------------------------------------------

    def _add_patches(self, part: str) -> None:
        """The patches of the whole episode, by layer."""
        key, newest = f"image {part}", groups_of(self.agent, part)[-1:]
        subjects = {
            t: subject_of(self.agent, moment, self.question.target)
            for t, moment in self.moments.items()
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
            self._heading(f"Maximally activating patches{_of(part)}", text)
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
            self._figure(name, draw.strip(tiles, columns=4), f"{layer_name}: {caption}")

    def _add_network(self, part: str) -> None:
        """Layers, receptive fields and filters of the convolutions of one image part."""
        subject = subject_of(self.agent, self.moments[0], self.question.target)
        stack, planes = subject.stacks[f"image {part}"], subject.inputs[f"image {part}"]
        layers = conv_layers(stack)
        maps = activations(layers, partial(stack, planes))
        text = (
            "Receptive field: the pixels that can influence one unit. Step: by how many pixels the "
            "fields of neighbouring units are apart."
        )
        self._heading(f"Network{_of(part)}", text)
        heads = ("layer", "channels", "output", "kernel", "stride", "receptive field", "step")
        rows: list[tuple[Any, ...]] = []
        for layer in layers:
            conv, seen = layer.conv, layer.field
            channels, *sides = maps[layer.name].shape[1:]
            output, kernel, size = (f"{h} x {w}" for h, w in (sides, conv.kernel_size, seen.size))
            rows.append((layer.name, channels, output, kernel, conv.stride[0], size, seen.jump[0]))
        self.body.append(html_table(heads, rows))
        for layer in layers:
            weights = layer.conv.weight.detach().cpu().numpy()
            n_out, n_in = weights.shape[:2]
            shown_out, shown_in = draw.filters_shown(n_out, n_in)
            shown = f"{shown_out} of {n_out} channels, {shown_in} of {n_in} inputs each"
            text = f"Filters of {layer.name}: {shown}. Orange positive, blue negative."
            self._figure(f"filters-{_slug(part, layer.name)}", draw.filter_grid(weights), text)


def _kept(moment: Moment, question: Question) -> Moment:
    """A copy, since engines reuse their buffers; with a frame if it may be shown."""
    frame = moment.frame if not question.steps or moment.t in question.steps else None
    frame = None if frame is None else draw.enlarge(frame, FRAME_HEIGHT).copy()
    copies = {name: map_tree(np.array, getattr(moment, name)) for name in ("obs", "mask")}
    return replace(moment, frame=frame, raw=None, **copies)


def _notes(agent: Agent, stage: Stage) -> list[str]:
    notes = [f"{note[0].upper()}{note[1:]}." for note in (stage.note,) if note]
    encoder = explained_encoder(agent)
    if stage.no_frames:
        notes.append(f"{stage.no_frames}. Only the input of the network is shown.")
    if not encoder.layouts:
        notes.append("The network has no convolutions: gradient x input is shown instead of maps.")
    if encoder.index_sizes:
        parts = ", ".join(name or "obs" for name in encoder.index_sizes)
        notes.append(f"Embedded, without a gradient: {parts}.")
    return notes


def _of(part: str) -> str:
    return f": {part}" if part else ""


def _slug(*words: str) -> str:
    """Words as a file name; parts of observations may have any name."""
    joined = "-".join(word for word in words if word)
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in joined).lower()
