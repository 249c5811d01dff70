"""Gradients of SAC's losses written out, for CPUs: what autograd finds, without its graph.

Batches are small there, so that autograd's nodes and forty small operations cost as much as a product of matrices does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from sasr.networks.layers import PopulationMLP, backward_one, empty_gradients, forward_one, joined, one_by_one

_CONSTANT = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)  # of minus a log density, for each dimension


class Squashing(NamedTuple):
    """How outputs of a network become actions; see `sasr.agents.sac.Actor`."""

    scale: Tensor  # (A,)
    middle: Tensor  # (A,)
    log_std_min: float
    log_std_max: float


class Draw(NamedTuple):
    """Actions that were drawn, and what their gradients need; all but the second are (P, B, A)."""

    action: Tensor
    log_prob: Tensor  # (P, B)
    squashed: Tensor  # tanh u
    step: Tensor  # u − μ, which is also how u moves with log σ
    bent: Tensor  # the tanh that log σ comes from


def draw(outputs: Tensor, noise: Tensor, squashing: Squashing) -> Draw:
    """Actions of the squashed Gaussian that a network's outputs (P, B, 2A) say, from noise (P, B, A)."""
    mean, raw = outputs.chunk(2, dim=-1)
    half = 0.5 * (squashing.log_std_max - squashing.log_std_min)
    bent = raw.tanh()
    log_std = bent.mul(half).add_(squashing.log_std_min + half)
    step = log_std.exp().mul_(noise)
    u = mean + step
    squashed = u.tanh()
    # −½·noise² − log σ − log(1 − tanh²u), the last one being 2·(u + softplus(−2u) − log 2).
    log_prob = softplus(u.mul(-2.0)).add_(u).mul_(2.0).sub_(log_std).addcmul_(noise, noise, value=-0.5)
    log_prob = log_prob.sub_(squashing.scale.log().add_(_CONSTANT)).sum(-1)
    return Draw(torch.addcmul(squashing.middle, squashed, squashing.scale), log_prob, squashed, step, bent)


def outputs_gradient(drawn: Draw, of_action: Tensor, of_log_prob: Tensor, squashing: Squashing) -> Tensor:
    """Gradient by the network's outputs (P, B, 2A), from those by the actions (P, B, A) and log densities (P, 1, 1)."""
    # ∂a/∂u = scale·(1 − tanh²u) and ∂log π/∂u = 2·tanh u; besides, log π falls by 1 with log σ.
    of_u = torch.ops.aten.tanh_backward(of_action * squashing.scale, drawn.squashed)
    of_u.addcmul_(drawn.squashed, of_log_prob, value=2.0)
    of_bent = (of_u * drawn.step).sub_(of_log_prob).mul_(0.5 * (squashing.log_std_max - squashing.log_std_min))
    return torch.cat([of_u, torch.ops.aten.tanh_backward(of_bent, drawn.bent)], dim=-1)


@torch.no_grad()
def critic_gradients(net: PopulationMLP, obs: Tensor, action: Tensor, target: Tensor) -> tuple[list[Tensor], Tensor]:
    """Gradients of both critics' mean squared errors by their parameters, and their values (2, P, B).

    `net` holds 2·P critics, as in `TwinCritic`; `target` is (P, B).
    """
    weights, biases = net.matrices()
    depth, P = len(weights), len(obs)
    inputs, targets = joined((obs, action)).unbind(), target.unsqueeze(-1).unbind()
    gradients = empty_gradients(weights)
    networks, intos = one_by_one(*weights, *biases), one_by_one(*gradients)

    def learn(n: int) -> Tensor:
        # There and back before the next one's turn: what a network's layers said is still in the cache.
        own, x = networks[n], inputs[n % P]
        *hidden, value = forward_one(x, own[:depth], own[depth:], net.activation)
        error = (value - targets[n % P]).mul_(2.0 / len(value))
        backward_one(error, x, own[:depth], hidden, net.activation, into=intos[n])
        return value

    values = torch.stack([learn(n) for n in range(2 * P)])
    return _layer_by_layer(gradients), values.view(2, *target.shape)


@torch.no_grad()
def actor_gradients(
    net: PopulationMLP, critics: PopulationMLP, obs: Tensor, noise: Tensor, alpha: Tensor, squashing: Squashing
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Gradients of the mean of α·log π − min Q by the actor's parameters; the log densities and min Q, each (P, B)."""
    weights, biases = net.matrices()
    depth, B = len(weights), obs.shape[1]
    inputs, networks = obs.unbind(), one_by_one(*weights, *biases)
    said = [forward_one(x, own[:depth], own[depth:], net.activation) for x, own in zip(inputs, networks, strict=True)]
    drawn = draw(torch.stack([own[-1] for own in said]), noise, squashing)
    least, slope = least_value(critics, obs, drawn.action)
    of_outputs = outputs_gradient(drawn, slope.mul_(-1.0 / B), (alpha / B)[:, None, None], squashing)
    gradients = empty_gradients(weights)
    for p, into in enumerate(one_by_one(*gradients)):
        backward_one(of_outputs[p], inputs[p], networks[p][:depth], said[p][:-1], net.activation, into=into)
    return _layer_by_layer(gradients), drawn.log_prob, least


def least_value(critics: PopulationMLP, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """The lower one of both critics' values (P, B), and its gradient by the action (P, B, A)."""
    weights, biases = critics.matrices()
    depth, (P, _, A) = len(weights), action.shape
    networks, slope, least = one_by_one(*weights, *biases), torch.empty_like(action), []
    for p, x in enumerate(joined((obs, action)).unbind()):
        twins = networks[p], networks[P + p]
        said = [forward_one(x, own[:depth], own[depth:], critics.activation) for own in twins]
        first, second = (own[-1].squeeze(-1) for own in said)
        least.append(torch.minimum(first, second))
        is_first = first <= second
        for own, (*hidden, value), chosen in zip(twins, said, (is_first, ~is_first), strict=True):
            # A row has a gradient through the lower critic alone: half of the products that both would take.
            rows = chosen.nonzero().squeeze(-1)
            of_value = value.new_ones(len(rows), 1)
            of_first = backward_one(of_value, x, own[:depth], [layer[rows] for layer in hidden], critics.activation)
            slope[p].index_copy_(0, rows, of_first @ own[0][-A:].T)
    return torch.stack(least), slope


def _layer_by_layer(gradients: Sequence[Tensor]) -> list[Tensor]:
    """In the order of a network's parameters: the weights of a layer and its biases, then the next layer's."""
    depth = len(gradients) // 2
    return [own for pair in zip(gradients[:depth], gradients[depth:], strict=True) for own in pair]
