"""The page in a real Chromium, by clicking and typing what a person would."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest

from sasr.report import stats
from sasr.report.page import write_page
from sasr.report.read import Collection, collect, read_reference
from sasr.report.store import Result, write_result

from .synthetic import add_maps, make_result, make_run

playwright = pytest.importorskip("playwright.sync_api", reason="needs the playwright package: pip install playwright")
pytestmark = pytest.mark.browser

TASKS, METHODS = ("AntFar", "AntStand", "MountainCar"), ("sasr", "rnd", "sac")
LEVELS = {"sasr": 90.0, "rnd": 60.0, "sac": 20.0}
WIDE, NARROW = (1280, 900), (400, 800)


def result_of(task: str, method: str) -> Result:
    took = 7_200.0 if method == "sasr" else 3_600.0
    return make_result(task, method, level=LEVELS[method] + len(task), wall_seconds=took, points=30)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks × three methods, one result missing, one incomplete, one with a NaN; a run with a map; a bad file."""
    place = tmp_path_factory.mktemp("grid")
    for task in TASKS:
        for method in METHODS:
            result = result_of(task, method)
            if (task, method) == ("AntFar", "rnd"):
                continue
            if (task, method) == ("AntStand", "sac"):
                result = replace(result, planned=(0, 1, 2, 9))
            if (task, method) == ("AntFar", "sac"):
                broken = replace(result.seeds[0], returns=(math.nan,) * 30, final=(math.nan,))
                result = replace(result, seeds=(broken, *result.seeds[1:]))
            write_result(result, place / "store")
    (place / "store" / "newer.json").write_text(json.dumps(make_result().to_json() | {"version": 9}))
    run = make_run(place / "pendulum-run", task="Pendulum-v1", shaper="rnd")
    add_maps(run)
    film = np.random.default_rng(0).integers(255, size=(8, 64, 64, 3), dtype=np.uint8)
    imageio.imwrite(run / "video-seed-0.mp4", film, fps=4, codec="libx264")
    (place / "curves.csv").write_text("task,variant,step,mean,spread\nAntStand,sasr,0,1,1\nAntStand,sasr,9000,95,1\n")
    reference = read_reference(place / "curves.csv")
    return write_page(collect(place), place / "report.html", command="sasr report grid/", reference=reference)


class Visits:
    """Opens pages and keeps what they say and what they ask for."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.contexts: list[Any] = []
        self.said: list[str] = []
        self.asked: list[str] = []

    def __call__(
        self,
        path: Path,
        *,
        size: tuple[int, int] = WIDE,
        scheme: str = "light",
        hash: str = "",
        script: str = "",
        ready: bool = True,
    ) -> Any:
        context = self.browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.add_init_script(
            "window.copied = []; Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => {"
            " window.copied.push(text); }}});"
        )
        page.add_init_script(script)
        page.goto(path.as_uri() + hash)
        if ready:
            page.wait_for_selector("html[data-ready]")
        page.add_style_tag(content="html { scroll-behavior: auto !important; }")
        return page

    def check(self) -> None:
        """No error, no warning, and no request to anywhere."""
        assert self.said == []
        assert [url for url in self.asked if not url.startswith(("file:", "data:", "blob:"))] == []

    def close(self) -> None:
        for context in self.contexts:
            context.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Visits]:
    """For a page of one's own."""
    visits = Visits(browser)
    yield visits
    visits.close()
    visits.check()


@pytest.fixture(scope="module")
def kept(browser: Any, page_file: Path) -> Iterator[tuple[Any, Visits]]:
    visits = Visits(browser)
    yield visits(page_file), visits
    visits.close()


@pytest.fixture
def page(kept: tuple[Any, Visits]) -> Iterator[Any]:
    """One page for many tests, its controls put back: opening one takes longer than most of them."""
    page, visits = kept
    page.evaluate(
        "() => { const form = document.getElementById('form'); form.reset(); window.copied = [];"
        " form.dispatchEvent(new Event('input')); window.scrollTo(0, 0); }"
    )
    settled(page)
    yield page
    visits.check()


