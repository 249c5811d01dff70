"""A run from one call: `train`, `resume` and `load`, and what a finished run can be asked."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from sasr.agents.registry import AGENTS, agent_named
from sasr.errors import unknown_name
from sasr.files import remove_leftovers
from sasr.logs import plots, tensorboard, wandb
from sasr.logs.console import ConsoleView
from sasr.logs.metrics import HISTORY, Event, Kind, MetricsFile, free_place, read_metrics, recorded_steps
from sasr.logs.plots import Curve, SuccessMap
from sasr.logs.recorders import ClosingRecorder, Recorders
from sasr.logs.run_folder import COPY, ConfigCopy, RunFolder, check_free, default_place
from sasr.logs.states import VisitedStates
from sasr.logs.tensorboard import TensorBoard
from sasr.policy import Policy, load_policy
from sasr.settings import TrainConfig, first_seeds, typed_task_settings
from sasr.shaping.base import RewardShaper
from sasr.shaping.registry import CUSTOM, SHAPERS, shaper_named
from sasr.sharing import export_run
from sasr.tasks import make
from sasr.tasks.catalogue import VARIANTS, full_id
from sasr.tasks.environment import TaskLike, close_environment, resolve, task_text
from sasr.tasks.modules import import_of_run
from sasr.terminal import Terminal
from sasr.training import checkpoint
from sasr.training.trainer import Trainer


class Run:
    """A run in its folder, under way, stopped or finished."""

    def __init__(self, folder: str | Path | RunFolder, *, task: TaskLike | None = None) -> None:
        self.task = task
        """The task itself, where the caller gave more than a name of it."""
        self._opened = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
        self.folder, self.config = self._opened.path, self._opened.config

    @property
    def steps(self) -> int:
        """Steps of each seed that the metrics tell of."""
        return max((int(event["step"]) for event in self.metrics()), default=0)

    @property
    def finished(self) -> bool:
        """Whether all steps have been taken and saved: a run may be killed between the last one and its checkpoint."""
        saved = checkpoint.newest(self._opened.checkpoints, use=checkpoint.steps_of)
        if saved is None or saved.facts.get("evaluation_due", False):
            return False
        return checkpoint.steps_of(saved) >= self.config.steps

    def metrics(self, *kinds: Kind) -> list[Event]:
        """Everything that was recorded, in order, or what is of some kinds."""
        return read_metrics(self.folder, *kinds)

    def evaluation(self) -> Curve:
        """Steps (K,), returns (P, K) and success rates (P, K) of the evaluations during training."""
        return plots.evaluation_curve(self.metrics("evaluation"), len(self.config.seeds))

    def policy(self, *, device: str = "cpu") -> Policy:
        """The policy at the newest whole checkpoint."""
        return load_policy(self._opened, device=device)

    def export(self, to: str | Path) -> Path:
        """Write the policy with a model card into a new folder, which `load` reads."""
        return export_run(self._opened, to)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"


def train(
    task: TaskLike,
    *,
    shaper: str | RewardShaper = "sasr",
    agent: Any = "auto",
    preset: str = "auto",
    seeds: int | Sequence[int] = 1,
    steps: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    progress: bool = True,
    events: bool = True,
    **settings: Any,
) -> Run:
    """Train on a task, in a new folder; Ctrl-C ends the run early, with a checkpoint to `resume` from.

    Args:
        task: A task's name, any Gymnasium id, module:function, a function that makes an environment, or an
            environment, of which copies are trained on.
        shaper: A shaper's name, a shaper of your own, or "none" for the plain agent.
        agent: An agent's name, or its settings, such as SacConfig(hidden=(64, 64)).
        preset: Settings that SASR starts from.
        seeds: How many independent runs (seeds 0, 1, …), or their seeds.
        steps: Environment steps of each seed; None is what suits the task.
        device: cpu, cuda, …; auto takes CUDA where there is one.
        out: The run's folder, which must be new; None makes one under runs/.
        progress: Show how the run goes.
        events: Write TensorBoard events.
        settings: Any other setting of TrainConfig.
    """
    known = [field.name for field in dataclasses.fields(TrainConfig)]
    for name in settings:
        if name not in known:
            raise unknown_name("setting", name, known)
    if not isinstance(agent, str):
        settings["agent_config"], agent = agent, _agent_of(agent)
    own = None if isinstance(shaper, str) else shaper
    if not isinstance(shaper, str):
        shaper, settings["shaper_config"] = _shaper_of(shaper)
    name = task_text(task)
    config = TrainConfig(
        task=name,
        agent=agent,
        shaper=shaper,
        preset=preset,
        seeds=first_seeds(seeds) if isinstance(seeds, int) else tuple(seeds),
        steps=default_steps(name) if steps is None else steps,
        device=device,
        **settings,
    )
    given = None if isinstance(task, str) else resolve(task)
    return start(config, out=out, shaper=own, task=given, console=Terminal() if progress else None, events=events)


def resume(
    run: str | Path | Run,
    *,
    shaper: RewardShaper | None = None,
    task: TaskLike | None = None,
    progress: bool = True,
    events: bool = True,
    allow_import: Sequence[str] = (),
    start_over: bool = False,
) -> Run:
    """Go on with a run from its newest whole checkpoint.

    Args:
        run: The run or its folder.
        shaper: A new shaper of the kind the run was trained with, where that was your own.
        task: The task itself, where the run was trained on a function or an environment of yours.
        progress: Show how the run goes.
        events: Write TensorBoard events.
        allow_import: Modules that the run's task may come from, though they are not installed.
        start_over: Begin again at step 0 where no checkpoint is whole; the metrics so far are kept beside.
    """
    return go_on(
        run if isinstance(run, Run) else Run(run),
        shaper=shaper,
        task=task,
        console=Terminal() if progress else None,
        events=events,
        allow_import=allow_import,
        start_over=start_over,
    )


def load(run: str | Path | Run, *, device: str = "cpu") -> Policy:
    """The policy of a run at its newest whole checkpoint, or of a folder that `sasr export` wrote.

    Needs the folder alone, and loading never runs code.
    """
    return run.policy(device=device) if isinstance(run, Run) else load_policy(run, device=device)


def start(
    config: TrainConfig,
    *,
    out: str | Path | None = None,
    shaper: RewardShaper | None = None,
    task: TaskLike | None = None,
    console: Console | None = None,
    events: bool = True,
    track: str = "",
    extra_facts: Mapping[str, Any] | None = None,
) -> Run:
    """`train` with settings that are complete already; without a console nothing is shown.

    `task` is the task itself, where the settings have only a text for it. `track` names a service that is told what
    happens, such as wandb. `extra_facts` go into config.json, too: the name of the method, the command line of a grid.
    """
    config = complete(config, task)
    path = Path(out) if out else default_place(config)
    check_free(path)
    recorder = _recorder(path, console=console, events=events, track=track)
    with Trainer(config, folder=path, recorder=recorder, shaper=shaper, task=task) as trainer:
        # The agent's own, because some settings are decided only beside the shaper, such as PPO's value heads.
        agent_config = getattr(getattr(trainer.learner, "agent", None), "config", config.agent_config)
        trainer.config = dataclasses.replace(config, agent_config=agent_config)
        folder = RunFolder.create(
            path,
            trainer.config,
            observation_space=trainer.population.observation_space,
            action_space=trainer.population.action_space,
            device=trainer.device,
            extra_facts=extra_facts,
        )
        return _turn(trainer, folder, recorder, task)


def go_on(
    run: Run,
    *,
    shaper: RewardShaper | None = None,
    task: TaskLike | None = None,
    console: Console | None = None,
    events: bool = True,
    track: str = "",
    allow_import: Sequence[str] = (),
    start_over: bool = False,
) -> Run:
    """`resume` with a console of the caller's, or none."""
    task = run.task if task is None else task
    if task is None:
        import_of_run(run.config.task, allow_import)
    recorder = _recorder(run.folder, console=console, events=events, track=track)
    with Trainer(run.config, folder=run.folder, recorder=recorder, shaper=shaper, task=task) as trainer:
        resumed = trainer.resume()
        if resumed and start_over:
            raise ValueError(
                f"{run.folder} has a whole checkpoint, after {trainer.loop.steps:,} steps: resume it without "
                "--start-over, or train anew in another folder"
            )
        if not resumed:
            if not start_over:
                _check_nothing_is_lost(run, trainer.news)
            recorder.load({})
        return _turn(trainer, run._opened, recorder, task)


