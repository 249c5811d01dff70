"""The engine on a CUDA device: captured updates are the plain ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sasr.agents import PpoConfig, SacConfig, SacDiscreteConfig, Td3Config
from sasr.settings import Mode
from sasr.shaping.presets import preset_config
from sasr.shaping.registry import SHAPERS
from sasr.training import TrainConfig, Trainer, fast
from sasr.training.fast.graphs import Captured, Fetched, SideStream

from .runs import config_of, differences, run, shaped, state_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TINY = SacConfig(hidden=(32, 32), burn_in=100, batch_size=32)


def trained(
    mode: Mode,
    *,
    steps: int = 400,
    task: str = "MountainCar",
    shaper: str = "sasr",
    shaper_config: Any = None,
    agent_config: SacConfig = TINY,
) -> Any:
    config = TrainConfig(
        task=task,
        steps=steps,
        seeds=(0, 1, 2),
        shaper=shaper,
        shaper_config=shaper_config,
        agent="sac",
        agent_config=agent_config,
        device="cuda",
        accelerate=mode,
        eval_every=0,
        workers=0,
    )
    with Trainer(config) as trainer:
        trainer.loop.run(steps)
        return trainer


@pytest.mark.parametrize("shaper", [*SHAPERS, "none"])
def test_captured_updates_equal_plain_ones(shaper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not compiled as well: what a compiler rounds differently grows over so many steps of a chaotic system.
    monkeypatch.setattr(fast, "can_compile", lambda device: False)
    plain, captured = trained("eager", shaper=shaper), trained("graph", shaper=shaper)
    assert captured.graphs["update"].graphs  # or this test compares nothing
    for key, value in plain.learner.agent.state_dict().items():
        torch.testing.assert_close(captured.learner.agent.state_dict()[key], value, rtol=1e-4, atol=1e-5, msg=key)
    steps, expected = (own.learner.replay.obs[:, :400] for own in (captured, plain))
    torch.testing.assert_close(steps, expected, rtol=1e-4, atol=1e-5)


def test_a_captured_run_is_reproducible() -> None:
    one, two = (trained("graph").learner.agent.state_dict() for _ in range(2))
    assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("mode", ["compile", "graph"])
def test_compiled_updates_equal_plain_ones(mode: Mode) -> None:
    plain, compiled = trained("eager", steps=160), trained(mode, steps=160)
    for key, value in plain.learner.agent.state_dict().items():
        torch.testing.assert_close(compiled.learner.agent.state_dict()[key], value, rtol=1e-3, atol=1e-4, msg=key)


def test_replays_of_a_graph_see_new_arguments_and_draw_new_numbers() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    captured = Captured(lambda x: x + torch.rand(4, generator=generator, device="cuda"), [generator])
    seen = torch.stack([captured("key", torch.full((4,), float(i))).clone() for i in range(50)])
    assert captured.graphs
    noise = seen - torch.arange(50.0, device="cuda")[:, None]
    assert noise.min() >= -1e-5
    assert noise.max() <= 1 + 1e-5
    assert len(noise.round(decimals=5).unique(dim=0)) == 50
    again = torch.Generator("cuda").manual_seed(0)
    expected = torch.stack([torch.rand(4, generator=again, device="cuda") for _ in range(50)])
    torch.testing.assert_close(noise, expected, rtol=0, atol=1e-4)


def ppo_trained(mode: Mode, *, task: str = "MountainCar", shaper: str = "sasr") -> Any:
    config = TrainConfig(
        task=task,
        steps=400,
        seeds=(0, 1, 2),
        environments=2,
        shaper=shaper,
        agent="ppo",
        agent_config=PpoConfig(hidden=(32, 32), rollout=64, minibatches=4, epochs=3, lr_decay=1_000),
        device="cuda",
        accelerate=mode,
        eval_every=0,
        workers=0,
    )
    with Trainer(config) as trainer:
        trainer.loop.run(400)
        return trainer


@pytest.mark.parametrize(("task", "shaper"), [("MountainCar", "sasr"), ("CartPole-v1", "none")])
def test_captured_updates_of_ppo_equal_plain_ones(task: str, shaper: str) -> None:
    plain, captured = (ppo_trained(mode, task=task, shaper=shaper) for mode in ("eager", "graph"))
    for name in ("update", "act", "write"):
        assert captured.graphs[name].graphs, name  # or this test compares nothing
    assert plain.learner.agent.rollouts == captured.learner.agent.rollouts == 6
    for key, value in plain.learner.agent.state_dict().items():
        torch.testing.assert_close(captured.learner.agent.state_dict()[key], value, rtol=1e-3, atol=1e-4, msg=key)
    torch.testing.assert_close(captured.learner.rollouts.obs, plain.learner.rollouts.obs, rtol=1e-3, atol=1e-4)


def test_a_captured_run_of_ppo_is_reproducible() -> None:
    one, two = (ppo_trained("graph").learner.agent.state_dict() for _ in range(2))
    assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize(
    ("agent", "agent_config"),
    [
        ("sac", TINY),
        ("td3", Td3Config(hidden=(32, 32), burn_in=100, batch_size=32)),
        ("ppo", PpoConfig(hidden=(32, 32), rollout=64)),
    ],
)
def test_a_run_on_cuda_logs_and_ends(agent: str, agent_config: Any) -> None:
    recorder, trainer = run(config_of(device="cuda", agent=agent, agent_config=agent_config))
    assert trainer.finished
    assert any(kind == "figures" for kind, *_ in recorder.events)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_run_on_cuda_goes_on_from_its_checkpoint(tmp_path: Path, mode: Mode) -> None:
    config = config_of(device="cuda", accelerate=mode, steps=300, **shaped("auto"))
    _, stopped = run(config, tmp_path, stop_at=150)
    with Trainer(config, folder=tmp_path) as trainer:
        assert trainer.resume()
        assert differences(state_of(trainer), stopped.state) == []
        trainer.run()
        assert trainer.finished
        assert all(torch.isfinite(own).all() for own in trainer.learner.agent.state_dict().values())


@pytest.mark.parametrize("shaper", ["rnd", "drnd", "explo"])
def test_shapers_that_pay_for_novelty_are_captured_too(shaper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "can_compile", lambda device: False)  # as above
    options = {"explo": {"first_states": 50, "bits": 8}}.get(shaper, {"hidden": (32, 32)})
    config = SHAPERS[shaper].config(weight=1.0, **options)
    plain, captured = (trained(mode, shaper=shaper, shaper_config=config) for mode in ("eager", "graph"))
    assert sorted(captured.graphs) == ["absorb", "act", "update", "write"]
    assert all(graph.graphs for graph in captured.graphs.values())
    for part in ("agent", "shaper"):
        ours, theirs = (getattr(each.learner, part).state_dict() for each in (plain, captured))
        for key, value in ours.items():
            if key.endswith("_extra_state"):
                assert torch.equal(theirs[key], value), key
            else:
                torch.testing.assert_close(theirs[key], value, rtol=1e-3, atol=1e-4, msg=key)


def test_two_functions_side_by_side_in_a_graph_both_finish_before_what_follows() -> None:
    start = torch.ones(512, 512, device="cuda")

    def long(add: torch.Tensor) -> torch.Tensor:
        x = start
        for _ in range(50):
            x = torch.mm(x, x) / 512.0
        return x + add

    side = SideStream()
    begun, joined = side.begin(long), side.join(lambda: start * 2.0)

    def both(add: torch.Tensor) -> torch.Tensor:
        first = begun(add)
        second = joined()
        return first + second

    captured = Captured(both)
    for i in range(20):
        torch.testing.assert_close(captured("key", torch.tensor(float(i))), torch.full_like(start, 3.0 + i))
    assert captured.graphs


def test_what_is_fetched_from_a_graph_is_there_and_stays_when_the_next_comes() -> None:
    fetched = Fetched(lambda x: (2.0 * x, x.sum()))
    told = [fetched("key", torch.full((4,), float(i))) for i in range(10)]
    assert fetched.graphs
    for i, (double, total) in enumerate(told):
        assert double.device.type == total.device.type == "cpu"
        assert double.tolist() == [2.0 * i] * 4
        assert float(total) == 4.0 * i


@pytest.mark.parametrize(
    "changes",
    [{}, {"storage": "flags"}, {"estimator": "squared"}, {"estimator": "exact"}],
    ids=str,
)
def test_evidence_counted_beside_graphs_is_what_is_counted_plainly(changes: dict[str, Any]) -> None:
    def counted(mode: Mode) -> Any:
        return trained(
            mode,
            steps=1_300,
            task="Pendulum-v1",  # its episodes end after 200 steps
            shaper_config=preset_config("auto", retention=0.5, **changes),
            agent_config=SacConfig(burn_in=1_299),  # random actions: both see the same episodes
        )

    plain, captured = counted("eager"), counted("graph")
    if not changes:
        assert captured.graphs["absorb"].graphs  # or nothing was counted by a graph
    learners: list[Any] = [trainer.learner for trainer in (plain, captured)]
    expected, evidence = (learner.shaper.evidence for learner in learners)
    assert int(expected.estimator.size.sum()) > 1_000
    assert torch.equal(expected.estimator.size, evidence.estimator.size)
    query = torch.randn(3, 64, 3, device="cuda")
    torch.testing.assert_close(evidence.raw(query), expected.raw(query), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("agent", ["sac_discrete", "ppo"])
def test_on_images_captured_updates_equal_plain_ones(agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "can_compile", lambda device: False)
    # No TF32 in either: two orders of the same products would differ in their first digits.
    monkeypatch.setattr(fast, "use_fast_products", lambda agent, device: None)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    settings: dict[str, Any] = {
        "sac_discrete": SacDiscreteConfig(features=16, burn_in=30, batch_size=16, update_every=4),
        "ppo": PpoConfig(features=16, rollout=32, minibatches=2, epochs=2),
    }
    states = []
    for mode in ("eager", "graph"):
        config = config_of(
            task="Pictures-v0",
            agent=agent,
            agent_config=settings[agent],
            environments=2,
            device="cuda",
            accelerate=mode,
            eval_every=0,
            **shaped("auto"),
        )
        _, trainer = run(config)
        assert trainer.learner.frame_stack == 4
        states.append(trainer.state)
    for name, value in states[0].items():
        if name.startswith("agent.") and value.is_floating_point():
            difference = f"{name} differs by {float((states[1][name] - value).abs().max()):.2g}"
            torch.testing.assert_close(states[1][name], value, rtol=1e-3, atol=1e-4, msg=difference)
