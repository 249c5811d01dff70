"""`sasr tune`: settings that suit a task, by Optuna, and whether they beat the default on fresh seeds."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sasr.api import complete, default_steps
from sasr.cli.options import check_preset, split_settings
from sasr.experiments import Method
from sasr.files import check_writable, read_regular
from sasr.logs.console import spread
from sasr.settings import TrainConfig, first_seeds, shown
from sasr.terminal import Terminal
from sasr.training.base import DivergedError
from sasr.training.evaluate import Evaluation
from sasr.training.trainer import Silent, Trainer

if TYPE_CHECKING:
    from optuna import Study, Trial

INSTALL = 'tuning needs Optuna and matplotlib: pip install "sasr[tune]"'
RANGES: dict[str, tuple[float, float]] = {
    "shaper.reward_weight": (0.1, 3.0),
    "shaper.retention": (0.02, 1.0),
    "shaper.segment_steps": (20, 1000),
    "agent.actor_lr": (1e-4, 3e-3),
    "agent.critic_lr": (1e-4, 3e-3),
    "agent.temperature_lr": (1e-4, 3e-3),
    "agent.lr": (1e-4, 3e-3),
}
"""What is searched, on a logarithmic scale, where the agent and the shaper have it."""
EVALUATIONS = 20
"""Evaluations of a trial; it may be pruned at each."""
UNPRUNED = 5
"""Trials before any is pruned; the default is the first."""
FRESH_SEED = 1_000
"""The first seed that the winner and the default are compared on."""
MOST_TRIALS = 100_000
_LARGEST_STUDY = 2**32  # bytes


def tune(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    *,
    trials: int = 30,
    seeds: int = 2,
    steps: int | None = None,
    agent: str = "auto",
    shaper: str = "sasr",
    preset: str = "auto",
    set: tyro.conf.UseAppendAction[list[str]] = [],  # noqa: B006  tyro's way to say "none given"; never changed
    out: Path | None = None,
    device: str = "auto",
    workers: int | None = None,
) -> None:
    """Search settings that suit a task; the same command again goes on where it was stopped.

    A trial's value is the mean return over its evaluations: it pays to learn early. The winner and the default are then
    compared on seeds that no trial has seen.

    Args:
        task: A task's name, any Gymnasium id, or module:function.
        trials: Settings to try, the default among them.
        seeds: Seeds of each trial, one population; it is pruned by their mean.
        steps: Environment steps of each seed; None is what suits the task.
        agent: Name of the agent.
        shaper: Name of the shaper.
        preset: Settings that SASR starts from.
        set: A setting to hold fixed, such as agent.critic_lr=1e-3; may be given many times.
        out: Folder of the search; None is runs/tune-TASK.
        device: cpu, cuda, …; auto takes CUDA where there is one.
        workers: Processes that step the environments; None chooses by cost and cores.
    """
    if not (importlib.util.find_spec("optuna") and importlib.util.find_spec("matplotlib")):
        raise ImportError(INSTALL)
    for name, value in (("trials", trials), ("seeds", seeds)):
        if value < 1:
            raise ValueError(f"--{name} {value} must be at least 1")
    if trials > MOST_TRIALS:
        raise ValueError(f"--trials {trials} must be at most {MOST_TRIALS:,}")
    check_preset(preset, shaper)
    given = split_settings(set)
    method = Method(
        name=shaper, agent=agent, shaper=shaper, preset=preset,
        agent_settings=given["agent"], shaper_settings=given["shaper"],
    )  # fmt: skip
    length = default_steps(task) if steps is None else steps
    base = complete(
        method.config(
            task,
            seeds=first_seeds(seeds),
            steps=length,
            task_settings=given["task"],
            device=device,
            workers=workers,
            eval_every=max(1, length // EVALUATIONS),
        )
    )
    with Trainer(base):
        pass  # a mistake is found before a search is begun, which the corrected command would be another one than
    folder = out or Path("runs") / f"tune-{re.sub(r'[^-.0-9A-Za-z_]+', '-', task).strip('-')}"
    Search(base, folder, fixed=[f"{part}.{name}" for part, own in given.items() for name in own]).run(trials)


class Search:
    """A study of one task in a folder, and how its trials are run."""

    def __init__(self, base: TrainConfig, folder: Path, *, fixed: Sequence[str] = ()) -> None:
        """Open the folder's study, or begin one.

        Args:
            base: Settings of a trial, but for what is searched.
            folder: Where the study is.
            fixed: Settings that are not searched.
        """
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalStorage

        self.base, self.folder = base, folder
        self.default = {
            name: _read(base, name) for name in RANGES if name not in fixed and _read(base, name) is not None
        }
        if not self.default:
            raise ValueError("nothing is left to search: every setting of `sasr tune` is fixed by --set")
        check_writable(folder)
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # its warnings show tracebacks, of Ctrl-C too
        log = folder / "study.log"
        _remove_half_line(log)
        try:
            self.study: Study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(log))),
                study_name="sasr",
                direction="maximize",
                sampler=optuna.samplers.TPESampler(seed=0),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED, n_warmup_steps=EVALUATIONS // 4),
                load_if_exists=True,
            )
        except (ValueError, LookupError, TypeError, AssertionError) as error:
            raise ValueError(f"{log} holds what no search writes ({error}); name another folder with --out") from None
        settings = json.loads(json.dumps(base.to_json()))
        before = self.study.user_attrs.get("settings", settings)
        differing = sorted(name for name in settings if before.get(name) != settings[name])
        if differing:
            raise ValueError(
                f"{folder} has a search with another {differing[0]}: {before.get(differing[0])} is not "
                f"{settings[differing[0]]}; name another folder with --out"
            )
        self.study.set_user_attr("settings", settings)

    def run(self, trials: int) -> None:
        """Try settings until there are `trials`, compare the winner with the default, and print what to type."""
        from optuna.trial import TrialState

        console = Terminal()
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.study.tell(trial.number, state=TrialState.FAIL)  # of a process that was killed
        if self._value_of(self.default) is None:
            self.study.enqueue_trial(self.default)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task("trying the default", total=trials)
            done = len(self._finished())
            while done < trials:
                progress.update(bar, completed=done, description=self._standing())
                self.study.optimize(self._try, n_trials=1, catch=(DivergedError,))
                done += 1
            best = _short(self.study.best_params)
            progress.update(bar, completed=done, description="comparing on fresh seeds")
            tuned, default = self._on_fresh_seeds(best), self._on_fresh_seeds(self.default)
        draw(self.study, self.default, self.folder / "tune.png")
        flags = " ".join(f"--set {name}={shown(value)}" for name, value in best.items())
        lines = [
            f"{len(self._finished())} trials, best value {self.study.best_value:.4g}",
            f"on {len(self.base.seeds)} fresh seeds: tuned {spread(tuned)}, default {spread(default)}",
            f"plot: {self.folder / 'tune.png'}",
        ]
        if best == self.default or tuned.mean() <= default.mean():
            lines.append("the tuned settings are not better on fresh seeds: keep the default. The best found were")
        lines.append(flags)
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _try(self, trial: Trial) -> float:
        chosen: dict[str, float] = {}
        for name, default in self.default.items():
            low, high = RANGES[name]
            if isinstance(default, int):
                chosen[name] = trial.suggest_int(name, int(low), int(high), log=True)
            else:
                chosen[name] = trial.suggest_float(name, low, high, log=True)
        return float(self._train(_short(chosen), self.base.seeds, trial).mean())

    def _train(self, chosen: Mapping[str, float], seeds: Sequence[int], trial: Trial | None = None) -> np.ndarray:
        """Mean return over the evaluations of each seed, (P,)."""
        config = dataclasses.replace(_with(self.base, chosen), seeds=tuple(seeds))
        values = Values(trial)
        with Trainer(config, recorder=values) as trainer:
            trainer.run()
            if trainer.stopped_by is not None:
                raise KeyboardInterrupt
        return values.so_far()

    def _on_fresh_seeds(self, chosen: Mapping[str, float]) -> np.ndarray:
        """The value of each fresh seed; kept, so that it is trained once."""
        key = "fresh " + " ".join(f"{name}={value!r}" for name, value in chosen.items())
        if key not in self.study.user_attrs:
            seeds = range(FRESH_SEED, FRESH_SEED + len(self.base.seeds))
            self.study.set_user_attr(key, self._train(chosen, seeds).tolist())
        return np.array(self.study.user_attrs[key])

    def _finished(self) -> list[Any]:
        from optuna.trial import TrialState

        return self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))

    def _value_of(self, params: Mapping[str, float]) -> float | None:
        same = (trial.value for trial in self._finished() if trial.params == params and trial.value is not None)
        return next(same, None)

    def _standing(self) -> str:
        values = [trial.value for trial in self._finished() if trial.value is not None]
        return f"best so far {max(values):.4g}" if values else "trying the default"


def _remove_half_line(log: Path) -> None:
    """What a process that was killed left at the end of a study, which nothing can be read behind."""
    if log.exists():
        whole, newline, _ = read_regular(log, _LARGEST_STUDY).rpartition(b"\n")
        os.truncate(log, len(whole) + len(newline))


class Values(Silent):
    """Records the returns of evaluations, and ends a trial that is behind the others."""

    def __init__(self, trial: Trial | None) -> None:
        self.trial, self.returns = trial, list[np.ndarray]()

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """Note the returns; raises Optuna's `TrialPruned` where the trial is not worth going on with."""
        self.returns.append(result.returns.mean(1))
        if self.trial is None:
            return
        self.trial.report(float(self.so_far().mean()), len(self.returns))
        if self.trial.should_prune():
            from optuna import TrialPruned

            raise TrialPruned

    def so_far(self) -> np.ndarray:
        """Mean over the evaluations of each seed, (P,)."""
        return np.asarray(np.mean(self.returns, axis=0))


