"""Terminal output in which control characters from files and arguments have no effect."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.text import Text

# Control characters except tabs and line breaks, and those that change the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    r"""A text with its control characters escaped.

    >>> print(harmless("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


class Terminal(Console):
    """A console that escapes control characters in texts, and takes no emoji codes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"emoji": False} | options))

    def print_line(self, text: str | Text, style: str = "") -> None:
        """Print a text as it is, without markup; in a file or a log it is not broken at 80 columns."""
        self.print(Text(text, style) if isinstance(text, str) else text, soft_wrap=True)

    def progress(self, *columns: ProgressColumn) -> Progress:
        """A progress bar that disappears at its end; a file gets none, where it would leave an empty line."""
        return Progress(*columns, console=self, transient=True, disable=not self.is_terminal)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape texts; the console's own control codes are segments marked as such."""
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROL.search(segment.text):
                yield segment
            else:
                yield Segment(harmless(segment.text), segment.style)
