"""Texts through all five phases, as a user types it."""

import json
import subprocess
import sys

import pytest

from mltrainer.project.text_corpora import ships_log
from tests.conftest import commit, succeed
from tests.tasks.text.conftest import write_reviews


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text_classification", pytest.param("text_generation", marks=pytest.mark.long)])
def test_texts_pass_five_gates_and_the_delivered_script_takes_them_raw(kind, tmp_path):
    is_generation = kind == "text_generation"
    data, folder = tmp_path / ("log.txt" if is_generation else "reviews.csv"), tmp_path / "project"
    data.write_text(ships_log(200)) if is_generation else write_reviews(data, 120)
    succeed("init", folder, "--data", data, *([] if is_generation else ["--target", "label"]))
    with (folder / "mltrainer.yaml").open("a") as file:
        file.write("acceptance: " + ("{bits_per_byte: '<= 9'}" if is_generation else "{accuracy: '>= 0.1'}") + "\n")
    epochs = 6 if is_generation else 40  # short ones, after which a bag of words answers better than a constant
    for path in (folder / "configs").glob("*.yaml"):
        path.write_text(
            "".join(
                f"epochs: {epochs}\n" if line.startswith("epochs:") else line
                for line in path.read_text().splitlines(keepends=True)
            )
        )
    model = "{name: transformer, width: 8, heads: 2, layers: 1}" if is_generation else "{name: bag}"
    text = (folder / "mltrainer.yaml").read_text().splitlines(keepends=True)
    (folder / "mltrainer.yaml").write_text("".join(f"model: {model}\n" if line.startswith("model:") else line for line in text))
    commit(folder)
    succeed("run", "--project", folder)
    (tmp_path / "given.txt").write_text("film number 7 was great\n")
    script = folder / "phases" / "05_finalization" / "final_model" / "inference.py"
    done = subprocess.run([sys.executable, script, tmp_path / "given.txt"], capture_output=True, text=True, check=True)
    assert ("continuation" if is_generation else "prediction") in json.loads(done.stdout)
    report = (folder / "phases" / "02_baseline" / "baseline_results.md").read_text()
    assert ("Texts that the model continues" in report) is is_generation
