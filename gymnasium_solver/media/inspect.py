"""Plays episodes for the inspector and records everything about each step (runs/episodes.py).

    studio = Studio(runs_root())
    episode = studio.play(Ask("@last/@best", seed=7))
    again = studio.play(Ask("@last", branch=Branch(episode.id, at=40, action=1)))

A branch resets with the seed of another episode, repeats its actions up to a step, takes another
action there or lets another checkpoint go on, and checks that the observations agree until then.
"""

import dataclasses
import hashlib
import io
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from PIL import Image

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.envs.action_checks import action_checker
from gymnasium_solver.errors import ConfigError, EnvError, first_line
from gymnasium_solver.media.drawing import Tiles, group_pictures, mosaic
from gymnasium_solver.media.explain_step import groups_of
from gymnasium_solver.media.labels import action_names, action_text
from gymnasium_solver.media.player import Decision, Moment, PolicyActor, Scene
from gymnasium_solver.media.stage import engine_text
from gymnasium_solver.media.step_columns import Plan, derived
from gymnasium_solver.nets.describe import describe_network
from gymnasium_solver.runs.episodes import Episode, EpisodeWriter, get_episode
from gymnasium_solver.runs.run import Run
from gymnasium_solver.spaces.observations import obs_arrays
from gymnasium_solver.spaces.space_types import action_shape, is_discrete, is_multi_binary
from gymnasium_solver.training.targets import ENV_FIELDS, find_run, with_fields
from gymnasium_solver.training.threads import limited_threads, pick_threads
from gymnasium_solver.tree import map_tree

MOST_STEPS = 1000
LIMIT_STEPS = 50_000
GAE_LAMBDA = 0.95  # where the algorithm has none
MOST_INFO = 64  # entries of a step's info that are kept
MOST_TEXT = 200
KEPT = 3  # environments that stay open
SMALL_PNG = 16 * 1024
JPEG_QUALITY = 85


@dataclass(frozen=True)
class Branch:
    of: str  # id of the episode
    at: int  # the first step that may differ
    action: Any = None  # what to do there, as JSON or as its label; None: what the agent decides


@dataclass(frozen=True)
class Ask:
    run: str | Run  # a run or a checkpoint of it, such as @last/@best
    seed: int | str = "test"
    greedy: bool | None = None
    """None: as in the run's evaluations, or in the episode that is branched from."""
    most_steps: int = MOST_STEPS
    branch: Branch | None = None
    env_kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    trust: bool = False


