"""MPPI (policies/planner.py) on models whose best plan is known, and the plan as a carry."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from gymnasium_solver.nets.heads import SymlogCategoricalHead
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.world_model import WorldModel
from gymnasium_solver.policies.planner import (
    Drawn,
    PlanningPolicy,
    Search,
    draw,
    moved_on,
    plan,
    proposals,
    sequence_value,
    two_of,
)
from gymnasium_solver.spaces.actions import action_kind

SEARCH = Search(3, 6, 128, 8, 16, 0.05, 2.0, 0.5)
GAMMA = 0.9


class Line:
    """A point on a line moves by a; each step costs its distance from 1 afterwards. The policy
    proposes `habit`, and the value of a state is `worth` times the state. It ends beyond `end`."""

    def __init__(self, habit: float = 0.0, worth: float = 0.0, end: float | None = None):
        self.habit, self.worth, self.end = habit, worth, end

    def next(self, z: Tensor, actions: Tensor) -> Tensor:
        return z + actions

    def reward(self, z: Tensor, actions: Tensor) -> Tensor:
        return -10.0 * (z + actions - 1.0).square().squeeze(1)

    def end_logits(self, z: Tensor) -> Tensor | None:
        return None if self.end is None else z.squeeze(1) - self.end

    def prior_action(self, z: Tensor, noise: Tensor) -> Tensor:
        return torch.full_like(noise, self.habit)

    def value(self, z: Tensor, actions: Tensor, pick: Tensor) -> Tensor:
        return self.worth * z.squeeze(1)


def drawn(search: Search, n: int, seed: int = 0, explores: bool = False) -> Drawn:
    given = draw(search, n, 1, 2, np.random.default_rng(seed), explores)
    return Drawn(*(torch.from_numpy(part) for part in given))


def planned(model: Line, z: list[float], search: Search = SEARCH, seed: int = 0) -> object:
    states = torch.tensor(z).unsqueeze(1)
    start = torch.zeros(len(z), search.horizon, 1)
    gamma = torch.full((len(z),), GAMMA)
    return plan(model, search, states, start, gamma, drawn(search, len(z), seed))


def by_hand(model: Line, z: float, actions: tuple[float, ...]) -> float:
    """The value of a sequence, step by step."""
    state, total, factor = torch.tensor([[z]]), 0.0, 1.0
    for a in actions:
        action = torch.tensor([[a]])
        total += factor * float(model.reward(state, action))
        state, factor = model.next(state, action), factor * GAMMA
        ends = model.end_logits(state)
        if ends is not None and float(ends) > 0:
            factor = 0.0
    action = model.prior_action(state, torch.zeros(1, 1))
    return total + factor * float(model.value(state, action, torch.ones(1, 2)))


@pytest.mark.parametrize("model", [Line(), Line(worth=3.0), Line(worth=3.0, end=0.4)])
def test_the_value_of_a_sequence_is_reward_plus_value_until_it_ends(model: Line) -> None:
    every = list(itertools.product((-1.0, 0.0, 0.3, 1.0), repeat=3))
    actions = torch.tensor(every).unsqueeze(2)
    n = len(every)
    found = sequence_value(
        model, torch.full((n, 1), 0.2), actions, torch.full((n,), GAMMA), torch.zeros(n, 1),
        torch.ones(n, 2),
    )  # fmt: skip
    wanted = [by_hand(model, 0.2, sequence) for sequence in every]
    assert found.tolist() == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    ("model", "z"),
    [(Line(), 0.2), (Line(), 2.7), (Line(worth=4.0), 0.0), (Line(end=0.9, worth=-50.0), 0.0)],
)
def test_a_plan_is_nearly_as_good_as_the_best_of_all_sequences(model: Line, z: float) -> None:
    grid = np.linspace(-1.0, 1.0, 41).tolist()
    first = max(itertools.product(grid, repeat=2), key=lambda two: by_hand(model, z, (*two, 0.0)))
    best = max(by_hand(model, z, (*first, last)) for last in grid)
    found = planned(model, [z], SEARCH._replace(iterations=8))
    own = by_hand(model, z, tuple(found.mean[0, :, 0].tolist()))  # type: ignore[attr-defined]
    assert own >= best - 0.3
    assert found.action.abs().max() <= 1.0  # type: ignore[attr-defined]


def test_each_env_has_a_plan_of_its_own() -> None:
    together = planned(Line(), [0.2, 2.7, -3.0])
    first = together.action[:, 0].tolist()  # type: ignore[attr-defined]
    assert first[0] == pytest.approx(0.8, abs=0.15)
    assert first[1] == pytest.approx(-1.0, abs=0.05)
    assert first[2] == pytest.approx(1.0, abs=0.05)
    assert together.value.shape == (3,)  # type: ignore[attr-defined]


def test_the_policy_proposes_sequences() -> None:
    """With samples that are useless the plan is the policy's."""
    search = SEARCH._replace(iterations=1, n_elites=1)
    given = drawn(search, 1)
    far = given._replace(sampled=torch.full_like(given.sampled, 50.0))
    start = torch.zeros(1, 3, 1)
    found = plan(Line(habit=0.25), search, torch.zeros(1, 1), start, torch.ones(1), far)
    assert found.mean.flatten().tolist() == pytest.approx([0.25] * 3)
    rolled = proposals(Line(habit=0.5), torch.zeros(4, 1), torch.zeros(4, 3, 1))
    assert rolled.shape == (4, 3, 1)


