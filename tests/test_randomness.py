from __future__ import annotations

import copy
import pickle

import torch

from sasr.randomness import MemberStreams, stream_seed

CPU = torch.device("cpu")


def draw(streams: MemberStreams) -> torch.Tensor:
    return streams.draw(lambda shape, g: torch.rand(shape.shape, generator=g), torch.zeros(streams.members, 4))


def test_seeds_and_purposes_are_independent() -> None:
    seeds = {stream_seed(seed, purpose) for seed in range(50) for purpose in ("beta", "features", "retention")}
    assert len(seeds) == 150


def test_state_dict_copy_and_pickle_continue_the_stream() -> None:
    streams = MemberStreams((1, 2, 3), "beta", CPU)
    draw(streams)
    restored = MemberStreams((7, 8, 9), "beta", CPU)
    restored.load_state_dict(streams.state_dict())
    copies = [restored, copy.deepcopy(streams), pickle.loads(pickle.dumps(streams))]
    expected = draw(streams)
    for other in copies:
        assert torch.equal(draw(other), expected)


def test_a_state_of_another_device_starts_a_stream_that_depends_on_it() -> None:
    saved = torch.arange(16, dtype=torch.uint8)[None]  # what a CUDA generator's state looks like
    one, two, three = (MemberStreams((1,), "beta", CPU) for _ in range(3))
    one.set_extra_state(saved)
    two.set_extra_state(saved)
    three.set_extra_state(saved + 1)
    first = draw(one)
    assert torch.equal(first, draw(two))
    assert not torch.equal(first, draw(three))
