"""The Stable-Baselines3 model of a buffer: its γ, seed and policy, and the steps that it collects.

Stable-Baselines3 gives a buffer none of these, so they are read from the method that calls it: the same
variables that it hands to callbacks as `locals`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor, nn

from sasr.integrations.sb3.observations import StateEncoder
from sasr.randomness import MemberStreams

EXPLORATION_NOISE = 0.1
"""Standard deviation of what an actor without a distribution (TD3, DDPG) is taken to explore with."""


def calling_model() -> BaseAlgorithm | None:
    """The model that sets this buffer up or loads it; None where somebody else makes a buffer."""
    variables = calling("_setup_model", "load_replay_buffer")
    if variables is None:
        return None
    model: BaseAlgorithm = variables["self"]
    return model


def calling(*methods: str) -> dict[str, Any] | None:
    """The variables of the nearest method of a model with one of these names that led here."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in methods and isinstance(frame.f_locals.get("self"), BaseAlgorithm):
            return dict(frame.f_locals)
        frame = frame.f_back  # type: ignore[assignment]
    return None


class ModelPolicy:
    """The exploring policy of a model, for shapers that need it; actions are as the buffer stores them.

    SAC, TQC and CrossQ have a squashed normal distribution, TD3 and DDPG an action and noise, DQN and QR-DQN
    are ε-greedy.
    """

    def __init__(self, model: BaseAlgorithm | None, encoder: StateEncoder) -> None:
        self._model: Callable[[], BaseAlgorithm | None] = lambda: None
        if model is not None:
            # Weak, so that a model that is dropped takes its replay buffer along at once.
            self._model = weakref.ref(model)
        self.encoder = encoder

    @property
    def model(self) -> Any:
        """The model, or an error that says how to load a buffer with one."""
        model = self._model()
        if model is None:
            raise RuntimeError(
                "this shaper asks the policy, but its buffer belongs to no model; load it with "
                "model.load_replay_buffer(path)"
            )
        return model

    @torch.no_grad()
    def propose(self, obs: Tensor, streams: MemberStreams) -> Tensor:
        """Exploring actions (1, B, …) for states (1, B, …), drawn from the asker's streams."""
        model = self.model
        with _evaluating(model.policy):
            inputs = self._inputs(obs)
            if _is_discrete(model.policy):
                greedy = _action_values(model.policy, inputs).argmax(-1)[None]
                chance, choice = streams.uniform(torch.empty((*greedy.shape, 2), device=greedy.device)).unbind(-1)
                actions = int(model.action_space.n)
                # A share just below 1 may round up to the number of actions.
                at_random = (choice * actions).long().clamp(max=actions - 1)
                return torch.where(chance < model.exploration_rate, at_random, greedy)
            mean, deviation = _normal(model.policy.actor, inputs)
        action = mean[None] + deviation[None] * streams.normal(mean[None])
        action = action.tanh() if _is_squashed(model.policy.actor) else action.clamp(-1.0, 1.0)
        return action.view(*action.shape[:2], *model.action_space.shape)

    @torch.no_grad()
    def likelihood(self, obs: Tensor, action: Tensor) -> Tensor:
        """How likely actions (1, B, …) are next to the likeliest ones, (1, B) in [0, 1]."""
        model = self.model
        with _evaluating(model.policy):
            inputs = self._inputs(obs)
            if _is_discrete(model.policy):
                greedy = _action_values(model.policy, inputs).argmax(-1)[None]
                share = model.exploration_rate / int(model.action_space.n)
                return torch.where(action == greedy, 1.0, share / (1.0 - model.exploration_rate + share))
            mean, deviation = _normal(model.policy.actor, inputs)
        vectors = action[0].flatten(1).to(mean.dtype)
        if _is_squashed(model.policy.actor):
            vectors = vectors.clamp(-1.0 + 1e-6, 1.0 - 1e-6).atanh()
        return (-0.5 * ((vectors - mean) / deviation).square().sum(-1)).exp()[None]

    def _inputs(self, obs: Tensor) -> Any:
        """What the policy takes for states (1, B, …), normalised where the environment is."""
        inputs = self.encoder.decode(obs[0])
        normaliser = self.model.get_vec_normalize_env()
        if normaliser is None:
            return inputs
        if isinstance(inputs, dict):
            arrays = normaliser.normalize_obs({key: part.cpu().numpy() for key, part in inputs.items()})
            return {key: torch.as_tensor(part, device=obs.device) for key, part in arrays.items()}
        return torch.as_tensor(normaliser.normalize_obs(inputs.cpu().numpy()), device=obs.device)


@contextmanager
def _evaluating(policy: nn.Module) -> Iterator[None]:
    """Batch statistics stand still: asking a policy must not change it."""
    training = [(module, module.training) for module in policy.modules()]
    policy.eval()
    try:
        yield
    finally:
        for module, mode in training:
            module.training = mode


def _is_discrete(policy: Any) -> bool:
    return hasattr(policy, "q_net") or hasattr(policy, "quantile_net")


def _action_values(policy: Any, inputs: Any) -> Tensor:
    """Values (B, actions) of DQN or QR-DQN."""
    values: Tensor = policy.q_net(inputs) if hasattr(policy, "q_net") else policy.quantile_net(inputs).mean(1)
    return values


def _is_squashed(actor: Any) -> bool:
    return hasattr(actor, "get_action_dist_params")


def _normal(actor: Any, inputs: Any) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (B, A) of the actor's normal distribution, before squashing."""
    if not _is_squashed(actor):
        mean = actor(inputs)
        return mean, torch.full_like(mean, EXPLORATION_NOISE)
    mean, log_std, extra = actor.get_action_dist_params(inputs)
    normal = actor.action_dist.proba_distribution(mean, log_std, **extra).distribution
    return normal.mean, normal.stddev
