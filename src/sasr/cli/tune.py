"""`sasr tune`: a search for better settings with Optuna, and a comparison with the default on new seeds."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from sasr.api import complete, default_steps
from sasr.cli.options import check_preset, split_settings
from sasr.errors import need
from sasr.experiments import Method
from sasr.files import check_writable, read_regular
from sasr.logs.console import spread
from sasr.settings import TrainConfig, first_seeds, setting_text
from sasr.terminal import Terminal
from sasr.training.base import DivergedError
from sasr.training.evaluate import Evaluation
from sasr.training.trainer import Recorder, Trainer

if TYPE_CHECKING:
    from optuna import Study, Trial

RANGES: dict[str, tuple[float, float]] = {
    "shaper.reward_weight": (0.1, 3.0),
    "shaper.retention": (0.02, 1.0),
    "shaper.segment_steps": (20, 1000),
    "agent.actor_lr": (1e-4, 3e-3),
    "agent.critic_lr": (1e-4, 3e-3),
    "agent.temperature_lr": (1e-4, 3e-3),
    "agent.lr": (1e-4, 3e-3),
}
"""The settings that are searched, on a logarithmic scale, if the agent or the shaper has them."""
EVALUATIONS = 20
"""Evaluations of a trial; it may be pruned at each."""
UNPRUNED = 5
"""Trials before any is pruned; the default is the first."""
FRESH_SEED = 1_000
"""The first seed of the comparison with the default."""
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
    """Tune the settings for a task with Optuna; the same command again continues a stopped search.

    A trial's value is the mean return over its evaluations, which favours early learning. The best settings and the
    default are then compared on seeds that no trial has used.

    Args:
        task: A task's name, any Gymnasium id, or module:function.
        trials: Number of settings to try, with the default.
        seeds: Seeds of each trial; their mean is its value.
        steps: Environment steps of each seed; None takes the task's default.
        agent: Name of the agent.
        shaper: Name of the shaper.
        preset: SASR's preset, for settings that are not searched.
        set: A setting to keep fixed, such as agent.critic_lr=1e-3; may be repeated.
        out: Folder of the search; None is runs/tune-TASK.
        device: cpu, cuda or cuda:1; auto uses CUDA if it is available.
        workers: Processes that step the environments; None decides by cost and cores.
    """
    need("optuna", "matplotlib", extra="tune", to="tune settings")
    for name, value in (("trials", trials), ("seeds", seeds)):
        if value < 1:
            raise ValueError(f"--{name} {value} must be at least 1")
    if trials > MOST_TRIALS:
        raise ValueError(f"--trials {trials} must be at most {MOST_TRIALS:,}")
    check_preset(preset, shaper)
    by_part = split_settings(set)
    method = Method(
        name=shaper, agent=agent, shaper=shaper, preset=preset,
        agent_settings=by_part["agent"], shaper_settings=by_part["shaper"],
    )  # fmt: skip
    if steps is None:
        steps = default_steps(task)
    config = method.config(
        task,
        seeds=first_seeds(seeds),
        steps=steps,
        task_settings=by_part["task"],
        device=device,
        workers=workers,
        eval_every=max(1, steps // EVALUATIONS),
    )
    base = complete(config)
    with Trainer(base):
        pass  # raises on a mistake before a search is stored, which the corrected command could not continue
    if out is None:
        task_in_path = re.sub(r"[^-.0-9A-Za-z_]+", "-", task).strip("-")
        out = Path("runs") / f"tune-{task_in_path}"
    fixed = [setting.partition("=")[0].strip().replace("-", "_") for setting in set]
    Search(base, out, fixed=fixed).run(trials)


class Search:
    """An Optuna study of one task, stored in a folder."""

    def __init__(self, base: TrainConfig, folder: Path, *, fixed: Sequence[str] = ()) -> None:
        """Open the folder's study, or create one.

        Args:
            base: Settings of a trial, except for what is searched.
            folder: The study's folder.
            fixed: Settings that are not searched.
        """
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalStorage

        self.base, self.folder = base, folder
        values = {name: _read(base, name) for name in RANGES if name not in fixed}
        self.default: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if not self.default:
            raise ValueError("nothing is left to search: --set fixes every setting of `sasr tune`")
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
            raise ValueError(f"{log} is damaged ({error}); choose another folder with --out") from None
        settings = json.loads(json.dumps(base.to_json()))
        before = self.study.user_attrs.get("settings", settings)
        differing = sorted(name for name in settings if before.get(name) != settings[name])
        if differing:
            name = differing[0]
            raise ValueError(
                f"{folder} has a search with {name}={before.get(name)}, not {settings[name]}; choose another folder "
                "with --out"
            )
        self.study.set_user_attr("settings", settings)

    def run(self, trials: int) -> None:
        """Run trials until there are `trials`, compare the best with the default, and print it as flags."""
        from optuna.trial import TrialState

        console = Terminal()
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.study.tell(trial.number, state=TrialState.FAIL)  # of a process that was killed
        if not any(trial.params == self.default and trial.value is not None for trial in self._finished()):
            self.study.enqueue_trial(self.default)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with console.progress(*columns) as progress:
            bar = progress.add_task("trying the default", total=trials)
            done = len(self._finished())
            while done < trials:
                progress.update(bar, completed=done, description=self._best_so_far())
                self.study.optimize(self._try, n_trials=1, catch=(DivergedError,))
                done += 1
                if not console.is_terminal:
                    console.print_line(f"trial {done:,} of {trials:,}, {self._best_so_far()}")
            best = _short(self.study.best_params)
            progress.update(bar, completed=done, description="comparing on new seeds")
            tuned, default = self._on_new_seeds(best), self._on_new_seeds(self.default)
        draw(self.study, self.default, self.folder / "tune.png")
        flags = " ".join(f"--set {name}={setting_text(value)}" for name, value in best.items())
        lines = [
            f"{len(self._finished())} trials, best value {self.study.best_value:.4g}",
            f"on {len(self.base.seeds)} new seeds: tuned {spread(tuned)}, default {spread(default)}",
            f"plot: {self.folder / 'tune.png'}",
        ]
        if best == self.default:
            lines.append("no trial was better than the default:")
        elif tuned.mean() <= default.mean():
            lines.append("the tuned settings are not better on new seeds: keep the default. The best ones were")
        lines.append(flags)
        for line in lines:
            console.print_line(line)

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

    def _on_new_seeds(self, chosen: Mapping[str, float]) -> np.ndarray:
        """The value of each new seed; stored in the study, so that it is trained once."""
        key = "fresh " + " ".join(f"{name}={value!r}" for name, value in chosen.items())
        if key not in self.study.user_attrs:
            seeds = range(FRESH_SEED, FRESH_SEED + len(self.base.seeds))
            self.study.set_user_attr(key, self._train(chosen, seeds).tolist())
        return np.array(self.study.user_attrs[key])

    def _finished(self) -> list[Any]:
        from optuna.trial import TrialState

        return self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))

    def _best_so_far(self) -> str:
        values = [trial.value for trial in self._finished() if trial.value is not None]
        if not values:
            return "trying the default"
        return f"best so far {max(values):.4g}"


def _remove_half_line(log: Path) -> None:
    """Cut off a half-written line that a killed process left, since nothing after it could be read."""
    if log.exists():
        whole, newline, _ = read_regular(log, _LARGEST_STUDY).rpartition(b"\n")
        os.truncate(log, len(whole) + len(newline))


class Values(Recorder):
    """Records the returns of evaluations, and prunes a trial that is behind the others."""

    def __init__(self, trial: Trial | None) -> None:
        self.trial, self.returns = trial, list[np.ndarray]()

    def evaluation(self, steps: int, result: Evaluation) -> None:
        """Add the returns; raises Optuna's `TrialPruned` if the trial is behind the others."""
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
    """Rounded as they are printed, so that flags repeat a trial exactly."""
    return {name: value if isinstance(value, int) else float(f"{value:.3g}") for name, value in params.items()}