def clear_up(run: Run) -> None:
    """Do what a finished run had left to do, where it was killed right behind its last checkpoint."""
    checkpoint.remove_leftovers(run._opened.checkpoints)
    remove_leftovers(run.folder)
    if not (run.folder / plots.CURVE).exists():
        _draw(run._opened, warnings.warn)


def _check_nothing_is_lost(run: Run, problems: Sequence[str]) -> None:
    steps = recorded_steps(run.folder, *HISTORY)
    if steps:
        why = f" ({'; '.join(problems)})" if problems else ""
        raise ValueError(
            f"{run.folder} has no whole checkpoint to go on from{why}, but metrics of {steps:,} steps; to begin again "
            f"at step 0: sasr resume {run.folder} --start-over, which keeps them as "
            f"{free_place(run.folder).name}"
        )


def _turn(trainer: Trainer, folder: RunFolder, recorder: Recorders, task: TaskLike | None) -> Run:
    try:
        trainer.run()
        _draw(folder, lambda text: recorder.notice(trainer.loop.steps, text))
    finally:
        recorder.close(trainer.loop.steps)
    return Run(folder, task=task)


def _recorder(path: Path, *, console: Console | None, events: bool, track: str = "") -> Recorders:
    """Metrics first: the others read them when a run goes on."""
    view = ConsoleView(path, console=console) if console else None
    recorders: dict[str, ClosingRecorder] = {"metrics": MetricsFile(path, warn=view.warn if view else warnings.warn)}
    recorders[COPY] = ConfigCopy(path)
    if view:
        recorders["console"] = view
    recorders["success_map"] = SuccessMap(path)
    recorders["states"] = VisitedStates(path)
    if events and tensorboard.available():
        recorders["tensorboard"] = TensorBoard(path)
    if track:
        wandb.check(track)
        recorders[track] = wandb.Wandb(path)
    many = Recorders(recorders)
    missing = [tensorboard.INSTALL] if events and not tensorboard.available() else []
    missing += [] if plots.available() else [plots.INSTALL]
    for line in missing:
        many.notice(0, line)
    return many


