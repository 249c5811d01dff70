"""The command line, called within the test's process."""

from __future__ import annotations

import sys

import pytest

from sasr import cli


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and all that was printed, on one line."""
    code = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sasr", *arguments])
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, " ".join((captured.out + captured.err).split())
