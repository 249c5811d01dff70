"""Networks on a population axis and their optimiser: what agents and shapers that learn are made of."""

from sasr.networks.adam import Adam
from sasr.networks.convolution import PopulationCNN, PopulationConv
from sasr.networks.layers import PopulationLinear, PopulationMLP, make_orthogonal
from sasr.networks.noisy import NoisyLinear, NoisyMLP

__all__ = [
    "Adam",
    "NoisyLinear",
    "NoisyMLP",
    "PopulationCNN",
    "PopulationConv",
    "PopulationLinear",
    "PopulationMLP",
    "make_orthogonal",
]
