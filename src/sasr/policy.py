"""A trained policy from a run's folder, or from an exported one: no environment is made and no code is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.agents.registry import agent_named
from sasr.experience.frames import StackLayout
from sasr.experience.types import Host
from sasr.logs.run_folder import RunFolder, check_entries
from sasr.settings import choose_device
from sasr.training import checkpoint
from sasr.training.checkpoint import Checkpoint, newest, steps_of

PART = "policy"
"""The name of the tensors in an exported folder."""
_LEARNING = ("critic", "target", "adam")
"""Parts of an agent for learning alone."""


class Policy:
    """The policies of a run's P seeds at a checkpoint; `predict` is called as in Stable-Baselines3."""

    def __init__(self, folder: RunFolder, agent: Any, *, steps: int, device: torch.device) -> None:
        self.folder, self.agent, self.steps, self.device = folder, agent, steps, device
        self.observation_space, self.action_space = folder.observation_space, folder.action_space
        self.seeds = folder.config.seeds
        self.frame_stack = folder.config.frame_stack or 1
        self.layout: StackLayout | None = None
        if self.frame_stack > 1:
            self.layout = StackLayout(self.observation_space, self.frame_stack)

    def __repr__(self) -> str:
        return f"Policy({str(self.folder.path)!r}, steps={self.steps}, seeds={self.seeds})"

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        *,
        member: int = 0,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """The action for an observation, or actions for n of them, and the state for the next call.

        The state is None but where the policy sees stacks of frames: there it has the newest ones.

        Args:
            observation: As `sasr.tasks.make` gives it: one, or n of them along a first axis.
            state: The state of the call before; None at the start of an episode.
            episode_start: Which of the n observations begin an episode, where there is a state; None for none.
            deterministic: Act deterministically instead of exploring.
            member: Index of the seed whose policy acts.
        """
        if not 0 <= member < len(self.seeds):
            raise ValueError(f"member={member}, but this run has {len(self.seeds)} seeds; count them from 0")
        shape = self.observation_space.shape
        assert shape is not None
        array = np.asarray(observation)
        if array.shape != shape and array.shape[1:] != shape:
            raise ValueError(
                f"observation has shape {array.shape}, but this run's observations have {shape}: give one, or a stack "
                f"(n, {', '.join(map(str, shape))}); sasr.tasks.make gives them as the run had them"
            )
        several = torch.as_tensor(array.reshape(-1, *shape).astype(self.observation_space.dtype))
        seen, frames = several, None
        if self.layout is not None:
            seen = self._stacks(self.layout, several, state, episode_start)
            frames = seen.numpy()
        actions = self.act(seen.expand(len(self.seeds), *seen.shape), deterministic)[member].numpy()
        if array.shape == shape:
            return actions[0], frames
        return actions, frames

    def _stacks(self, layout: StackLayout, obs: Tensor, state: Any, episode_start: Any) -> Tensor:
        """What the policy sees, (n, *stack shape), for observations (n, *obs_shape)."""
        first = layout.join([obs] * layout.depth)
        if state is None:
            return first
        before = torch.as_tensor(np.asarray(state)).to(obs.dtype)
        if before.shape != first.shape:
            raise ValueError(
                f"state has shape {tuple(before.shape)}, but {len(obs)} observations need {tuple(first.shape)}: give "
                "what the call before returned, or None where all episodes begin"
            )
        begins = torch.zeros(len(obs), dtype=torch.bool)
        if episode_start is not None:
            begins = torch.as_tensor(np.asarray(episode_start, np.bool_)).reshape(len(obs))
        return torch.where(begins.view(-1, 1, 1, 1), first, layout.push(before, obs))

    def act(self, obs: Tensor, deterministic: bool = True) -> Tensor:
        """Actions (P, n, *action_shape) of all seeds, on the CPU, for what they see, (P, n, …)."""
        actions: Tensor = self.agent.act(obs.to(self.device), deterministic=deterministic)
        return actions.cpu()


def load_policy(
    run: str | Path | RunFolder, *, device: str = "cpu", on_problem: Callable[[Path, str], None] | None = None
) -> Policy:
    """The policy of a run at its newest complete checkpoint, or of a folder that `sasr export` wrote.

    Args:
        run: The folder.
        device: The policy's device.
        on_problem: Called with the path and the reason of each newer checkpoint that can't be used.
    """
    torch_device = choose_device(device)
    if not isinstance(run, RunFolder):
        if (Path(run) / checkpoint.MANIFEST).exists():
            return _load_exported(Path(run), torch_device)
        run = RunFolder.open(run)
    agent = _make_agent(run, torch_device)
    problems: list[str] = []

    def add_problem(path: Path, reason: str) -> None:
        problems.append(f"{path.name}: {reason}")
        if on_problem is not None:
            on_problem(path, reason)

    def load_agent(saved: Checkpoint) -> None:
        steps_of(saved)  # raises on a damaged manifest
        agent.load_state_dict(without_bonus_critics(saved.read("agent")))

    loaded = newest(run.checkpoints, add_problem, use=load_agent)
    if loaded is None:
        reasons = f" ({'; '.join(problems)})" if problems else ""
        raise FileNotFoundError(
            f"{run.path} has no complete checkpoint yet{reasons}; one is written every "
            f"{run.config.checkpoint_minutes:g} minutes and when the run ends"
        )
    return Policy(run, agent, steps=steps_of(loaded), device=torch_device)


def without_bonus_critics(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An agent's tensors without the critics that it may keep for a shaper's bonus: whoever acts has no shaper."""
    return {name: tensor for name, tensor in tensors.items() if "bonus_critic" not in name}


def acting_tensors(agent: Any) -> dict[str, Tensor]:
    """The part of an agent's state that acting needs."""
    tensors = {}
    for name, tensor in agent.state_dict().items():
        module = name.partition(".")[0]
        if not any(part in module for part in _LEARNING):
            tensors[name] = tensor
    return tensors


def _load_exported(path: Path, device: torch.device) -> Policy:
    try:
        check_entries(path)
        exported = checkpoint.verified(path)
        folder = RunFolder(path, exported.facts["run"])
        steps = exported.facts["steps"]
        if type(steps) is not int or steps < 0:
            raise ValueError(f"steps={steps!r}")
        agent = _make_agent(folder, device)
        saved = exported.read(PART)
        needed = acting_tensors(agent)
        if saved.keys() != needed.keys():
            raise ValueError(f"{sorted(saved.keys() ^ needed.keys())[0]} is missing or unknown")
        agent.load_state_dict({**agent.state_dict(), **saved})
    except checkpoint.NewerFormatError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = error.args[0] if error.args else type(error).__name__
        raise ValueError(f"{path} can't be loaded ({reason}); export the run again") from None
    return Policy(folder, agent, steps=steps, device=device)


def _make_agent(folder: RunFolder, device: torch.device) -> Any:
    config = folder.config
    host = Host(
        observation_space=folder.observation_space,
        action_space=folder.action_space,
        seeds=config.seeds,
        envs=config.envs,
        device=device,
        discount=config.discount,
        frame_stack=config.frame_stack or 1,
    )
    _, registered = agent_named(config.agent, folder.action_space)
    return registered.make(host, config.agent_config)