def chart(page: Any, task: str) -> Any:
    """A task's chart, scrolled to and drawn."""
    found = page.locator(f"figure[data-task='{task}']")
    found.scroll_into_view_if_needed()
    page.wait_for_function("(task) => document.querySelector(`figure[data-task='${task}'] .plot`).data", arg=task)
    page.wait_for_timeout(50)
    return found


def traces(page: Any, task: str, meta: str = "line") -> dict[str, Any]:
    """What a chart shows, by method: x, y and all."""
    figure = chart(page, task)
    found = figure.locator(".plot").evaluate(
        "(place, meta) => place.data.filter((own) => own.meta === meta)"
        ".map((own) => ({name: own.name, x: own.x, y: own.y, colour: own.line.color}))",
        meta,
    )
    return {each["name"]: each for each in found}


def settled(page: Any) -> None:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def names(page: Any, table: str) -> list[str]:
    return [text.strip() for text in page.locator(f"#table-{table} tbody th").all_inner_texts()]


def column(page: Any, table: str, index: int) -> list[str]:
    return [text.strip() for text in page.locator(f"#table-{table} tbody td:nth-child({index})").all_inner_texts()]


def test_lines_are_the_means_and_interquartile_means_of_the_seeds(page: Any) -> None:
    steps, values = stats.aligned([(seed.steps, seed.returns) for seed in result_of("AntStand", "rnd").seeds])
    rounding = (values.max() - values.min()) / 65_534
    line = traces(page, "AntStand")["rnd"]
    assert line["x"] == steps.tolist()
    np.testing.assert_allclose(line["y"], values.mean(0), atol=rounding)
    page.get_by_label("IQM, 95 % interval").check()
    settled(page)
    np.testing.assert_allclose(traces(page, "AntStand")["rnd"]["y"], stats.interquartile_mean(values.T), atol=rounding)
    page.get_by_label("every seed").check()
    settled(page)
    seeds = (
        chart(page, "AntStand")
        .locator(".plot")
        .evaluate(
            "(place) => place.data.filter((own) => own.meta === 'seed' && own.name === 'rnd').map((own) => own.y)"
        )
    )
    np.testing.assert_allclose(seeds, values, atol=rounding)


def test_methods_and_tasks_can_be_picked(page: Any) -> None:
    assert set(traces(page, "AntStand")) == set(METHODS)
    page.locator("#methods").get_by_label("sac", exact=True).uncheck()
    settled(page)
    assert set(traces(page, "AntStand")) == {"sasr", "rnd"}
    assert "sac" not in page.locator("#legend").inner_text()
    assert "sac" not in page.locator("#table-measure thead").inner_text()
    assert "sac" not in names(page, "overall")
    page.locator("#tasks").get_by_label("AntFar").uncheck()
    settled(page)
    assert page.locator("figure[data-task='AntFar']").is_hidden()
    assert "AntFar" not in names(page, "measure")
    page.locator("[data-none=method]").click()
    settled(page)
    assert page.get_by_text("Nothing is chosen").is_visible()
    page.locator("[data-all=method]").click()
    page.locator("[data-all=task]").click()
    settled(page)
    assert set(traces(page, "AntFar")) == {"sasr", "sac"}  # rnd was never run there


def test_a_choice_is_in_the_address_and_survives_reloading(page_file: Path, visit: Visits) -> None:
    page = visit(page_file)
    page.locator("#methods").get_by_label("rnd").uncheck()
    page.get_by_label("every seed").check()
    page.get_by_label("Across").select_option("log")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert not page.locator("#methods").get_by_label("rnd").is_checked()
    assert page.get_by_label("every seed").is_checked()
    assert page.get_by_label("Across").input_value() == "log"
    odd = visit(page_file, hash="#method=77.x&show=nonsense&smoothing=900&x=hop")
    assert odd.get_by_text("Nothing is chosen").is_visible()


def test_smoothing_is_a_running_mean_that_the_keyboard_moves(page: Any) -> None:
    before = np.array(traces(page, "AntStand")["sasr"]["y"])
    page.get_by_label("Smoothing").focus()
    page.keyboard.press("ArrowRight")
    settled(page)
    assert page.locator("#smoothing-told").inner_text() == "mean of 3 points"
    expected = [before[max(0, at - 1) : at + 2].mean() for at in range(len(before))]
    np.testing.assert_allclose(traces(page, "AntStand")["sasr"]["y"], expected, rtol=1e-6)


