from __future__ import annotations

import pytest
from benchmarks.kill_runs import Settings, live_and_die


@pytest.mark.slow
def test_a_run_that_was_killed_at_random_moments_ends_as_if_it_never_was(tmp_path):
    """`python -m benchmarks.kill_runs` does this thirty times."""
    story = live_and_die(Settings(kills=5, steps=1200, longest=1.0), tmp_path)
    assert story.kills == 5
    assert story.equal == story.runs
    assert story.damaged == 0
