"""Plan files: TOML, every mistake told with its line and the closest name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from sasr.errors import unknown_name
from sasr.experiments.plan import Cell, DuplicateError, Method, Plan, built_in_methods, grid
from sasr.settings import SettingError

_GRID = ("tasks", "methods", "seeds", "steps")
_TOP = (*_GRID, "about", "grids", "set", "settings")
_METHOD = ("like", "agent", "shaper", "preset", "set", "settings")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_WORD = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*\.?""")


def suites() -> dict[str, str]:
    """The suites of the paper, and what each is about."""
    places = sorted(
        own.name for own in (resources.files("sasr.experiments") / "suites").iterdir() if own.name.endswith(".toml")
    )
    return {name.removesuffix(".toml"): tomllib.loads(_suite(name))["about"] for name in places}


def read_suite(name: str, **given: Any) -> Plan:
    """A plan that comes along; `given` as in `read_plan`."""
    known = suites()
    if name not in known:
        raise unknown_name("suite", name, known)
    return parse_plan(_suite(f"{name}.toml"), where=f"suite {name}", **given)


def read_plan(path: str | Path, **given: Any) -> Plan:
    """A plan from a file; tasks, methods, seeds or steps that are `given` take the place of the file's."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise OSError(f"{path} can't be read ({error.strerror}); give a plan file, or the name of a suite") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8; a plan is a TOML file") from None
    return parse_plan(text, where=str(path), **given)


def parse_plan(text: str, *, where: str, **given: Any) -> Plan:
    """A plan from TOML text; `where` is what messages call it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: {error}") from None
    return _Reader(data, Lines(text), where).plan({name: own for name, own in given.items() if own is not None})


