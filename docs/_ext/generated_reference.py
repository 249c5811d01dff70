"""Parts of the reference that come from the code at build time: a command's help, the settings of a dataclass."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import tyro
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from sasr.agents.registry import AGENTS
from sasr.cli import COMMANDS, OPTIONS
from sasr.cli.options import meanings
from sasr.settings import TrainConfig, field_types, setting_text
from sasr.shaping.presets import preset_config
from sasr.shaping.registry import SHAPERS

WIDTH = "88"  # of the help's boxes, in characters


class CommandHelps(Directive):
    """`{command-helps}`: a section for every command, with what its `--help` prints."""

    def run(self) -> list[nodes.Node]:
        """One section for each command."""
        return [
            section(f"sasr {name}", nodes.literal_block(text=command_help(name), language="text")) for name in COMMANDS
        ]


class CommandTable(Directive):
    """`{command-table}`: what `sasr --help` lists."""

    def run(self) -> list[nodes.Node]:
        """One table."""
        commands = [(f"sasr {name}", command.summary) for name, command in COMMANDS.items()]
        return [table(("command", "what it does"), [*commands, *OPTIONS.items()])]


class SettingsTables(Directive):
    """`{settings-tables} agents`: every field of some settings, with the text under it, a section for each kind.

    The argument is `run`, `agents` or `shapers`.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One section for each kind of settings; those of a run are one table."""
        kinds = {
            "run": {"run": TrainConfig},
            "agents": {name: agent.settings() for name, agent in AGENTS.items()},
            "shapers": {name: shaper_settings(name) for name in SHAPERS},
        }[self.arguments[0]]
        tables = {}
        for name, config in kinds.items():
            on_images = AGENTS[name].on_images if name in AGENTS else {}
            tables[name] = settings_table(config, on_images)
        return [tables["run"]] if "run" in tables else [section(name, found) for name, found in tables.items()]


def settings_table(config: Any, on_images: Mapping[str, Any]) -> nodes.table:
    """Every field of a dataclass, or of a class of one: name, type, default, default on images, meaning."""
    kind = config if isinstance(config, type) else type(config)
    meaning, types = meanings(kind), field_types(kind)
    head, rows = ["setting", "type", "default", "meaning"], []
    if on_images:
        head.insert(3, "on images")
    for field in dataclasses.fields(kind):
        row = [field.name, type_name(types[field.name]), default_of(config, field), meaning.get(field.name, "")]
        if on_images:
            row.insert(3, setting_text(on_images[field.name]) if field.name in on_images else "")
        rows.append(tuple(row))
    return table(tuple(head), rows)


def shaper_settings(name: str) -> Any:
    """A shaper's defaults; SASR's are those of the preset `auto`."""
    return preset_config("auto") if name == "sasr" else SHAPERS[name].config()


def section(title: str, content: nodes.Node) -> nodes.section:
    """A section with a title that links can lead to."""
    found = nodes.section("", nodes.title(text=title), content, names=[nodes.fully_normalize_name(title)])
    found["ids"] = [nodes.make_id(title)]
    return found


def command_help(name: str) -> str:
    """The help of one command, in plain characters."""
    printed = io.StringIO()
    plain = _environment(COLUMNS=WIDTH, NO_COLOR="1")
    with plain, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        tyro.cli(COMMANDS[name].load(), args=["--help"], prog=f"sasr {name}")
    return printed.getvalue().strip()


def default_of(config: Any, field: dataclasses.Field[Any]) -> str:
    """The value that holds where none is given."""
    if isinstance(config, type):
        return "required" if field.default is dataclasses.MISSING else setting_text(field.default)
    return setting_text(getattr(config, field.name))


def type_name(hint: Any) -> str:
    """A type as it is written in code; of choices, their names."""
    if get_origin(hint) is Literal:
        return " | ".join(get_args(hint))
    if get_origin(hint) is Union:
        return " | ".join(type_name(part) for part in get_args(hint))
    name = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    return name.replace("typing.", "").replace("NoneType", "None").replace("sasr.evidence.bandwidth.", "")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> nodes.table:
    """A table whose last column is text and whose other columns are code."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row([nodes.Text(word) for word in head]))
    body = nodes.tbody()
    for row in rows:
        body += _row([*(nodes.literal(text=word) for word in row[:-1]), nodes.Text(row[-1])])
    group += body
    return nodes.table("", group)


def _row(cells: list[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx the directives."""
    app.add_directive("command-helps", CommandHelps)
    app.add_directive("command-table", CommandTable)
    app.add_directive("settings-tables", SettingsTables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