def _short(params: Mapping[str, float]) -> dict[str, float]:
    """As they are printed, so that what was tried can be typed."""
    return {name: value if isinstance(value, int) else float(f"{value:.3g}") for name, value in params.items()}


def _read(config: TrainConfig, name: str) -> Any:
    part, _, field = name.partition(".")
    return getattr(getattr(config, f"{part}_config"), field, None)


def _with(config: TrainConfig, chosen: Mapping[str, float]) -> TrainConfig:
    for name, value in chosen.items():
        part, _, field = name.partition(".")
        own = dataclasses.replace(getattr(config, f"{part}_config"), **{field: value})
        config = dataclasses.replace(config, **{f"{part}_config": own})
    return config


def draw(study: Study, default: Mapping[str, float], path: Path) -> None:
    """Values by trial and by each setting; pruned trials are hollow, the default is orange."""
    from matplotlib.figure import Figure

    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.params and trial.intermediate_values]
    figure = Figure(figsize=(3.2 * (1 + len(default)), 3.2), layout="constrained")
    axes = figure.subplots(1, 1 + len(default), sharey=True)
    for axis, name in zip(axes, ["trial", *default], strict=True):
        for trial in trials:
            x = trial.number if name == "trial" else trial.params[name]
            value = trial.intermediate_values[max(trial.intermediate_values)]
            colour = "tab:orange" if trial.params == default else "tab:blue"
            axis.plot(x, value, "o", color=colour, fillstyle="none" if trial.value is None else "full")
        axis.set(xlabel=name, xscale="linear" if name == "trial" else "log")
    axes[0].set_ylabel("mean return over the evaluations")
    figure.savefig(path, dpi=120)
