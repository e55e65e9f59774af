"""A served model that learned conversations: messages become a prompt by its chat template, and a prompt stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from mltrainer.companions.serving.contract import as_sent, row_of
from mltrainer.companions.serving.page import predicted
from tests.companions.serving.conftest import CHAT, GENERATOR, asking, deliver_chat, events_of

pytest.importorskip("transformers")
USER = {"role": "user", "content": "a"}


def predicted_by(folder: Path, *rows: dict[str, Any]) -> httpx.Response:
    with asking(folder) as client:
        return client.post("/predict", json={"rows": [*rows]})


def test_messages_are_answered_by_the_models_template_and_a_prompt_is_continued_as_it_is(tmp_path):
    folder = deliver_chat(tmp_path / "model")
    answered = predicted_by(folder, {"messages": [USER]}, {"prompt": "b", "tokens": 3}, {"messages": [USER], "tokens": 1})
    assert answered.status_code == 200
    assert [one["continuation"] for one in answered.json()["answers"]] == ["da", "cda", "d"]


def test_an_answer_at_the_end_of_the_messages_is_left_out_as_predict_does(tmp_path):
    said = [USER, {"role": "assistant", "content": "d"}]
    with asking(deliver_chat(tmp_path / "model", "{{ messages | map(attribute='content') | join }}")) as client:
        first, second = (client.post("/predict", json={"rows": [{"messages": one}]}).json() for one in (said, said[:1]))
    assert first["answers"] == second["answers"] == [{"continuation": ""}]  # behind the a comes b, at which answers end


def test_an_answer_is_streamed(tmp_path):
    with asking(deliver_chat(tmp_path / "model")) as client:
        events = [*events_of(client.post("/continue", json={"messages": [USER]}))]
    assert [one.get("part") for one in events[:-1]] == ["d", "a"]
    assert events[-1]["answers"] == [{"continuation": "da"}]


@pytest.mark.parametrize(
    ("row", "where", "what"),
    [
        ({}, "rows[0]", "expected messages or prompt, found neither"),
        ({"messages": [USER], "prompt": "a"}, "rows[0]", "expected messages or prompt, found both"),
        ({"messages": []}, "rows[0].messages", "expected a list of at least 1"),
        ({"messages": "a"}, "rows[0].messages", "input should be a valid list"),
        ({"messages": [{"role": "user"}]}, "rows[0].messages[0].content", "expected a value"),
        ({"messages": [{"role": "user", "content": 3}]}, "rows[0].messages[0].content", "expected a text, found 3"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "rows[0]", "expected {"),
        ({"messages": [{"role": "nobody", "content": "a"}]}, "rows[0]", "the chat template did not render it: nobody speaks"),
        ({"prompt": None}, "rows[0].prompt", "expected a text, found None"),
    ],
)
def test_a_request_that_is_no_conversation_is_refused_with_its_place(tmp_path, row, where, what):
    answered = predicted_by(deliver_chat(tmp_path / "model"), row)
    assert (answered.status_code, answered.json()["where"]) == (422, where)
    assert answered.json()["what"].startswith(what)


@pytest.mark.parametrize("template", ["{{ messages.__class__.__mro__ }}", "{{ messages.append(messages[0]) }}"])
def test_a_template_of_a_served_model_runs_in_the_sandbox(tmp_path, template):
    answered = predicted_by(deliver_chat(tmp_path / "model", template), {"messages": [USER]})
    assert (answered.status_code, "did not render it" in answered.json()["what"]) == (422, True)


def test_a_model_that_learned_prompts_takes_prompts_alone(tmp_path):
    learned = {**CHAT, "conversations": {**CHAT["conversations"], "template": None}}
    folder = deliver_chat(tmp_path / "model", spec=learned)
    assert predicted_by(folder, {"messages": [USER]}).json()["where"] == "rows[0].prompt"
    assert predicted_by(folder, {"prompt": "c"}).json()["answers"] == [{"continuation": "da"}]


def test_a_row_is_kept_as_it_was_sent():
    row = row_of(CHAT)
    assert as_sent(row(messages=[USER])) == {"messages": [USER], "tokens": 200, "seed": 0, "temperature": 1.0}
    assert as_sent(row(prompt="a", tokens=3)) == {"prompt": "a", "tokens": 3, "seed": 0, "temperature": 1.0}


def test_the_form_asks_for_a_message(tmp_path):
    assert (predicted(CHAT), predicted(GENERATOR)) == ("Answers a message.", "Continues a text.")
    with asking(deliver_chat(tmp_path / "model")) as client:
        page = client.get("/form").text
        assert 'data-kind="chat"' in page
        assert "which the model answers" in page
        assert "Message" in client.get("/openapi.json").json()["components"]["schemas"]