def _draw(folder: RunFolder, warn: Callable[[str], None]) -> None:
    """The run is done and saved; a picture that can't be drawn is only told."""
    if not plots.available():
        return
    for name, draw in ((plots.CURVE, _draw_curve), (plots.MAPS, _draw_maps)):
        try:
            draw(folder)
        except Exception as error:
            warn(f"{name} was not drawn ({type(error).__name__}: {error})")


def _draw_curve(folder: RunFolder) -> None:
    config = folder.config
    shaper = f"{config.shaper} ({config.preset})" if config.shaper == "sasr" else config.shaper
    plots.draw_curve(folder.path, title=f"{config.task}: {config.agent}, shaper {shaper}", members=len(config.seeds))


def _draw_maps(folder: RunFolder) -> None:
    variant = VARIANTS.get(full_id(folder.config.task))
    plots.draw_maps(
        folder.path,
        title=f"{folder.config.task}: success rate as SASR sees it",
        axes=dict(enumerate(variant.axes)) if variant else None,
    )


def complete(config: TrainConfig, task: TaskLike | None = None) -> TrainConfig:
    """The same settings with nothing left open, so that a run's folder says in full what it was trained with."""
    task = config.task if task is None else task
    task_settings = typed_task_settings(task, config.task_settings)
    name = agent_for(task, config.agent, **task_settings)
    kind = shaper_named(config.shaper)
    shaper_config = config.shaper_config
    if kind is not None and shaper_config is None:
        shaper_config = config.sasr_config() if config.shaper == "sasr" else kind.config()
    return dataclasses.replace(
        config,
        agent=name,
        task_settings=task_settings,
        agent_config=AGENTS[name].settings() if config.agent_config is None else config.agent_config,
        shaper_config=shaper_config,
    )


def agent_for(task: TaskLike, agent: str, **task_settings: Any) -> str:
    """The name of the agent that "auto" stands for on a task; any other name is checked."""
    if agent != "auto":
        return agent_named(agent)[0]
    env = make(task, **task_settings)
    try:
        return agent_named(agent, env.action_space)[0]
    finally:
        close_environment(env)


def default_steps(task: str) -> int:
    """Steps that suit a task of the catalogue; what `TrainConfig` has for any other."""
    variant = VARIANTS.get(full_id(task))
    return variant.steps if variant else int(TrainConfig.steps)


def _agent_of(config: Any) -> str:
    for name, kind in AGENTS.items():
        if type(config) is kind.config:
            return name
    names = ", ".join(f"{kind.config.__name__} ({name})" for name, kind in AGENTS.items())
    raise TypeError(f"agent={config!r} is neither a name nor settings of an agent; one of: {names}")


def _shaper_of(shaper: RewardShaper) -> tuple[str, Any]:
    """A name and settings that a resumed run can make the shaper from; "custom" where only the caller can."""
    for name, kind in SHAPERS.items():
        if type(shaper) is kind.make:
            return name, getattr(shaper, "config", None)
    if not isinstance(shaper, RewardShaper):
        raise TypeError(
            f"shaper={shaper!r} is neither a name nor a RewardShaper; sasr.check_shaper tells what it lacks"
        )
    return CUSTOM, None
