from __future__ import annotations

import io
from typing import Any

import pytest
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from sasr.terminal import Terminal

HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9b1md\u202ee:boom:"


def shown(*printed: object, terminal: bool, **options: Any) -> str:
    out = io.StringIO()
    console = Terminal(file=out, force_terminal=terminal, width=200, color_system=None)
    console.print(*printed, **options)
    return out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_control_characters_and_emoji_codes_of_a_text_are_shown_not_obeyed(terminal: bool) -> None:
    table = Table(HOSTILE, title=Text(HOSTILE))
    table.add_row(HOSTILE)
    for printed in (HOSTILE, Text(HOSTILE, "red"), table):
        found = shown(printed, terminal=terminal)
        for steering in ("\x1b[2J", "\x1b]", "\x9b", "\x07", "\u202e", "💥"):
            assert steering not in found
        assert r"a\x1b]0;title" in found
        assert ":boom:" in found


def test_the_consoles_own_colours_and_bars_still_work() -> None:
    out = io.StringIO()
    console = Terminal(file=out, force_terminal=True, width=80, color_system="truecolor", legacy_windows=False)
    console.print("[bold red]bad[/]\nnext")
    assert out.getvalue() == "\x1b[1;31mbad\x1b[0m\nnext\n"
    with Progress(TextColumn("{task.description}", markup=False), console=console) as progress:
        progress.add_task("[/]checking \x1b[2J")
    assert "\x1b[?25l" in out.getvalue()  # the cursor is hidden
    assert "\x1b[2J" not in out.getvalue()