class Lines:
    """Which line of a TOML text a key or a value is in."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.found: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        counts: dict[tuple[str, ...], int] = {}
        for number, line in enumerate(self.lines, start=1):
            if header := _HEADER.match(line):
                table = _words(header[2])
                if header[1] == "[[":  # the second [[grids]] is grids.1
                    counts[table] = counts.get(table, -1) + 1
                    table = (*table, str(counts[table]))
                self.found.setdefault(table, number)
            elif key := _KEY.match(line):
                self.found.setdefault((*table, *_words(key[1])), number)

    def of(self, *path: str, value: object = None) -> int:
        """The line of a key, or of the nearest one around it; with a value, the line where that stands in its list."""
        start = 0
        for length in range(len(path), 0, -1):
            near = [line for key, line in self.found.items() if key[:length] == path[:length]]
            if near:
                start = min(near)
                break
        if value is not None and start:
            for number in range(start, len(self.lines) + 1):
                if number > start and number in self.found.values():
                    break
                if re.search(rf"""["']{re.escape(str(value))}["']""", self.lines[number - 1]):
                    return number
        return start or 1


class _Reader:
    def __init__(self, data: dict[str, Any], lines: Lines, where: str) -> None:
        self.data, self.lines, self.where = data, lines, where

    def plan(self, given: Mapping[str, Any]) -> Plan:
        data = self.data
        self._names(data, _TOP, "key")
        if "about" in data and not isinstance(data["about"], str):
            raise self._error("about must be a text", "about")
        own = self._methods(data.get("methods", []))
        grids = data.get("grids", [{}])
        if not isinstance(grids, list) or not all(isinstance(part, dict) for part in grids):
            raise self._error("grids must be tables: write [[grids]]", "grids")
        base = {name: data[name] for name in _GRID if name in data}
        if isinstance(base.get("methods"), dict):
            base["methods"] = list(own)
        cells: list[Cell] = []
        for number, part in enumerate(grids):
            at = ("grids", str(number)) if part else ()
            self._names(part, _GRID, "key of a grid", *at)
            cells += self._grid({**base, **part, **given}, own, part, at, given)
        try:
            return Plan(tuple(cells))
        except DuplicateError as error:
            twice = error.cell.method.name if error.cell.method.name in own else error.cell.task
            place = ("methods", twice) if twice in own else ("tasks",)
            raise self._error(str(error), *place) from None

    def _grid(
        self, wanted: dict[str, Any], own: dict[str, Method], part: dict[str, Any], at: tuple[str, ...], given: Any
    ) -> list[Cell]:
        for name in ("tasks", "methods"):
            if not wanted.get(name):
                raise self._error(f"there are no {name}; write {name} = [...]", *at)
            if not isinstance(wanted[name], list | tuple) or not all(isinstance(one, str) for one in wanted[name]):
                raise self._error(f"{name} must be a list of names", *self._place(name, part, at))
        self._numbers(wanted, part, at)
        seeds, steps = wanted.get("seeds", 1), wanted.get("steps")
        cells: list[Cell] = []
        for task in wanted["tasks"]:
            for method in wanted["methods"]:
                try:
                    cells += self._with_common(grid([task], [method], seeds=seeds, steps=steps, own=own))
                except SettingError as error:
                    raise self._error(f"method {method}: {error}", *_home(error)) from None
                except (ValueError, LookupError, ImportError) as error:
                    name, value = (
                        ("tasks", task) if isinstance(error, LookupError | ImportError) else ("methods", method)
                    )
                    if name in given:
                        raise
                    place = self._place(name, part, at)
                    raise self._error(str(error.args[0]), *place, value=value) from None
        return cells

    def _with_common(self, cells: Iterable[Cell]) -> list[Cell]:
        """Cells with what the file sets for all methods; what a method sets itself stands."""
        common = self._settings(self.data, ())
        if common["shaper_settings"]:
            raise SettingError("shaper", "", "settings of a shaper belong to a method: [methods.NAME.set.shaper]")
        found = []
        for cell in cells:
            method = cell.method
            agent = {**common["agent_settings"], **method.agent_settings}
            settings = {**common["settings"], **method.settings}
            found.append(replace(cell, method=replace(method, agent_settings=agent, settings=settings)))
        return found

    def _numbers(self, wanted: Mapping[str, Any], part: Mapping[str, Any], at: tuple[str, ...]) -> None:
        seeds, steps = wanted.get("seeds", 1), wanted.get("steps", 1)
        listed = seeds if isinstance(seeds, list | tuple) else [seeds]
        if not listed or not all(_whole(own) for own in listed) or (isinstance(seeds, int) and seeds < 1):
            raise self._error(
                f"seeds = {seeds!r} must be a number of runs, or a list of seeds", *self._place("seeds", part, at)
            )
        if len(set(listed)) < len(listed):
            raise self._error(f"seeds = {seeds!r} has one twice", *self._place("seeds", part, at))
        if not _whole(steps) or steps < 1:
            raise self._error(f"steps = {steps!r} must be a whole number from 1 on", *self._place("steps", part, at))

    def _methods(self, tables: Any) -> dict[str, Method]:
        """The methods that the file describes itself."""
        if not isinstance(tables, dict):
            return {}
        found: dict[str, Method] = {}
        for name, table in tables.items():
            at = ("methods", name)
            if not isinstance(table, dict):
                raise self._error(f"methods.{name} must be a table: write [methods.{name}]", *at)
            self._names(table, _METHOD, "key of a method", *at)
            found[name] = self._method(name, table, found)
        return found

    def _method(self, name: str, table: dict[str, Any], found: Mapping[str, Method]) -> Method:
        at = ("methods", name)
        known = {**built_in_methods(), **found}
        like = table.get("like", name if name in known else None)
        if like is not None and like not in known:
            raise self._error(str(unknown_name("method", like, known)), *at, "like")
        base = known[like].content() if like else {}
        parts = self._settings(table, at)
        for part, values in parts.items():
            parts[part] = {**base.get(part, {}), **values}
        words = {key: table.get(key, base.get(key)) for key in ("agent", "shaper", "preset")}
        for key, word in words.items():
            if word is not None and not isinstance(word, str):
                raise self._error(f"{key} = {word!r} must be a name", *at, key)
        try:
            given: dict[str, Any] = {**{key: word for key, word in words.items() if word is not None}, **parts}
            return Method(name=name, **given)
        except SettingError as error:
            raise self._error(f"method {name}: {error}", *at, *_home(error)) from None
        except (ValueError, TypeError) as error:
            wrong = next((key for key, word in words.items() if word and repr(word) in str(error)), None)
            inside = (wrong,) if wrong else ("set",)
            raise self._error(f"method {name}: {error}", *at, *inside) from None

    def _settings(self, table: Mapping[str, Any], at: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        """Tables `set` and `settings` of the file or of a method."""
        given, settings = table.get("set", {}), table.get("settings", {})
        for name, own in (("set", given), ("settings", settings)):
            if not isinstance(own, dict):
                raise self._error(f"{name} must be a table", *at, name)
        self._names(given, ("agent", "shaper"), "part of set", *at, "set")
        for name, own in given.items():
            if not isinstance(own, dict):
                raise self._error(f"set.{name} must be a table: write set.{name}.NAME = VALUE", *at, "set", name)
        return {
            "agent_settings": given.get("agent", {}),
            "shaper_settings": given.get("shaper", {}),
            "settings": settings,
        }

    def _names(self, table: Iterable[str], known: Sequence[str], what: str, *at: str) -> None:
        for name in table:
            if name not in known:
                raise self._error(str(unknown_name(what, name, known)), *at, name)

    def _place(self, name: str, part: Mapping[str, Any], at: tuple[str, ...]) -> tuple[str, ...]:
        return (*at, name) if name in part else (name,)

    def _error(self, message: str, *path: str, value: object = None) -> ValueError:
        return ValueError(f"{self.where}, line {self.lines.of(*path, value=value)}: {message}")


def _words(dotted: str) -> tuple[str, ...]:
    return tuple(one or two or three for one, two, three in _WORD.findall(dotted))


def _home(error: SettingError) -> tuple[str, ...]:
    return ("set", error.part, error.name) if error.part else ("settings", error.name)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _suite(name: str) -> str:
    return ((resources.files("sasr.experiments") / "suites") / name).read_text(encoding="utf-8")
