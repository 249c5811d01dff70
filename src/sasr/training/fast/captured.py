"""Which parts of a training step run as CUDA graphs: acting, writing, updating, and counting what was observed."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from sasr.training.base import Learner, Saved
from sasr.training.fast.graphs import Captured, Fetched, SideStream, generators_of
from sasr.training.off_policy import OffPolicy
from sasr.training.on_policy import OnPolicy

Graphs = dict[str, Captured[Any]]


def capture(learner: Learner) -> Graphs:
    """Replace methods of a learner by CUDA graphs of them; the graphs, by what they do."""
    graphs: Graphs = {}
    if isinstance(learner, OffPolicy):
        graphs |= _capture_off_policy(learner)
    if isinstance(learner, OnPolicy):
        graphs |= _capture_on_policy(learner)
    if learner.shaper is not None:
        graphs["absorb"] = Captured(learner.shaper.absorb, generators_of([learner.shaper]))
        learner.shaper.absorb = partial(graphs["absorb"], "absorb")  # type: ignore[method-assign]

    load = learner.load

    def load_and_forget(saved: Saved) -> None:
        load(saved)
        for graph in graphs.values():
            graph.forget()  # tensors that it reads may have moved

    learner.load = load_and_forget  # type: ignore[method-assign]
    return graphs


def _captures_updates(learner: Learner) -> bool:
    return learner.shaper is None or learner.shaper.capturable


def _capture_on_policy(learner: OnPolicy) -> Graphs:
    act = Fetched(learner.agent.explore, generators_of([learner.agent]))
    write = Captured(learner.rollouts.write)
    learner.draw = partial(act, "act")  # type: ignore[assignment, method-assign]
    learner.rollouts.write = partial(write, "write")  # type: ignore[method-assign]
    graphs: Graphs = {"act": act, "write": write}
    if _captures_updates(learner):
        graphs["update"] = Captured(learner.update, generators_of([learner.agent, learner.shaper]))
        learner.update = partial(graphs["update"], "update")  # type: ignore[method-assign]
    return graphs


def _capture_off_policy(learner: OffPolicy) -> Graphs:
    act = Fetched(lambda obs: (learner.agent.act(obs),), generators_of([learner.agent]))
    write = Captured(learner.replay.write)
    learner.act = lambda obs: act("act", learner.seen(obs))[0]  # type: ignore[method-assign]
    graphs: Graphs = {"act": act, "write": write}
    if not _captures_updates(learner):
        learner.replay.write = partial(write, "write")  # type: ignore[method-assign]
    else:
        # The bonus needs nothing of the bootstrap and the other way round: they run side by side.
        side = SideStream()
        learner.shape = side.begin(learner.shape)  # type: ignore[method-assign]
        learner.agent.bootstrap = side.join(learner.agent.bootstrap)  # type: ignore[method-assign]
        graphs["update"] = _WritingUpdate(learner, write).graph
    return graphs


class _WritingUpdate:
    """Writes a step into the replay buffer in the graph of the update after it: that runs while environments step."""

    def __init__(self, learner: OffPolicy, write: Captured[None]) -> None:
        self.replay, self.write_graph = learner.replay, write
        self.eager_write, self.eager_update = learner.replay.write, learner.update
        self.graph = Captured(self.write_and_update, generators_of([learner.agent, learner.replay, learner.shaper]))
        self.unwritten: tuple[Tensor, ...] = ()
        """The newest step, on the CPU; written before anything else reads the replay buffer."""
        self.observe_newest, self.save, self.load = learner.observe_newest, learner.save, learner.load
        learner.replay.write = self.write  # type: ignore[assignment, method-assign]
        learner.update = self.update  # type: ignore[method-assign]
        learner.observe_newest = self.write_and_observe  # type: ignore[method-assign]
        learner.save = self.write_and_save  # type: ignore[method-assign]
        learner.load = self.forget_and_load  # type: ignore[method-assign]

    def write(self, *step: Tensor) -> None:
        """Keep a step for the next update."""
        self.write_now()
        self.unwritten = step

    def write_now(self) -> None:
        """Write the step that is kept, if there is one."""
        if self.unwritten:
            self.write_graph("write", *self.unwritten)
            self.unwritten = ()

    def update(self, update_actor: bool) -> dict[str, Tensor]:
        """One update, after the step that is kept was written."""
        step, self.unwritten = self.unwritten, ()
        # Observations kept aside move when their store grows; a graph that reads them is captured anew.
        key = (update_actor, len(step), self.replay.finals.data_ptr())
        return self.graph(key, *step, given=(update_actor,))

    def write_and_update(self, update_actor: bool, *step: Tensor) -> dict[str, Tensor]:
        """What is captured."""
        if step:
            self.eager_write(*step)
        return self.eager_update(update_actor)

    def write_and_observe(self) -> None:
        """Without an update, as in the burn-in, the step is written here."""
        self.write_now()
        self.observe_newest()

    def write_and_save(self, *, replay: bool = True) -> Saved:
        """A saved replay buffer has all steps."""
        self.write_now()
        return self.save(replay=replay)

    def forget_and_load(self, saved: Saved) -> None:
        """A step from before is not part of what is loaded."""
        self.unwritten = ()
        self.load(saved)