class Studio:
    """Keeps agents and environments open between episodes. Not for several threads at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._scenes: OrderedDict[tuple[Any, ...], Scene] = OrderedDict()

    def scene(self, ask: Ask) -> Scene:
        found = find_run(ask.run, self.root, trust=ask.trust)
        found = with_fields(found, ask.env_kwargs, ENV_FIELDS)
        assert found.checkpoint is not None
        key = (found.checkpoint.resolve(), repr(sorted(ask.env_kwargs.items())))
        if key in self._scenes:
            self._scenes.move_to_end(key)
            return self._scenes[key]
        self._scenes[key] = Scene.open(found, must_draw=False)
        while len(self._scenes) > KEPT:
            self._scenes.popitem(last=False)[1].stage.close()
        return self._scenes[key]

    def play(
        self,
        ask: Ask,
        on_start: Callable[[Episode], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Episode:
        """Record an episode in its run. `on_start` gets it as soon as it can be read."""
        if not 1 <= ask.most_steps <= LIMIT_STEPS:
            raise ConfigError(f"steps {ask.most_steps}: expected 1 to {LIMIT_STEPS}")
        scene = self.scene(ask)
        with limited_threads(pick_threads(scene.found.config)):
            return _Recording(scene, ask, should_stop).play(on_start)

    def worst_seed(self, ask: Ask, n: int) -> int:
        """The seed of `n`, from that of `ask` on, whose episode has the lowest return."""
        scene = self.scene(ask)
        hidden = dataclasses.replace(scene, stage=dataclasses.replace(scene.stage, draws=False))
        player = hidden.player(ask.seed, ask.greedy)
        first, found = player.seed, []
        with limited_threads(pick_threads(scene.found.config)):
            for seed in ((first + i) % 2**31 for i in range(n)):
                player.restart(seed)
                *_, last = player.episode(ask.most_steps)
                found.append((last.episode_return, seed))
        return min(found)[1]

    def close(self) -> None:
        for scene in self._scenes.values():
            scene.stage.close()
        self._scenes.clear()


class _Recording:
    def __init__(self, scene: Scene, ask: Ask, should_stop: Callable[[], bool]) -> None:
        assert scene.agent is not None
        self.scene, self.agent, self.ask, self.should_stop = scene, scene.agent, ask, should_stop
        self.script = Script.of(scene, ask.branch)
        base = {} if self.script.base is None else self.script.base.facts
        greedy = base.get("greedy") if ask.greedy is None else ask.greedy
        self.greedy = scene.found.is_greedy(greedy)
        self.player = scene.player(base.get("seed", ask.seed), greedy, explains=True)
        config = scene.found.config
        self.gamma = float(getattr(config, "gamma", 1.0))
        self.gae_lambda = float(getattr(config, "gae_lambda", GAE_LAMBDA))
        self.encoders = {"render": FrameEncoder()}
        self.encoders |= {view: FrameEncoder("png") for view in NETWORK_VIEWS}

    def play(self, on_start: Callable[[Episode], None] | None) -> Episode:
        started_s = time.perf_counter()
        moment = self.player.moment()
        plan = Plan.of(self.scene.stage, self.agent, moment)
        bodies, tiles = self._pictures(moment)  # before the facts, which tell their format
        about = {"environment": about_environment(self.scene)}
        about["model"] = about_model(self.scene, moment.obs)
        writer = EpisodeWriter.create(self.scene.run, {**self._facts(plan, tiles), **about})
        try:
            for view, body in bodies.items():
                writer.add_frame(view, body)
            if on_start is not None:
                on_start(Episode(writer.path))
            last, ended = self._steps(plan, writer, moment)
            space = self.scene.stage.env.action_space
            start = int(space.start) if is_discrete(space) else 0
            columns = Episode(writer.path).columns()
            table, origin = derived(columns, self.gamma, self.gae_lambda, start)
            result = {"steps": last.t, "return": last.episode_return, "ended": ended}
            result |= {"wall_s": time.perf_counter() - started_s, "advantage": origin}
            return writer.finish(table, result)
        except BaseException as error:
            writer.fail(first_line(error))
            raise

    def _steps(self, plan: Plan, writer: EpisodeWriter, moment: Moment) -> tuple[Moment, str]:
        while True:
            digest = self.script.check(moment)
            if ended := self._end(moment):
                writer.add(plan.row(self._valued(moment), None, None), None, digest, self._text())
                return moment, ended
            assert moment.decision is not None
            given = self.script.action(moment.t)
            action = plan.exact(moment.decision.action if given is None else given)
            told = self._told(plan, moment.decision, action)
            self.player.step(action)
            after = self.player.moment()
            is_forced = moment.t == self.script.forced_at
            row = plan.row(moment, action, after, is_forced)
            writer.add(row, action, digest, {**told, "info": plain_info(after.info)})
            for view, body in self._pictures(after)[0].items():
                writer.add_frame(view, body)
            moment = after

    def _end(self, moment: Moment) -> str:
        if moment.is_over:
            return "terminated" if moment.terminated else "truncated"
        if moment.t >= self.ask.most_steps:
            return "cut"
        return "stopped" if self.should_stop() else ""

    def _valued(self, moment: Moment) -> Moment:
        """The last moment with the value of its state, from which a cut episode is bootstrapped."""
        if moment.decision is not None or moment.terminated:
            return moment
        assert isinstance(self.player.actor, PolicyActor)
        rows = [map_tree(lambda part: np.asarray(part)[None], x) for x in (moment.obs, moment.mask)]
        value = self.player.actor.value_of(*rows)
        return dataclasses.replace(moment, decision=Decision(np.array(np.nan), value=value))

    def _told(self, plan: Plan, decision: Decision, action: np.ndarray) -> dict[str, Any]:
        told = {"action": action_text(self.scene.stage, plan.names, action)}
        if decision.best is not None:
            told["greedy"] = action_text(self.scene.stage, plan.names, decision.best)
        return told | self._text()

    def _text(self) -> dict[str, Any]:
        """The state as text, where nothing is drawn."""
        text = None if self.scene.stage.draws else self.scene.stage.text()
        return {} if text is None else {"text": text}

    def _pictures(self, moment: Moment) -> tuple[dict[str, bytes], dict[str, Tiles]]:
        """Encoded frames by view, and where each image of the network is in its own."""
        bodies, tiles = dict[str, bytes](), dict[str, Tiles]()
        if moment.frame is not None:
            bodies["render"] = self.encoders["render"](moment.frame)
        for view, picture in NETWORK_VIEWS.items():
            found = None if moment.decision is None else picture(self.agent, moment.decision)
            if found is not None:
                bodies[view], tiles[view] = self.encoders[view](found[0]), found[1]
        return bodies, tiles

    def _facts(self, plan: Plan, tiles: dict[str, Tiles]) -> dict[str, Any]:
        scene, ask = self.scene, self.ask
        config, stage = scene.found.config, scene.stage
        frames = {view: one.facts() for view, one in self.encoders.items() if one.size}
        for view, own in tiles.items():
            frames[view]["tiles"] = own
        parent = None
        if ask.branch is not None and (base := self.script.base) is not None:
            parent = {"episode": base.id, "step": ask.branch.at}
            parent |= {
                "action": _plain(ask.branch.action),
                "env_steps": base.facts.get("env_steps"),
            }
        return {
            "env_id": config.env_id,
            "algo_id": config.algo_id,
            "title": scene.title,
            "env_steps": scene.env_steps,
            "seed": self.player.seed,
            "greedy": self.greedy,
            "max_steps": ask.most_steps,
            "gamma": self.gamma,
            "gae_lambda": self.gae_lambda,
            "fps": stage.fps,
            "note": stage.note,
            "engine": {
                "trained": stage.trained_on,
                "played": stage.env.spec.engine,
                "text": engine_text(stage),
            },
            "no_frames": stage.no_frames,
            "changed": {name: str(now) for name, (_, now) in scene.found.changed.items()},
            "parent": parent,
            **plan.facts(),
            "frames": frames,
        }


class Script:
    """The actions that an episode repeats from another one, and the check that it does so."""

    def __init__(self, base: Episode | None = None, actions: Sequence[np.ndarray] = ()) -> None:
        self.base, self.actions = base, list(actions)
        self.forced_at: int | None = None  # the step at which the branch takes another action
        self._digests = [] if base is None else base.digests()[: len(self.actions) + 1]

    @classmethod
    def of(cls, scene: Scene, branch: Branch | None) -> "Script":
        if branch is None:
            return cls()
        base = get_episode(scene.run, branch.of)
        before = base.actions()
        if not 0 <= branch.at <= len(before):
            raise ConfigError(
                f"step {branch.at}: {base.id} has steps 0 to {len(before)} to branch from."
            )
        script, stage = cls(base, list(before[: branch.at])), scene.stage
        if branch.action is not None:
            names, script.forced_at = action_names(stage), branch.at
            script.actions.append(parse_action(stage.env.action_space, names, branch.action))
        return script

    def action(self, t: int) -> np.ndarray | None:
        return self.actions[t] if t < len(self.actions) else None

    def check(self, moment: Moment) -> bytes:
        """The digest of the observation; EnvError if it is another one than before."""
        digest = digest_of(moment.obs)
        if moment.t < len(self._digests) and digest != self._digests[moment.t]:
            assert self.base is not None
            raise EnvError(
                f"the environment is not deterministic under its seed: at step {moment.t} the "
                f"observation differs from that in {self.base.id}, so the episode cannot be "
                "repeated. Was the environment, its engine or its version changed?"
            )
        return digest


def parse_action(space: Any, names: list[str], given: Any) -> np.ndarray:
    """An action from JSON or a label, as `step` takes it; EnvError if the space has none such."""
    if isinstance(given, str) and given in names:
        index = names.index(given)
        if is_discrete(space):
            given = int(space.start) + index
        elif is_multi_binary(space):
            given = [int(i == index) for i in range(len(names))]
    try:
        if isinstance(given, str):
            given = [float(part) for part in given.replace(",", " ").split()]
        numbers = np.asarray(given, np.float64).reshape(action_shape(space))
    except (ValueError, TypeError):
        hint = f" Labels: {', '.join(names[:20])}." if names else ""
        raise EnvError(f"{given!r} is not an action of {space}.{hint}") from None
    if not np.isfinite(numbers).all():
        raise EnvError(f"{given!r} is not an action of {space}: not finite.")
    check = action_checker(space, 1, "branch")
    is_whole = not isinstance(space, spaces.Box | spaces.Dict | spaces.Tuple)
    if is_whole and (numbers != np.round(numbers)).any():
        raise EnvError(f"{given!r} is not an action of {space}: expected whole numbers.")
    checked = np.asarray(check(numbers.astype(np.int64 if is_whole else np.float64)[None]))
    return np.asarray(checked[0])


def digest_of(obs: Any) -> bytes:
    """8 bytes for an observation."""
    digest = hashlib.blake2b(digest_size=8)
    for name, part in obs_arrays(obs):
        array = np.ascontiguousarray(part)
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.digest()


def plain_info(info: dict[str, Any]) -> dict[str, Any]:
    """The numbers and short texts of a step's info; short vectors by component."""
    kept: dict[str, Any] = {}
    for name, value in info.items():
        if name.startswith(("_", "final_")) or len(kept) >= MOST_INFO:
            continue
        array = np.asarray(value)
        if array.ndim == 0:
            plain = _plain(value)
            if plain is not None:
                kept[str(name)] = plain
        elif array.ndim == 1 and array.size <= 8 and array.dtype.kind in "fiub":
            kept |= {f"{name}[{i}]": _plain(one) for i, one in enumerate(array)}
    return kept


