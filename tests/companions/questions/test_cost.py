"""`mltrainer cost`: its arithmetic, its text, and its command on a project, without a training."""

from __future__ import annotations

import socket
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltrainer.companions.planner.timing import Interval
from mltrainer.companions.questions import cost as ask
from mltrainer.companions.questions.cost import FoundCost
from mltrainer.companions.questions.planner import FoundPlan, OnDevice
from mltrainer.configs.pages import devices_page
from mltrainer.configs.prices import PRICES, PricesPage, prices_pages
from mltrainer.configs.templates import PRODUCTION, TUNING
from mltrainer.errors import InputError
from mltrainer.runs.launcher import tools_of
from mltrainer.workspace import Project
from tests.projects import write_rings

DAY = date(2026, 11, 27)
TODAY = datetime.now(UTC).date()
LAMBDA, OWN = f"{PRICES}lambda.md", f"{PRICES}own_machine.md"


def figure(value: float, read: date | str = "2026-11-01") -> dict[str, Any]:
    return {"value": value, "source": "a page", "read": str(read)}


def page(*offers: dict[str, Any], **others: Any) -> PricesPage:
    values = {"title": "Prices", "platform": "Cloud", "currency": "USD", "offers": list(offers), **others}
    return PricesPage.model_validate(values)


def write_page(project: Path, path: str, front: str) -> None:
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).write_text(f"---\n{front}\n---\n\n# Ours\n")


@pytest.fixture
def rings(tmp_path: Path, tools_here: None) -> Project:
    """A project in which no phase has run."""
    return write_rings(tmp_path / "rings")


def found(project: Project, **asked: Any) -> FoundCost:
    with tools_of(project, lambda event: None) as tools:
        return ask.cost(tools, today=DAY, **asked)


def offer(cost: FoundCost, device: str, platform: str = "Lambda") -> Any:
    return next(one for one in cost.offers if one.device == device and one.offer == platform)


# --- the pages ---


def test_every_shipped_price_has_a_source_and_a_date_and_ones_own_machine_is_blank():
    pages = prices_pages(None)
    assert {one.platform for one in pages.values()} == {"Modal", "Lambda", "RunPod", "own machine"}
    rows = {path: [row for one in shipped.offers for row in ask.sources(shipped, one)] for path, shipped in pages.items()}
    assert all(row.source.startswith("https://") and row.read >= "2026" for read in rows.values() for row in read)
    assert rows[OWN] == []
    assert all(shipped.minimum_s.value for path, shipped in pages.items() if path != OWN)


def test_offers_name_devices_as_the_page_of_devices_does():
    known = {one.name for one in devices_page(None).devices}
    assert {one.device for one in prices_pages(None)[LAMBDA].offers} <= known


@pytest.mark.parametrize(
    ("front", "told"),
    [
        ("offers: [{device: a, per_hour: {value: 2}}]", "2 has no source or no date"),
        ("offers: [{device: a, per_hour: {value: 0, source: x, read: '2026-01-02'}}]", "per_hour.value"),
        ("offers: [{device: a, per_hour: {value: 2, source: x, read: '2026-02-31'}}]", "day is out of range"),
        ("offers: [{device: a, price: 3}]", "unknown key 'price'"),
        ("offers: [{device: a}, {device: a}]", "'a' is listed twice"),
        ("offers: [{device: a, watts: {value: 2, source: x, read: '2026-01-02'}}]", "give per_kwh"),
        ("offers: []", "offers"),
        ("offers: [", "lambda.md:"),
    ],
)
def test_a_damaged_page_is_refused_with_its_fault(tmp_path, front, told):
    write_page(tmp_path, LAMBDA, f"title: Ours\nplatform: Ours\ncurrency: EUR\n{front}")
    with pytest.raises(InputError) as refused:
        prices_pages(tmp_path)
    assert told in str(refused.value)
    assert LAMBDA in str(refused.value)


def test_the_command_names_the_line_of_a_damaged_page(rings, cli):
    front = "title: Ours\nplatform: Ours\ncurrency: EUR\noffers:\n  - device: a\n    per_hour: {value: -2}"
    write_page(rings.root, LAMBDA, front)
    cli("cost", "--hours", "2", "--project", rings.root, code=1, err=f"{LAMBDA}:7")


# --- the arithmetic ---


@pytest.mark.parametrize(("hours", "billed"), [(0.01, 1 / 60), (1 / 60, 1 / 60), (1.001, 61 / 60), (2.0, 2.0)])
def test_time_is_billed_in_whole_steps_of_the_shortest_at_least_one(hours, billed):
    assert ask.billed_h(hours, 60) == pytest.approx(billed)
    assert ask.billed_h(hours, None) == hours


def test_each_phase_is_billed_as_a_rental_of_its_own():
    phases = [ask.phase_cost("a", Interval(low=0.25, high=0.25), 6.0, 3600) for _ in range(3)]
    together = ask.total(phases)
    assert together.hours == Interval(low=0.75, high=0.75)
    assert together.money == Interval(low=18, high=18)


