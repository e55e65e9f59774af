"""The page as a user has it: in a headless Chromium, on a training that goes on meanwhile."""

from __future__ import annotations

import time

import pytest

from mltrainer.runs.labels import label_run
from mltrainer.workspace import Project
from tests.browser import CHROMIUM, Page
from tests.companions.monitor.invented import STEPS_PER_EPOCH, Training, empty_project, histograms, searched
from tests.companions.monitor.test_server import serving

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")]
TOLERATED = ("CONNECTION_REFUSED",)  # of a page whose server has ended
ENTER, SPACE = ("Enter", 13, "\r"), (" ", 32, " ")
ROWS = "[...document.querySelectorAll('[data-name=loss] .u-legend .u-series')]"
LINES = f"{ROWS}.filter((row) => !row.hidden).map((row) => row.innerText.replace(/\\s/g, ''))"


def chart(name: str, code: str) -> str:
    """Return an expression of what a chart's `plot` holds."""
    return f"import('./charts.js').then(({{ charts }}) => {{ const {{ plot }} = charts.get('{name}'); return {code}; }})"


def pressed(page: Page, *keys: tuple[str, int, str]) -> None:
    for key in keys:
        page.key(*key)


def test_a_run_is_watched_from_its_start_to_its_end(page, tmp_path):
    project = empty_project(tmp_path)
    with serving(project) as server:
        page.open(server.url)
        page.until("document.body.innerText.includes('Nothing has been trained yet')")
        training = Training(project)
        with training.living():
            training.epoch(0.5)
            page.until("document.querySelector('#heads').innerText.includes('running')")
            page.until("document.querySelector('[data-name=loss] canvas') && 1")
            for nr in range(2, 11):
                training.epoch(0.5 + nr / 25)
            page.until("document.querySelector('#heads').innerText.replace(/\\s/g, '').includes('step200/200')")
            assert page.js("document.querySelector('progress').value") == 200
        page.until("document.querySelector('#heads').innerText.includes('interrupted')")  # it wrote no result
        assert "0.9" in page.js("document.querySelector('[data-name=metric] .plot').getAttribute('aria-label')")


