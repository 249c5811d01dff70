"""What holds for every shaper that learns with networks of its own: ExploRS, GFA-RFE and ReLara."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode

from sasr import Host, check_shaper
from sasr.agents import Sac, SacConfig
from sasr.agents.sac_discrete import SacDiscrete
from sasr.agents.td3 import Td3
from sasr.envs.population import Population
from sasr.shaping.registry import SHAPERS
from sasr.training import Loop, OffPolicy
from tests.conftest import box
from tests.shaping.rivals.learners import NAMES, SMALL, batch_of, host_of, make, make_steps, trained

every = pytest.mark.parametrize("name", NAMES)


# ------------------------------------------------------------------ the protocol's promises


@every
def test_check_shaper_passes(name: str) -> None:
    check_shaper(SHAPERS[name].make(**SMALL[name]))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("explors", {"bonus": "network"}),
        ("gfa_rfe", {"compat": True, "explore_steps": 30}),
        ("relara", {"compat": True}),
    ],
)
def test_check_shaper_passes_with_the_other_settings(name: str, options: dict[str, Any]) -> None:
    check_shaper(SHAPERS[name].make(**(SMALL[name] | options)))


def weights_after(shaper: Any, steps: int = 55) -> dict[str, torch.Tensor]:
    with Population("Pendulum-v1", seeds=(0, 1), workers=0) as population:
        host = Host(
            observation_space=population.observation_space, action_space=population.action_space, seeds=population.seeds
        )
        agent = Sac(host, SacConfig(hidden=(16, 16), burn_in=40, batch_size=16))
        Loop(population, OffPolicy(host, agent, shaper=shaper, capacity=300)).run(steps)
    return dict(agent.state_dict())


def test_weight_zero_is_plain_sac_bit_for_bit_and_another_is_not() -> None:
    plain = weights_after(None)
    for name in NAMES:
        nothing, something = (weights_after(SHAPERS[name].make(**SMALL[name], weight=w)) for w in (0.0, 1.0))
        assert all(torch.equal(plain[key], nothing[key]) for key in plain), name
        assert not all(torch.equal(plain[key], something[key]) for key in plain), name


@every
@pytest.mark.parametrize(("task", "agent"), [("CartPole-v1", SacDiscrete), ("Pendulum-v1", Td3)])
def test_other_agents_host_it_too(name: str, task: str, agent: type[Any]) -> None:
    with Population(task, seeds=(0, 1), environments=2, workers=0) as population:
        host = Host(
            observation_space=population.observation_space,
            action_space=population.action_space,
            seeds=population.seeds,
            envs=2,
        )
        config = agent(host).config
        small = dataclasses.replace(config, hidden=(16, 16), burn_in=20, batch_size=8)
        learner = OffPolicy(host, agent(host, small), shaper=SHAPERS[name].make(**SMALL[name]), capacity=60)
        figures = Loop(population, learner).run(90)  # further than the replay buffer reaches back
    assert all(torch.isfinite(figure).all() and figure.shape == (2,) for figure in figures.values())
    assert sum(figure.startswith("shaping/") for figure in figures) >= 5


@every
def test_a_saved_shaper_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    shaper, host = trained(name), host_of(seeds=(7, 8, 9))
    save_file({key: value.contiguous() for key, value in shaper.state_dict().items()}, tmp_path / "saved.safetensors")
    resumed = make(name, host)
    resumed.load_state_dict(load_file(tmp_path / "saved.safetensors"))
    steps = make_steps(host, 60, seed=1)
    for own in (shaper, resumed):
        for t in range(40, 60):
            own.release(steps[t].slot)
            own.observe(steps[t])
            own.update(batch_of(steps[: t + 1], seed=t))
    batch = batch_of(steps, seed=99)
    assert torch.equal(shaper.shape(batch), resumed.shape(batch))
    ours, theirs = shaper.state_dict(), resumed.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@every
def test_members_never_touch_each_other_when_they_learn(name: str) -> None:
    host = host_of()
    steps, shapers = make_steps(host, 40), (make(name, host), make(name, host))
    for ruined, shaper in zip((False, True), shapers, strict=True):
        own = []
        for step in steps:
            obs, reward = step.obs.clone(), step.reward.clone()
            if ruined:
                obs[1], reward[1] = 1e4, -1e4
            own.append(step._replace(obs=obs, reward=reward))
            shaper.observe(own[-1])
        for t in range(20):
            figures = shaper.update(batch_of(own, seed=t))
    batch = batch_of(steps, seed=77)
    plain, harmed = (shaper.shape(batch) for shaper in shapers)
    assert torch.equal(plain[[0, 2]], harmed[[0, 2]])
    assert all(torch.isfinite(figure[[0, 2]]).all() for figure in figures.values())


@every
def test_a_seed_alone_and_in_a_population_agree(name: str) -> None:
    crowd, alone = trained(name, host_of((1, 2, 3))), trained(name, host_of((1,)))
    batch = batch_of(make_steps(host_of((1, 2, 3)), 40), seed=3)
    own = type(batch)(*(part[:1] for part in batch if part is not None))
    torch.testing.assert_close(alone.shape(own)[0], crowd.shape(batch)[0], rtol=0, atol=1e-5)
    figures, theirs = alone.update(own), crowd.update(batch)
    for key, figure in figures.items():
        torch.testing.assert_close(figure[0], theirs[key][0], rtol=1e-3, atol=1e-4, msg=key)


@every
def test_the_bonus_depends_on_the_step_and_not_on_the_batch_around_it(name: str) -> None:
    host = host_of()
    shaper = trained(name, host)
    batch = batch_of(make_steps(host, 40), seed=5)
    torch.manual_seed(0)
    both = [shaper, make(name, host)]
    both[1].load_state_dict(shaper.state_dict())
    assert batch.slot is not None
    other = batch._replace(obs=batch.obs.clone(), next_obs=batch.next_obs.clone(), slot=(batch.slot + 7) % 40)
    other.obs[:, 1:] += 1.0
    other.next_obs[:, 1:] -= 1.0
    slot = (batch.slot + 7) % 40
    other = other._replace(slot=torch.cat([batch.slot[:, :1], slot[:, 1:]], dim=1))
    one, two = both[0].shape(batch), both[1].shape(other)
    torch.testing.assert_close(one[:, 0], two[:, 0], rtol=0, atol=1e-6)
    assert (one[:, 1:] != two[:, 1:]).any(1).all()
    assert (one.std(1) > 0).all()


WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal.default")


class NothingWaits(TorchDispatchMode):
    """Refuses what would make a device wait for the answer, and could not be captured."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        assert not name.startswith(WAITS), f"{name} asks the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in NAMES), ("gfa_rfe", {"compat": True}), ("explors", {"bonus": "network"})],
)
def test_nothing_in_an_update_waits_for_the_device(name: str, options: dict[str, Any]) -> None:
    host = host_of()
    shaper, steps = trained(name, host, **options), make_steps(host, 41)
    assert shaper.capturable
    with NothingWaits():
        shaper.shape(batch_of(steps[:40]))
        shaper.update(batch_of(steps[:40]))
    shaper.check = lambda step: None  # looks at a step on the CPU, before it is captured
    with NothingWaits():
        shaper.observe(steps[40])


