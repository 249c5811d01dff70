"""What the log says about a shaper beside the figures of its updates."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sasr import SASR
from sasr.agents.ppo import PpoConfig

from .runs import config_of, differences, run, shaped

PPO: dict[str, Any] = {
    "agent": "ppo",
    "agent_config": PpoConfig(rollout=28, minibatches=3, epochs=2, hidden=(8, 8)),
}
INSPECTED = {
    "shaping/n_success",
    "shaping/n_failure",
    "shaping/success_rate_mean",
    "shaping/success_rate_std",
    "shaping/clamped",
}


@pytest.mark.parametrize("agent", [{}, PPO], ids=["sac", "ppo"])
def test_counts_and_success_rates_are_logged_at_log_every_and_change_nothing(
    agent: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, inspect = [], SASR.inspect

    def counting(shaper: SASR, batch: Any) -> Any:
        calls.append(batch)
        return inspect(shaper, batch)

    monkeypatch.setattr(SASR, "inspect", counting)
    often, with_log = run(config_of(log_every=7, **agent, **shaped("auto")))
    logged = [dict(figures) for kind, _, figures in often.events if kind == "figures"]
    assert len(calls) == len(logged) > 10
    for figures in logged:
        assert figures.keys() >= INSPECTED
        assert all(0.0 <= rate <= 1.0 for rate in figures["shaping/success_rate_mean"])
        assert all(count >= 0.0 for count in figures["shaping/n_failure"])
    assert max(logged[-1]["shaping/n_failure"]) > 0.0
    calls.clear()
    _, without = run(config_of(log_every=1_000, **agent, **shaped("auto")))
    assert not calls
    learned = (
        {f"{part}.{name}": own for part in ("agent", "shaper") for name, own in t.learner.save()[part].items()}
        for t in (with_log, without)
    )
    assert not differences(*learned)


def test_the_steps_looked_at_are_spread_over_all_that_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    inspect = SASR.inspect

    def remembering(shaper: SASR, batch: Any) -> Any:
        seen.append(batch.slot)
        return inspect(shaper, batch)

    monkeypatch.setattr(SASR, "inspect", remembering)
    run(config_of(log_every=90, **shaped("auto")))
    slots = seen[0][0].sort().values  # 16 of the 89 steps stored by then, and what follows each in its window
    assert slots.min() < 6
    assert slots.max() >= 83
    assert slots.diff().max() <= 6
