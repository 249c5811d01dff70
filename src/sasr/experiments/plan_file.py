"""Plan files and the suites that come with sasr, in TOML; an error names the line and the closest name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from sasr.errors import unknown_name
from sasr.experiments.plan import DuplicateError, GridRun, Method, Plan, built_in_methods, grid
from sasr.settings import SettingError
from sasr.shaping.registry import unknown_shaper
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
    """What flags select of a plan (tasks and methods) or replace (seeds and steps).

    Runs of several grids that become equal are merged.
    """

    tasks: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    seeds: int | Sequence[int] | None = None
    steps: int | None = None


EVERYTHING = Choice()


def suites() -> dict[str, str]:
    """The suites that come with sasr, and what each is about."""
    return {name: tomllib.loads(text)["about"] for name, text in _suite_texts().items()}


def read_suite(name: str, choice: Choice = EVERYTHING) -> Plan:
    """The plan of a suite, narrowed to a choice."""
    texts = _suite_texts()
    if name not in texts:
        raise unknown_name("suite", name, texts)
    return parse_plan(texts[name], where=f"suite {name}", choice=choice)


def read_plan(path: str | Path, choice: Choice = EVERYTHING) -> Plan:
    """A plan from a file, narrowed to a choice."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise OSError(f"{path} can't be read ({error.strerror}); give a plan file, or the name of a suite") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8; a plan is a TOML file") from None
    return parse_plan(text, where=str(path), choice=choice)


def parse_plan(text: str, *, where: str, choice: Choice = EVERYTHING) -> Plan:
    """A plan from TOML text; `where` names it in errors."""
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

    def number_of(self, *path: str, value: str | None = None) -> int:
        """The line of a key, or of the nearest one around it; with a value, that value's line in its list."""
        key_line = 1
        for length in range(len(path), 0, -1):
            near = [line for key, line in self.line_of_key.items() if key[:length] == path[:length]]
            if near:
                key_line = min(near)
                break
        next_keys = [line for line in self.line_of_key.values() if line > key_line]
        for number in range(key_line, min(next_keys, default=len(self.lines) + 1)):
            if value is not None and re.search(rf"""["']{re.escape(value)}["']""", self.lines[number - 1]):
                return number
        return key_line