@every
def test_pictures_and_discrete_actions_work(name: str) -> None:
    space = gym.spaces.Box(0, 255, (2, 40, 40), np.uint8)
    host = host_of((1, 2), observation=space, action=gym.spaces.Discrete(3), capacity=60)
    options = {"window": 30} if name == "explors" else {}
    shaper, steps = make(name, host, **options), make_steps(host, 25)
    for step in steps:
        shaper.observe(step)
    before = {
        key: value.clone() for key, value in shaper.state_dict().items() if "encoder" in key and "target" not in key
    }
    for t in range(2):
        figures = shaper.update(batch_of(steps, 8, seed=t))
    bonus = shaper.shape(batch_of(steps, 8))
    assert torch.isfinite(bonus).all()
    assert all(torch.isfinite(figure).all() for figure in figures.values())
    after = shaper.state_dict()
    assert any(not torch.equal(value, after[key]) for key, value in before.items()), "the encoder learns nothing"


# ------------------------------------------------------------------ bad input


@every
def test_a_step_with_a_nan_is_refused_and_nothing_changes(name: str) -> None:
    shaper, step = trained(name), make_steps(host_of(), 1)[0]
    before = {key: value.clone() for key, value in shaper.state_dict().items()}
    step.obs[1, 0, 2] = torch.nan
    with pytest.raises(ValueError, match="obs of seed 2, environment 0 is nan in dimension 2; the step is refused"):
        shaper.observe(step)
    assert all(torch.equal(value, shaper.state_dict()[key]) for key, value in before.items())


