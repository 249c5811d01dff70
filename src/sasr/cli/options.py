"""Options of several commands: a run's settings as flags, `--set`, `--allow-import`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import tyro

from sasr.errors import unknown_name
from sasr.settings import TrainConfig, field_types

PARTS = ("agent", "shaper", "task")
AllowImport = Annotated[
    tyro.conf.UseAppendAction[list[str]],
    tyro.conf.arg(
        metavar="MODULE",
        help="Allow importing the run's task from this module, which is not installed; may be repeated.",
    ),
]


def meanings(config_class: type[Any]) -> dict[str, str]:
    """The docstring of each field of a dataclass: the text under it in the source.

    >>> from sasr.shaping.presets import SasrConfig
    >>> meanings(SasrConfig)["reward_weight"]
    'Weight λ of the shaped reward.'
    """
    texts: dict[str, str] = {}
    for base in reversed(config_class.__mro__[:-1]):
        definition = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(definition, ast.ClassDef)
        for statement, next_statement in itertools.pairwise(definition.body):
            match statement, next_statement:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = inspect.cleandoc(text)
    return texts


def split_settings(settings: Sequence[str]) -> dict[str, dict[str, str]]:
    """The values of `--set`, by part and name.

    >>> split_settings(["agent.burn_in=100", "shaper.kernel=laplacian"])
    {'agent': {'burn_in': '100'}, 'shaper': {'kernel': 'laplacian'}, 'task': {}}
    """
    by_part: dict[str, dict[str, str]] = {part: {} for part in PARTS}
    for setting in settings:
        name, equals, text = setting.partition("=")
        part, dot, field = name.strip().replace("-", "_").partition(".")
        if not equals or not dot:
            raise ValueError(f"--set {setting}: write agent.NAME=VALUE, shaper.NAME=VALUE or task.NAME=VALUE")
        if part not in PARTS:
            raise unknown_name("--set: part", part, PARTS)
        by_part[part][field] = text.strip()
    return by_part


def check_preset(preset: str, shaper: str) -> None:
    """Refuse a preset beside a shaper that has none."""
    if shaper != "sasr" and preset != TrainConfig.preset:
        raise ValueError(
            f"--preset {preset} is for SASR, and {shaper} has no presets; leave it out, or use --shaper sasr"
        )


def run_flags(names: Iterable[str], *, all_optional: bool = False) -> type[Any]:
    """A dataclass with some settings of a run, which tyro turns into flags.

    Args:
        names: Fields of `TrainConfig`; their docstrings are the flags' help.
        all_optional: The default of each is None, "not given", in place of the setting's default.
    """
    meaning, types = meanings(TrainConfig), field_types(TrainConfig)
    flags: list[tuple[str, Any, Any]] = []
    for name in names:
        hint, default = types[name], getattr(TrainConfig, name)
        if all_optional:
            hint, default = hint | None, None
        flags.append((name, Annotated[hint, tyro.conf.arg(help=meaning[name])], default))
    return dataclasses.make_dataclass("RunFlags", flags, frozen=True)