def test_an_hour_of_ones_own_machine_is_its_electricity_and_its_own_price():
    watts = {"device": "this machine", "watts": figure(500)}
    electric = page(watts, per_kwh=figure(0.4))
    assert ask.per_hour(electric, electric.offers[0]) == pytest.approx(0.2)
    assert "electricity alone is counted" in ask.blanks(electric, electric.offers[0])[0]
    whole = page({**watts, "per_hour": figure(0.3)}, per_kwh=figure(0.4))
    assert ask.per_hour(whole, whole.offers[0]) == pytest.approx(0.5)
    assert ask.blanks(whole, whole.offers[0]) == []
    blank = page({"device": "this machine", "per_hour": figure(0.3)}, per_kwh={})
    assert ask.per_hour(blank, blank.offers[0]) is None
    assert ask.blanks(blank, blank.offers[0]) == ["blank on its page: watts", "blank on its page: the price of a kWh"]


def test_a_page_is_stale_after_the_days_and_not_on_the_last_of_them():
    pages = {LAMBDA: page({"device": "a", "per_hour": figure(2, DAY - timedelta(days=90))})}
    assert ask.stale(pages, DAY, 90) == []
    assert "was read 91 days ago (2026-08-29), more than 90" in ask.stale(pages, DAY + timedelta(days=1), 90)[0]


def test_answers_cost_what_the_device_does_in_their_time():
    assert ask.of_answers(3.6, 100, 1000) == pytest.approx(0.01)
    assert ask.of_answers(3.6, 100, 10**6) == pytest.approx(10)
    assert ask.of_answers(None, 100, 1000) is None
    assert ask.of_answers(3.6, None, 1000) is None


def test_a_phase_is_worth_what_its_templates_train(rings):
    with tools_of(rings, lambda event: None) as tools:
        config = ask.present_config(tools, ("epochs=20", "batch_size=32"))
    write = rings.root / TUNING
    write.parent.mkdir(parents=True, exist_ok=True)
    write.write_text(
        "strategy: random\ntrials: 6\nspace: {batch_size: {choice: [16, 32]}, optimizer.lr: {log_uniform: [0.001, 0.1]}}\n"
        "trial: {epochs: 10}\n"
    )
    worth = ask.trainings(config, rings.root)
    assert worth["baseline"] == Interval(low=1, high=1)
    # 6 trials and the winner's replay of half the epochs; batches of 16 and 32 mean one and a half times the steps; 2 x 5 seeds.
    assert worth["optimization"] == Interval(low=7 * 0.5 + 10, high=7 * 0.75 + 10)
    (rings.root / PRODUCTION).write_text("epochs: 30\nexport: {formats: [safetensors], samples: 8}\n")
    assert ask.trainings(config, rings.root)["finalization"] == Interval(low=3, high=3)  # twice one and a half


# --- the command ---


