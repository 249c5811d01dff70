"""Plan files and the suites that come along: TOML, narrowed by flags; an error names the line and the closest name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from sasr.errors import unknown_name
from sasr.experiments.plan import Cell, DuplicateError, Method, Plan, built_in_methods, grid
from sasr.settings import SettingError
from sasr.tasks.catalogue import full_id

_GRID = ("tasks", "methods", "seeds", "steps")
_TOP = (*_GRID, "about", "grids", "set", "settings")
_METHOD = ("like", "agent", "shaper", "preset", "set", "settings")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_WORD = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*\.?""")
Place = tuple[str, ...]
"""Where something is in a file: the keys that lead to it."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What flags make of a plan: they narrow its tasks and methods, and replace its seeds and steps.

    Grids that differ in nothing else are one then.
    """

    tasks: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    seeds: int | Sequence[int] | None = None
    steps: int | None = None


def suites() -> dict[str, str]:
    """The suites that come along, and what each is about."""
    return {name: tomllib.loads(text)["about"] for name, text in _suite_texts().items()}


def read_suite(name: str, choice: Choice = Choice()) -> Plan:  # noqa: B008  it is frozen
    """A plan that comes along, narrowed to a choice."""
    texts = _suite_texts()
    if name not in texts:
        raise unknown_name("suite", name, texts)
    return parse_plan(texts[name], where=f"suite {name}", choice=choice)


def read_plan(path: str | Path, choice: Choice = Choice()) -> Plan:  # noqa: B008  it is frozen
    """A plan from a file, narrowed to a choice."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise OSError(f"{path} can't be read ({error.strerror}); give a plan file, or the name of a suite") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8; a plan is a TOML file") from None
    return parse_plan(text, where=str(path), choice=choice)


def parse_plan(text: str, *, where: str, choice: Choice = Choice()) -> Plan:  # noqa: B008  it is frozen
    """A plan from TOML text; `where` is what messages call it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: {error}") from None
    return _Reader(data, Lines(text), where, choice).plan()