def test_axes_can_be_switched(page: Any) -> None:
    axis = "(place) => [place.layout.xaxis.type, place.layout.yaxis.title.text]"
    page.get_by_label("Across").select_option("log")
    page.get_by_label("Up").select_option("success")
    settled(page)
    assert chart(page, "AntStand").locator(".plot").evaluate(axis) == ["log", "success rate"]
    success = np.mean([seed.success for seed in result_of("AntStand", "sasr").seeds], axis=0)
    np.testing.assert_allclose(traces(page, "AntStand")["sasr"]["y"], success, atol=1 / 254)
    page.get_by_label("Across").select_option("hours")
    page.get_by_label("Up").select_option("normalised")
    settled(page)
    line = traces(page, "AntStand")["sasr"]
    assert max(line["x"]) == pytest.approx(2.0)
    assert 0.8 < line["y"][-1] < 1.2


def test_reference_curves_are_dashed_and_can_be_switched_off(page: Any) -> None:
    assert traces(page, "AntStand", "reference")["sasr, reference"]["y"] == [1, 95]
    page.get_by_label("reference curves").uncheck()
    settled(page)
    assert traces(page, "AntStand", "reference") == {}


def test_a_curve_under_the_pointer_tells_its_figures(page: Any) -> None:
    box = chart(page, "AntStand").locator(".plot .nsewdrag").bounding_box()
    at = (
        chart(page, "AntStand")
        .locator(".plot")
        .evaluate(
            "(place) => { const own = place.data.find((t) => t.meta === 'line' && t.name === 'sasr');"
            " return [place._fullLayout.xaxis.d2p(own.x[20]), place._fullLayout.yaxis.d2p(own.y[20])]; }"
        )
    )
    page.mouse.move(box["x"] + at[0] - 3, box["y"] + at[1])
    page.mouse.move(box["x"] + at[0], box["y"] + at[1])
    label = chart(page, "AntStand").locator(".hoverlayer")
    playwright.expect(label).to_contain_text("sasr")
    playwright.expect(label).to_contain_text("3 of 3 seeds")


def test_tables_sort_both_ways_and_what_is_unknown_comes_last(page: Any) -> None:
    head = page.locator("#table-measure thead").get_by_role("button", name="rnd")
    head.click()
    falling = column(page, "measure", 3)
    assert page.locator("#table-measure th[aria-sort=descending]").inner_text().strip() == "rnd"
    page.keyboard.press("Enter")  # the focus stays on the head that was clicked
    rising = column(page, "measure", 3)
    values = [float(text.split(" ")[0]) for text in rising if text != "–"]
    assert values == sorted(values)
    assert rising[-1] == falling[-1] == "–"
    assert [each for each in falling if each != "–"] == [each for each in rising if each != "–"][::-1]
    page.locator("#table-overall thead").get_by_role("button", name="method", exact=True).click()
    assert names(page, "overall") == sorted(names(page, "overall"))


def test_other_figures_can_be_chosen_and_incomplete_ones_are_marked(page: Any) -> None:
    assert "*" in "".join(column(page, "measure", 4))
    assert "incomplete" in page.locator("#notes-measure").inner_text()
    for key, title in (("iqm", "interquartile mean"), ("area", "Area"), ("halfway", "Steps to"), ("time", "time")):
        page.locator("#measure").select_option(key)
        assert title in page.locator("#measure-title").inner_text()
        assert page.locator("#table-measure td.best").count() > 0


def test_tables_can_be_copied_as_markdown_latex_and_csv(page: Any) -> None:
    page.locator("#measure").select_option("final")
    for name in ("Markdown", "LaTeX", "CSV"):
        page.locator(".copies[data-for=measure]").get_by_role("button", name=name).click()
        playwright.expect(page.locator("#said")).to_have_text(f"{name} copied")
    markdown, latex, csv = page.evaluate("window.copied")
    assert markdown.startswith("**Final return")
    assert latex.startswith(r"\begin{table}")
    assert csv.startswith("task,")


