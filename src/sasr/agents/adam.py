"""Adam whose moments are registered buffers, so that a checkpoint of tensors holds them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class Adam(nn.Module):
    """Adam (Kingma and Ba, 2015) for a fixed list of parameters; elementwise, so it serves a population as it is."""

    def __init__(self, parameters: Sequence[nn.Parameter], *, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.parameters_in_order = tuple(parameters)  # a tuple: their owner registers them, this module does not
        for index, parameter in enumerate(parameters):
            self.register_buffer(f"mean_{index}", torch.zeros_like(parameter))
            self.register_buffer(f"square_{index}", torch.zeros_like(parameter))
            # On the parameters' device, so that a captured graph counts too.
            self.register_buffer(f"steps_{index}", torch.zeros((), device=parameter.device))

    def _all(self, name: str) -> list[Tensor]:
        return [self.get_buffer(f"{name}_{index}") for index in range(len(self.parameters_in_order))]

    def descend(self, loss: Tensor) -> None:
        """One step down the gradient of `loss`, computed for these parameters only."""
        # Unlike .backward(), this spends nothing on gradients of the critics' weights when the actor learns.
        gradients = torch.autograd.grad(loss, self.parameters_in_order)
        with torch.no_grad():
            adam(
                list(self.parameters_in_order),
                [gradient.contiguous() for gradient in gradients],  # the fused kernel reads memory in order
                self._all("mean"),
                self._all("square"),
                [],
                self._all("steps"),
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.lr,
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )
