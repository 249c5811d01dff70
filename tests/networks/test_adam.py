from __future__ import annotations

import pytest
import torch
from torch import nn

from sasr.networks import Adam

SHAPES = ((3, 4, 5), (3, 5), (3, 2, 2, 2, 2))


def parameters() -> list[nn.Parameter]:
    g = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=g)) for shape in SHAPES]


def gradients(t: int) -> list[torch.Tensor]:
    """Long ones for member 0, short ones for member 1."""
    g = torch.Generator().manual_seed(100 + t)
    size = torch.tensor([10.0, 1e-3, 1.0])
    return [torch.randn(shape, generator=g) * size.view(-1, *(1,) * (len(shape) - 1)) for shape in SHAPES]


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3])
@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_steps_are_torchs_with_gradients_clipped_member_by_member(epsilon: float, max_norm: float | None) -> None:
    ours = parameters()
    adam = Adam(ours, lr=0.01, epsilon=epsilon, max_norm=max_norm)
    for p in range(3):
        theirs = [nn.Parameter(own[p].detach().clone()) for own in parameters()]
        reference = torch.optim.Adam(theirs, lr=0.01, eps=epsilon)
        for t in range(4):
            if p == 0:
                adam.step(gradients(t))
            for own, gradient in zip(theirs, gradients(t), strict=True):
                own.grad = gradient[p].clone()
            if max_norm is not None:
                nn.utils.clip_grad_norm_(theirs, max_norm)
            reference.step()
        for own, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(own[p], other, rtol=0, atol=1e-6)


def test_a_step_size_given_as_a_tensor_can_be_changed_in_place_and_is_saved() -> None:
    moving, fixed = parameters(), parameters()
    adam = Adam(moving, lr=torch.tensor(0.5))
    adam.get_buffer("lr").fill_(0.01)
    adam.step(gradients(0))
    plain = Adam(fixed, lr=0.01)
    plain.step(gradients(0))
    for own, other in zip(moving, fixed, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-7)
    assert float(adam.state_dict()["lr"]) == pytest.approx(0.01)
    assert "lr" not in plain.state_dict()


def test_clipping_per_member_needs_one_axis_of_members() -> None:
    with pytest.raises(ValueError, match="first axes differ in length"):
        Adam([nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(4, 3))], lr=0.1, max_norm=1.0)
