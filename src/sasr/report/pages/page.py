"""A page: Markdown, and pictures that say what they were drawn from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sasr.experiments.plan import seeds_in_words
from sasr.report.seeds import SeedResult
from sasr.report.store import Result

HEAD = "<!-- Written by `make results` from the folder results/: change what is there, not this page. -->"


class Picture(NamedTuple):
    """A picture beside a page."""

    file: str
    data: str
    """Digest of what is drawn: it stands in the page and in the picture, so that one can't be older than the other."""
    draw: Callable[[], Any]
    """Makes the matplotlib figure."""

    def markdown(self, caption: str) -> list[str]:
        """The picture with its caption."""
        words = re.sub(r"[\[\]]", "", caption.split(".")[0])
        return [f"![{words}]({self.file})", f"<!-- drawn from data {self.data} -->", "", f"*{caption}*", ""]


@dataclass(frozen=True, kw_only=True)
class Page:
    """One Markdown file and its pictures."""

    name: str
    """Of the file, without its end."""
    lines: Sequence[str]
    pictures: tuple[Picture, ...] = ()

    @property
    def text(self) -> str:
        """The file's content."""
        return re.sub(r"\n{3,}", "\n\n", "\n".join([HEAD, "", *self.lines])).rstrip() + "\n"


def file_name(name: str) -> str:
    """A task's or a plan's name as a file's.

    >>> file_name("my_package:MyTask-v0")
    'my_package_MyTask-v0'
    """
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", name)


def digest(*parts: Any) -> str:
    """Twelve digits that change with the data."""
    return hashlib.sha256(json.dumps(parts, default=_told).encode()).hexdigest()[:12]


def curves_drawn(methods: Mapping[str, Sequence[SeedResult]]) -> list[Any]:
    """What a digest of learning curves is taken of."""
    return [[name, [[own.steps, own.returns] for own in seeds]] for name, seeds in methods.items()]


def provenance(results: Iterable[Result]) -> list[str]:
    """Command, machine, seeds and commit of every result; those that have all of it in common share an entry."""
    entries: dict[tuple[str, ...], list[Result]] = {}
    lot = list(results)
    several = len({own.task for own in lot}) > 1
    for own in lot:
        seeds = seeds_in_words([seed.seed for seed in own.seeds]) if own.seeds else "no seed"
        words = (seeds, own.commit or "unknown", machine(own), _versions(own), own.curve_of, own.command)
        entries.setdefault(words, []).append(own)
    lines = []
    for (seeds, commit, where, versions, curve_of, command), shared in entries.items():
        drawn = "" if curve_of == "evaluation" else "; the curve is of training, with exploration"
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(own.method for own in shared))
        names += " on " + ", ".join(dict.fromkeys(own.task for own in shared)) if several else ""
        lines.append(f"- {names}: {seeds}, commit {commit}, {where}{versions}{drawn}: `{command or 'command unknown'}`")
    return [*lines, ""]


def machine(result: Result) -> str:
    """Where a result was measured, in words."""
    own = result.machine
    device = str(own.get("device") or own.get("gpu") or "")
    parts = [str(own.get("processor", "")), result.cores]
    return ", ".join(part for part in (*parts, "" if device == "cpu" else device) if part) or "machine unknown"


def _versions(result: Result) -> str:
    return f", torch {result.versions['torch']}" if result.versions.get("torch") else ""


def _told(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} can't be a part of a digest")
