"""`sasr report`."""

from __future__ import annotations

from pathlib import Path

import pytest

from sasr.report.read import Collection, collect
from sasr.report.store import write_result
from tests.cli.commands import run
from tests.experiments.small import FLAGS
from tests.report.synthetic import make_result, make_run
from tests.report.test_page import data_of


def test_the_command_writes_a_page_beside_the_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "runs" / "one", last=2_000)
    (tmp_path / "runs" / "empty").mkdir()
    code, output = run(capsys, "report", str(tmp_path / "runs"))
    assert code == 0
    assert "incomplete: sasr on MountainCar: seeds 0–1 stopped at 2,000 of 3,000 steps" in output
    assert "left out: empty is empty: a run that never started" in output
    page = tmp_path / "runs" / "report.html"
    assert f"sasr report {tmp_path / 'runs'}" in page.read_text()
    # A second time the page itself is in the way of nothing.
    assert run(capsys, "report", str(tmp_path / "runs"))[0] == 0


def test_the_command_writes_figures_and_tables_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for method, level in (("sasr", 90.0), ("sac", 30.0)):
        write_result(make_result(method=method, level=level), tmp_path / "store")
    (tmp_path / "curves.csv").write_text("task,variant,step,mean,spread\nAntStand,sasr,0,1,1\n")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    arguments = ("--out", "new/page.html", "--figures", "new/figures", "--reference", "curves.csv", "--open")
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "report", "store", *arguments)[0] == 0
    assert opened == [(tmp_path / "new" / "page.html").as_uri()]
    assert data_of(tmp_path / "new" / "page.html")["results"][1]["reference"]["steps"] == [0.0]
    # Figures below the runs are no run, neither before they are drawn nor afterwards.
    for _ in range(2):
        code, output = run(capsys, "report", "store", "--figures", "store/figures")
        assert (code, "left out" in output) == (0, False)
    names = {path.name for path in (tmp_path / "new" / "figures").iterdir()}
    assert {"curves.png", "curves.pdf", "profiles.pdf", "final.md", "final.tex", "final.csv", "time.md"} <= names


def test_a_folder_of_figures_that_cannot_be_made_is_named_with_its_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "runs" / "one", last=2_000)
    (tmp_path / "file").write_text("")
    code, output = run(capsys, "report", str(tmp_path / "runs"), "--figures", str(tmp_path / "file" / "figures"))
    assert code == 2
    assert "choose another place with --figures" in output


@pytest.mark.slow
def test_runs_that_logged_their_states_give_figures_4_and_5(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for shaper in ("sasr", "none"):
        arguments = ("--steps", "200", "--shaper", shaper, "--out", f"runs/{shaper}", "--log-states", "50")
        small = ("--set", "agent.hidden=8,8", "--set", "agent.burn_in=50", "--set", "agent.batch_size=32")
        assert run(capsys, "train", "MountainCar", *arguments, *small)[0] == 0
    assert run(capsys, "report", "runs", "--figures", "figures")[0] == 0
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"visits-MountainCar.png", "visits-MountainCar.pdf", "bonus-MountainCar-sasr.png"} <= names
    assert "bonus-MountainCar-sac.png" not in names


@pytest.mark.slow
def test_the_suites_of_figures_4_and_5_give_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = (
        "--seeds",
        "1",
        "--steps",
        "90",
        "--log-states",
        "30",
        "--on",
        "inline",
        "--max-episode-steps",
        "20",
        *FLAGS,
    )
    for suite in ("figure4", "figure5"):
        assert run(capsys, "compare", suite, *small, "--out", f"runs/{suite}")[0] == 0
    found = collect(tmp_path / "runs" / "figure5")
    assert {visited.method for visited in found.states} == {
        "sasr",
        "relara",
        "explo",
        "rnd",
        "sac",
        "noisynet",
    }
    for visited in found.states:
        assert visited.states.visits.sum((1, 2, 3)).tolist() == [30, 30, 30]
    assert run(capsys, "report", "runs", "--figures", "figures")[0] == 0
    names = {path.name for path in (tmp_path / "figures").glob("*.png")}
    assert {"curves.png", "visits-MountainCar.png", "bonus-AntStand-sasr.png"} <= names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere is not a folder"),
        (("empty",), "has nothing to report"),
        (("store", "--reference", "missing.csv"), "missing.csv is not a file"),
        (("store", "--out", "a-file/page.html"), "can't be written to"),
        (("store", "--figures", "a-file/figures"), "can't be written to"),
        (("store", "--out", "empty"), "is a folder; name an HTML file"),
    ],
)
def test_mistakes_are_one_clear_line(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_result(make_result(), tmp_path / "store")
    (tmp_path / "empty").mkdir()
    (tmp_path / "a-file").write_text("")
    monkeypatch.chdir(tmp_path)
    code, output = run(capsys, "report", *arguments)
    assert code == 2
    assert message in output
    assert "Traceback" not in output
    assert not (tmp_path / "nowhere").exists()


def test_an_unwritable_place_is_found_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(folder: Path) -> Collection:
        raise AssertionError("read before the place was checked")

    (tmp_path / "a-file").write_text("")
    monkeypatch.setattr("sasr.cli.report.collect", read)
    code, output = run(capsys, "report", str(tmp_path), "--out", str(tmp_path / "a-file" / "page.html"))
    assert code == 2
    assert "can't be written to" in output


def test_a_missing_package_is_told_with_the_line_that_installs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_result(make_result(), tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, output = run(capsys, "report", str(tmp_path))
    assert code == 2
    assert 'pip install "sasr[report]"' in output
