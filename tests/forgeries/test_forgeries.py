"""Each forgery is caught by the means that the published table names, in these words; one of each kind in `make check`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltrainer.workspace import Project
from tests.companions.proof.test_audit import trained as trained
from tests.companions.proof.test_referee import walked as walked
from tests.forgeries.__main__ import DOCUMENT, document
from tests.forgeries.scene import COMMAND, Scene
from tests.forgeries.table import KINDS, Variant


def every() -> Iterator[object]:
    for kind, variants in KINDS.items():
        for number, variant in enumerate(variants):
            marks = [pytest.mark.slow, *([pytest.mark.long] if number else [])]
            yield pytest.param(variant, id=f"{kind}: {variant.name}", marks=marks)


@pytest.fixture
def scene(digits: Project, cli, tools_here: None, tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    def copy(fixture: str) -> Path:
        return Path(shutil.copytree(request.getfixturevalue(fixture), tmp_path / fixture))

    (tmp_path / "away").mkdir()
    return Scene(digits, copy, cli, tmp_path / "away")


@pytest.mark.parametrize("variant", [*every()])
def test_a_forgery_is_caught_by_the_means_that_are_named(variant: Variant, scene: Scene):
    said = variant.forge(scene)
    if variant.by is COMMAND:
        assert said is not None
        assert (said.code != 0, variant.words in said.out + said.err) == (True, True), said
    else:
        variant.by.catches(scene, variant.words)


def test_the_published_table_is_the_one_that_is_tested():
    text = DOCUMENT.read_text("utf-8")
    assert document(text) == text, "python -m tests.forgeries"


def test_at_least_twelve_kinds_have_five_variants():
    assert len(KINDS) >= 12
    assert {len(variants) for variants in KINDS.values()} == {5}
