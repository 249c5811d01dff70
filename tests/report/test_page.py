from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sasr.logs.plots import Maps
from sasr.report import page as page_module
from sasr.report import page_data
from sasr.report.page import embedded_json, packed_script, write_page
from sasr.report.page_data import packed
from sasr.report.read import Collection, MapsOfRun, Video, collect
from sasr.report.store import write_result

from .synthetic import make_result


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


@given(st.lists(st.floats(-1e9, 1e9) | st.just(float("nan")), min_size=1, max_size=20), st.sampled_from([8, 16]))
def test_packed_numbers_come_back_to_within_half_a_step(values: list[float], bits: int) -> None:
    numbers = np.array(values)
    finite = numbers[np.isfinite(numbers)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    top, kind = (65_534, "<u2") if bits == 16 else (254, "u1")
    whole = np.frombuffer(base64.b64decode(packed(numbers, low, high, bits=bits)), kind)
    back = np.where(whole > top, np.nan, low + whole / top * (high - low))
    np.testing.assert_allclose(back, numbers, atol=0.51 * (high - low) / top + 1e-6)


@given(st.text())
def test_no_text_can_end_the_script_it_is_in(text: str) -> None:
    assert "<" not in embedded_json({"name": text})
    assert json.loads(embedded_json({"name": text}))["name"] == text


def test_the_page_fetches_nothing_and_has_no_external_parts(tmp_path: Path) -> None:
    page = write_page(Collection([make_result()]), tmp_path / "report.html").read_text()
    ours = page.replace(packed_script(), "")
    assert len(ours) < 200_000
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", ours)
    assert "fetch(" not in ours
    assert "@import" not in ours


def test_plotly_is_as_it_came_but_for_kinds_that_are_not_drawn_and_brackets_that_make_it_quick() -> None:
    shipped = page_module.plotly_script().rstrip()
    changed = gzip.decompress(base64.b64decode(packed_script())).decode("ascii")
    assert shipped.isascii() is False
    # Each of the three changes undone gives the script as it came.
    found, slim = page_module.TRACE_TYPES.search(shipped), page_module.TRACE_TYPES.search(changed)
    assert found is not None
    assert slim is not None
    assert slim[1] in found[1].split(",")
    whole = changed[: slim.start(1)] + found[1] + changed[slim.end(1) :]
    whole = whole.replace(", (() => {\n", ", () => {\n", 1).removesuffix(")));") + "));"
    assert whole == shipped.encode("ascii", "backslashreplace").decode()


BUNDLE = """(f(self, () => {
var a=W((e,t)=>{"use strict";t.exports={calc:z(),moduleType:"trace",name:"heatmap",meta:1}});"""
BUNDLE += """var b$=W((e,t)=>{"use strict";t.exports=a()});var c=W((e,t)=>{var r=k();"""
BUNDLE += """r.register([o(),b$(),p()]);t.exports=r});return c();})();
}));"""


@pytest.mark.parametrize(
    ("change", "into"),
    [
        (("", ""), ("o(),b$(),p()", "b$()")),
        (('"heatmap"', '"hotmap"'), ("", "")),
        (("exports=a()", "exports=x()"), ("", "")),
        (("[o(),b$(),p()]", "[o(),p()]"), ("", "")),
        (("[o(),b$(),p()]", "all"), ("", "")),
    ],
)
def test_a_plotly_of_another_form_keeps_all_its_kinds(change: tuple[str, str], into: tuple[str, str]) -> None:
    script = BUNDLE.replace(*change)
    assert page_module.with_traces(script, ("heatmap",)) == script.replace(*into)


@pytest.mark.parametrize("script", ["var Plotly = {};", "f(1, () => {\n});", "x" * 2_000 + ", () => {\n\n}));"])
def test_a_plotly_in_another_wrapper_stays_in_it(script: str) -> None:
    assert page_module.in_parentheses(script) == script


def test_the_same_results_give_the_same_page(tmp_path: Path) -> None:
    pages = [write_page(Collection([make_result()]), tmp_path / f"{at}.html").read_bytes() for at in (1, 2)]
    assert pages[0] == pages[1]


@pytest.mark.slow
def test_the_grid_of_table_1_stays_below_8_megabytes(table_1_page: Path) -> None:
    assert table_1_page.stat().st_size < 8_000_000


def test_long_and_ragged_curves_are_drawn_on_200_points(tmp_path: Path) -> None:
    result = make_result(seeds=3)
    seeds = [make_result(points=150 + 7 * at, first_seed=at, seeds=1).seeds[0] for at in range(3)]
    page = write_page(Collection([type(result)(task="t", method="sasr", seeds=tuple(seeds))]), tmp_path / "report.html")
    (result,) = data_of(page)["results"]
    assert len(base64.b64decode(result["steps"])) == 4 * 200
    assert len(base64.b64decode(result["returns"])) == 2 * 3 * 200


def test_small_films_are_embedded_and_large_ones_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_data, "VIDEO_BYTES", 10)
    (tmp_path / "a run").mkdir()
    films = []
    for name, size in (("one.mp4", 8), ("two.mp4", 8)):
        (tmp_path / "a run" / name).write_bytes(b"x" * size)
        films.append(Video("a run", tmp_path / "a run" / name))
    page = write_page(Collection([make_result()], videos=films), tmp_path / "report.html")
    first, second = data_of(page)["videos"]
    assert first["source"] == "data:video/mp4;base64," + base64.b64encode(b"x" * 8).decode()
    assert (second["embedded"], second["source"]) == (False, "a%20run/two.mp4")


def test_a_map_is_the_mean_over_seeds(tmp_path: Path) -> None:
    rate = np.stack([np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)])[None]
    maps = MapsOfRun("run", ("x", "y"), Maps(np.array([10]), np.arange(3.0), np.arange(2.0), rate))
    page = write_page(Collection([make_result()], maps=[maps]), tmp_path / "report.html")
    assert base64.b64decode(data_of(page)["maps"][0]["rate"]) == bytes([127] * 6)


def test_what_was_found_is_all_in_the_page(tmp_path: Path) -> None:
    write_result(make_result(method="sasr", planned=(0, 1, 2, 9)), tmp_path)
    (tmp_path / "newer.json").write_text(json.dumps(make_result(method="sac").to_json() | {"version": 2}))
    data = data_of(write_page(collect(tmp_path), tmp_path / "report.html"))
    assert data["results"][0]["gaps"] == ["seed 9 not run"]
    assert "version 2" in data["problems"][0]["text"]
    assert data["results"][0]["command"].startswith("sasr compare --tasks AntStand")
