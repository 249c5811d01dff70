"""Agents that learn from replay solve small tasks, one seed each; `python -m benchmarks.learning` runs five."""

from __future__ import annotations

import pytest
from benchmarks.learning import CASES, cleared_at, learning

from sasr.agents.registry import AGENTS


@pytest.mark.slow
@pytest.mark.parametrize("agent", [name for name in CASES if not AGENTS[name].on_policy])
def test_an_agent_solves_its_task(agent: str) -> None:
    case, steps, returns = CASES[agent], [], []
    for at, (own,) in learning(agent, case, seeds=(0,)):
        steps.append(at)
        returns.append(float(own))
        if cleared_at(steps, returns, case.bar):  # no need to go on
            return
    pytest.fail(
        f"{agent} on {case.task} did not clear {case.bar} twice in a row within {case.steps:,} steps: {returns}"
    )


def test_one_good_evaluation_is_not_enough() -> None:
    steps = [1_000, 2_000, 3_000, 4_000]
    assert cleared_at(steps, [9.0, 500.0, 200.0, 480.0], 475.0) is None
    assert cleared_at(steps, [9.0, 500.0, 480.0, 200.0], 475.0) == 3_000
    assert cleared_at(steps[:1], [500.0], 475.0) is None
