"""Action masks: what an env tells is what `action_mask` holds, at every row and on every engine."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import env_from_config, make_vector_env
from gymnasium_solver.envs.vector import VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers.actions import ValidActions
from gymnasium_solver.errors import ConfigError, EnvError
from tests.envs.conftest import CountingEnv, CountingVectorEnv

MASKED, N_ACTIONS, LENGTH = "GsolveTest/Masked-v0", 4, 5
MODES = ["vector", "sync", "async"]


def legal(obs: np.ndarray) -> np.ndarray:
    """What the env below allows at obs (episode, step): one action in three is forbidden."""
    place = obs.sum(axis=-1, keepdims=True).astype(int)
    return (np.arange(N_ACTIONS) + place) % 3 != 0


class MaskedEnv(CountingEnv):
    """Five steps an episode; `tells` says how the mask is told."""

    def __init__(self, tells: str = "array", start: int = 0, render_mode: Any = None) -> None:
        super().__init__()
        self.tells, self.action_space = tells, gymnasium.spaces.Discrete(N_ACTIONS, start=start)
        if tells == "box":
            self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        self.length = LENGTH
        if seed is not None:
            self.episode = seed % 3  # the envs differ
        return self._obs(), {} if self.tells == "late" else self._info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, Any]:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        mask = legal(self._obs()).astype(np.int8)
        told: dict[str, Any] = {
            "list": mask.tolist(),
            "bool": mask.astype(bool),
            "empty_at_the_end": mask * (self.steps < LENGTH),
            "stuck": mask * (self.steps != 3),
            "stuck_at_reset": mask * (self.steps != 0),
            "wide": np.append(mask, 1),
            "logits": np.where(mask, 0.0, -1e9),
        }
        if self.tells == "sometimes" and self.steps and (self.episode + self.steps) % 2:
            return {}
        if self.tells == "ragged":
            return {"action_mask": [1] * (N_ACTIONS + self.steps + self.episode)}
        return {"action_mask": told.get(self.tells, mask)}


class MaskedVectorEnv(CountingVectorEnv):
    """The same as one class. It sets no flags, and writes its masks into one buffer."""

    def __init__(self, num_envs: int, tells: str = "array", max_episode_steps: int = 99) -> None:
        super().__init__(num_envs, max_episode_steps)
        self.single_action_space = gymnasium.spaces.Discrete(N_ACTIONS)
        self.tells, self.lengths = tells, np.full(num_envs, LENGTH)
        self.mask = np.zeros((num_envs, N_ACTIONS), np.int8)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, Any]:
        super().reset()
        self.obs[:, 0] = np.arange(self.num_envs)
        return self.obs, self._info()

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Any]:
        obs, reward, terminated, truncated, _ = super().step(actions)
        return obs, reward, terminated, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        self.mask[:] = legal(self.obs)
        if self.tells == "empty_at_the_end":
            self.mask[self.obs[:, 1] == LENGTH] = 0
        return {"action_mask": self.mask}


if MASKED not in gymnasium.registry:
    entry_points: dict[str, Any] = {"entry_point": MaskedEnv, "vector_entry_point": MaskedVectorEnv}
    gymnasium.register(MASKED, disable_env_checker=True, **entry_points)


def make(mode: str, tells: str = "array", n_envs: int = 3, **more: Any) -> VectorEnv:
    kwargs = {"tells": tells, **more.pop("env_kwargs", {})}
    return make_vector_env(MASKED, n_envs, vectorization_mode=mode, env_kwargs=kwargs, **more)


def mask_of(env: VectorEnv) -> np.ndarray:
    assert env.action_mask is not None
    return env.action_mask


def legal_actions(env: VectorEnv, rng: np.random.Generator) -> np.ndarray:
    mask = mask_of(env)
    return np.argmax(np.where(mask, rng.random(mask.shape), -1.0), axis=1)


def drive(
    env: VectorEnv, n_steps: int, seed: int = 1, choose: Callable[..., np.ndarray] = legal_actions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(obs, mask, done) at each of n_steps + 1 places, acting by what the masks allow."""
    rng, done = np.random.default_rng(0), np.zeros(env.n_envs, bool)
    rows = [(env.reset(seed), env.action_mask, done)]
    for _ in range(n_steps):
        step = env.step(choose(env, rng))
        rows.append((step.obs, env.action_mask, step.terminated | step.truncated))
    obs, masks, dones = zip(*rows, strict=True)
    return np.stack(obs), np.stack(masks), np.stack(dones)


@pytest.mark.parametrize("mode", MODES)
def test_the_mask_belongs_to_the_observation_just_returned(mode):
    env = make(mode)
    assert env.action_mask is None  # nobody can know before the first reset
    obs, masks, dones = drive(env, 20)
    assert masks.dtype == np.bool_
    assert dones.any()  # reset rows and final ones included
    assert np.array_equal(masks, legal(obs))
    assert not np.array_equal(masks[0], masks[1])
    obs, masks, _ = drive(env, 3, seed=2)
    assert np.array_equal(masks, legal(obs))


