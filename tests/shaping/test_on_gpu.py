"""The same mechanism on a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sasr import SASR, Host
from tests.conftest import box, make_batch, make_step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")


def trained(preset: str, device: torch.device, **options: Any) -> SASR:
    plain: dict[str, Any] = {"retention": 1.0, "retention_rule": "random", "burn_in": 0}
    shaper = SASR(preset, **(plain | options))
    shaper.bind(Host(observation_space=box(20), action_space=box(1), seeds=(1, 2, 3), device=device))
    generator = torch.Generator().manual_seed(0)
    for length, success in ((700, True), (900, False), (1500, False)):
        states = torch.randn(length, 3, 1, 20, generator=generator)
        for t, obs in enumerate(states):
            last = t == length - 1
            step = make_step(obs, reward=float(last and success), terminated=last)
            shaper.observe(step._replace(**{name: x.to(device) for name, x in step._asdict().items() if x is not None}))
    return shaper


@pytest.mark.parametrize("preset", ["auto", "paper", "authors"])
def test_counts_agree_with_the_cpus(preset: str) -> None:
    on_cpu, on_gpu = trained(preset, torch.device("cpu")), trained(preset, CUDA)
    query = torch.randn(3, 256, 20)
    expected = on_cpu.evidence.counts(query)
    torch.set_float32_matmul_precision("high")  # a host may allow TF32; the projection must not use it
    try:
        found = on_gpu.evidence.counts(query.to(CUDA)).cpu()
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("preset", ["auto", "authors"])
def test_replayed_graph_draws_fresh_numbers_every_time(preset: str) -> None:
    shaper = trained(preset, CUDA)
    batch = make_batch(torch.randn(3, 256, 20))
    batch = type(batch)(*(x.to(CUDA) for x in batch if x is not None))
    for _ in range(3):
        shaper.shape(batch)
    graph = torch.cuda.CUDAGraph()
    for generator in shaper.beta_streams.generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        bonus = shaper.shape(batch)
    draws = []
    for _ in range(50):
        graph.replay()
        draws.append(bonus.clone())
    stacked = torch.stack(draws)
    assert not any(torch.equal(stacked[i], stacked[i + 1]) for i in range(49))
    mean = torch.stack([shaper.shape(batch) for _ in range(200)]).mean(0)
    error = stacked.std(0) / 50**0.5 + 1e-6
    assert ((stacked.mean(0) - mean).abs() < 5 * error).float().mean() > 0.98


@pytest.mark.usefixtures("mean_rates")
@pytest.mark.parametrize(
    "options",
    [
        {"sample": "ratio"},
        {"weight_rule": "failures"},
        {"paid_end": "lost"},
        {"paid_end": "stay"},
        {"estimator": "squared"},
    ],
    ids=str,
)
def test_a_captured_shaper_follows_what_it_observes(options: dict[str, Any]) -> None:
    """Eager on the CPU and replayed on the device: alike before and after episodes that move an option's state."""
    on_cpu, on_gpu = trained("auto", torch.device("cpu"), **options), trained("auto", CUDA, **options)
    batch = make_batch(torch.randn(3, 256, 20))
    there = type(batch)(*(x.to(CUDA) for x in batch if x is not None))
    for _ in range(3):
        on_gpu.shape(there)
    graph = torch.cuda.CUDAGraph()
    for generator in on_gpu.beta_streams.generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        bonus = on_gpu.shape(there)
    seen = []
    for reward in (0.0, 3.0, 7.0):
        graph.replay()
        torch.testing.assert_close(bonus.cpu(), on_cpu.shape(batch), rtol=1e-3, atol=2e-2)
        seen.append(bonus.clone())
        for shaper in (on_cpu, on_gpu):
            shaper.observe(make_step(torch.ones(3, 1, 20), reward=reward, terminated=True))
    assert not torch.equal(seen[0], seen[2])


def test_a_batch_on_another_device_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"batch is on cpu, but this shaper was bound to cuda; move it with \.to\('cuda'\)"
    ):
        trained("auto", CUDA).shape(make_batch(torch.randn(3, 8, 20)))


def test_state_moves_between_devices() -> None:
    source, target = trained("auto", CUDA), SASR("auto", retention=1.0, burn_in=0)
    target.bind(Host(observation_space=box(20), action_space=box(1), seeds=(1, 2, 3)))
    target.load_state_dict({k: v.cpu() for k, v in source.state_dict().items()})
    query = torch.randn(3, 64, 20)
    torch.testing.assert_close(
        target.evidence.counts(query), source.evidence.counts(query.to(CUDA)).cpu(), rtol=1e-3, atol=2e-2
    )
