"""Agents that learn from replay solve small tasks, one seed each; `python -m benchmarks.learning` runs five."""

from __future__ import annotations

import pytest
from benchmarks.learning import CASES, learning

from sasr.agents.registry import AGENTS


@pytest.mark.slow
@pytest.mark.parametrize("agent", [name for name in CASES if not AGENTS[name].on_policy])
def test_an_agent_solves_its_task(agent: str) -> None:
    case, best = CASES[agent], float("-inf")
    for _, (own,) in learning(agent, case, seeds=(0,)):
        best = max(best, float(own))
        if best >= case.bar:  # no need to go on
            return
    pytest.fail(f"{agent} came to {best:.0f} on {case.task} within {case.steps:,} steps; the bar is {case.bar:.0f}")