@pytest.mark.parametrize("mode", MODES)
def test_masks_are_fresh(mode):
    env = make(mode)
    env.reset(0)
    kept, copies = [mask_of(env)], [mask_of(env).copy()]
    for _ in range(8):
        env.step(np.zeros(3, np.int64))
        kept.append(mask_of(env))
        copies.append(mask_of(env).copy())
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("tells", ["list", "bool"])
def test_any_way_to_write_zeros_and_ones_and_wrappers_pass_masks_through(mode, tells):
    obs, masks, _ = drive(VectorWrapper(make(mode, tells)), 12)
    assert np.array_equal(masks, legal(obs))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_row_that_tells_nothing_is_all_legal(mode):
    """Gymnasium fills such rows with zeros and says so in `_action_mask`."""
    env = make(mode, "sometimes")
    obs, masks, _ = drive(env, 12)
    silent = (obs[..., 1] > 0) & (obs.sum(axis=-1) % 2 == 1)
    assert (silent.any(axis=1) & ~silent.all(axis=1)).any()
    assert masks[silent].all()
    assert np.array_equal(masks[~silent], legal(obs)[~silent])
    one = make(mode, "sometimes", n_envs=1)  # the key is missing altogether
    obs, masks, _ = drive(one, 12)
    assert masks[(obs[..., 1] > 0) & (obs.sum(axis=-1) % 2 == 1)].all()


@pytest.mark.parametrize("mode", MODES)
def test_a_final_observation_without_legal_actions_is_all_legal(mode):
    env = make(mode, "empty_at_the_end")
    obs, masks, dones = drive(env, 20)
    assert dones.sum() > 5
    assert masks[dones].all()
    assert np.array_equal(masks[~dones], legal(obs)[~dones])


def test_a_truncated_row_keeps_its_mask():
    """Its value is bootstrapped, so what is legal there matters."""
    env = make("sync", max_episode_steps=2)
    obs, masks, dones = drive(env, 10)
    assert (obs[dones][:, 1] == 2).all()
    assert np.array_equal(masks[dones], legal(obs[dones]))


@pytest.mark.parametrize(
    ("tells", "message"),
    [
        ("stuck", r"env \d forbids every action after step 3 of its episode"),
        ("stuck_at_reset", r"env 0 forbids every action after step 0 of its episode"),
        ("late", r"came later than the first reset. Put it into the info of reset\(\)"),
        ("wide", r"has shape \(3, 5\), expected \(3, 4\)"),
        ("ragged", "rows of different lengths"),
        ("logits", "values other than 0 and 1, such as -1"),
    ],
)
def test_bad_masks_are_told(tells, message):
    env = make("sync", tells)
    with pytest.raises(EnvError, match=rf"{MASKED}: info\['action_mask'\].*{message}"):
        drive(env, 8, choose=lambda env, rng: np.zeros(3, np.int64))


def test_without_masks_there_are_none(record):
    modes = {"vector": "CartPole-v1", "sync": "CartPole-v1", "envpool": "Taxi-v3"}
    for mode, env_id in modes.items():
        env = make_vector_env(env_id, 2, vectorization_mode=mode)
        record(env, 0, 5)
        assert env.action_mask is None
    env = make("sync", "box")  # masks are for Discrete actions
    record(env, 0, 1)
    assert env.action_mask is None


def test_column_0_is_the_first_action():
    env = make("sync", env_kwargs={"start": 7})
    obs, masks, _ = drive(env, 6, choose=lambda env, rng: legal_actions(env, rng) + 7)
    assert np.array_equal(masks, legal(obs))


def test_taxi_masks_are_the_moves_that_change_something():
    """Gymnasium's masks forbid bumping into walls and pick-ups or drop-offs in vain."""
    env_id = next(name for name in ("Taxi-v3", "Taxi-v4") if name in gymnasium.registry)
    env = make_vector_env(env_id, 16, vectorization_mode="sync")
    obs = env.reset(0)
    rng = np.random.default_rng(0)
    for _ in range(60):
        assert mask_of(env).shape == (16, 6)
        step = env.step(legal_actions(env, rng))
        assert (step.reward[~step.is_reset] != -10).all()
        moved = step.obs != obs
        assert moved[~step.is_reset].all()
        obs = step.obs


