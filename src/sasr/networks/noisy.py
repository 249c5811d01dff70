"""Layers whose weights are disturbed at random by a learned amount: exploration from the network itself (NoisyNet)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from sasr.networks.layers import PopulationLinear, linear
from sasr.randomness import MemberStreams


class NoisyLinear(PopulationLinear):
    """N linear maps with factorised noise: (w + σ_w·f(z_in)f(z_out)ᵀ) and (b + σ_b·f(z_out)), f(z) = sign(z)·√|z|.

    Fortunato et al. (2018), equations 10 and 11. The noise stays as it is until `resample`, and all rows share it.
    """

    weight_noise: Tensor  # (N, inputs, outputs), σ_w
    bias_noise: Tensor  # (N, outputs), σ_b
    disturbed_in: Tensor  # (N, inputs), f(z_in) now in force
    disturbed_out: Tensor  # (N, outputs), f(z_out) now in force

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        noise_scale: float,
        generators: Sequence[torch.Generator],
        device: torch.device,
    ) -> None:
        super().__init__(inputs, outputs, generators=generators, device=device)
        start = noise_scale * inputs**-0.5  # for the biases too, as DeepMind's own code has it
        self.weight_noise = nn.Parameter(torch.full_like(self.weight, start))
        self.bias_noise = nn.Parameter(torch.full_like(self.bias, start))
        self.register_buffer("disturbed_in", torch.zeros(self.weight.shape[:2], device=device))
        self.register_buffer("disturbed_out", torch.zeros(self.bias.shape, device=device))

    @torch.no_grad()
    def resample(self, streams: MemberStreams) -> None:
        """Draw new noise, each network's from its own stream."""
        for disturbed in (self.disturbed_in, self.disturbed_out):
            z = streams.normal(disturbed)
            disturbed.copy_(z.sign() * z.abs().sqrt())

    def forward(self, x: Tensor, still: bool = False) -> Tensor:
        """Apply each network's map to its own rows; `still` leaves the noise out."""
        y = linear(x, self.weight, self.bias)
        if still:
            return y
        # (x·f_in) W_σ f_out: the disturbed weights never have to be written down.
        noise = linear(x * self.disturbed_in.unsqueeze(1), self.weight_noise, self.bias_noise)
        return y + noise * self.disturbed_out.unsqueeze(1)


class NoisyMLP(nn.Module):
    """N multilayer perceptrons whose hidden layers are noisy and whose last layer is not, with ReLU between them."""

    def __init__(
        self,
        widths: Sequence[int],
        *,
        noise_scale: float,
        generators: Sequence[torch.Generator],
        device: torch.device,
    ) -> None:
        super().__init__()
        *hidden, last = pairwise(widths)
        self.noisy = [
            NoisyLinear(*sizes, noise_scale=noise_scale, generators=generators, device=device) for sizes in hidden
        ]
        self.layers = nn.ModuleList([*self.noisy, PopulationLinear(*last, generators=generators, device=device)])

    def resample(self, streams: MemberStreams) -> None:
        """Draw new noise for every noisy layer."""
        for layer in self.noisy:
            layer.resample(streams)

    def forward(self, x: Tensor, still: bool = False) -> Tensor:
        """Outputs (N, B, widths[-1]) for inputs (N, B, widths[0]); `still` leaves the noise out."""
        for layer in self.noisy:
            x = layer(x, still).relu()
        outputs: Tensor = self.layers[-1](x)
        return outputs

    def noise_figures(self) -> dict[str, Tensor]:
        """Mean |σ_w| times √inputs of the noisy layers, (N,), for the log: what `noise_scale` has become."""
        sizes = [layer.weight_noise.abs().mean((1, 2)) * layer.weight.shape[1] ** 0.5 for layer in self.noisy]
        return {"weight_noise": torch.stack(sizes).mean(0).detach()}
