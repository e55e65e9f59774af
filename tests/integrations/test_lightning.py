"""A Lightning module is trained as it is, with the bits of every run, and what would not be called is refused."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score

import mltrainer
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from tests.integrations.nets import keys, make
from tests.projects import recorded, write_light_template
from tests.refusals import refused
from tests.trainers.native.digits_runs import _in, same, train

pytest.importorskip("lightning")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:The `srun` command is available:UserWarning"),  # on a machine of a Slurm cluster
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(make(tmp_path_factory.mktemp("reference")), **keys())


@pytest.mark.parametrize(
    ("stops", "workers", "changes"),
    [
        ((), (), {}),
        ((3, 7, 15), (), {}),
        ((10,), (1, 0), {}),
        ((), (2,), {}),
        ((5,), (), {"evaluate": {"every_n_steps": 3}}),
        ((), (), {"signals": False}),
        ((), (), {"replay": {"every": 2}}),
    ],
    ids=["again", "interrupted", "other workers", "two workers", "validated more often", "not observed", "computed twice"],
)
def test_what_should_not_matter_does_not(tmp_path, reference, stops, workers, changes):
    found = train(make(tmp_path), stops, workers, **keys(), **changes)
    assert found["weights_sha256"] == reference["weights_sha256"]
    assert same(found, reference) or "evaluate" in changes


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [("none", [0.05, 0.05, 0.05]), ("step", [0.05, 0.025, 0.0125]), ("plateau", [0.05, 0.05, 0.025])],
)
def test_its_schedulers_set_the_rates_also_after_an_interruption(tmp_path, schedule, rates):
    whole, parts = (train(make(tmp_path / name), stops, **keys(schedule=schedule)) for name, stops in (("a", ()), ("b", (8, 16))))
    assert [row["lr"] for row in whole["history"]] == pytest.approx(rates)
    assert same(whole, parts)


def test_groups_keep_rates_of_their_own(reference):
    assert [group["lr"] for group in reference["groups"]] == pytest.approx([0.02 / 25, 0.05 / 25])
    assert reference["groups"][0]["parameters"] == ["net.0.weight", "net.0.bias"]


def test_the_factor_of_the_config_scales_the_rates(tmp_path):
    found = train(make(tmp_path), **{**keys(schedule="none"), "optimizer": {"name": "own", "lr": 0.1}})
    assert found["history"][0]["lr"] == pytest.approx(0.005)


def test_the_configs_optimizer_takes_the_place_of_the_modules(tmp_path):
    chosen = {"optimizer": {"name": "adamw", "lr": 0.001}, "schedule": {"name": "constant"}}
    found = train(make(tmp_path), **{**keys("Two"), **chosen})
    assert [row["lr"] for row in found["history"]] == [0.001] * 3


def test_lightnings_own_trainer_gives_the_same_weights_for_the_same_order(tmp_path):
    found = train(make(tmp_path), **keys(dropout=0.0), seed=3)
    with _in(tmp_path):
        assert weights_of_lightning(seed=3) == found["weights_sha256"]


def weights_of_lightning(seed: int) -> str:
    """Train the module by `lightning.Trainer` in mltrainer's order and draws, and return the digest."""
    import lightning

    sys.path.insert(0, "")
    nets = importlib.import_module("digits_task")
    own = nets.Moved(0, 100, 0.1)

    class Addressed(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 300

        def __getitem__(self, place: int) -> Any:
            epoch, number = divmod(place, 100)
            row = int(seeds.epoch_order(seed, epoch, 100)[number])
            seeds.seed_everything(seeds.key(seed, "sample", epoch, row))
            return own[row]

    class Epochs(torch.utils.data.Sampler):  # type: ignore[type-arg]
        epoch = -1

        def __len__(self) -> int:
            return 100

        def __iter__(self) -> Any:
            self.epoch += 1
            return iter(range(100 * self.epoch, 100 * self.epoch + 100))

    seeds.seed_everything(seeds.key(seed, "model"))
    module = nets.Net(dropout=0.0)
    loader = torch.utils.data.DataLoader(Addressed(), batch_size=16, sampler=Epochs())
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    torch.set_num_threads(1)
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", limit_val_batches=0, log_every_n_steps=1, **quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its advice on workers
        trainer.fit(module, loader)
    return weights_sha256(module.state_dict())


@pytest.mark.parametrize("module", ["Net", "Collected", "Summed"])
def test_a_metric_of_torchmetrics_is_of_the_whole_split(tmp_path, monkeypatch, module):
    monkeypatch.setattr("mltrainer.trainers.native.data.addresses.EVALUATION_BATCH", 25)  # of 60 samples
    with _in(make(tmp_path)):
        given = {key: value for key, value in keys(module).items() if key != "task"}
        found = mltrainer.fit(keys(module)["task"], **given, epochs=1)
        nets = sys.modules["digits_task"]
        x, y = zip(*(nets.Moved(100, 160, 0.0)[i] for i in range(60)), strict=True)
        answers = found.model.eval()(torch.stack(x)).argmax(1)
    assert found.metrics["val_f1"] == pytest.approx(f1_score(y, answers.numpy(), average="macro", zero_division=0), abs=1e-6)
    if module == "Summed":
        loss = torch.nn.functional.cross_entropy(found.model(torch.stack(x)), torch.tensor(y)).item()
        assert found.metrics["val_nll"] == pytest.approx(loss, abs=1e-5)
        assert found.metrics["val_f1_best"] == found.metrics["val_f1"]


@pytest.mark.parametrize(
    ("module", "data", "words"),
    [
        ("Manual", "Digits", "optimizes manually.*mltrainer wrap.*task.script"),
        ("Two", "Digits", "configure_optimizers: expected one optimizer, found SGD, SGD"),
        (
            "Hooked",
            "Digits",
            r"Hooked has on_train_epoch_start \(line \d+: self.net\[3\].p\), optimizer_step \(line \d+: pass\), which mlt",
        ),
        ("Counting", "Digits", r"Counting has on_train_batch_end \(line \d+: self.seen\)"),
        ("Naming", "Digits", r"Naming has on_train_batch_end \(line \d+: self.seen\)"),
        ("Doubling", "Digits", r"Doubling has on_fit_start \(line \d+: self.net.double\(\)\)"),
        ("Skipping", "Digits", "training_step: expected the loss, found NoneType"),
        ("Maximum", "Digits", "reduce_fx='max'"),
        ("Blind", "Digits", "ReduceLROnPlateau follows a metric, but none is named"),
        ("Wondering", "Digits", "goes by 'val_accuracy', which no evaluation measures.*val_f1"),
        ("Asking", "Digits", "self.trainer has no 'strategy'.*global_step"),
        ("Net", "Weighted", "train_dataloader has a WeightedRandomSampler"),
        ("Net", "Repeated", "train_dataloader has another number of samples than its data set"),
        ("Net", "Some", "train_dataloader has another number of samples than its data set"),
        ("Net", "Several", "val_dataloader: expected one torch DataLoader, found DataLoader, DataLoader"),
        ("Net", "Moving", "Moving has on_after_batch_transfer"),
        ("Net", "NotLightning", "digits_task:NotLightning is no LightningDataModule"),
        ("Nett", "Digits", "no class digits_task:Nett"),
    ],
)
def test_what_cannot_be_trained_as_it_is_is_refused_by_name(tmp_path, module, data, words):
    with pytest.raises(InputError) as raised:
        train(make(tmp_path), **keys(module, data))
    assert re.search(words, f"{raised.value} {raised.value.hint}", re.DOTALL)


def test_an_option_that_the_module_does_not_take_is_told_with_the_nearest(tmp_path):
    with pytest.raises(InputError, match="no option 'dropot' of Net; did you mean 'dropout'"):
        train(make(tmp_path), **keys(dropot=0.1))


def test_a_module_walks_all_five_phases(tmp_path, cli):
    make(tmp_path)
    (tmp_path / "net.py").write_text((tmp_path / "digits_task.py").read_text())
    write_light_template(tmp_path)
    (tmp_path / "mltrainer.yaml").write_text(
        "name: net\ntask:\n  use: mltrainer.integrations.lightning:Lightning\n"
        '  options: {module: "net:Net", data: "net:Digits"}\n'
        'metric: {name: val_f1, mode: max}\nacceptance: {val_f1: ">= 0.2"}\n'
    )
    cli("phase", "run", "planning", "--set", "epochs=12", "--set", "batch_size=16", "--project", tmp_path, code=0)
    cli("run", "--project", tmp_path, code=0, out="all five gates hold")
    record = recorded(tmp_path, "planning")
    assert record["evidence"]["template"] == "configs/lightning_template.yaml"
    assert record["evidence"]["config"]["optimizer"]["name"] == "own"


def test_lightning_that_is_not_installed_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    with refused("lightning", hint="mltrainer[lightning]"):
        train(make(tmp_path), **keys())