def _read(config: TrainConfig, name: str) -> Any:
    part, _, field = name.partition(".")
    return getattr(getattr(config, f"{part}_config"), field, None)


def _with(config: TrainConfig, chosen: Mapping[str, float]) -> TrainConfig:
    for name, value in chosen.items():
        part, _, field = name.partition(".")
        part_config = dataclasses.replace(getattr(config, f"{part}_config"), **{field: value})
        config = dataclasses.replace(config, **{f"{part}_config": part_config})
    return config


def draw(study: Study, default: Mapping[str, float], path: Path) -> None:
    """Values by trial and by each setting; pruned trials are hollow, the default is orange."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.params and trial.intermediate_values]
    figure = Figure(figsize=(3.2 * (1 + len(default)), 3.2), layout="constrained")
    axes = figure.subplots(1, 1 + len(default), sharey=True)
    for trial in trials:
        value = trial.intermediate_values[max(trial.intermediate_values)]
        colour = "tab:orange" if trial.params == default else "tab:blue"
        fillstyle = "none" if trial.value is None else "full"
        for axis, x in zip(axes, [trial.number, *(trial.params[name] for name in default)], strict=True):
            axis.plot(x, value, "o", color=colour, fillstyle=fillstyle)
    axes[0].set_xlabel("trial")
    axes[0].xaxis.get_major_locator().set_params(integer=True)
    for axis, name in zip(axes[1:], default, strict=True):
        searched = (*RANGES[name], default[name])
        axis.set(xlabel=name, xscale="log", xlim=(0.9 * min(searched), 1.1 * max(searched)))
        axis.xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("mean return over the evaluations")
    for colour, fillstyle, meaning in (
        ("tab:orange", "full", "the default"),
        ("tab:blue", "full", "trial"),
        ("tab:blue", "none", "pruned trial"),
    ):
        axes[0].plot([], [], "o", color=colour, fillstyle=fillstyle, label=meaning)
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)
