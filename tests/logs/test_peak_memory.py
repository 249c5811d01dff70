"""The peak of memory is the run's own."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from sasr.logs.peak_memory import PeakMemory

CPU = torch.device("cpu")
BIG = 2**28


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell only of the process's whole life")
def test_a_peak_counts_what_was_given_back_but_not_what_was_before() -> None:
    before = PeakMemory(CPU)
    low = before.bytes()
    block = np.ones(BIG, np.uint8)
    assert before.bytes() >= low + BIG // 2
    del block
    assert before.bytes() >= low + BIG // 2
    assert PeakMemory(CPU).bytes() < low + BIG // 2
