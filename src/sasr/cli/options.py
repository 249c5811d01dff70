"""Options that several commands have: a run's settings as flags, `--set`, `--allow-import`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
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
        help="A module that is not installed, which the run's task may be imported from; may be given many times.",
    ),
]


def meanings(kind: type[Any]) -> dict[str, str]:
    """What each field of a dataclass means: the text under it in the source.

    >>> from sasr.shaping.presets import SasrConfig
    >>> meanings(SasrConfig)["reward_weight"]
    'Weight λ of the shaped reward.'
    """
    found: dict[str, str] = {}
    for own in reversed(kind.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(own))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = inspect.cleandoc(words)
    return found


def split_settings(settings: Sequence[str]) -> dict[str, dict[str, str]]:
    """The texts given for each part, by setting.

    >>> split_settings(["agent.burn_in=100", "shaper.kernel=laplacian"])
    {'agent': {'burn_in': '100'}, 'shaper': {'kernel': 'laplacian'}, 'task': {}}
    """
    found: dict[str, dict[str, str]] = {part: {} for part in PARTS}
    for setting in settings:
        name, equals, text = setting.partition("=")
        part, dot, field = name.strip().replace("-", "_").partition(".")
        if not equals or not dot:
            raise ValueError(
                f"--set {setting} is no setting; write agent.NAME=VALUE, shaper.NAME=VALUE or task.NAME=VALUE"
            )
        if part not in PARTS:
            raise unknown_name("--set: part", part, PARTS)
        found[part][field] = text.strip()
    return found


def check_preset(preset: str, shaper: str) -> None:
    """Refuse a preset beside a shaper that has none."""
    if shaper != "sasr" and preset != TrainConfig.preset:
        raise ValueError(
            f"--preset {preset} is one of SASR's, and {shaper} has none; leave it out, or use --shaper sasr"
        )


def run_flags(names: Iterable[str], *, all_optional: bool = False) -> type[Any]:
    """A dataclass with these settings of a run, of which tyro makes flags.

    Args:
        names: Fields of `TrainConfig`; their meanings are the flags' help.
        all_optional: None, "not given", is the default of each, in place of the setting's own.
    """
    meaning, types = meanings(TrainConfig), field_types(TrainConfig)
    flags: list[tuple[str, Any, Any]] = []
    for name in names:
        hint, default = types[name], getattr(TrainConfig, name)
        if all_optional:
            hint, default = hint | None, None
        flags.append((name, Annotated[hint, tyro.conf.arg(help=meaning[name])], default))
    return dataclasses.make_dataclass("RunFlags", flags, frozen=True)