def test_the_exact_command_is_behind_every_figure(page: Any) -> None:
    figure = chart(page, "MountainCar")
    figure.get_by_text("Commands and machines").click()
    command = result_of("MountainCar", "sasr").command
    playwright.expect(figure.locator("code").first).to_have_text(command)
    figure.get_by_role("button", name="copy").first.click()
    page.locator("#notes").get_by_role("button", name="copy").click()
    assert page.evaluate("window.copied") == [command, "sasr report grid/"]


def test_what_is_wrong_with_the_data_is_told(page: Any) -> None:
    remarks = page.locator("#remarks").inner_text()
    assert "store/newer.json format version 9" in remarks
    assert "sac on AntStand: seed 9 not run" in remarks
    assert "sac on AntFar: seed 0 with values that are not finite (null)" in remarks
    page.get_by_role("link", name="1 could not be read").click()
    assert page.locator("#notes-title").is_visible()


def test_the_map_follows_its_slider_and_plays(page: Any) -> None:
    page.locator("#maps").scroll_into_view_if_needed()
    page.wait_for_function("document.getElementById('map').data")
    assert page.locator("#map-told").inner_text() == "3,000 steps"
    assert page.locator("#map .hm image").count() == 1  # a kind that plotly has not got would be drawn as lines
    corner = "() => { const z = document.getElementById('map').data[0].z; return z[0][z[0].length - 1]; }"
    assert page.evaluate(corner) == pytest.approx(0.8, abs=0.005)
    page.locator("#map-step").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#map-told").inner_text() == "2,250 steps"
    assert page.evaluate(corner) == pytest.approx(0.65, abs=0.005)
    page.keyboard.press("Home")
    page.get_by_role("button", name="play").click()
    playwright.expect(page.locator("#map-told")).to_have_text("3,000 steps")
    playwright.expect(page.locator("#map-play")).to_have_text("▶ play")


def test_films_play_from_within_the_page(page: Any) -> None:
    film = page.locator("video")
    film.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('video').duration > 1.5")
    film.evaluate("(own) => { own.muted = true; return own.play(); }")
    page.wait_for_function("document.querySelector('video').currentTime > 0")
    assert film.get_attribute("src").startswith("data:video/mp4;base64,")


def test_printed_it_has_the_charts_the_map_and_the_films(page_file: Path, visit: Visits) -> None:
    page = visit(page_file)
    page.wait_for_function("document.querySelector('video').readyState >= 2")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("document.getElementById('map').data")
    undrawn = "[...document.querySelectorAll('.plot')].filter((plot) => plot.offsetWidth && !plot.data).length"
    assert page.evaluate(undrawn) == 0
    playwright.expect(page.locator("#map-caption")).to_have_text("pendulum-run, 3,000 steps")
    for part in ("#map .hm image", "canvas.still", "#table-measure", "#charts .plot .main-svg"):
        assert page.locator(part).first.is_visible()
    film = "document.querySelector('canvas.still')"
    colours = f"new Set({film}.getContext('2d').getImageData(0, 0, {film}.width, {film}.height).data).size"
    assert page.evaluate(colours) > 10  # a frame, and no empty box
    assert not page.locator("aside").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_charts_can_be_enlarged(page: Any) -> None:
    figure = chart(page, "AntStand")
    before = figure.bounding_box()["width"]
    figure.get_by_role("button", name="enlarge").click()
    assert figure.bounding_box()["width"] > 1.5 * before
    figure.get_by_role("button", name="shrink").click()
    assert figure.bounding_box()["width"] == before


