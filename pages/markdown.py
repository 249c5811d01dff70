"""Generated parts of Markdown files: what stands between markers, and nothing else, is replaced."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sasr.errors import unknown_name

_START = re.compile(r"^<!-- ((?:table|picture|sources): .+?) -->\n", re.MULTILINE)
_END = "<!-- end -->"


class Picture(NamedTuple):
    """A picture beside a page."""

    file: str
    data: str
    """Digest of what is drawn: it stands in the page and in the picture, so that one can't be older than the other."""
    draw: Callable[[], Any]
    """Makes the matplotlib figure."""


class Block(NamedTuple):
    """What stands between two markers."""

    text: str
    picture: Picture | None = None


Blocks = Mapping[str, Callable[[], Block]]
"""By what their markers say, such as `table: final MountainCar`."""


class Page(NamedTuple):
    """A file's text with its blocks as the results give them."""

    text: str
    names: list[str]
    """Of its blocks, in order."""
    pictures: list[Picture]


def filled(text: str, blocks: Blocks, *, where: str) -> Page:
    """A text with everything between markers replaced; `where` is what errors call it."""
    parts, names, pictures, at = [], [], [], 0
    for start in _START.finditer(text):
        name, end = start[1], text.find(_END, start.end())
        if end < 0 or _START.search(text, start.end(), end):
            raise ValueError(f"{where}: <!-- {name} --> has no {_END} behind it; put it where that block ends")
        if name not in blocks:
            raise ValueError(f"{where}: {unknown_name('block', name, blocks)}")
        block = blocks[name]()
        parts += [text[at : start.end()], f"\n{block.text.strip()}\n\n"]
        names.append(name)
        pictures += [block.picture] if block.picture else []
        at = end
    return Page("".join([*parts, text[at:]]), names, pictures)


def empty(name: str) -> str:
    """The markers of a block that is to be filled in."""
    return f"<!-- {name} -->\n{_END}\n"


def picture(drawn: Picture, caption: str) -> Block:
    """A picture with its caption."""
    words = re.sub(r"[\[\]]", "", caption.split(".")[0])
    return Block(f"![{words}]({drawn.file})\n<!-- drawn from data {drawn.data} -->\n\n*{caption}*", drawn)


def details(summary: str, lines: Iterable[str]) -> str:
    """A list that opens when it is clicked at."""
    return "\n".join([f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"])


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Texts as a Markdown table.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [columns, *rows]
    texts = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([texts[0], "|---" * len(columns) + "|", *texts[1:]])


def digest(*parts: Any) -> str:
    """Twelve digits that change with the data."""
    return hashlib.sha256(json.dumps(parts, default=_as_list).encode()).hexdigest()[:12]


def _as_list(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} can't be a part of a digest")