class _Reader:
    def __init__(self, data: dict[str, Any], lines: Lines, where: str, choice: Choice) -> None:
        self.data, self.lines, self.where, self.choice = data, lines, where, choice
        self.methods: dict[str, Method] = {}
        """The methods that the file describes."""

    def plan(self) -> Plan:
        """The runs of all grids, narrowed to the choice."""
        self._check_names(self.data, _TOP, "key")
        if "about" in self.data and not isinstance(self.data["about"], str):
            raise self._error("about must be a text", "about")
        self._read_methods(self.data.get("methods"))
        grids = self._grids()
        for name in ("tasks", "methods"):
            self._check_choice(name, [table for _, table in grids])
        runs: list[GridRun] = []
        for at, table in grids:
            runs += self._runs(table, at)
        if not runs:
            chosen = [", ".join(names) for names in (self.choice.tasks, self.choice.methods) if names]
            raise ValueError(f"{self.where} has no grid with both {' and '.join(chosen)}; choose others")
        if self.choice != EVERYTHING:
            runs = _merged(runs)
        try:
            return Plan(tuple(runs))
        except DuplicateError as error:
            name = error.run.method.name
            place = ("methods", name) if name in self.methods else ("tasks",)
            raise self._error(str(error), *place) from None

    # ----------------------------------------------------------------- grids

    def _grids(self) -> list[tuple[Place, dict[str, Any]]]:
        """Every grid, completed by what the file sets for all of them, and where it is in the file."""
        tables = self.data.get("grids", [{}])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._error("grids must be tables: write [[grids]]", "grids")
        common = {name: self.data[name] for name in _GRID if name in self.data}
        if isinstance(common.get("methods"), dict):
            common["methods"] = list(self.methods)
        grids: list[tuple[Place, dict[str, Any]]] = []
        for number, table in enumerate(tables):
            at: Place = ()
            if table:
                at = ("grids", str(number))
            self._check_names(table, _GRID, "key of a grid", *at)
            table = {**common, **table}
            for name in ("tasks", "methods"):
                names = table.get(name) or getattr(self.choice, name)
                if not names:
                    raise self._error(f"there are no {name}; write {name} = [...]", *at)
                if not isinstance(names, list | tuple) or not all(isinstance(entry, str) for entry in names):
                    raise self._error(f"{name} must be a list of names", *self._place(name, at))
            grids.append((at, table))
        return grids

    def _check_choice(self, name: str, grids: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a task or a method that no grid has; a grid that names none takes all that are chosen."""
        if not all(table.get(name) for table in grids):
            return
        known = list(dict.fromkeys(entry for table in grids for entry in table[name]))
        for chosen in getattr(self.choice, name) or ():
            if full_id(chosen) in map(full_id, known):
                continue
            what = name.removesuffix("s")
            others = _suites_with(chosen) if what == "task" else []
            if not others and chosen not in built_in_methods():
                unknown = unknown_name(what, chosen, known)
                if what == "method":
                    unknown = unknown_shaper(chosen, known, what=what)
                raise ValueError(f"{self.where}: {unknown}")
            message = f"{self.where} has no {what} {chosen!r}; take one of: {', '.join(known)}"
            if others:
                message += f"; suites that have {chosen}: {', '.join(others)}"
            raise ValueError(message)

    def _runs(self, table: Mapping[str, Any], at: Place) -> list[GridRun]:
        """The runs of one grid, narrowed to the choice."""
        seeds = self.choice.seeds or table.get("seeds", 1)
        steps = self.choice.steps or table.get("steps")
        runs: list[GridRun] = []
        for task in _narrowed(table.get("tasks"), self.choice.tasks):
            for method in _narrowed(table.get("methods"), self.choice.methods):
                try:
                    (run,) = grid([task], [method], seeds=seeds, steps=steps, described=self.methods)
                    runs.append(self._with_common(run))
                except SettingError as error:
                    if error.part == "grid":
                        raise self._error(str(error), *self._place(error.name, at)) from None
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
        return runs

    def _with_common(self, run: GridRun) -> GridRun:
        """The same run with the settings for all methods; its method's settings take precedence."""
        common = self._settings(self.data, ())
        if common["shaper_settings"]:
            raise SettingError("shaper", "", "settings of a shaper belong to a method: [methods.NAME.set.shaper]")
        agent_settings = {**common["agent_settings"], **run.method.agent_settings}
        settings = {**common["settings"], **run.method.settings}
        method = replace(run.method, agent_settings=agent_settings, settings=settings)
        return replace(run, method=method, task_settings=common["task_settings"])

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
            raise self._error(str(unknown_shaper(like, known, what="method")), *at, "like")
        base = known[like] if like else Method(name=name)
        settings = self._settings(table, at)
        if settings.pop("task_settings"):
            raise self._error("settings of a task are for all methods: write set.task.NAME at the top", *at, "set")
        changes: dict[str, Any] = {part: {**getattr(base, part), **values} for part, values in settings.items()}
        for key in ("agent", "shaper", "preset"):
            changes[key] = table.get(key, getattr(base, key))
            if not isinstance(changes[key], str):
                raise self._error(f"{key} = {changes[key]!r} must be a name", *at, key)
        try:
            return replace(base, name=name, **changes)
        except SettingError as error:
            raise self._error(f"method {name}: {error}", *at, *_place_of(error)) from None
        except (ValueError, TypeError) as error:
            named = [key for key in ("agent", "shaper", "preset") if repr(changes[key]) in str(error)]
            raise self._error(f"method {name}: {error}", *at, *named[:1] or ["set"]) from None

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
        if (*at, name) in self.lines.line_of_key:
            return (*at, name)
        return (name,)

    def _error(self, message: str, *path: str, value: str | None = None) -> ValueError:
        return ValueError(f"{self.where}, line {self.lines.number_of(*path, value=value)}: {message}")


def _narrowed(names: Sequence[str] | None, chosen: Sequence[str] | None) -> list[str]:
    """The chosen ones of a grid's names; a grid without names takes all that are chosen."""
    if not names:
        return list(chosen or ())
    if not chosen:
        return list(names)
    return [name for name in names if full_id(name) in map(full_id, chosen)]


def _merged(runs: Iterable[GridRun]) -> list[GridRun]:
    """Runs that flags made equal, such as those of grids with other steps, as one with all their seeds."""
    merged: dict[tuple[str, str], GridRun] = {}
    for run in runs:
        key = run.settings_digest, run.method.name
        first = merged.setdefault(key, run)
        more_seeds = [seed for seed in run.seeds if seed not in first.seeds]
        merged[key] = replace(first, seeds=(*first.seeds, *more_seeds))
    return list(merged.values())


def _suites_with(task: str) -> list[str]:
    """The suites of which a grid has a task."""
    names = []
    for name, text in _suite_texts().items():
        data = tomllib.loads(text)
        tables = (data, *data.get("grids", []))
        if any(full_id(task) in map(full_id, table.get("tasks", [])) for table in tables):
            names.append(name)
    return names


def _suite_texts() -> dict[str, str]:
    """The suites by name, as TOML."""
    files = (resources.files("sasr.experiments") / "suites").iterdir()
    texts = {Path(file.name).stem: file.read_text("utf-8") for file in files if file.name.endswith(".toml")}
    return dict(sorted(texts.items()))


def _words(dotted: str) -> Place:
    """The keys of a dotted key, which may be in quotes."""
    return tuple("".join(groups) for groups in _WORD.findall(dotted))


def _place_of(error: SettingError) -> Place:
    if error.part:
        return ("set", error.part, error.name)
    return ("settings", error.name)
