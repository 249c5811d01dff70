"""The catalogue of tasks, and their registration with Gymnasium."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import gymnasium as gym

Family = Literal["MuJoCo", "Fetch", "Atari", "classic", "ours"]
Profile = Literal["code", "paper"]

EXTRAS: dict[Family, str] = {
    "MuJoCo": "mujoco",
    "Fetch": "robotics",
    "Atari": "atari",
    "classic": "classic",
    "ours": "",
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One registered form of a task: the authors' released code, or the paper's text."""

    entry_point: str
    """`module:callable`, imported only when the task is made."""
    horizon: int
    """Steps after which an episode is truncated."""
    observation: tuple[int, ...]
    """Shape of an observation."""
    success: str
    """When a step is rewarded, in words."""
    ends: str = "never early"
    """What ends an episode before its limit, in words."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the entry point."""
    steps: int = 1_000_000
    """Default environment steps of a run: the paper's, except on MountainCar and our own tasks."""
    axes: tuple[str, ...] = ()
    """Names of the observation's entries, for pictures."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One row of the catalogue."""

    name: str
    family: Family
    action: tuple[int, ...] | int
    """Shape of a continuous action, or the number of discrete ones."""
    action_bound: float = 1.0
    """Continuous actions lie in [-bound, bound]."""
    code: Variant
    paper: Variant | None = None
    """The paper profile, where it differs from the code profile."""
    table1: float | None = None
    """SASR's row in the paper's Table 1; none for the three tasks that only the released code has."""
    note: str = ""
    """What a reader who compares with the paper must know."""

    @property
    def id(self) -> str:
        """Gymnasium id of the code profile, the one whose scale Table 1 shows."""
        return f"SASR/{self.name}-v0"

    @property
    def paper_id(self) -> str | None:
        """Gymnasium id of the paper profile."""
        return f"SASR/{self.name}Paper-v0" if self.paper else None

    @property
    def extra(self) -> str:
        """The optional dependency group the task needs; none of ours."""
        return EXTRAS[self.family]

    def variants(self) -> dict[str, Variant]:
        """Registered ids and what stands behind each."""
        registered = {self.id: self.code}
        if self.paper and self.paper_id:
            registered[self.paper_id] = self.paper
        return registered


def _ant(
    name: str, quantity: str, threshold: float, success: str, *, in_paper: bool = True, table1: float | None = None
) -> Task:
    code = Variant(
        entry_point=f"sasr.tasks.mujoco:{quantity}",
        horizon=200,
        observation=(29,),
        success=success,
        ends="torso outside 0.2 m ≤ height ≤ 1.0 m",
        kwargs={"threshold": threshold},
        axes=("torso height",),
    )
    paper = replace(code, horizon=1000, observation=(105,), kwargs=code.kwargs | {"profile": "paper"})
    return Task(name=name, family="MuJoCo", action=(8,), code=code, paper=paper if in_paper else None, table1=table1)


# The released registration has the two humanoid classes the other way round than the text, and Table 1 was measured
# that way: code-profile HumanStand starts on its feet, code-profile HumanKeep on its back.
_UPRIGHT = Variant(
    entry_point="sasr.tasks.mujoco:UprightHuman",
    horizon=200,
    observation=(376,),
    success="torso height ≥ 1.3 m; starts upright",
    ends="torso outside 1.0 m < height < 2.0 m",
)
_LYING = Variant(
    entry_point="sasr.tasks.mujoco:LyingHuman",
    horizon=200,
    observation=(376,),
    success="torso height ≥ 0.2 m; starts lying",
)


def _human(name: str, code: Variant, paper: Variant, table1: float) -> Task:
    return Task(
        name=name,
        family="MuJoCo",
        action=(17,),
        action_bound=0.4,
        table1=table1,
        code=code,
        paper=replace(paper, horizon=1000, observation=(348,), kwargs={"profile": "paper"}),
        note="The released code swaps HumanStand and HumanKeep relative to the paper's text, and Table 1 was measured "
        "with the code. The paper gives no thresholds.",
    )


def _robot(
    name: str, code: Variant, *, paper_size: int, paper_success: str = "", table1: float, note: str = ""
) -> Task:
    paper = replace(
        code,
        horizon=500,
        observation=(paper_size,),
        success=paper_success or code.success,
        kwargs={"profile": "paper"},
    )
    return Task(name=name, family="Fetch", action=(4,), table1=table1, code=code, paper=paper, note=note)


def _arm(maker: str, size: int, success: str, ends: str = "never early") -> Variant:
    entry_point = f"sasr.tasks.fetch:{maker}"
    return Variant(entry_point=entry_point, horizon=200, observation=(size,), success=success, ends=ends)


def _game(name: str, *, actions: int, horizon: int = 2000, success: str, ends: str, table1: float, note: str) -> Task:
    code = Variant(
        entry_point="sasr.tasks.atari:Game",
        horizon=horizon,
        observation=(84, 84),
        success=success,
        ends=ends,
        kwargs={"game": name},
    )
    return Task(name=name, family="Atari", action=actions, table1=table1, code=code, note=note)


_CAR = Variant(
    entry_point="sasr.tasks.mountain_car:MountainCar",
    horizon=999,
    observation=(2,),
    success="position ≥ 0.45; a step costs 0.001·a²",
    ends="success",
    steps=40_000,
    axes=("position", "velocity"),
)