def test_hours_that_are_given_make_all_of_it_known_without_a_training_or_the_network(rings, cli, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    said = cli("cost", "--hours", "2", "--per-second", "50", "--json", "--project", rings.root).json
    one = next(row for row in said["offers"] if row["device"] == "NVIDIA H100 SXM" and row["offer"] == "Lambda")
    price = one["per_hour"]
    assert one["phases"][0]["hours"] == {"low": 2.0, "high": 2.0}
    assert one["phases"][0]["money"] == {"low": 2 * price, "high": 2 * price}
    assert one["per_million"] == pytest.approx(price / 3600 / 50 * 1e6)
    (source,) = [row for row in one["sources"] if row["figure"] == "an hour"]
    assert (source["value"], source["read"]) == (price, "2026-09-20")
    assert not (rings.state_dir / "plan").exists()


def test_the_same_pages_give_the_same_bytes(rings):
    asked: dict[str, Any] = {"hours": ["2"], "per_second": ["10"], "deadline": 1000.0}
    first, second = (found(rings, **asked) for _ in range(2))
    assert ask.text(first).encode() == ask.text(second).encode()
    assert first.written() == second.written()
    # Each price in the table stands below it with its source.
    shown = ask.text(first)
    assert "Lambda, NVIDIA H100 SXM, an hour: 4.29" in shown
    assert shown.count("docs.lambda.ai/public-cloud/billing (read 2026-11-27; tools/planner/prices/lambda.md)") == 1


def test_a_blank_price_is_not_known_and_said(rings):
    cost = found(rings, hours=["2"], per_second=["10"])
    blank = offer(cost, "NVIDIA L4", "RunPod Secure Cloud")
    assert (blank.per_hour, blank.total.money, blank.per_thousand) == (None, None, None)
    assert blank.total.hours is not None
    assert "not known: blank on its page: the price of an hour - RunPod Secure Cloud, NVIDIA L4" in ask.text(cost)


def test_a_stale_page_is_named_on_standard_error_and_still_counted(rings, cli):
    old = TODAY - timedelta(days=91)
    front = "title: Ours\nplatform: Ours\ncurrency: USD\noffers: [{device: a, per_hour: {value: 2, source: us, read: '%s'}}]"
    write_page(rings.root, LAMBDA, front % old)
    said = cli("cost", "--hours", "3", "--project", rings.root)
    days = "91 days ago", "92 days ago"  # where the day ends meanwhile
    assert any(f"old: {LAMBDA}: a price of Ours was read {ago} ({old})" in said.err for ago in days)
    assert "old:" not in said.out
    assert "6.00 USD" in said.out
    write_page(rings.root, LAMBDA, front % TODAY)
    assert LAMBDA not in cli("cost", "--hours", "3", "--project", rings.root).err


def test_a_page_of_ones_own_takes_the_place_of_the_shipped_one(rings):
    front = (
        "title: Ours\nplatform: our lab\ncurrency: EUR\nper_kwh: {value: 0.5, source: us, read: '2026-11-01'}\n"
        "offers: [{device: this machine, watts: {value: 200, source: us, read: '2026-11-01'}}]"
    )
    write_page(rings.root, OWN, front)
    cost = found(rings, hours=["10"])
    assert "own machine" not in {one.offer for one in cost.offers}
    ours = offer(cost, "this machine", "our lab")
    assert (ours.currency, ours.phases[0].money) == ("EUR", Interval(low=1.0, high=1.0))


def test_the_cheapest_that_ends_in_time_is_named_and_none_where_none_does(rings):
    hours = ["NVIDIA H100 SXM=1", "NVIDIA A100 SXM 80GB=2", "100"]
    within = found(rings, hours=hours, deadline=60.0)
    # Both H100s end in time, at 2.69 and more; the A100's 1.39 for twice the hours costs more than that, and too late for 60 h.
    assert within.cheapest == "RunPod Community Cloud, NVIDIA H100 SXM"
    assert found(rings, hours=hours, deadline=1e5).cheapest == "RunPod Community Cloud, NVIDIA H100 SXM"
    none = found(rings, hours=hours, deadline=1.0)
    assert none.cheapest is None
    assert "the fastest, Lambda, NVIDIA H100 SXM" in str(none.reason)
    assert "cheapest within 1 h: none" in ask.text(none)


def test_prices_in_several_currencies_are_not_compared(rings):
    priced = "{device: NVIDIA T4, per_hour: {value: 9, source: us, read: '2026-11-01'}}"
    front = f"title: Ours\nplatform: Ours\ncurrency: EUR\noffers: [{priced}]"
    write_page(rings.root, LAMBDA, front)
    cost = found(rings, hours=["1"], deadline=1000.0)
    assert (cost.cheapest, cost.reason) == (None, "prices in EUR and USD are not compared: write one currency into your pages")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--hours", "NVIDIA H10 SXM=2"], "did you mean 'NVIDIA H100 SXM'?"),
        (["--hours", "soon"], "expected a number above 0, found 'soon'"),
        (["--hours", "0"], "expected a number above 0, found '0'"),
        (["--hours", "nan"], "expected a number above 0, found 'nan'"),
        (["--hours", "2", "--per-second", "-1"], "expected a number above 0, found '-1'"),
        (["--hours", "2", "--deadline", "-1"], "expected a number of hours above 0, found -1.0"),
    ],
)
def test_what_is_no_number_or_no_device_is_refused_before_anything_is_traced(rings, cli, arguments, told):
    cli("cost", *arguments, "--project", rings.root, code=1, err=told)
    assert not (rings.state_dir / "plan").exists()


def test_a_program_that_trains_by_itself_has_no_known_time_and_is_not_traced(rings, cli):
    (rings.root / "own.py").write_text("")
    text = yaml.safe_load((rings.root / "mltrainer.yaml").read_text())
    text["task"] = {"script": "python own.py --seed {seed}", "metrics": "metrics.json"}
    (rings.root / "mltrainer.yaml").write_text(yaml.safe_dump(text))
    said = cli("cost", "--project", rings.root, code=0)
    assert "a program that trains by itself, whose steps no plan sees: give --hours" in said.out
    assert said.out.startswith("work, in trainings: baseline 1.00, ")
    assert not (rings.state_dir / "plan").exists()


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"fits": False, "step": Interval(low=1, high=2), "not_known": []}, "does not fit into its memory"),
        ({"fits": True, "step": None, "not_known": ["memory: blank", "time: nobody measured it"]}, "nobody measured it"),
    ],
)
def test_a_device_that_is_too_small_or_that_nobody_measured_has_no_time(row, told):
    plan = FoundPlan.model_construct(devices=[OnDevice.model_construct(name="a", **row)])
    step, reason = ask._step(plan, "a")
    assert step is None
    assert told in reason
    assert ask._step(plan, "b") == (None, "the page of devices has no 'b'")


@pytest.mark.slow
@pytest.mark.long
def test_a_time_that_nobody_measured_is_not_known_and_that_of_this_machine_is_the_plans(rings):
    cost = found(rings)
    mine = offer(cost, "this machine", "own machine")
    assert mine.training_from == "mltrainer plan"
    assert 0 < mine.training_h.low <= mine.training_h.high < 1
    rented = [one for one in cost.offers if one.device != "this machine"]
    assert all(one.training_h is None and one.total.money is None for one in rented)
    assert "its utilization was not measured" in offer(cost, "NVIDIA H100 SXM").not_known[0]
    assert 'next: --hours "DEVICE=H"' in ask.text(cost)