def test_light_and_dark_follow_the_system_and_the_button_and_stay(page_file: Path, visit: Visits) -> None:
    page = visit(page_file, scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark, line = page.evaluate(ground), traces(page, "AntStand")["sasr"]["colour"]
    page.get_by_role("button", name="Switch between light and dark").click()
    settled(page)
    assert page.evaluate(ground) != dark
    assert traces(page, "AntStand")["sasr"]["colour"] != line
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(ground) != dark


def test_a_phone_scrolls_in_one_direction_only(page_file: Path, visit: Visits) -> None:
    page = visit(page_file, size=NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW[0]
    assert page.locator("#methods").is_hidden()
    page.get_by_text("Choose what is shown").click()
    page.locator("#methods").get_by_label("sac", exact=True).uncheck()
    settled(page)
    for task in TASKS:
        assert set(traces(page, task)) <= {"sasr", "rnd"}
        assert chart(page, task).bounding_box()["width"] <= NARROW[0]
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW[0]


def test_everything_that_can_be_clicked_can_be_reached_by_keyboard(page_file: Path, visit: Visits) -> None:
    page = visit(page_file)
    wanted = page.evaluate(
        "() => { const all = [...document.querySelectorAll('a[href], button, select, summary, input, .scroll')];"
        " const seen = all.filter((own) => own.checkVisibility()); seen.forEach((own, at) => own.dataset.at = at);"
        " const radios = seen.filter((own) => own.type === 'radio' && !own.checked).map((own) => own.dataset.at);"
        " return seen.map((own) => own.dataset.at).filter((at) => !radios.includes(at)); }"
    )
    assert len(wanted) > 30
    reached = set()
    for _ in range(3 * len(wanted)):
        page.keyboard.press("Tab")
        at, outlined = page.evaluate(
            "() => { const own = document.activeElement; return [own.dataset.at, getComputedStyle(own).outlineStyle]; }"
        )
        if at is not None:
            reached.add(at)
            assert outlined != "none"
        if reached >= set(wanted):
            break
    assert reached >= set(wanted)


def test_names_from_files_are_text_and_never_markup(tmp_path: Path, visit: Visits) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    results = [make_result(task, method) for task in (evil, "b") for method in ("sasr", f"<b>{evil}")]
    results = [replace(result, command=evil) for result in results]
    page = visit(write_page(Collection(results), tmp_path / "report.html", title=evil, command=f'"{evil}'))
    assert page.locator("h1").inner_text() == evil
    assert page.locator("img").count() == 0
    page.locator("figure[data-task]").first.get_by_text("Commands and machines").click()
    assert page.locator("figure[data-task] code").first.inner_text() == evil
    assert page.locator("img").count() == 0


def test_one_run_alone_makes_a_page_without_empty_parts(tmp_path: Path, visit: Visits) -> None:
    page = visit(write_page(collect(make_run(tmp_path / "run", seeds=(3,))), tmp_path / "report.html"))
    assert page.locator("#overall").is_hidden()
    assert page.locator("#maps").is_hidden()
    assert page.locator("#films").is_hidden()
    assert traces(page, "MountainCar")["sasr"]["y"] == pytest.approx([4.0, 5.0, 6.0], abs=1e-3)


def test_two_methods_on_one_task_are_compared_with_an_interval(tmp_path: Path, visit: Visits) -> None:
    results = [make_result(method=method, level=level) for method, level in (("sasr", 9.0), ("sac", 1.0))]
    page = visit(write_page(Collection(results), tmp_path / "report.html"))
    assert page.locator("#overall").is_visible()
    assert column(page, "overall", 4) == ["–", "1.00 [1.00, 1.00]"]


def test_where_no_seed_learned_no_method_is_compared(tmp_path: Path, visit: Visits) -> None:
    results = [make_result(method=method, level=0.0) for method in ("sasr", "sac")]
    page = visit(write_page(Collection(results), tmp_path / "report.html"))
    assert page.locator("#overall").is_hidden()


def test_a_run_in_which_nothing_happened_is_shown_as_such(tmp_path: Path, visit: Visits) -> None:
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    page = visit(write_page(collect(run), tmp_path / "report.html"))
    assert "seeds 0–1 not run" in page.locator("#remarks").inner_text()
    assert column(page, "measure", 2) == ["–*"]


def test_tables_and_controls_work_before_plotly_is_there_and_what_was_chosen_is_drawn(
    page_file: Path, visit: Visits
) -> None:
    hold = "URL.createObjectURL = ((real) => (blob) => { window.held = () => real(blob); return 'data:,'; })"
    late = "(own) => { const script = document.createElement('script'); script.src = window.held(); %s }"
    page = visit(page_file, script=f"{hold}(URL.createObjectURL);", ready=False)
    page.wait_for_function("window.held")
    page.locator("#methods").get_by_label("sac", exact=True).uncheck()
    page.get_by_role("button", name="Switch between light and dark").click()
    settled(page)
    assert "sac" not in names(page, "overall")
    assert page.locator(".plot .main-svg").count() == 0
    page.evaluate(late % "document.head.append(script); return new Promise((done) => { script.onload = done; });")
    page.evaluate("document.getElementById('form').dispatchEvent(new Event('input'))")
    settled(page)
    assert set(traces(page, "AntStand")) == {"sasr", "rnd"}


def test_a_browser_that_can_not_unpack_says_so_and_has_its_tables(page_file: Path, visit: Visits) -> None:
    page = visit(page_file, script="delete window.DecompressionStream;", ready=False)
    playwright.expect(page.locator("#cannot-draw")).to_be_visible()
    assert len(names(page, "measure")) == 4


def test_of_many_methods_sasr_sac_and_the_three_best_others_are_shown_at_first(tmp_path: Path, visit: Visits) -> None:
    levels = {"sasr": 5.0, "sac": 6.0} | {f"rival {index}": 10.0 * 2.0**index for index in range(1, 9)}
    results = [make_result(method=method, level=level) for method, level in levels.items()]
    file = write_page(Collection(results), tmp_path / "report.html")
    page = visit(file)
    assert set(traces(page, "AntStand")) == {"sasr", "sac", "rival 6", "rival 7", "rival 8"}
    assert "method" not in page.evaluate("location.hash")
    page.locator("[data-all=method]").click()
    settled(page)
    again = visit(file, hash=page.evaluate("location.hash"))
    assert len(traces(again, "AntStand")) == 10


@pytest.mark.slow
def test_the_grid_of_table_1_works_like_a_small_one(table_1_page: Path, visit: Visits) -> None:
    page = visit(table_1_page)
    assert page.locator("#intervals .main-svg").count() > 0
    assert len(names(page, "measure")) == 14
    page.locator("[data-all=method]").click()
    settled(page)
    assert len(traces(page, "Task N")) == 11
    page.get_by_label("every seed").check()
    page.get_by_label("Up").select_option("success")
    page.locator("#methods").get_by_label("method 11").uncheck()
    settled(page)
    assert len(traces(page, "Task N")) == 10
    assert len(traces(page, "Task A")) == 10
    page.locator("#table-measure thead").get_by_role("button", name="method 9").click()
    values = [float(text.split(" ")[0]) for text in column(page, "measure", 10)]
    assert values == sorted(values, reverse=True)
    page.locator("[data-none=task]").click()
    settled(page)
    assert page.get_by_text("Nothing is chosen").is_visible()
    page.locator("[data-all=task]").click()
    page.locator("[data-all=method]").click()
    page.get_by_label("IQM, 95 % interval").check()
    page.get_by_label("Up").select_option("normalised")
    page.get_by_label("Across").select_option("hours")
    page.get_by_label("Smoothing").focus()
    page.keyboard.press("ArrowRight")
    settled(page)
    light = traces(page, "Task G")["method 1"]
    assert len(traces(page, "Task G")) == 11
    assert max(light["x"]) == pytest.approx(100.0 / 3600.0)
    page.get_by_role("button", name="Switch between light and dark").click()
    settled(page)
    assert traces(page, "Task G")["method 1"]["colour"] != light["colour"]
    figure = chart(page, "Task G")
    figure.get_by_role("button", name="enlarge").click()
    figure.get_by_text("Commands and machines").click()
    playwright.expect(figure.locator("code")).to_have_count(11)
    page.locator("#measure").select_option("halfway")
    page.locator(".copies[data-for=measure]").get_by_role("button", name="CSV").click()
    assert page.evaluate("window.copied[0]").startswith("task,")
    page.locator("#table-overall thead").get_by_role("button", name="method", exact=True).click()
    assert len(names(page, "overall")) == 11