TASKS: tuple[Task, ...] = (
    _ant("AntStand", "AntStand", 0.9, "torso height ≥ 0.9 m", table1=94.9),
    _ant("AntFar", "AntFar", 3.0, "torso ≥ 3.0 m from the origin", table1=139.8),
    _human("HumanStand", code=_UPRIGHT, paper=_LYING, table1=79.8),
    _human("HumanKeep", code=_LYING, paper=_UPRIGHT, table1=195.8),
    _robot("RobotReach", _arm("reach", 30, "gripper ≤ 0.05 m from a random goal"), paper_size=20, table1=170.2),
    _robot(
        "RobotPush",
        _arm("push", 45, "block ≤ 0.05 m from a fixed goal"),
        paper_size=35,
        paper_success="block ≤ 0.05 m from a random goal",
        table1=167.1,
        note="The gripper starts between block and goal, so it must lift over the block first.",
    ),
    _robot(
        "RobotSlide",
        _arm("slide", 45, "puck ≤ 0.05 m from a random goal"),
        paper_size=35,
        table1=132.3,
        note="The released code does not run; fixed=True places puck and goal as in RobotPush.",
    ),
    _robot(
        "RobotPickPlace",
        _arm("pick_and_place", 45, "block ≤ 0.05 m from a random goal", ends="success"),
        paper_size=35,
        table1=1.0,
        note="No code was released; Table 1's 1.0 implies that success ends the episode.",
    ),
    _game(
        "Pitfall",
        actions=18,
        success="a treasure is taken",
        ends="a life lost, or a hole",
        table1=93.0,
        note="The unit of Table 1 is unknown: 93 treasures cannot be reached.",
    ),
    _game(
        "Frogger",
        actions=5,
        success="a frog reaches a home",
        ends="five homes, or no frogs left",
        table1=14.2,
        note='Table 1 shows the game\'s score: compare with reward_mode="score".',
    ),
    _game(
        "MontezumaRevenge",
        actions=18,
        horizon=5000,
        success="a room new to the episode is entered",
        ends="the last life lost",
        table1=6737.9,
        note='Table 1 shows the game\'s score: compare with reward_mode="score".',
    ),
    _game(
        "Solaris",
        actions=18,
        success="the score rises",
        ends="the last life lost",
        table1=42.1,
        note="The unit of Table 1 is unknown, and so is the memory byte that indicates a new galaxy.",
    ),
    _game(
        "Freeway",
        actions=3,
        success="the chicken has crossed",
        ends="never early",
        table1=22.4,
        note="The paper's text ends the episode when a car hits the chicken; its Table 1 and the game do not.",
    ),
    Task(
        name="MountainCar",
        family="classic",
        action=(1,),
        table1=1.0,
        code=_CAR,
        paper=replace(_CAR, horizon=1000, success="position ≥ 0.45", kwargs={"profile": "paper"}),
    ),
    _ant("AntSpeed", "AntSpeed", 3.6, "torso faster than 3.6 m/s along x", in_paper=False),
    _ant("AntVeryFar", "AntFar", 3.6, "torso ≥ 3.6 m from the origin", in_paper=False),
    Task(
        name="WalkerKeep",
        family="MuJoCo",
        action=(6,),
        code=Variant(
            entry_point="sasr.tasks.mujoco:WalkerKeep",
            horizon=200,
            observation=(19,),
            success="torso height ≥ 1.3 m; starts at 1.25 m",
            ends="torso outside 0.8 m < height < 2.0 m, or leaning 1.0 rad",
        ),
    ),
)

OURS: tuple[Task, ...] = (
    Task(
        name="TwoRooms",
        family="ours",
        action=(2,),
        code=Variant(
            entry_point="sasr.tasks.two_rooms:TwoRooms",
            horizon=200,
            observation=(2,),
            success="the point is ≤ 0.1 from the goal",
            ends="success",
            steps=20_000,
        ),
        note="Our own task, which tests exploration alone in a few minutes: does a method find the other room?",
    ),
)

EVERY: tuple[Task, ...] = (*TASKS, *OURS)
BY_NAME: dict[str, Task] = {task.name: task for task in EVERY}
VARIANTS: dict[str, Variant] = {id: variant for task in EVERY for id, variant in task.variants().items()}


def register() -> None:
    """Make every task known to Gymnasium; the simulators are imported only when a task is made."""
    for id, variant in VARIANTS.items():
        if id in gym.registry:
            continue
        gym.register(
            id,
            entry_point=variant.entry_point,
            max_episode_steps=variant.horizon,
            kwargs=variant.kwargs,
            # Our tests check what the passive checker checks at the start of every run.
            disable_env_checker=True,
        )


def full_id(name: str) -> str:
    """The Gymnasium id of a short name such as `AntStand` or `AntStandPaper`; anything else comes back unchanged.

    >>> full_id("AntStandPaper"), full_id("CartPole-v1")
    ('SASR/AntStandPaper-v0', 'CartPole-v1')
    """
    id = f"SASR/{name}-v0"
    return id if id in VARIANTS else name


def find(name: str) -> Task:
    """The task with this short name or id; an unknown one raises with the closest names."""
    for task in EVERY:
        if full_id(name) in task.variants():
            return task
    raise unknown(name, list(BY_NAME))


def unknown(name: str, known: list[str], reason: str = "") -> LookupError:
    """An error for an unknown task, with the closest known names and a possible reason."""
    by_lower = {known_name.lower(): known_name for known_name in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    message = f"unknown task {name!r}; "
    if close:
        message += f"did you mean {' or '.join(by_lower[lower] for lower in close)}? "
    message += "`sasr tasks` lists the tasks that come with sasr; any registered Gymnasium id works too, "
    message += "also as module:Id"
    if reason:
        message += f" ({reason})"
    return LookupError(message)