@every
def test_states_of_another_width_or_population_are_refused(name: str) -> None:
    shaper, host = trained(name), host_of()
    step = make_steps(host, 1)[0]
    with pytest.raises(ValueError, match="obs has 5 features, but this shaper was bound to 4"):
        shaper.observe(step._replace(obs=torch.zeros(3, 1, 5)))
    with pytest.raises(ValueError, match="action has 3 features, but this shaper was bound to 2"):
        shaper.observe(step._replace(action=torch.zeros(3, 1, 3)))
    batch = batch_of(make_steps(host, 5))
    two_seeds = type(batch)(*(part[:2] for part in batch if part is not None))
    for wrong in (batch._replace(obs=torch.zeros(3, 16, 5)), two_seeds):
        with pytest.raises(ValueError, match="this shaper was bound to 3 of 4"):
            shaper.shape(wrong)
    with pytest.raises(ValueError, match="actions have 3 entries, but this shaper was bound to 2"):
        shaper.shape(batch._replace(action=torch.zeros(3, 16, 3)))


@every
def test_a_discrete_observation_is_refused_with_the_fix(name: str) -> None:
    shaper = SHAPERS[name].make()
    with pytest.raises(TypeError, match=r"Discrete\(5\).*FlattenObservation"):
        shaper.bind(Host(observation_space=gym.spaces.Discrete(5), action_space=box(1)))
    shaper.bind(host_of((0,)))  # a host that was refused leaves it free for another
    with pytest.raises(RuntimeError, match="bound to a host already"):
        shaper.bind(host_of((0,)))


@every
def test_a_host_without_a_policy_to_ask_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="has no policy to ask"):
        SHAPERS[name].make().bind(Host(observation_space=box(2), action_space=box(1)))


@every
def test_an_unbound_shaper_says_what_to_do(name: str) -> None:
    shaper = SHAPERS[name].make()
    with pytest.raises(RuntimeError, match=r"call shaper.bind\(Host"):
        shaper.observe(make_steps(host_of(), 1)[0])
    with pytest.raises(RuntimeError, match=r"call shaper.bind\(Host"):
        shaper.load_state_dict({})


@every
def test_a_state_that_does_not_fit_is_refused_whole(name: str) -> None:
    shaper, other = trained(name), trained(name, host_of((1, 2)))
    before = {key: value.clone() for key, value in shaper.state_dict().items()}
    with pytest.raises(ValueError, match="with the same spaces, seeds and settings"):
        shaper.load_state_dict(other.state_dict())
    assert all(torch.equal(value, shaper.state_dict()[key]) for key, value in before.items())


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("relara", "bandwidth", "'bandwidth' is not one of 'relara': it belongs to 'sasr'"),
        ("relara", "confidence", "'confidence' is not one of 'relara': it belongs to 'gfa_rfe'"),
        ("gfa_rfe", "window", "'window' is not one of 'gfa_rfe': it belongs to 'explors'"),
        ("explors", "blocks", "'blocks' is not one of 'explors': it belongs to 'relara'"),
        ("explors", "windw", "did you mean 'window'"),
    ],
)
def test_an_option_of_another_method_is_sent_there(name: str, option: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SHAPERS[name].make(**{option: 1})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("relara", {"weight": float("nan")}),
        ("relara", {"blocks": 0}),
        ("relara", {"critic_lr": -1.0}),
        ("relara", {"tau": 0.0}),
        ("gfa_rfe", {"networks": 1}),
        ("gfa_rfe", {"deviation_min": 0.0}),
        ("gfa_rfe", {"explore_steps": -1}),
        ("gfa_rfe", {"horizon_discount": 1.0}),
        ("explors", {"bonus_max": 0.0}),
        ("explors", {"delay": -1}),
        ("explors", {"actions": 0}),
    ],
)
def test_impossible_settings_are_refused_by_name(name: str, wrong: dict[str, Any]) -> None:
    option, value = next(iter(wrong.items()))
    with pytest.raises(ValueError) as error:
        SHAPERS[name].make(**wrong)
    assert f"{option}={value}" in str(error.value)


# ------------------------------------------------------------------ the pages


@every
def test_the_page_names_every_logged_figure(name: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / "shapers" / f"{name}.md").read_text()
    host = host_of()
    figures = trained(name, host).update(batch_of(make_steps(host, 40)))
    assert all(f"`shaping/{figure}`" in text for figure in figures)
