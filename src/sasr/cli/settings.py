"""`--set agent.critic_lr=1e-3`: any setting of the agent or the shaper, by name, checked and typed by its dataclass."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from sasr.errors import unknown_name
from sasr.evidence.bandwidth import LinearSchedule
from sasr.shaping.presets import refuse_removed
from sasr.shaping.settings import foreign_option

PARTS = ("agent", "shaper")
MOST_SEEDS = 10_000
"""Independent runs that one command may be asked for."""
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


def split(settings: Sequence[str]) -> dict[str, dict[str, str]]:
    """The texts given for each part, by setting.

    >>> split(["agent.burn_in=100", "shaper.kernel=laplacian"])
    {'agent': {'burn_in': '100'}, 'shaper': {'kernel': 'laplacian'}}
    """
    found: dict[str, dict[str, str]] = {part: {} for part in PARTS}
    for setting in settings:
        name, equals, text = setting.partition("=")
        part, dot, field = name.strip().replace("-", "_").partition(".")
        if not equals or not dot:
            raise ValueError(f"--set {setting} is no setting; write agent.NAME=VALUE or shaper.NAME=VALUE")
        if part not in PARTS:
            raise unknown_name("--set: part", part, PARTS)
        found[part][field] = text.strip()
    return found


def applied(part: str, config: Any, texts: dict[str, str]) -> Any:
    """A dataclass with some fields replaced by what their texts say."""
    hints = get_type_hints(type(config))
    known = [field.name for field in dataclasses.fields(config)]
    values = {}
    refuse_removed(texts, type(config))
    for name, text in texts.items():
        if name not in known and part == "shaper":
            raise foreign_option(type(config), name)
        if name not in known:
            raise unknown_name(f"--set: setting of the {part}", name, known)
        values[name] = parsed(text, hints[name], f"{part}.{name}")
    return dataclasses.replace(config, **values)


def parsed(text: str, hint: Any, name: str) -> Any:
    """A text as the value of a field of this type; an error says what would be one.

    >>> parsed("64,64", tuple[int, ...], "agent.hidden"), parsed("none", float | None, "agent.target_entropy")
    ((64, 64), None)
    """
    for option in _options(hint):
        try:
            return _as(text, option)
        except ValueError:
            continue
    raise ValueError(f"--set {name}={text}: {text!r} is not {_in_words(hint)}")


def shown(value: Any) -> str:
    """A value as `--set` would take it.

    >>> shown((256, 256)), shown(None), shown(True)
    ('256,256', 'none', 'true')
    """
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
    if isinstance(value, LinearSchedule):
        return ",".join(f"{own:g}" for own in (value.start, value.end, value.steps))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _options(hint: Any) -> Iterator[Any]:
    """The types a hint allows, the narrow ones first: every text is a string."""
    single = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    yield from sorted(single, key=lambda own: own is str)


def _as(text: str, kind: Any) -> Any:
    low = text.lower()
    if get_origin(kind) is Literal:
        if text in get_args(kind):
            return text
        raise ValueError
    if kind is type(None):
        if low in ("none", "null"):
            return None
        raise ValueError
    if kind is bool:
        if low in ("true", "yes", "on", "false", "no", "off"):
            return low in ("true", "yes", "on")
        raise ValueError
    if kind is LinearSchedule:
        first, last, steps = (float(own) for own in text.split(","))
        return LinearSchedule(first, last, int(steps))
    if get_origin(kind) is tuple:
        return tuple(_as(own, get_args(kind)[0]) for own in text.strip("()[] ").split(",") if own.strip())
    if kind in (int, float, str):
        return kind(text)
    raise ValueError


def _in_words(hint: Any) -> str:
    words = {bool: "true or false", int: "a whole number", float: "a number", type(None): "none", str: "a word"}
    told = []
    for option in _options(hint):
        if get_origin(option) is Literal:
            told.append(" or ".join(map(str, get_args(option))))
        elif get_origin(option) is tuple:
            told.append("a list such as 64,64")
        elif option is LinearSchedule:
            told.append("a schedule START,END,STEPS")
        else:
            told.append(words.get(option, str(option)))
    return " or ".join(told)
