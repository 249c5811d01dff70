"""Training from one call: `train`, `resume`, `load`, and `Run`, the result."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from sasr.agents.registry import AGENTS, agent_named
from sasr.errors import installed, unknown_name
from sasr.files import remove_leftovers
from sasr.logs import plots, tensorboard, wandb
from sasr.logs.console import ConsoleView, shaper_in_words
from sasr.logs.metrics import HISTORY, Event, Kind, MetricsFile, free_place, read_metrics, recorded_steps
from sasr.logs.plots import Curve, SuccessMap
from sasr.logs.recorders import Recorders
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
from sasr.training import checkpoint
from sasr.training.trainer import Recorder, Trainer


class Run:
    """A run in its folder: running, stopped or finished."""

    def __init__(self, folder: str | Path | RunFolder, *, task: TaskLike | None = None) -> None:
        self.task = task
        """The task itself, if the caller gave a function or an environment and not a name."""
        if not isinstance(folder, RunFolder):
            folder = RunFolder.open(folder)
        self._run_folder = folder
        self.folder, self.config = folder.path, folder.config

    @property
    def steps(self) -> int:
        """Steps of each seed in the metrics."""
        return max((int(event["step"]) for event in self.metrics()), default=0)

    @property
    def finished(self) -> bool:
        """Whether all steps were taken and saved: a run may be killed before its last checkpoint."""
        saved = checkpoint.newest(self._run_folder.checkpoints, use=checkpoint.steps_of)
        if saved is None or saved.facts.get("evaluation_due", False):
            return False
        return checkpoint.steps_of(saved) >= self.config.steps

    def metrics(self, *kinds: Kind) -> list[Event]:
        """All recorded events in order, or those of some kinds."""
        return read_metrics(self.folder, *kinds)

    def evaluation(self) -> Curve:
        """Steps (K,), returns (P, K) and success rates (P, K) of the evaluations during training."""
        return plots.evaluation_curve(self.metrics("evaluation"), len(self.config.seeds))

    def policy(self, *, device: str = "cpu") -> Policy:
        """The policy at the newest complete checkpoint."""
        return load_policy(self._run_folder, device=device)

    def export(self, to: str | Path) -> Path:
        """Write the policy with a model card into a new folder, which `load` reads."""
        return export_run(self._run_folder, to)

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
    """Train on a task, in a new folder; Ctrl-C stops the run with a checkpoint, which `resume` continues.

    Args:
        task: A task's name, any Gymnasium id, module:function, a function that makes an environment, or an
            environment, of which copies are trained on.
        shaper: A shaper's name, a shaper of yours, or "none" for the plain agent.
        agent: An agent's name, or its settings, such as SacConfig(hidden=(64, 64)).
        preset: SASR's preset.
        seeds: The number of independent runs (seeds 0, 1, …), or a list of seeds.
        steps: Environment steps of each seed; None takes the task's default.
        device: cpu, cuda or cuda:1; auto uses CUDA if it is available.
        out: A new folder for the run; None makes one under runs/.
        progress: Show the progress.
        events: Write TensorBoard events.
        settings: Any other setting of TrainConfig.
    """
    known = [field.name for field in dataclasses.fields(TrainConfig)]
    for name in settings:
        if name not in known:
            raise unknown_name("setting", name, known)
    if not isinstance(agent, str):
        settings["agent_config"] = agent
        agent = _agent_name(agent)
    shaper_object: RewardShaper | None = None
    if not isinstance(shaper, str):
        shaper_object = shaper
        shaper, settings["shaper_config"] = _shaper_name_and_config(shaper)
    if isinstance(seeds, int):
        seeds = first_seeds(seeds)
    task_object: TaskLike | None = None
    if not isinstance(task, str):
        task_object = resolve(task)
    task_name = task_text(task)
    if steps is None:
        steps = default_steps(task_name)
    config = TrainConfig(
        task=task_name,
        agent=agent,
        shaper=shaper,
        preset=preset,
        seeds=tuple(seeds),
        steps=steps,
        device=device,
        **settings,
    )
    return start(config, out=out, shaper=shaper_object, task=task_object, progress=progress, events=events)


def resume(
    run: str | Path | Run,
    *,
    shaper: RewardShaper | None = None,
    task: TaskLike | None = None,
    progress: bool = True,
    events: bool = True,
    track: str = "",
    allow_import: Sequence[str] = (),
    start_over: bool = False,
) -> Run:
    """Continue a run from its newest complete checkpoint.

    Args:
        run: The run or its folder.
        shaper: A new shaper of the same class, if the run was trained with a shaper of yours.
        task: The task itself, if the run was trained on a function or an environment of yours.
        progress: Show the progress.
        events: Write TensorBoard events.
        track: A service to log to, such as wandb.
        allow_import: Modules that the run's task may come from, though they are not installed.
        start_over: If no checkpoint is complete, start over at step 0; the old metrics are kept as
            metrics.1.jsonl.
    """
    if not isinstance(run, Run):
        run = Run(run)
    if task is None:
        task = run.task
    if task is None:
        import_of_run(run.config.task, allow_import)
    recorder = _recorder(run.folder, progress=progress, events=events, track=track)
    with Trainer(run.config, folder=run.folder, recorder=recorder, shaper=shaper, task=task) as trainer:
        resumed = trainer.resume()
        if resumed and start_over:
            raise ValueError(
                f"{run.folder} has a complete checkpoint, after {trainer.loop.steps:,} steps: resume it without "
                "--start-over, or train in another folder"
            )
        if not resumed:
            if not start_over:
                _check_nothing_to_lose(run, trainer.news)
            recorder.load({})
        return _train_and_draw(trainer, run._run_folder, recorder, task)


def load(run: str | Path | Run, *, device: str = "cpu") -> Policy:
    """The policy of a run at its newest complete checkpoint, or of a folder that `sasr export` wrote.

    Only the folder is needed, and loading never runs code.
    """
    if isinstance(run, Run):
        return run.policy(device=device)
    return load_policy(run, device=device)


def start(
    config: TrainConfig,
    *,
    out: str | Path | None = None,
    shaper: RewardShaper | None = None,
    task: TaskLike | None = None,
    progress: bool = False,
    events: bool = True,
    track: str = "",
    extra_facts: Mapping[str, Any] | None = None,
) -> Run:
    """`train` from settings.

    `task` is the task itself, if the settings have only a text for it. `track` names a service to log to, such as
    wandb. `extra_facts` go into config.json, too: the name of the method, the command line of a grid.
    """
    config = complete(config, task)
    path = Path(out) if out else default_place(config)
    check_free(path)
    recorder = _recorder(path, progress=progress, events=events, track=track)
    with Trainer(config, folder=path, recorder=recorder, shaper=shaper, task=task) as trainer:
        # The agent's config, since some settings depend on the shaper, such as PPO's value heads.
        agent_config = getattr(getattr(trainer.learner, "agent", None), "config", config.agent_config)
        trainer.config = dataclasses.replace(trainer.config, agent_config=agent_config)
        folder = RunFolder.create(
            path,
            trainer.config,
            observation_space=trainer.population.observation_space,
            action_space=trainer.population.action_space,
            device=trainer.device,
            extra_facts=extra_facts,
        )
        return _train_and_draw(trainer, folder, recorder, task)


def clean_up(run: Run) -> None:
    """Complete a finished run that was killed after its last checkpoint: remove leftovers, draw its curve."""
    checkpoint.remove_leftovers(run._run_folder.checkpoints)
    remove_leftovers(run.folder)
    if not (run.folder / plots.CURVE).exists():
        _draw(run._run_folder, warnings.warn)


def _check_nothing_to_lose(run: Run, problems: Sequence[str]) -> None:
    """Raise if a run without a checkpoint has metrics, which starting over would cut off."""
    steps = recorded_steps(run.folder, *HISTORY)
    if steps:
        reasons = f" ({'; '.join(problems)})" if problems else ""
        raise ValueError(
            f"{run.folder} has no complete checkpoint to continue from{reasons}, but metrics of {steps:,} steps; to "
            f"start over at step 0: sasr resume {run.folder} --start-over, which keeps them as "
            f"{free_place(run.folder).name}"
        )


def _train_and_draw(trainer: Trainer, folder: RunFolder, recorder: Recorders, task: TaskLike | None) -> Run:
    try:
        trainer.run()
        _draw(folder, lambda text: recorder.notice(trainer.loop.steps, text))
    finally:
        recorder.close(trainer.loop.steps)
    return Run(folder, task=task)


def _recorder(path: Path, *, progress: bool, events: bool, track: str = "") -> Recorders:
    """The recorders of a run, metrics first: when a run is resumed, the others read them."""
    recorders: dict[str, Recorder] = {"metrics": MetricsFile(path), COPY: ConfigCopy(path)}
    if progress:
        view = ConsoleView(path)
        recorders["metrics"] = MetricsFile(path, warn=view.warn)
        recorders["console"] = view
    recorders["success_map"] = SuccessMap(path)
    recorders["states"] = VisitedStates(path)
    if events and installed("tensorboard"):
        recorders["tensorboard"] = TensorBoard(path)
    if track:
        wandb.check(track)
        recorders[track] = wandb.Wandb(path)
    recorder = Recorders(recorders)
    if events and not installed("tensorboard"):
        recorder.notice(0, tensorboard.INSTALL)
    if not installed("matplotlib"):
        recorder.notice(0, plots.INSTALL)
    return recorder


def _draw(folder: RunFolder, warn: Callable[[str], None]) -> None:
    """Draw the curve and the maps; the run is saved, so a picture that fails only gives a warning."""
    if not installed("matplotlib"):
        return
    for name, draw in ((plots.CURVE, _draw_curve), (plots.MAPS, _draw_maps)):
        try:
            draw(folder)
        except Exception as error:
            warn(f"{name} was not drawn ({type(error).__name__}: {error})")


def _draw_curve(folder: RunFolder) -> None:
    config = folder.config
    title = f"{config.task}: {config.agent}, shaper {shaper_in_words(config)}"
    plots.draw_curve(folder.path, title=title, seeds=len(config.seeds))


def _draw_maps(folder: RunFolder) -> None:
    variant = VARIANTS.get(full_id(folder.config.task))
    plots.draw_maps(
        folder.path,
        title=f"{folder.config.task}: SASR's estimate of the success rate",
        axes=dict(enumerate(variant.axes)) if variant else None,
    )


def complete(config: TrainConfig, task: TaskLike | None = None) -> TrainConfig:
    """The same settings with every default filled in, so that config.json has all of them."""
    if task is None:
        task = config.task
    task_settings = typed_task_settings(task, config.task_settings)
    observation_space, action_space = spaces_of(task, **task_settings)
    agent, entry = agent_named(config.agent, action_space)
    agent_config = config.agent_config
    if agent_config is None:
        agent_config = entry.settings_for(observation_space)
    shaper = shaper_named(config.shaper)
    shaper_config = config.shaper_config
    if config.shaper == "sasr":
        shaper_config = config.sasr_config()
    elif shaper is not None and shaper_config is None:
        shaper_config = shaper.config()
    return dataclasses.replace(
        config,
        agent=agent,
        environments=config.environments or entry.environments_for(observation_space),
        task_settings=task_settings,
        agent_config=agent_config,
        shaper_config=shaper_config,
    )


def spaces_of(task: TaskLike, **task_settings: Any) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces of a task's observations and actions, which defaults are chosen by."""
    env = make(task, **task_settings)
    try:
        return env.observation_space, env.action_space
    finally:
        close_environment(env)


def default_steps(task: str) -> int:
    """The default number of steps on a task: the catalogue's, or `TrainConfig`'s for any other task."""
    variant = VARIANTS.get(full_id(task))
    if variant is None:
        return TrainConfig.steps
    return variant.steps


def _agent_name(config: Any) -> str:
    for name, agent in AGENTS.items():
        if type(config) is agent.config:
            return name
    known = ", ".join(f"{agent.config.__name__} ({name})" for name, agent in AGENTS.items())
    raise TypeError(f"agent={config!r} is neither a name nor settings of an agent; one of: {known}")


def _shaper_name_and_config(shaper: RewardShaper) -> tuple[str, Any]:
    """The name and settings from which a resumed run makes the shaper; "custom" if only the caller can."""
    for name, entry in SHAPERS.items():
        if type(shaper) is entry.make:
            return name, getattr(shaper, "config", None)
    if isinstance(shaper, type):
        raise TypeError(f"shaper={shaper.__name__} is a class; give an object: shaper={shaper.__name__}()")
    if not isinstance(shaper, RewardShaper):
        raise TypeError(
            f"shaper={shaper!r} is neither a name nor a RewardShaper; sasr.check_shaper shows what it lacks"
        )
    return CUSTOM, None