def test_a_spike_is_seen_as_it_happens(page, tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    with training.living(), serving(project) as server:
        page.open(server.url)
        page.until("document.querySelector('[data-name=loss] canvas') && 1")
        loss = chart("loss", "[...plot.data[1]].filter((value) => value === 40).length")
        assert page.js(loss) == 0
        begun = time.monotonic()
        training.steps(40.0)
        page.until(f"{loss}.then((many) => many === 1)")
        assert time.monotonic() - begun < 2.0  # how soon: tests/benchmarks/bench_monitor.py
        training.warn()
        page.until("document.querySelector('.finding.warning').innerText.includes('Loss spike')")
        assert page.js(chart("loss", "plot.scales.y.max")) >= 40


def test_the_terms_of_a_loss_are_drawn_in_colours_of_their_own(page, tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.steps(0.5)
    training.evaluate(0.5, terms={"task": 0.75, "distillation": 0.25})
    with serving(project) as server:
        page.open(server.url)
        page.until("document.querySelector('[data-name=terms] canvas') && 1")
        assert page.js(chart("terms", "[...plot.data].slice(1).map((one) => one[0])")) == [0.75, 0.25]
        first, second = page.js(chart("terms", "plot.series.slice(1).map((one) => one._stroke)"))
        assert first != second


RANGES = """import('./charts.js').then(({ charts }) => [...charts.values()].filter(({ plot }) => plot)
  .map(({ plot }) => `${plot.scales.x.min}-${plot.scales.x.max}`))"""


def picked(page: Page, axis: str) -> None:
    page.js(f"document.querySelector('#axes input[value={axis}]').click()")


def test_all_metrics_have_charts_and_all_charts_one_axis_by_step_epoch_or_time(page, tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    for nr in range(1, 5):
        training.steps(*[1 / nr] * STEPS_PER_EPOCH)
        training.evaluate(nr / 5, beside={"f1_macro": nr / 6})
    training.steps(0.5, 0.5)
    with serving(project) as server:
        page.open(server.url, height=4000)
        page.until("document.querySelectorAll('canvas').length > 6")
        names = page.js("[...document.querySelectorAll('.chart')].map((one) => one.dataset.name)")
        assert names[:4] == ["loss", "metric", "metric:f1_macro", "norm"]
        assert page.js("document.querySelector('[data-name=\"metric:f1_macro\"] figcaption').innerText").startswith("F1 macro")
        assert set(page.js(RANGES)) == {"1-82"}
        picked(page, "epoch")
        page.until(f"{RANGES}.then((all) => all.every((one) => one === '0-4.1'))")  # of 10 epochs with 20 steps each
        picked(page, "time")
        page.until(f"{RANGES}.then((all) => all.every((one) => one.startsWith('0-0.4')))")  # an evaluation each 0.1 s
        picked(page, "step")
        page.js("document.querySelector('[data-name=lr] .plot').focus()")
        pressed(page, ("+", 187, "+"))
        page.until(f"{RANGES}.then((all) => all[0] !== '1-82' && all.every((one) => one === all[0]))")


def test_a_forks_time_begins_with_its_own_steps(page, tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.step = 100  # its parent's
    training.epoch(0.5)
    with serving(project) as server:
        page.open(server.url)
        page.until("document.querySelector('[data-name=loss] canvas') && 1")
        picked(page, "time")
        page.until(chart("loss", "plot.scales.x.min === 0 && plot.scales.x.max < 0.11"))
        assert page.js(chart("loss", "plot.data[0][0]")) == pytest.approx(0.1 / STEPS_PER_EPOCH)


def test_smoothing_is_the_debiased_moving_average_and_leaves_the_values_in_sight(page, tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    values, weight = [0.1, 0.9, 0.2, 0.8], 0.75
    for value in values:
        training.epoch(value)
    expected = [
        sum((1 - weight) * weight ** (nr - k) * value for k, value in enumerate(values[: nr + 1])) / (1 - weight ** (nr + 1))
        for nr in range(len(values))
    ]
    with serving(project) as server:
        page.open(server.url)
        page.until("document.querySelector('[data-name=metric] canvas') && 1")
        page.js("document.querySelector('#smoothing').value = 0.75")
        page.js("document.querySelector('#smoothing').dispatchEvent(new Event('input'))")
        page.until(chart("metric", "plot.series.length === 5"))
        assert page.js(chart("metric", "[...plot.data[3]]")) == values
        assert page.js(chart("metric", "[...plot.data[4]]")) == pytest.approx(expected)
        assert page.js("document.querySelector('#smoothed').innerText") == "0.75"


SAVED = """(() => { window.saved = []; URL.createObjectURL = (blob) => { window.saved.push(blob); return '#'; }; return 1; })()"""


def test_a_chart_is_saved_as_numbers_and_as_a_picture(page, tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    training.epoch(0.75)
    with serving(project) as server:
        page.open(server.url)
        page.until("document.querySelector('[data-name=metric] canvas') && 1")
        page.js(SAVED)
        page.js("document.querySelectorAll('[data-name=metric] .save button').forEach((one) => one.click())")
        page.until("window.saved.length === 2")
        kinds = page.js("window.saved.map((one) => one.type).sort()")
        assert kinds == ["image/png", "text/csv"]
        assert page.js("window.saved.find((one) => one.type === 'image/png').size") > 2000
        text = page.js("window.saved.find((one) => one.type === 'text/csv').text()")
        assert text == "step,training,validation\n20,0.5,0.5\n40,0.75,0.75\n"


def test_two_runs_are_compared_by_keyboard_alone(page, tmp_path):
    project = empty_project(tmp_path)
    for name, accuracy, rate in (("a" * 12, 0.5, 0.1), ("b" * 12, 0.75, 0.2)):
        Training(project, name, optimizer={"lr": rate}).epoch(accuracy)
        time.sleep(0.02)
    with serving(project) as server:
        page.open(server.url)
        page.until("document.querySelectorAll('.run').length === 2 && document.querySelectorAll('.head').length === 1")
        for _ in range(30):
            if page.js("document.activeElement.classList.contains('run')"):
                break
            page.key("Tab", 9)
        pressed(page, ("ArrowDown", 40, ""), SPACE)
        page.until("document.querySelectorAll('.head').length === 2")
        table = page.until("!document.querySelector('#compare').hidden && document.querySelector('#compare').innerText")
        assert "optimizer.lr\t0.2\t0.1" in table
        assert "accuracy\t0.75\t0.5" in table
        assert len(page.js(LINES)) == 5  # the step, and two curves of each run
        assert page.js("document.activeElement.dataset.focus") == "a" * 12  # focus stays where it was
        pressed(page, ENTER)
        page.until("document.querySelectorAll('.head').length === 1")
        page.js("document.querySelector('[data-name=loss] .plot').focus()")
        pressed(page, ("End", 35, ""), ("ArrowLeft", 37, ""))
        assert page.js(LINES)[0] == f"step{STEPS_PER_EPOCH - 1}"
        pressed(page, ("+", 187, "+"))
        page.until(chart("loss", "plot.scales.x.max - plot.scales.x.min < 15"))
        pressed(page, ("0", 48, "0"))
        page.until(chart("loss", "plot.scales.x.max === 20"))


def test_a_page_of_a_phones_width_needs_no_scrolling_sideways(page, digits):
    with serving(digits) as server:
        page.open(server.url, width=375, height=4000)
        page.until("document.querySelectorAll('canvas').length >= 6 && 1")
        assert page.js("document.documentElement.scrollWidth") == 375
        assert page.js("document.querySelector('[data-name=loss] canvas').getBoundingClientRect().width") <= 375
        page.open(f"{server.url}report/phases/02_baseline/baseline_results.md", width=375, height=800)
        page.until("document.querySelectorAll('img').length > 5 && [...document.images].every((one) => one.naturalWidth)")
        assert page.js("document.documentElement.scrollWidth") == 375


def test_gates_reports_and_the_handbook_are_reached(page, digits):
    with serving(digits) as server:
        page.open(server.url)
        page.until("document.querySelectorAll('#phases button').length === 5")
        page.js("document.querySelector('#phases button').focus()")
        pressed(page, ENTER)
        page.until("document.querySelector('#phase').innerText.includes('The training config is complete and valid.')")
        page.js("document.querySelector('#reports a').click()")
        page.until("document.querySelector('.paper h1').innerText === 'Reproducibility manifest: digits'")
        page.js("document.querySelector('.bar a').click()")
        page.until("document.querySelectorAll('.run').length >= 2")


def test_light_and_dark(page, tmp_path):
    training = Training(empty_project(tmp_path))
    training.epoch(0.5)
    ground = "getComputedStyle(document.body).backgroundColor"
    with serving(Project(tmp_path)) as server:
        page.open(server.url, is_dark=True)
        page.until("document.querySelector('canvas') && 1")
        dark = page.js(ground)
        pressed(page, ("t", 84, "t"))
        light = page.js(ground)
        assert dark != light
        page.open(server.url, is_dark=True)
        page.until("document.querySelector('canvas') && 1")
        assert page.js(ground) == light  # the choice is kept
        page.js("localStorage.clear()")


# --- views ------------------------------------------------------------------------------------------


def opened(page: Page, view: str) -> None:
    """Open a view."""
    page.until(f"document.querySelector('#tab-{view}')?.getAttribute('aria-selected') === 'false'")
    page.js(f"document.querySelector('#tab-{view}').click()")
    page.until(f"!document.querySelector('#view-{view}').hidden")


def typed(page: Page, selector: str, text: str) -> None:
    page.js(f"(document.querySelector('{selector}').value = '{text}')")
    page.js(f"document.querySelector('{selector}').dispatchEvent(new Event('input'))")


def test_runs_are_sorted_and_filtered_in_a_table_and_their_labels_are_text(page, tmp_path):
    project = empty_project(tmp_path)
    for run, accuracy, rate in (("a" * 12, 0.5, 0.1), ("b" * 12, 0.75, 0.2), ("c" * 12, 0.25, 0.3)):
        Training(project, run, optimizer={"lr": rate}).epoch(accuracy)
    label_run(project, "a" * 12, "<script>complain()</script>", ["good", "<img/src=x>"])
    label_run(project, "b" * 12, add=["good"])
    column = "[...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[1].innerText.slice(-12))"
    with serving(project) as server:
        page.open(server.url)
        opened(page, "runs")
        page.until(f"{column}.length === 3 && document.querySelector('#table').innerText.includes('optimizer.lr')")
        for shown in ("#table", "#runs"):
            assert "<script>complain()</script>" in page.js(f"document.querySelector('{shown}').innerText")
        assert page.js("document.querySelectorAll('main script, aside script, main img, aside img').length") == 0
        by_accuracy = "[...document.querySelectorAll('#table th')].find((one) => one.innerText.trim().startsWith('accuracy'))"
        page.js(f"{by_accuracy}.querySelector('button').click()")
        page.until(f"String({column}) === String({['c' * 12, 'a' * 12, 'b' * 12]})")
        page.js(f"{by_accuracy}.querySelector('button').click()")
        page.until(f"{by_accuracy}.getAttribute('aria-sort') === 'descending'")
        assert page.js(column) == ["b" * 12, "a" * 12, "c" * 12]
        typed(page, "#filter", "GOOD base")
        page.until(f"{column}.length === 2 && document.querySelectorAll('#runs .run').length === 2")
        typed(page, "#filter", "<img")
        page.until(f"{column}.length === 1")
        page.js(SAVED)
        page.js("document.querySelector('#table .save button').click()")
        assert '<script>complain()</script>,"' not in page.js("window.saved[0].text()")
        label_run(project, "a" * 12, "")
        page.until(f"document.querySelector('#table tbody .name').innerText === '{'a' * 12}'")  # a name is seen as it changes


def test_layers_are_drawn_over_time_and_read_by_keyboard(page, tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    for shift in (0.0, 0.5):
        training.steps(*[0.5] * STEPS_PER_EPOCH)
        training.evaluate(0.5, layer_norms=[0.5, 0.25 + shift], signals=histograms(shift))
    with serving(project) as server:
        page.open(server.url)
        opened(page, "layers")
        page.until("document.querySelectorAll('#layers .ridge').length === 4")  # weights and activations, each at two times
        page.js("document.querySelector('[data-name=layer_norms] svg').focus()")
        pressed(page, ("ArrowDown", 40, ""))
        read = "document.querySelector('[data-name=layer_norms] .read').innerText"
        assert page.js(read) == "second.weight, epoch 2, step 40: 0.75"
        page.js(SAVED)
        page.js("document.querySelectorAll('[data-name=layer_norms] .save button').forEach((one) => one.click())")
        drawn, numbers = page.js("Promise.all(window.saved.map((one) => one.text()))")
        assert numbers == "step,epoch,first.weight,second.weight\n20,1,0.5,0.25\n40,2,0.5,0.75\n"
        assert "http://www.w3.org/2000/svg" in drawn
        assert not any(part in drawn for part in ("var(", "style=", "class="))  # it needs no style sheet


def test_classes_have_their_precision_and_recall(page, tmp_path):
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)
    labels = ["cat", "<b>dog</b>"]
    training.end(evaluation={"kind": "classification", "labels": labels, "confusion": [[3, 1], [2, 4]]})
    with serving(project) as server:
        page.open(server.url)
        opened(page, "classes")
        rows = page.until("[...document.querySelectorAll('#classes tbody tr')].map((row) => row.innerText).join('|')")
        assert rows == "cat\t4\t5\t0.6\t0.75\t0.6667|<b>dog</b>\t6\t5\t0.8\t0.6667\t0.7273"
        titles = page.js("[...document.querySelectorAll('[data-name=confusion] title')].map((one) => one.textContent)")
        assert "<b>dog</b> taken for cat: 2 of 6" in titles


def test_trials_are_kept_by_a_brush_with_keyboard_or_pointer(page, tmp_path):
    project = empty_project(tmp_path)
    searched(project)
    kept = "[...document.querySelectorAll('#trial-table tbody tr')].map((row) => row.cells[0].innerText).join()"
    with serving(project) as server:
        page.open(server.url, height=1400)
        opened(page, "search")
        page.until(f"{kept} === '1,2,3'")
        assert page.js("document.querySelectorAll('#parallel .trial').length") == 3
        page.js("document.querySelector('.grip[data-focus=\"axis accuracy\"]').focus()")
        pressed(page, *[("ArrowUp", 38, "")] * 2)
        page.until(f"{kept} === '1,3'")
        assert page.js("document.querySelectorAll('#parallel .trial.out').length") == 1
        page.until("document.activeElement.getAttribute('aria-label').includes('kept from 10 to 100 %')")
        pressed(page, ("Escape", 27, ""))
        page.until(f"{kept} === '1,2,3'")
        place = "(({ x, y, width, height }) => [x + width / 2, y, height])"
        x, y, tall = page.js(f"{place}(document.querySelector('.grip').getBoundingClientRect())")
        for kind, share in (("mousePressed", 0.03), ("mouseMoved", 0.3), ("mouseReleased", 0.3)):  # the choice at the upper end
            page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y + share * tall, button="left", buttons=1, clickCount=1)
        page.until(f"{kept} === '1,3'")


def test_views_are_tabs_that_arrow_keys_go_through(page, tmp_path):
    Training(empty_project(tmp_path)).epoch(0.5)
    with serving(Project(tmp_path)) as server:
        page.open(server.url)
        page.until("document.querySelector('#tab-curves')?.getAttribute('aria-selected') === 'true'")
        page.js("document.querySelector('#tab-curves').focus()")
        pressed(page, ("ArrowLeft", 37, ""))
        page.until("document.activeElement.id === 'tab-search' && !document.querySelector('#view-search').hidden")
        assert page.js("document.querySelectorAll('[role=tab][tabindex=\"0\"]').length") == 1
        assert "No trial" in page.until("document.querySelector('#parallel').innerText")
        for view in ("runs", "layers", "classes"):
            opened(page, view)
            assert page.js("document.documentElement.scrollWidth <= innerWidth")
