"""Figures 4 and 5 on MountainCar: where methods went, and SASR's bonus there, from the states that runs logged."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pages.markdown import Block, Blocks, Picture, details, digest, picture
from pages.rows import DEFAULT, sources
from pages.store import Store
from sasr.experiments.plan_file import read_suite
from sasr.logs.states import read_states
from sasr.report import figures
from sasr.report.read import StatesOfRun, axes_of

SUITE = "figure5"


def blocks_of(store: Store, folder: Path) -> Blocks:
    """Pictures of `folder`/METHOD/states.npz, for the methods of the suite in its order; none without the folder."""
    if not folder.is_dir():
        return {}
    runs = {}
    for run in read_suite(SUITE).runs:
        states = read_states(folder / run.method.name)
        runs[run.method.name] = StatesOfRun(run.task, run.method.name, axes_of(run.task), states)
    return {
        f"picture: {SUITE}": partial(_visits, runs),
        "picture: figure4": partial(_bonus, store, runs[DEFAULT]),
        f"sources: {SUITE}": partial(_sources, store),
    }


def _visits(runs: dict[str, StatesOfRun]) -> Block:
    first = runs[DEFAULT]
    densities = {method: run.density for method, run in runs.items()}
    steps = [0, *first.states.steps.tolist()]
    data = digest(SUITE, [[method, run.states.visits.tolist()] for method, run in runs.items()])

    def draw() -> object:
        return figures.visit_density(densities, x=first.states.x, y=first.states.y, steps=steps, axes=first.axes)

    return picture(Picture(f"{SUITE}.png", data, draw), "Density of visited states, five seeds of each method.")


def _bonus(store: Store, run: StatesOfRun) -> Block:
    result = store.groups[SUITE].result(run.task, run.method)
    periods = len(run.states.steps)
    feature, bonus = run.states.feature.reshape(periods, -1), run.states.bonus.reshape(periods, -1)
    data = digest("figure4", feature.tolist(), bonus.tolist())
    draw = partial(
        figures.bonus_along_feature,
        steps=run.states.steps.tolist(),
        feature=feature,
        bonus=bonus,
        name=run.axes[0],
        seeds=result.seeds if result else (),
    )
    caption = "SASR's bonus in the newest states of five seeds, over position. Below: return of evaluations."
    return picture(Picture("figure4.png", data, draw), caption)


def _sources(store: Store) -> Block:
    return Block(details("Where the figures are from", sources(store.groups[SUITE].results)))
