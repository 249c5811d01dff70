"""Adam whose moments are registered buffers, so that a checkpoint of tensors holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

_BETA_1, _BETA_2 = 0.9, 0.999


class Adam(nn.Module):
    """Adam (Kingma and Ba, 2015) for a fixed list of parameters; elementwise, so it serves a population as it is."""

    compilable = ("step",)
    steps: Tensor  # () how many were taken
    one: Tensor  # () what a gradient starts from

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        lr: float | Tensor,
        epsilon: float = 1e-8,
        max_norm: float | None = None,
    ) -> None:
        """Start with moments of 0.

        Args:
            parameters: What to learn.
            lr: The step size; a tensor () on the parameters' device may be changed in place, also for a captured graph.
            epsilon: Added to the root of the second moment.
            max_norm: The longest gradient of a seed, over all parameters, whose first axis must be the seeds';
                a longer one is shortened to it.
        """
        super().__init__()
        if max_norm is not None and len({len(parameter) for parameter in parameters}) > 1:
            raise ValueError(f"max_norm={max_norm} is for each seed, but the parameters' first axes differ in length")
        self.lr: float | Tensor
        if isinstance(lr, Tensor):
            self.register_buffer("lr", lr)
        else:
            self.lr = lr
        self.epsilon, self.max_norm = epsilon, max_norm
        self.parameters_in_order = tuple(parameters)  # a tuple: their owner registers them, this module does not
        for index, parameter in enumerate(parameters):
            self.register_buffer(f"mean_{index}", torch.zeros_like(parameter))
            self.register_buffer(f"square_{index}", torch.zeros_like(parameter))
        # On the parameters' device, so that a captured graph counts too.
        self.register_buffer("steps", torch.zeros((), device=parameters[0].device))
        self.register_buffer("one", torch.ones((), device=parameters[0].device), persistent=False)

    def _all(self, name: str) -> list[Tensor]:
        # Not by get_buffer, whose checks take as long as the arithmetic of a small parameter.
        return [cast(Tensor, self._buffers[f"{name}_{index}"]) for index in range(len(self.parameters_in_order))]

    def minimise(self, loss: Tensor) -> None:
        """One step down the gradient of `loss`, computed for these parameters only."""
        # Unlike .backward(), this spends nothing on gradients of the critics' weights when the actor learns.
        gradients = torch.autograd.grad(loss, self.parameters_in_order, self.one)
        self.step(list(gradients))

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        """Move the parameters against their gradients."""
        if self.max_norm is not None:
            gradients = shortened(gradients, self.max_norm)
        if torch.compiler.is_compiling():
            self._step_plainly(gradients)
            return
        self.steps.add_(1.0)
        # The kernel itself: what torch.optim.adam does around it costs a CPU as much as the kernel.
        torch._fused_adam_(
            self.parameters_in_order,
            [gradient.contiguous() for gradient in gradients],  # the fused kernel reads memory in order
            self._all("mean"),
            self._all("square"),
            [],
            [self.steps] * len(gradients),  # read only
            lr=self.lr,
            beta1=_BETA_1,
            beta2=_BETA_2,
            weight_decay=0.0,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )

    def _step_plainly(self, gradients: list[Tensor]) -> None:
        # The fused kernel keeps 30 of an H200's 132 processors busy with two million parameters; what a compiler makes
        # of this uses them all, in one kernel for all parameters.
        means, squares = self._all("mean"), self._all("square")
        self.steps.add_(1.0)
        torch._foreach_lerp_(means, gradients, 1.0 - _BETA_1)
        torch._foreach_mul_(squares, _BETA_2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - _BETA_2)
        roots = torch._foreach_sqrt(torch._foreach_div(squares, 1.0 - _BETA_2**self.steps))
        moves = torch._foreach_div(means, torch._foreach_add(roots, self.epsilon))
        torch._foreach_sub_(self.parameters_in_order, torch._foreach_mul(moves, self.lr / (1.0 - _BETA_1**self.steps)))


def shortened(gradients: Sequence[Tensor], max_norm: float) -> list[Tensor]:
    """Gradients (P, …) of each seed, together no longer than `max_norm`; a seed's length is its own affair."""
    square = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0)
    factor = (max_norm / (square.sqrt() + 1e-6)).clamp(max=1.0)  # torch.nn.utils.clip_grad_norm_ has this 1e-6 too
    return [gradient * factor.view(-1, *(1,) * (gradient.dim() - 1)) for gradient in gradients]
