"""What a shaper may leave out: the base class has a default for it, and a learner takes shapers that lack it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from sasr import Batch, Host, Shaper, Transition
from sasr.agents import Ppo, PpoConfig, Sac, SacConfig
from sasr.envs.population import Population
from sasr.shaping.base import adapt
from sasr.training import Loop, OffPolicy, OnPolicy
from tests.conftest import box, make_batch, make_step


class Smallest(Shaper):
    """Nothing but what has no default."""

    seen: Tensor

    def make(self, host: Host) -> None:
        self.register_buffer("seen", torch.zeros(host.members, device=host.device))

    def observe(self, step: Transition) -> None:
        self.check(step)
        self.seen += step.reward.shape[1]

    def shape(self, batch: Batch) -> Tensor:
        return torch.full_like(batch.reward, 0.5)

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"seen": self.seen.clone()}


class Outside:
    """Nothing but the protocol, and a state that grows, which only this class can load."""

    def __init__(self) -> None:
        self.rewards = torch.zeros(0)

    def bind(self, host: Host) -> None: ...

    def observe(self, step: Transition) -> None:
        self.rewards = torch.cat([self.rewards, step.reward.mean()[None]])

    def release(self, slots: Tensor) -> None: ...

    def shape(self, batch: Batch) -> Tensor:
        return torch.full_like(batch.reward, 0.5)

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        return {}

    def state_dict(self) -> Mapping[str, Any]:
        return {"rewards": self.rewards}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.rewards = state_dict["rewards"]


def host_of(population: Population) -> Host:
    return Host(
        observation_space=population.observation_space,
        action_space=population.action_space,
        seeds=population.seeds,
        envs=population.environments,
    )


@pytest.mark.parametrize("kind", [Smallest, Outside])
@pytest.mark.parametrize("on_policy", [False, True])
def test_a_shaper_without_optional_methods_trains_and_is_resumed(kind: type[Any], on_policy: bool) -> None:
    with Population("Pendulum-v1", seeds=(0, 1), workers=0) as population:

        def learner(shaper: Any) -> Any:
            host = host_of(population)
            if on_policy:
                return OnPolicy(host, Ppo(host, PpoConfig(hidden=(8,), rollout=20, minibatches=2)), shaper=shaper)
            agent = Sac(host, SacConfig(hidden=(8, 8), burn_in=20, batch_size=8))
            return OffPolicy(host, agent, shaper=shaper, capacity=100)

        shaper, again = kind(), kind()
        trained = learner(shaper)
        figures = Loop(population, trained).run(50)
        resumed = learner(again)
        resumed.load(trained.save(replay=False))
        resumed.interrupt(torch.ones((2, 1), dtype=torch.bool))
    assert (figures["shaping/bonus_mean"] == 0.5).all()
    saved, loaded = shaper.state_dict(), again.state_dict()
    assert saved.keys() == loaded.keys()
    if on_policy:
        assert all(torch.equal(saved[name], loaded[name]) for name in saved)
    else:  # the step that waited has been observed: its slot was in the replay that was not saved
        assert all(len(loaded[name]) >= len(saved[name]) for name in saved)


def test_a_shaper_that_derives_from_the_base_is_adapted_to_itself() -> None:
    shaper = Smallest()
    assert adapt(shaper) is shaper


def test_a_module_from_outside_keeps_its_own_state_dict() -> None:
    class Module(nn.Module):
        mean: Tensor
        bind = Outside.bind
        observe = release = shape = update = lambda self, _: None

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.ones(3))

    module = Module()
    adapted = adapt(cast(Any, module))
    assert adapted.state_dict().keys() == {"mean"}
    adapted.load_state_dict({"mean": torch.zeros(3)})
    assert not module.mean.any()


@pytest.mark.parametrize("entry", ["obs", "next_obs", "reward"])
def test_a_refused_entry_is_named_with_its_seed(entry: str) -> None:
    shaper = Smallest()
    shaper.bind(Host(observation_space=box(2), action_space=box(1), seeds=(7, 9), envs=2))
    step = make_step(torch.zeros(2, 2, 2))
    bad = getattr(step, entry).clone()
    bad[1, 0] = torch.nan
    with pytest.raises(ValueError, match=f"^{entry} of seed 9, environment 0 is nan"):
        shaper.observe(step._replace(**{entry: bad}))
    shaper.observe(step._replace(**{entry: bad}, valid=torch.tensor([[True, True], [False, True]])))
    with pytest.raises(ValueError, match="1 seeds of 2 features, but this shaper was bound to 2 of 2"):
        shaper.check_batch(make_batch(torch.zeros(1, 4, 2)))