def test_the_action_is_an_elite_drawn_by_its_weight() -> None:
    """In evaluation as well: only the noise is left out."""
    search = SEARCH._replace(iterations=1, n_elites=2, temperature=1.0, n_policy_samples=0)
    first = []
    rng = np.random.default_rng(0)
    actions = torch.zeros(1, 1, 128, 3, 1)
    actions[:, :, 0, 0], actions[:, :, 1, 0] = 0.5, 0.45  # two good ones, all others far
    actions[:, :, 2:, 0] = -0.5
    sampled = actions / 2.0  # divided by the deviation of the first iteration
    for _ in range(200):
        given = drawn(search, 1)._replace(
            sampled=sampled, choice=torch.from_numpy(rng.gumbel(size=(1, 2)).astype(np.float32))
        )
        model = Line(worth=0.0)
        found = plan(model, search, torch.zeros(1, 1), torch.zeros(1, 3, 1), torch.zeros(1), given)
        first.append(round(float(found.action), 3))
    gap = by_hand(Line(), 0.0, (0.5,)) - by_hand(Line(), 0.0, (0.45,))
    share = 1.0 / (1.0 + np.exp(-gap))
    assert set(first) == {0.5, 0.45}
    assert np.mean(np.array(first) == 0.5) == pytest.approx(share, abs=0.1)


def test_noise_is_added_in_training_only() -> None:
    rng = np.random.default_rng(0)
    assert draw(SEARCH, 4, 2, 5, rng, explores=True).action.any()
    assert not draw(SEARCH, 4, 2, 5, rng, explores=False).action.any()


def test_values_that_are_no_numbers_count_as_zero() -> None:
    class Broken(Line):
        def reward(self, z: Tensor, actions: Tensor) -> Tensor:
            value = super().reward(z, actions)
            return torch.where(actions.squeeze(1) > 0, torch.nan, value)

    found = planned(Broken(), [3.0])
    assert found.action.isfinite().all()  # type: ignore[attr-defined]


def test_two_critics_are_picked_at_random() -> None:
    rng = np.random.default_rng(0)
    picks = np.stack([two_of(5, rng) for _ in range(400)])
    assert (picks.sum(1) == 2).all()
    assert picks.mean(0) == pytest.approx(np.full(5, 0.4), abs=0.08)


def test_the_next_plan_starts_from_the_last_one_and_anew_with_an_episode() -> None:
    mean = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    start = moved_on(mean, np.array([False, True]))
    assert start[0].tolist() == [[2, 3], [4, 5], [0, 0]]
    assert not start[1].any()


def world_model(**more: object) -> WorldModel:
    space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    given: dict[str, object] = {
        "enc_dims": [8], "latent_dim": 16, "mlp_dim": 12, "n_critics": 3, "simnorm_dim": 8,
        "head": SymlogCategoricalHead(11, -3.0, 3.0), "episodic": True,
    }  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    network = Network((), "mish")
    return WorldModel(space, network, 2, **given | more, generator=generator)  # type: ignore[arg-type]


def policy(seed: int = 0, **search: int) -> PlanningPolicy:
    space, box = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(-2.0, 2.0, (2,), np.float32)
    rng = np.random.default_rng(seed)
    how = SEARCH._replace(iterations=2, n_samples=16, n_policy_samples=4, n_elites=4, **search)
    return PlanningPolicy(world_model(), space, action_kind(box), rng, how)


def test_the_plan_is_the_carry() -> None:
    own = policy()
    obs, first = np.ones((2, 3), np.float32), np.zeros(2, bool)
    carry = own.initial_carry(2)
    assert carry["plan"].shape == (2, 3, 2)
    acted = own.sample(obs, carry, first)
    assert acted.actions.shape == (2, 2)
    assert acted.carry["plan"].any()
    state = own.rng.bit_generator.state
    with_plan = own.greedy(obs, acted.carry, first)
    own.rng.bit_generator.state = state
    anew = own.greedy(obs, acted.carry, ~first)
    own.rng.bit_generator.state = state
    fresh = own.greedy(obs, carry, first)
    assert anew.actions.tolist() == fresh.actions.tolist() != with_plan.actions.tolist()


def test_an_outlook_shows_the_plan_and_draws_nothing() -> None:
    own = policy()
    obs, first = np.ones((2, 3), np.float32), np.ones(2, bool)
    before = own.rng.bit_generator.state
    outlook = own.outlook(obs, own.initial_carry(2), first, None)
    assert own.rng.bit_generator.state == before
    assert outlook.mean is not None
    assert outlook.std is not None
    assert outlook.value is not None
    assert outlook.mean.shape == outlook.std.shape == (2, 2)
    assert (outlook.std >= 0.05 - 1e-6).all()
    assert outlook.value.shape == (2,)


def test_what_is_exported_is_the_learnt_policy() -> None:
    own = policy()
    obs, first = np.ones((2, 3), np.float32), np.ones(2, bool)
    prior = own.exported
    actions = prior.greedy(obs, {}, first).actions
    with torch.no_grad():
        wanted = own.net.prior_mean(torch.from_numpy(obs)).numpy()
    assert actions.tolist() == wanted.tolist()
