"""The pages are in order: links lead somewhere, examples run, commands and flags exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sasr.experiments.plan_file import parse_plan, read_suite, suites
from tests.cli.commands import run

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for folder in ("docs", "results") for path in sorted((ROOT / folder).rglob("*.md"))),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"


def example(page: str) -> str:
    """The first Python block of a page."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert code is not None
    return code.group(1)


def test_the_engine_pages_example_runs() -> None:
    names: dict[str, Any] = {}
    exec(example("engine.md"), names)
    assert names["loop"].steps == 400


def test_the_training_pages_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example("training.md"), names)
    assert names["returns"].shape == (2, 1)
    assert names["run"].finished
    assert names["action"].shape == (1,)


def test_the_report_pages_example_runs() -> None:
    names: dict[str, Any] = {}
    exec(example("report.md"), names)
    assert names["low"] <= names["value"] <= names["high"]


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/training.md",
        "docs/report.md",
        "docs/experiments.md",
        "docs/doctor.md",
        "docs/tasks.md",
        "Makefile",
    ],
)
def test_every_command_and_flag_named_on_a_page_exists(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / page).read_text().replace("\\\n", " ")
    known: dict[str, str] = {}
    for line in re.findall(r"sasr ((?:train|resume|eval|compare|report|settings|doctor|tasks)\b[^\n`#]*)", text):
        command, *words = line.split()
        known[command] = known.get(command) or run(capsys, command, "--help")[1]
        for word in words:
            if word.startswith("--"):
                assert re.search(rf"{word}\b", known[command]), f"{page}: sasr {command} has no {word}"
    if page in ("docs/training.md", "docs/experiments.md"):
        every = "".join(known[command] for command in ("train", "eval", "compare") if command in known)
        every += run(capsys, "--help")[1]
        for flag in re.findall(r"`(--[a-z-]+)", text):
            assert re.search(rf"{flag}\b", every), f"{page} names {flag}"


def test_the_experiments_pages_plan_and_table_of_suites_are_true() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text()
    plan = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert plan is not None
    found = parse_plan(plan.group(1).replace("my_package:MyTask-v0", "Pendulum-v1"), where="the page")
    assert [cell.method.name for cell in found.cells] == ["sac", "gentle", "bold"] * 2
    for name in suites():
        row = re.search(rf"\| `{name}` \|.*\| (\d+) \|", text)
        assert row is not None, f"the page has no suite {name}"
        assert int(row.group(1)) == len(read_suite(name).cells)
