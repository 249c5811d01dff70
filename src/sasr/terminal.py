"""What is printed for people: names and texts of others can't steer the terminal they are shown on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# Control characters but for tabs and line breaks, and those that turn the direction of writing.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    r"""A text with its control characters spelled out.

    >>> print(harmless("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


class Terminal(Console):
    """A console that shows the control characters of a text instead of obeying them, and knows no emoji codes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"emoji": False} | options))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Everything that is printed passes here, the console's own control codes as segments of another kind."""
        for segment in super().render(renderable, options):
            if segment.control or not _STEERING.search(segment.text):
                yield segment
            else:
                yield Segment(harmless(segment.text), segment.style)