class Lines:
    """Which line of a TOML text a key or a value is in."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.line_of_key: dict[Place, int] = {}
        table: Place = ()
        counts: dict[Place, int] = {}
        for number, line in enumerate(self.lines, start=1):
            if header := _HEADER.match(line):
                table = _words(header[2])
                if header[1] == "[[":  # the second [[grids]] is grids.1
                    counts[table] = counts.get(table, -1) + 1
                    table = (*table, str(counts[table]))
                self.line_of_key.setdefault(table, number)
            elif key := _KEY.match(line):
                self.line_of_key.setdefault((*table, *_words(key[1])), number)

    def of(self, *path: str, value: object = None) -> int:
        """The line of a key, or of the nearest one around it; with a value, the line where that stands in its list."""
        start = 0
        for length in range(len(path), 0, -1):
            near = [line for key, line in self.line_of_key.items() if key[:length] == path[:length]]
            if near:
                start = min(near)
                break
        if value is not None and start:
            for number in range(start, len(self.lines) + 1):
                if number > start and number in self.line_of_key.values():
                    break
                if re.search(rf"""["']{re.escape(str(value))}["']""", self.lines[number - 1]):
                    return number
        return start or 1


class _Reader:
    def __init__(self, data: dict[str, Any], lines: Lines, where: str, choice: Choice) -> None:
        self.data, self.lines, self.where, self.choice = data, lines, where, choice
        self.methods: dict[str, Method] = {}
        """Those that the file describes."""

    def plan(self) -> Plan:
        """All cells of all grids, as far as they are chosen."""
        self._check_names(self.data, _TOP, "key")
        if "about" in self.data and not isinstance(self.data["about"], str):
            raise self._error("about must be a text", "about")
        self._read_methods(self.data.get("methods", []))
        cells: list[Cell] = []
        grids = self._grids()
        for name in ("tasks", "methods"):
            self._check_choice(name, grids)
        for at, table in grids:
            cells += self._cells(table, at)
        if not cells:
            raise ValueError(f"{self.where} has no grid with both {_listed(self.choice)}; choose others")
        if self.choice != Choice():
            cells = _merged(cells)
        try:
            return Plan(tuple(cells))
        except DuplicateError as error:
            name = error.cell.method.name
            place = ("methods", name) if name in self.methods else ("tasks",)
            raise self._error(str(error), *place) from None

    # ----------------------------------------------------------------- grids

    def _grids(self) -> list[tuple[Place, dict[str, Any]]]:
        """Every grid with what the file says for all of them, and where it is in the file."""
        tables = self.data.get("grids", [{}])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._error("grids must be tables: write [[grids]]", "grids")
        common = {name: self.data[name] for name in _GRID if name in self.data}
        if isinstance(common.get("methods"), dict):
            common["methods"] = list(self.methods)
        grids: list[tuple[Place, dict[str, Any]]] = []
        for number, table in enumerate(tables):
            at = ("grids", str(number)) if table else ()
            self._check_names(table, _GRID, "key of a grid", *at)
            whole = {**common, **table}
            self._check_lists(whole, at)
            grids.append((at, whole))
        return grids

    def _check_lists(self, table: Mapping[str, Any], at: Place) -> None:
        for name in ("tasks", "methods"):
            names = table.get(name) or getattr(self.choice, name)
            if not names:
                raise self._error(f"there are no {name}; write {name} = [...]", *at)
            if not isinstance(names, list | tuple) or not all(isinstance(entry, str) for entry in names):
                raise self._error(f"{name} must be a list of names", *self._place(name, at))
        seeds, steps = table.get("seeds", 1), table.get("steps", 1)
        listed = seeds if isinstance(seeds, list | tuple) else [seeds]
        if not listed or not all(map(_is_whole, listed)) or (isinstance(seeds, int) and seeds < 1):
            raise self._error(
                f"seeds = {seeds!r} must be a number of runs, or a list of seeds", *self._place("seeds", at)
            )
        if len(set(listed)) < len(listed):
            raise self._error(f"seeds = {seeds!r} has duplicates", *self._place("seeds", at))
        if not _is_whole(steps) or steps < 1:
            raise self._error(f"steps = {steps!r} must be a whole number from 1 on", *self._place("steps", at))

    def _check_choice(self, name: str, grids: Sequence[tuple[Place, Mapping[str, Any]]]) -> None:
        """Refuse a task or a method that no grid has; a grid without any takes all that are chosen."""
        if any(not table.get(name) for _, table in grids):
            return
        known = list(dict.fromkeys(entry for _, table in grids for entry in table[name]))
        for chosen in getattr(self.choice, name) or ():
            if full_id(chosen) in map(full_id, known):
                continue
            message = f"{self.where}: {unknown_name(name.removesuffix('s'), chosen, known)}"
            others = _suites_with(chosen) if name == "tasks" else []
            raise ValueError(message + (f"; suites that have {chosen}: {', '.join(others)}" if others else ""))

    def _cells(self, table: Mapping[str, Any], at: Place) -> list[Cell]:
        """The cells of one grid, as far as they are chosen."""
        seeds = self.choice.seeds or table.get("seeds", 1)
        steps = self.choice.steps or table.get("steps")
        cells: list[Cell] = []
        for task in _narrowed(table.get("tasks"), self.choice.tasks):
            for method in _narrowed(table.get("methods"), self.choice.methods):
                try:
                    whole = grid([task], [method], seeds=seeds, steps=steps, described=self.methods)
                    cells += self._with_common(whole)
                except SettingError as error:
                    raise self._error(f"method {method}: {error}", *_place_of(error)) from None
                except (LookupError, ImportError) as error:
                    if not table.get("tasks"):
                        raise
                    place = self._place("tasks", at)
                    raise self._error(str(error.args[0]), *place, value=task) from None
                except ValueError as error:
                    if not table.get("methods"):
                        raise
                    raise self._error(str(error.args[0]), *self._place("methods", at), value=method) from None
        return cells

    def _with_common(self, cells: Iterable[Cell]) -> list[Cell]:
        """Cells with what the file sets for all methods; what a method sets itself stands."""
        common = self._settings(self.data, ())
        if common["shaper_settings"]:
            raise SettingError("shaper", "", "settings of a shaper belong to a method: [methods.NAME.set.shaper]")
        with_common = []
        for cell in cells:
            agent_settings = {**common["agent_settings"], **cell.method.agent_settings}
            settings = {**common["settings"], **cell.method.settings}
            method = replace(cell.method, agent_settings=agent_settings, settings=settings)
            with_common.append(replace(cell, method=method, task_settings=common["task_settings"]))
        return with_common

    # --------------------------------------------------------------- methods

    def _read_methods(self, tables: Any) -> None:
        if not isinstance(tables, dict):
            return
        for name, table in tables.items():
            at = ("methods", name)
            if not isinstance(table, dict):
                raise self._error(f"methods.{name} must be a table: write [methods.{name}]", *at)
            self._check_names(table, _METHOD, "key of a method", *at)
            self.methods[name] = self._method(name, table, at)

    def _method(self, name: str, table: dict[str, Any], at: Place) -> Method:
        known = {**built_in_methods(), **self.methods}
        like = table.get("like", name if name in known else None)
        if like is not None and like not in known:
            raise self._error(str(unknown_name("method", like, known)), *at, "like")
        base = known[like].content() if like else {}
        settings = self._settings(table, at)
        if settings.pop("task_settings"):
            raise self._error("settings of a task are for all methods: write set.task.NAME at the top", *at, "set")
        for part, values in settings.items():
            settings[part] = {**base.get(part, {}), **values}
        words = {key: table.get(key, base.get(key)) for key in ("agent", "shaper", "preset")}
        words = {key: word for key, word in words.items() if word is not None}
        for key, word in words.items():
            if not isinstance(word, str):
                raise self._error(f"{key} = {word!r} must be a name", *at, key)
        try:
            return Method(name=name, **words, **settings)  # type: ignore[arg-type]
        except SettingError as error:
            raise self._error(f"method {name}: {error}", *at, *_place_of(error)) from None
        except (ValueError, TypeError) as error:
            wrong = next((key for key, word in words.items() if repr(word) in str(error)), "set")
            raise self._error(f"method {name}: {error}", *at, wrong) from None

    def _settings(self, table: Mapping[str, Any], at: Place) -> dict[str, dict[str, Any]]:
        """Tables `set` and `settings` of the file or of a method."""
        parts, settings = table.get("set", {}), table.get("settings", {})
        for name, entries in (("set", parts), ("settings", settings)):
            if not isinstance(entries, dict):
                raise self._error(f"{name} must be a table", *at, name)
        self._check_names(parts, ("agent", "shaper", "task"), "part of set", *at, "set")
        for name, entries in parts.items():
            if not isinstance(entries, dict):
                raise self._error(f"set.{name} must be a table: write set.{name}.NAME = VALUE", *at, "set", name)
        return {
            "agent_settings": parts.get("agent", {}),
            "shaper_settings": parts.get("shaper", {}),
            "task_settings": parts.get("task", {}),
            "settings": settings,
        }

    # ---------------------------------------------------------------- errors

    def _check_names(self, table: Iterable[str], known: Sequence[str], what: str, *at: str) -> None:
        for name in table:
            if name not in known:
                raise self._error(str(unknown_name(what, name, known)), *at, name)

    def _place(self, name: str, at: Place) -> Place:
        """Where a key of a grid is: in the grid, or at the top for all of them."""
        return (*at, name) if (*at, name) in self.lines.line_of_key else (name,)

    def _error(self, message: str, *path: str, value: object = None) -> ValueError:
        return ValueError(f"{self.where}, line {self.lines.of(*path, value=value)}: {message}")


def _narrowed(names: Sequence[str] | None, chosen: Sequence[str] | None) -> list[str]:
    """The names that are chosen, in their order; all that are chosen where there are none to choose from."""
    if not names:
        return list(chosen or ())
    if not chosen:
        return list(names)
    return [name for name in names if full_id(name) in map(full_id, chosen)]


def _merged(cells: Iterable[Cell]) -> list[Cell]:
    """Cells that flags have made alike, such as those of grids with other steps, as one with the seeds of all."""
    merged: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first = merged.setdefault((cell.kind, cell.method.name), cell)
        more = tuple(seed for seed in cell.seeds if seed not in first.seeds)
        merged[cell.kind, cell.method.name] = replace(first, seeds=first.seeds + more)
    return list(merged.values())


def _listed(choice: Choice) -> str:
    return " and ".join(", ".join(names) for names in (choice.tasks, choice.methods) if names)


def _suites_with(task: str) -> list[str]:
    """The suites of which a grid has a task."""
    names = []
    for name, text in _suite_texts().items():
        data = tomllib.loads(text)
        tables = [data, *data.get("grids", [])]
        if any(full_id(task) in map(full_id, table.get("tasks", [])) for table in tables):
            names.append(name)
    return names


def _suite_texts() -> dict[str, str]:
    """The suites by name, as TOML."""
    folder: Traversable = resources.files("sasr.experiments") / "suites"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in files}


def _words(dotted: str) -> Place:
    return tuple(one or two or three for one, two, three in _WORD.findall(dotted))


def _place_of(error: SettingError) -> Place:
    return ("set", error.part, error.name) if error.part else ("settings", error.name)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
