"""A trained policy from a run's folder, or from an exported one: no environment is made and no code is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasr.agents.registry import agent_named
from sasr.experience.types import Host
from sasr.logs.run_folder import RunFolder, check_entries
from sasr.settings import choose_device
from sasr.training import checkpoint
from sasr.training.checkpoint import Checkpoint, newest, steps_of

PART = "policy"
"""What an exported folder calls its tensors."""
_LEARNING = ("critic", "target", "adam")
"""Parts of an agent that only learning needs."""


class Policy:
    """The P members of a run as they were at a checkpoint; `predict` is called as in Stable-Baselines3."""

    def __init__(self, folder: RunFolder, agent: Any, *, steps: int, device: torch.device) -> None:
        self.folder, self.agent, self.steps, self.device = folder, agent, steps, device
        self.observation_space, self.action_space = folder.observation_space, folder.action_space
        self.seeds = folder.config.seeds

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        *,
        member: int = 0,
    ) -> tuple[NDArray[Any], None]:
        """One member's action for one observation, or actions for a stack of them; the second value is always None.

        Args:
            observation: As `sasr.tasks.make` gives it: one, or n of them along a first axis.
            state: Not used; there for callers of Stable-Baselines3.
            episode_start: Not used either.
            deterministic: The best action known, instead of an exploring one.
            member: Which of the run's members acts.
        """
        if not 0 <= member < len(self.seeds):
            raise ValueError(f"member={member} is none of this run's {len(self.seeds)}; count from 0")
        shape = self.observation_space.shape
        assert shape is not None
        array = np.asarray(observation)
        if array.shape != shape and array.shape[1:] != shape:
            raise ValueError(
                f"observation has shape {array.shape}, but this run's observations have {shape}: give one, or a stack "
                f"(n, {', '.join(map(str, shape))})"
            )
        one = array.shape == shape
        stack = torch.as_tensor((array[None] if one else array).astype(self.observation_space.dtype))
        actions = self.act(stack.expand(len(self.seeds), *stack.shape), deterministic)[member].numpy()
        return (actions[0] if one else actions), None

    def act(self, obs: Tensor, deterministic: bool = True) -> Tensor:
        """Actions (P, n, *action_shape) of all members, on the CPU, for observations (P, n, *obs_shape)."""
        found: Tensor = self.agent.act(obs.to(self.device), deterministic=deterministic)
        return found.cpu()


def load_policy(
    run: str | Path | RunFolder, *, device: str = "cpu", on_problem: Callable[[Path, str], None] | None = None
) -> Policy:
    """The policy of a run at its newest whole checkpoint, or of a folder that `sasr export` wrote.

    Args:
        run: The folder.
        device: Where the policy is to act.
        on_problem: Told the path and the reason of each newer checkpoint that can't be used.
    """
    home = choose_device(device)
    if not isinstance(run, RunFolder) and (Path(run) / checkpoint.MANIFEST).exists():
        return _load_exported(Path(run), home)
    folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
    config, agent = folder.config, _make_agent(folder, home)
    steps, problems = 0, list[str]()

    def tell(path: Path, reason: str) -> None:
        problems.append(f"{path.name}: {reason}")
        if on_problem is not None:
            on_problem(path, reason)

    def use(found: Checkpoint) -> None:
        nonlocal steps
        steps = steps_of(found)
        agent.load_state_dict(found.read("agent"))

    if newest(folder.checkpoints, tell, use=use) is None:
        why = f" ({'; '.join(problems)})" if problems else ""
        raise FileNotFoundError(
            f"{folder.path} has no whole checkpoint yet{why}; one is written every "
            f"{config.checkpoint_minutes:g} minutes and when the run ends"
        )
    return Policy(folder, agent, steps=steps, device=home)


def acting_tensors(agent: Any) -> dict[str, Tensor]:
    """The part of an agent's state that it acts by."""
    state = agent.state_dict().items()
    return {name: own for name, own in state if not any(word in name.partition(".")[0] for word in _LEARNING)}


def _load_exported(path: Path, device: torch.device) -> Policy:
    try:
        check_entries(path)
        found = checkpoint.verified(path)
        folder = RunFolder(path, found.facts["run"])
        steps = found.facts["steps"]
        if type(steps) is not int or steps < 0:
            raise ValueError(f"steps={steps!r}")
        agent = _make_agent(folder, device)
        saved = found.read(PART)
        needed = acting_tensors(agent)
        if saved.keys() != needed.keys():
            raise ValueError(f"{sorted(saved.keys() ^ needed.keys())[0]} is missing or too many")
        agent.load_state_dict({**agent.state_dict(), **saved})
    except checkpoint.NewerFormatError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = error.args[0] if error.args else type(error).__name__
        raise ValueError(f"{path} can't be loaded ({reason}); export the run again") from None
    return Policy(folder, agent, steps=steps, device=device)


def _make_agent(folder: RunFolder, home: torch.device) -> Any:
    config = folder.config
    host = Host(
        observation_space=folder.observation_space,
        action_space=folder.action_space,
        seeds=config.seeds,
        envs=config.environments,
        device=home,
        discount=config.discount,
    )
    _, kind = agent_named(config.agent, folder.action_space)
    return kind.make(host, config.agent_config)
