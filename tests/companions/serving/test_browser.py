"""The form as a person has it: in a headless Chromium, asking a server in a process of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from tests.browser import CHROMIUM, Page
from tests.companions.serving.conftest import PICTURES, ROW, TABLE, deliver, deliver_generator
from tests.companions.serving.test_answers import said_by_script
from tests.companions.serving.test_store import server

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]
TOLERATED = ("422", "401")  # refused requests
ENTER, TAB = ("Enter", 13, "\r"), ("Tab", 9, "")
READY = "document.querySelector('#form button')?.disabled === false"
SHOWN = "document.querySelector('#answer .prediction')?.innerText"


def typed(page: Page, text: str) -> None:
    """Type into what has the focus."""
    page.call("Input.insertText", text=text)


def test_a_row_is_asked_by_the_keyboard_alone_and_a_fault_leads_to_its_field(page, tmp_path):
    folder = deliver(tmp_path / "model", TABLE)
    (tmp_path / "rows.json").write_text(json.dumps([{**ROW, "member": "yes"}]))
    (expected,) = said_by_script(folder, tmp_path / "rows.json")
    with server(folder, "none") as (_, address):
        page.open(address)
        page.until(READY)
        assert page.js("document.querySelector('[role=alert]').innerText").startswith("Unchecked.")
        page.js("document.querySelector('[data-column]').focus()")
        for text in ("41.5", "1.200,50", "north", "3rd of May", "yes"):
            typed(page, text)
            page.key(*TAB)
        page.js("document.querySelector('[name=joined]').focus()")
        page.key(*ENTER)
        assert page.until("document.querySelector('#answer .fault')?.innerText").endswith("expected a date, found '3rd of May'")
        assert page.js("document.activeElement.name") == "joined"
        assert page.js("document.activeElement.getAttribute('aria-invalid')") == "true"
        page.js("document.activeElement.select()")
        typed(page, "2024-02-03")
        page.key(*ENTER)
        assert page.until(SHOWN) == expected["prediction"]
        likeliest = max(expected["probabilities"].values())
        assert page.js("document.querySelector('#answer td.number').innerText") == f"{likeliest:.4f}"
        assert page.js("document.querySelectorAll('[aria-invalid]').length") == 0
        assert page.js("document.activeElement.id") == "answer"


def test_a_picture_is_chosen_and_asked(page, tmp_path):
    folder = deliver(tmp_path / "model", PICTURES)
    Image.fromarray(np.full((9, 7, 3), 250, np.uint8)).save(tmp_path / "bright.png")
    (expected,) = said_by_script(folder, tmp_path / "bright.png")
    with server(folder, "none") as (_, address):
        page.open(address)
        page.until(READY)
        page.js("document.querySelector('button').click()")
        assert "choose a picture first" in page.until("document.querySelector('#answer .fault')?.innerText")
        root = page.call("DOM.getDocument")["root"]["nodeId"]
        node = page.call("DOM.querySelector", nodeId=root, selector="#picture")["nodeId"]
        page.call("DOM.setFileInputFiles", nodeId=node, files=[str(tmp_path / "bright.png")])
        page.js("document.querySelector('button').click()")
        assert page.until(SHOWN) == expected["prediction"]


def test_a_continuation_grows_on_the_page_while_it_is_made(page, tmp_path):
    with server(deliver_generator(tmp_path / "model"), "none") as (_, address):
        page.open(address)
        page.until(READY)
        page.js("document.querySelector('#prompt').focus()")
        typed(page, "ab")
        page.js("document.querySelector('#tokens').value = 3")
        page.js("document.querySelector('button').click()")
        assert "Answer's id" in page.until("document.querySelector('#answer dl')?.innerText")
        assert page.js(SHOWN) == "cda"
        page.js("document.querySelector('#tokens').value = 0")
        page.js("document.querySelector('button').click()")
        assert "greater than or equal to 1" in page.until("document.querySelector('#answer .fault')?.innerText")
        page.js("document.querySelector('#tokens').value = 4096")
        page.js("document.querySelector('button').click()")
        assert 0 < len(page.until(SHOWN)) < 4096
        page.open("about:blank")  # who leaves hears nothing of a server that stops in mid-continuation


def test_from_a_delivered_model_to_an_answer_in_the_browser_by_one_command(page, digits, tmp_path, cli):
    """After `pip install`: the model of a project whose gates hold, with no option."""
    pixels = np.random.default_rng(0).uniform(0, 1, (1, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", pixels[None])
    expected = json.loads(cli("predict", tmp_path / "x.npy", "--project", digits.root).out)
    database = f"sqlite:///{tmp_path}/kept.sqlite"
    with server(digits.root / "phases/05_finalization/final_model", database) as (_, address):
        page.open(address, width=390, height=800, is_dark=True)
        page.until(READY)
        assert page.js("document.querySelector('[role=alert]')") is None
        assert page.js("document.documentElement.scrollWidth <= innerWidth")
        page.js("document.querySelector('#array').focus()")
        typed(page, json.dumps(pixels.tolist()))
        page.js("document.querySelector('button').click()")
        assert page.until(SHOWN) == expected["prediction"]
        assert "held" in page.js("document.querySelector('#answer dl').innerText")


def test_the_token_is_asked_for_and_kept_on_the_page_alone(page, tmp_path, monkeypatch):
    monkeypatch.setenv("MLTRAINER_SERVE_TOKEN", "a-token-of-this-test")
    with server(deliver(tmp_path / "model", TABLE), "none") as (_, address):
        page.open(address)
        page.until("document.querySelector('#door button')?.disabled === false")
        page.js("document.querySelector('#token').focus()")
        typed(page, "another-token")
        page.js("document.querySelector('button').click()")
        assert "expected Bearer and the server's token" in page.until("document.querySelector('#refused').innerText")
        page.js("document.querySelector('#token').value = ''")
        typed(page, "a-token-of-this-test")
        page.js("document.querySelector('button').click()")
        page.until("document.querySelector('#form button')?.disabled === false")
        page.js("document.querySelector('#form button').click()")
        assert page.until(SHOWN)
        assert page.js("document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)") == "{}{}"


def test_every_field_has_its_label_and_its_hint(page, tmp_path):
    with server(deliver(tmp_path / "model", TABLE), "none") as (_, address):
        page.open(address)
        page.until(READY)
        fields = "[...document.querySelectorAll('input, textarea')]"
        assert page.js(f"{fields}.map((one) => one.labels[0].textContent)") == [*ROW, "Token"]
        assert page.js(f"{fields}.every((one) => document.getElementById(one.getAttribute('aria-describedby')).textContent)")
        assert page.js("document.documentElement.lang") == "en"
        assert page.js("document.querySelector('#answer').getAttribute('aria-live')") == "polite"