def test_envpool_masks():
    """Play2048 ends with reward -1 on a move that shifts nothing: legal moves never do."""
    env = make_vector_env("Play2048-v1", 8, vectorization_mode="envpool", max_episode_steps=40)
    board = env.reset(3)
    assert mask_of(env).shape == (8, 4)
    rng, forbidden = np.random.default_rng(0), 0
    for _ in range(300):
        forbidden += int(np.count_nonzero(~mask_of(env)))
        step = env.step(legal_actions(env, rng))
        live = ~step.is_reset
        assert (step.reward[live] >= 0).all()
        assert (step.obs != board)[live].any(axis=(1, 2, 3)).all()
        done = step.terminated | step.truncated
        told = step.info["legal_action_mask"]
        assert np.array_equal(mask_of(env)[~done], told[~done])
        assert mask_of(env).any(axis=1).all()
        board = step.obs
    assert forbidden > 100


@pytest.mark.parametrize(
    ("env_id", "mode"),
    [
        (MASKED, "vector"),
        (MASKED, "sync"),
        (MASKED, "async"),
        ("Play2048-v1", "envpool"),
        ("Probe/Masked-v0", "auto"),
    ],
)
def test_a_journal_restores_the_mask(env_id, mode):
    def journaled() -> JournaledEnv:
        env = make_vector_env(env_id, 3, vectorization_mode=mode)
        return JournaledEnv(ValidActions(env, [0, 1, 2, 3]))

    env, rng = journaled(), np.random.default_rng(5)
    env.reset(4)
    for _ in range(7):
        env.step(legal_actions(env, rng))
        other = journaled()
        other.restore(env.state())
        assert np.array_equal(mask_of(other), mask_of(env))


# --- spec.action_space.valid


def from_spec(action_space: Any, env_id: str = "Taxi-v3", **more: Any) -> VectorEnv:
    fields: dict[str, Any] = {"env_kwargs": {}, "env_wrappers": [], "max_episode_steps": None}
    fields |= {"tasks": None, "env_id": env_id, "vectorization_mode": "auto", **more}
    config: Any = SimpleNamespace(spec={"action_space": action_space}, **fields)
    return env_from_config(config, 2)


LABELS = ["south", "north", "east", "west", "pick_up", "drop_off"]


@pytest.mark.parametrize(
    "action_space",
    [
        {"valid": [0, 2, 3]},
        {"valid": [3, 2, 0]},
        {"valid": ["south", "west", 2], "labels": LABELS},
        {"valid": ["south", "east", "west"], "labels": {str(i): n for i, n in enumerate(LABELS)}},
    ],
)
def test_valid_actions_of_the_spec_are_a_constant_mask(action_space):
    env = from_spec(action_space)
    obs = env.reset(0)
    seen = [mask_of(env)]
    for _ in range(3):
        step = env.step([0, 2])
        seen.append(mask_of(env))
    assert obs.dtype == step.obs.dtype
    for mask in seen:
        assert mask.tolist() == [[True, False, True, True, False, False]] * 2
    seen[0][:] = False  # one who writes into a mask does not spoil the next
    env.reset(0)
    assert mask_of(env).any()


@pytest.mark.parametrize("action_space", [None, {}, {"labels": LABELS}])
def test_a_spec_without_valid_actions_changes_nothing(action_space):
    env = from_spec(action_space)
    env.reset(0)
    assert env.action_mask is None
    assert not isinstance(env, ValidActions)


def test_both_masks_must_allow_an_action():
    env = from_spec({"valid": [0, 1, 2]}, env_id=MASKED, vectorization_mode="sync")
    obs, masks, _ = drive(env, 12)
    assert np.array_equal(masks, legal(obs) & [True, True, True, False])
    final = from_spec(
        {"valid": [1, 2]},
        env_id=MASKED,
        vectorization_mode="sync",
        env_kwargs={"tells": "empty_at_the_end"},
    )
    obs, masks, dones = drive(final, 12)
    assert (masks[dones] == [False, True, True, False]).all()
    assert masks.any(axis=-1).all()
    nothing_left = from_spec({"valid": [1]}, env_id=MASKED, vectorization_mode="sync")
    with pytest.raises(EnvError, match=r"no action is left: the env forbids all that spec\."):
        drive(nothing_left, 12)


def test_an_empty_common_mask_is_no_error_at_the_end_only():
    env = ValidActions(make("sync", n_envs=1, max_episode_steps=1), [1])
    seed = next(seed for seed in range(99) if env.env.reset(seed)[0, 0] == 1)
    env.reset(seed)
    step = env.step([1])  # to (1, 1), where the env forbids action 1
    assert step.truncated.all()
    assert mask_of(env).tolist() == [[False, True, False, False]]
    with pytest.raises(EnvError, match="in env 0 no action is left"):
        env.step([1])  # to (2, 0), likewise


