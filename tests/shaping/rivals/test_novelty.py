"""What holds for every shaper that pays for novelty."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sasr import SASR, check_shaper
from sasr.agents import PpoConfig
from sasr.experiments.plan import Method, grid
from sasr.shaping.registry import SHAPERS, shaper_named
from sasr.shaping.rivals.drnd import DrndConfig
from sasr.shaping.rivals.explo import Explo
from sasr.shaping.rivals.moments import ReturnSpread
from sasr.shaping.rivals.rnd import RELEASED, RND, RndConfig
from sasr.training import TrainConfig, Trainer
from tests.conftest import make_batch, make_step
from tests.shaping.rivals.novelty import KINDS, bind
from tests.training.test_loop import run, same_weights

every = pytest.mark.parametrize("kind", KINDS)


@every
def test_it_keeps_the_protocols_promises(kind: str) -> None:
    check_shaper(SHAPERS[kind].make())
    check_shaper(KINDS[kind]())


def test_it_keeps_them_under_other_settings_too() -> None:
    check_shaper(RND(config=RELEASED, rollout=16))
    check_shaper(KINDS["rnd"](normaliser="return"))
    check_shaper(KINDS["drnd"](compat=True, root="mean", targets=2, normaliser="return"))
    check_shaper(KINDS["explo"](standardise=False, offset=0.0))


@every
def test_a_weight_of_zero_is_plain_sac_bit_for_bit(kind: str) -> None:
    plain = run(80)
    assert same_weights(plain, run(80, shaper=KINDS[kind](weight=0.0)))
    assert not same_weights(plain, run(80, shaper=KINDS[kind](weight=1.0)))


def lived(kind: str, seeds: tuple[int, ...], states: torch.Tensor, *, updates: int = 10) -> Any:
    """A shaper that saw states (P, T, 4) one by one and then learned from them."""
    shaper = bind(KINDS[kind](), seeds=seeds)
    for t in range(states.shape[1]):
        shaper.observe(make_step(states[:, t : t + 1]))
    for _ in range(updates):
        shaper.update(make_batch(states))
    return shaper


@every
def test_a_seed_alone_pays_what_it_pays_in_a_population(kind: str) -> None:
    states, query = torch.randn(3, 40, 4), torch.randn(3, 30, 4)
    crowd = lived(kind, (4, 5, 6), states).shape(make_batch(query))
    alone = lived(kind, (5,), states[1:2]).shape(make_batch(query[1:2]))
    torch.testing.assert_close(crowd[1], alone[0], rtol=1e-5, atol=1e-6)


@every
def test_members_learn_nothing_from_each_other(kind: str) -> None:
    states, query = torch.randn(3, 40, 4), make_batch(torch.randn(3, 30, 4))
    disturbed = states.clone()
    disturbed[2] = 100.0 * torch.randn(40, 4)
    one, other = (lived(kind, (4, 5, 6), each).shape(query) for each in (states, disturbed))
    assert torch.equal(one[:2], other[:2])
    assert not torch.equal(one[2], other[2])


@every
def test_what_is_saved_in_the_middle_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    for steps in (10, 40):  # #Explo is still collecting its first states after 10
        shaper = lived(kind, (0, 1), torch.randn(2, steps, 4), updates=3)
        saved = {name: entry.contiguous() for name, entry in shaper.state_dict().items()}
        save_file(saved, tmp_path / "state.safetensors")
        restored = bind(KINDS[kind](), seeds=(0, 1))
        restored.load_state_dict(load_file(tmp_path / "state.safetensors"))
        after, batch = torch.randn(2, 30, 4), make_batch(torch.randn(2, 16, 4))
        for each in (shaper, restored):
            for t in range(30):
                each.observe(make_step(after[:, t : t + 1]))
                each.update(batch)
        assert torch.equal(shaper.shape(batch), restored.shape(batch))
        ours, theirs = shaper.state_dict(), restored.state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@every
def test_a_state_of_another_size_is_refused_and_nothing_changes(kind: str) -> None:
    shaper, other = bind(KINDS[kind](), 4), bind(KINDS[kind](), 5)
    before = copy.deepcopy(dict(shaper.state_dict()))
    with pytest.raises(ValueError, match="has shape"):
        shaper.load_state_dict(other.state_dict())
    assert all(torch.equal(before[name], own) for name, own in shaper.state_dict().items())


@every
def test_the_bonus_is_for_the_state_that_was_reached(kind: str) -> None:
    shaper = lived(kind, (0,), torch.randn(1, 40, 4))
    batch = make_batch(torch.randn(1, 16, 4))
    left_elsewhere = batch._replace(obs=torch.randn(1, 16, 4), action=torch.randn(1, 16, 1))
    assert torch.equal(shaper.shape(batch), shaper.shape(left_elsewhere))
    assert not torch.equal(shaper.shape(batch), shaper.shape(batch._replace(next_obs=torch.randn(1, 16, 4))))


@every
def test_figures_are_finite_numbers_of_each_member(kind: str) -> None:
    shaper = lived(kind, (0, 1), torch.randn(2, 40, 4))
    for name, figure in shaper.update(make_batch(torch.randn(2, 16, 4))).items():
        assert figure.shape == (2,), name
        assert torch.isfinite(figure).all(), name
        assert not figure.requires_grad, name


# ------------------------------------------------------------------------------------- bad input


@every
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_state_that_is_no_number_is_refused_with_its_place_and_nothing_changes(kind: str, value: float) -> None:
    shaper = bind(KINDS[kind](), 3, seeds=(0, 1), envs=2)
    before = copy.deepcopy(dict(shaper.state_dict()))
    bad = torch.zeros(2, 2, 3)
    bad[1, 0, 2] = value
    with pytest.raises(ValueError, match=r"next_obs of seed 1, environment 0 is (nan|inf) in dimension 2"):
        shaper.observe(make_step(bad))
    assert all(torch.equal(before[name], own) for name, own in shaper.state_dict().items())
    dead = torch.tensor([[True, True], [False, True]])
    shaper.observe(make_step(bad, valid=dead))  # the step that autoreset inserts says nothing
    assert all(torch.isfinite(own.double()).all() for own in shaper.state_dict().values())


@every
def test_wrong_widths_and_members_are_named(kind: str) -> None:
    shaper = bind(KINDS[kind](), 3, seeds=(0, 1))
    with pytest.raises(ValueError, match="next_obs has 4 features, but this shaper was bound to 3"):
        shaper.observe(make_step(torch.zeros(2, 1, 4)))
    with pytest.raises(ValueError, match=r"expected \(seeds, environments\) = \(2, 1\)"):
        shaper.observe(make_step(torch.zeros(2, 5, 3)))
    with pytest.raises(ValueError, match=r"batch has 2 seeds of 5 features.*bound to 2 of 3"):
        shaper.shape(make_batch(torch.zeros(2, 8, 5)))
    with pytest.raises(ValueError, match="batch has 1 seeds"):
        shaper.update(make_batch(torch.zeros(1, 8, 3)))


@every
def test_a_discrete_space_is_refused_and_the_shaper_stays_free(kind: str) -> None:
    shaper = KINDS[kind]()
    with pytest.raises(TypeError, match=r"not supported.*FlattenObservation"):
        bind(shaper, space=gym.spaces.Discrete(5))
    bind(shaper)
    with pytest.raises(RuntimeError, match="bound to a host already"):
        bind(shaper)


@every
def test_an_unbound_shaper_says_so(kind: str) -> None:
    with pytest.raises(RuntimeError, match=r"call shaper\.bind"):
        KINDS[kind]().shape(make_batch(torch.zeros(1, 2, 4)))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (RND, {"bits": 16}, "'bits' is not one of 'rnd': it belongs to 'explo'"),
        (RND, {"targets": 3}, "'targets' is not one of 'rnd': it belongs to 'drnd'"),
        (Explo, {"reward_weight": 1.0}, "'reward_weight' is not one of 'explo': it belongs to 'sasr'"),
        (SASR, {"hidden": (4,)}, "'hidden' is not one of 'sasr': it belongs to 'rnd' and 'drnd'"),
        (RND, {"wieght": 1.0}, "'wieght' is unknown; did you mean 'weight'"),
        (RND, {"config": DrndConfig()}, "a DrndConfig, but a RndConfig belongs here"),
    ],
)
def test_an_option_of_another_method_is_sent_there(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(**options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("rnd", {"weight": float("nan")}, "weight=nan must be a finite number"),
        ("rnd", {"trained_share": 0.0}, r"trained_share=0.0 must be in \(0, 1\]"),
        ("rnd", {"horizon_discount": 1.0}, "horizon_discount=1.0 must be"),
        ("rnd", {"normaliser": "retrun"}, "did you mean 'return'"),
        ("rnd", {"normaliser": "replay", "compat": True}, "drop one of them"),
        ("rnd", {"learning_rate": 0.0}, "learning_rate=0.0 must be above 0"),
        ("rnd", {"hidden": (8, 0)}, "a layer without units"),
        ("rnd", {"outputs": 0}, "outputs=0"),
        ("rnd", {"bias": -1.0}, "bias=-1.0"),
        ("rnd", {"activation": "leaky"}, "activation 'leaky' is unknown"),
        ("rnd", {"rollout": 0}, "rollout=0"),
        ("drnd", {"targets": 1}, "targets=1 must be at least 2"),
        ("drnd", {"alpha": 1.5}, "alpha=1.5"),
        ("drnd", {"root": "all"}, "root 'all' is unknown"),
        ("explo", {"bits": 0}, "bits=0"),
        ("explo", {"primes": (7, 7)}, "has a duplicate"),
        ("explo", {"primes": ()}, "at least one array"),
        ("explo", {"first_states": 0}, "first_states=0"),
        ("explo", {"weight": float("inf")}, "weight=inf"),
    ],
)
def test_impossible_settings_name_the_value(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SHAPERS[kind].config(**options)


def test_a_name_that_nothing_answers_to_gets_the_closest() -> None:
    with pytest.raises(ValueError, match="did you mean 'drnd'"):
        shaper_named("drnnd")


def test_a_removed_shaper_is_refused_with_the_reason_wherever_it_is_named() -> None:
    with pytest.raises(ValueError, match=r"shaper 'rosa' was removed in sasr 0\.1\.0: it was not the published"):
        shaper_named("rosa")
    with pytest.raises(ValueError, match="'rosa' was removed"):
        TrainConfig.from_json({"task": "TwoRooms", "shaper": "rosa", "shaper_config": {"components": 8}})
    with pytest.raises(ValueError, match="'rosa' was removed"):
        grid(["TwoRooms"], ["rosa"])
    with pytest.raises(ValueError, match="'rosa' was removed"):
        Method(name="mine", shaper="rosa")


@every
def test_settings_go_to_json_and_back(kind: str) -> None:
    config = TrainConfig(task="TwoRooms", shaper=kind, shaper_config=SHAPERS[kind].config(weight=0.25))
    assert TrainConfig.from_json(config.to_json()) == config
    with pytest.raises(TypeError, match="must be a SasrConfig"):
        TrainConfig(task="TwoRooms", shaper="sasr", shaper_config=RndConfig())


# -------------------------------------------------------------------------------------- pictures


@every
@pytest.mark.parametrize("stack", [(), (4,)])
def test_pictures_are_seen_by_their_newest_frame(kind: str, stack: tuple[int, ...]) -> None:
    space = gym.spaces.Box(0, 255, (*stack, 84, 84), np.uint8)
    shaper = bind(KINDS[kind](), space=space)
    frames = torch.randint(0, 256, (1, 30, *space.shape), dtype=torch.uint8)
    for t in range(22):
        shaper.observe(make_step(frames[:, t : t + 1]))
    batch = make_batch(frames)
    shaper.update(batch)
    bonus = shaper.shape(batch)
    assert torch.isfinite(bonus).all()
    assert (bonus > 0).all()
    if stack == (4,):
        older = frames.clone()
        older[:, :, :-1] = 0
        assert torch.equal(shaper.shape(make_batch(older)), bonus)


# ------------------------------------------------------------------------------------- on policy


@pytest.mark.parametrize("kind", ["rnd", "drnd"])
def test_a_separate_stream_gets_a_value_head_of_its_own(kind: str) -> None:
    config = TrainConfig(
        task="TwoRooms",
        agent="ppo",
        agent_config=PpoConfig(hidden=(16, 16), rollout=32, minibatches=2, epochs=2),
        shaper=kind,
        shaper_config=SHAPERS[kind].config(hidden=(16, 16), outputs=8, separate_stream=True),
        seeds=(0, 1),
        steps=200,
        workers=0,
        device="cpu",
    )
    with Trainer(config) as trainer:
        figures = trainer.loop.run(200)
        assert trainer.learner.agent.heads == 2
        shaper: Any = trainer.shaper
        assert isinstance(shaper.scale, ReturnSpread)  # as published
    assert (figures["shaping/bonus_mean"] > 0).all()
    assert (figures["shaping/bonus_share"] == 1).all()  # nobody reached the goal


# ---------------------------------------------------------------------------- what can be captured


@pytest.mark.parametrize("kind", ["rnd", "drnd", "explo"])
def test_steps_bonuses_and_losses_are_one_graph_that_asks_nothing_of_the_data(kind: str) -> None:
    """A read of a value, or a shape that depends on one, would break the graph here and a capture on a GPU."""
    options = {"standardise": False} if kind == "explo" else {"normaliser": "return"}
    plain, traced = (bind(KINDS[kind](**options), seeds=(0, 1), envs=2) for _ in range(2))
    steps, states = torch.randn(3, 2, 2, 4), torch.randn(2, 8, 4)

    def whole(function: Any) -> Any:
        return torch.compile(function, fullgraph=True, backend="eager")

    with torch.no_grad():
        for absorb in (plain.absorb, whole(traced.absorb)):
            for step in steps:
                absorb(step, torch.ones(2, 2, dtype=torch.bool))
        torch.testing.assert_close(plain.novelty(states), whole(traced.novelty)(states), rtol=1e-4, atol=1e-5)
    if kind != "explo":
        drawn = (torch.zeros(2, 8, dtype=torch.long),) if kind == "drnd" else ()
        ours, theirs = (loss(states, torch.zeros(2, 8), *drawn)[0] for loss in (plain.loss, whole(traced.loss)))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