def _plain(value: Any) -> Any:
    """A value as JSON has it; None for what is neither a number nor a text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value[:MOST_TEXT] if isinstance(value, str) else None


# -- the agent and the environment as facts --------------------------------------------------------


def about_environment(scene: Scene) -> dict[str, Any]:
    """Facts by name, as they are shown. Those that are not known are left out."""
    config, meta = scene.found.config, scene.run.meta()
    env, spec = scene.stage.env, scene.stage.spec
    facts = {
        "id": config.env_id,
        "description": spec.description,
        "goal": spec.goal,
        "reward": spec.reward or spec.rewards.description,
        "episode": spec.episode,
        "source": spec.source,
        "engine": env.spec.engine,
        "class": type(env).__name__,
        "observations": str(env.observation_space),
        "actions": str(env.action_space),
        "action labels": ", ".join(spec.action_space.label_list()),
        "solved at": meta.get("threshold"),
        "time limit": meta.get("max_episode_steps"),
        "arguments": config.env_kwargs,
        "wrappers": [one["id"] for one in config.env_wrappers],
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


def about_model(scene: Scene, obs: Any) -> dict[str, Any]:
    """Class, size and device of the network, and its layers, measured on one observation."""
    agent = scene.agent
    assert agent is not None
    config, net = scene.found.config, agent.net
    shape = agent.policy.actions.shape
    batch = map_tree(lambda part: np.asarray(part)[None], obs)
    n_parameters = sum(parameter.numel() for parameter in net.parameters())
    rows = describe_network(net, batch, math.prod(shape) if shape else 0) if n_parameters else []
    return {
        "algorithm": config.algo_id,
        "agent": type(agent).__name__,
        "network": type(net).__name__,
        "parameters": n_parameters,
        "optimiser": getattr(config, "optimizer", None),
        "trained on": scene.run.meta().get("device"),
        "here on": str(agent.device),
        "env steps": scene.env_steps,
        "layers": [row._asdict() for row in rows],
    }


# -- pictures -----------------------------------------------------------------------------------


class FrameEncoder:
    """Frames as PNG where the first one is small, otherwise as JPEG; or in the format given."""

    def __init__(self, format: str | None = None) -> None:
        self.format = format
        self.size: tuple[int, int] | None = None  # width and height of the first frame

    def __call__(self, frame: np.ndarray) -> bytes:
        image = Image.fromarray(np.ascontiguousarray(frame))
        self.size = self.size or image.size
        if self.format is None:
            self.format = "png" if len(encoded(image, "png")) <= SMALL_PNG else "jpeg"
        return encoded(image, self.format)

    def facts(self) -> dict[str, Any]:
        width, height = self.size or (0, 0)
        return {"format": self.format, "width": width, "height": height}


def encoded(image: Image.Image, format: str) -> bytes:
    file = io.BytesIO()
    image.save(file, format, compress_level=3, quality=JPEG_QUALITY)
    return file.getvalue()


def net_picture(agent: Agent, decision: Decision) -> tuple[np.ndarray, Tiles] | None:
    """The images that the network gets at their own size, and where each one is; None without."""
    names = [name for name in decision.seen if name.startswith("image ")]
    seen = {name.removeprefix("image "): decision.seen[name] for name in names}
    if not seen:
        return None
    groups = {name: groups_of(agent, name) for name in seen}
    labels = [f"{n}: {g.label}" if n else g.label for n, own in groups.items() for g in own]
    return mosaic([group_pictures(seen[name], groups[name]) for name in seen], labels)


def model_picture(agent: Agent, decision: Decision) -> tuple[np.ndarray, Tiles] | None:
    """Each frame that the network gets, as the model reconstructs it, and as it imagines it, side
    by side; None without a model of images."""
    rows: list[tuple[np.ndarray, ...]] = []
    for name in (name for name in decision.imagined if name.startswith("image ")):
        groups = groups_of(agent, name.removeprefix("image "))
        kinds = (decision.seen[name], decision.reconstructed[name], decision.imagined[name])
        rows += zip(*(group_pictures(planes, groups) for planes in kinds), strict=True)
    if not rows:
        return None
    return mosaic(rows, MODEL_LABELS * len(rows))


MODEL_LABELS = ("true", "reconstructed", "imagined")
NETWORK_VIEWS = {"net": net_picture, "model": model_picture}