@pytest.mark.parametrize(
    ("action_space", "message"),
    [
        ("six moves", "spec.action_space: got 'six moves', expected a block"),
        ({"valid": []}, "spec.action_space: valid is empty: list at least one action"),
        ({"valid": 3}, "spec.action_space.valid: got 3, expected a list"),
        ({"valid": [3, 2, 0, 0]}, "spec.action_space: valid has 0 more than once"),
        ({"valid": [0, 6]}, "spec.action_space.valid holds 6, but the actions are 0 to 5"),
        ({"valid": [-1]}, "spec.action_space: valid has -1: action numbers start at 0"),
        ({"valid": [True]}, "spec.action_space.valid.0: got True, expected a whole number"),
        ({"valid": [1.0]}, "spec.action_space.valid.0: got 1.0, expected a whole number"),
        ({"valid": ["sout"], "labels": LABELS}, "'sout', which is not a label. Did you mean south"),
        ({"valid": ["south"]}, "valid has 'south', which is not a label"),
        ({"valid": ["a"], "labels": {"x": "a"}}, "labels has the keys x, expected action num"),
    ],
)
def test_bad_valid_actions_name_the_field(action_space, message):
    with pytest.raises(ConfigError, match=message):
        from_spec(action_space)


def test_valid_is_for_discrete_actions():
    with pytest.raises(ConfigError, match=r"spec.action_space.valid is for Discrete .* has Box"):
        from_spec({"valid": [0]}, env_id="Pendulum-v1")
    with pytest.raises(EnvError, match="ValidActions: needs Discrete actions; Pendulum-v1 has Box"):
        ValidActions(make_vector_env("Pendulum-v1", 1), [0])


def test_valid_counts_from_the_first_action():
    env = ValidActions(make("sync", env_kwargs={"start": 7}), [8, 10])
    env.env.reset(0)
    assert env._valid[0].tolist() == [False, True, False, True]


# --- Probe/Masked-v0


def test_the_masked_probe_pays_as_it_says():
    env = make_vector_env("Probe/Masked-v0", 64)
    obs = env.reset(0)
    forbidden_at = {-1.0: 0, 1.0: 1, 0.0: 3}
    rng = np.random.default_rng(0)
    pairs = set()
    for _ in range(60):
        expected = np.ones((64, 4), bool)
        expected[np.arange(64), [forbidden_at[o] for o in obs[:, 0].tolist()]] = False
        assert np.array_equal(mask_of(env), expected)
        actions = legal_actions(env, rng)
        step = env.step(actions)
        for i in np.flatnonzero(~step.is_reset):
            o, a, after = float(obs[i, 0]), int(actions[i]), float(step.obs[i, 0])
            outcome = (float(step.reward[i]), bool(step.terminated[i]), after)
            if o == 0:
                assert outcome == (-1.0 if a == 2 else -2.0, True, 0.0)
            else:
                assert outcome == ((2.0, True, o) if a == 3 else (2.0, False, 0.0))
            pairs.add((o, a))
        obs = step.obs
    assert len(pairs) == 9
    assert not step.truncated.any()


def test_the_masked_probe_refuses_a_forbidden_action_but_not_at_reset_rows():
    env = make_vector_env("Probe/Masked-v0", 8)
    obs = env.reset(0)[:, 0]
    step = env.step(np.full(8, 3))
    assert step.terminated.all()
    step = env.step(np.where(obs < 0, 0, 1))  # forbidden, and ignored
    assert step.is_reset.all()
    obs = step.obs[:, 0]
    with pytest.raises(
        EnvError, match=r"env 0 was given action [01], which its mask forbids at obs"
    ):
        env.step(np.where(obs < 0, 0, 1))


@pytest.mark.parametrize("obeys", [True, False])
def test_the_masked_probe_tells_who_bootstraps_from_forbidden_actions(obeys):
    """Q-learning with a small network, once with and once without the mask in its target."""
    env, rng, gamma = make_vector_env("Probe/Masked-v0", 64), np.random.default_rng(0), 0.9
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    obs = env.reset(0)
    for _ in range(400):
        actions = legal_actions(env, rng)
        step = env.step(actions)
        with torch.no_grad():
            q_next = net(torch.from_numpy(step.obs)).numpy()
        best = np.where(mask_of(env) | (not obeys), q_next, -np.inf).max(axis=1)
        target = torch.from_numpy(step.reward + gamma * best * ~step.terminated)
        q = net(torch.from_numpy(obs))[torch.arange(64), torch.from_numpy(actions)]
        loss = (q - target.float()).square()[~torch.from_numpy(step.is_reset)].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        obs = step.obs
    q = net(torch.tensor([[-1.0], [1.0], [0.0]])).detach().numpy()
    q[[0, 1, 2], [0, 1, 3]] = -np.inf
    if obeys:
        expected = [[-np.inf, 1.1, 1.1, 2], [1.1, -np.inf, 1.1, 2], [-2, -2, -1, -np.inf]]
        np.testing.assert_allclose(q, expected, atol=0.1)
    else:
        assert (q[:2].argmax(axis=1) != 3).all()
        assert q[:2].max() > 2.5
