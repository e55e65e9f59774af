import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from mltrainer.configs.items import DataLimits
from mltrainer.errors import GateError, InputError, MltrainerError
from mltrainer.tasks import reading, samples
from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.opening import check_model, open_task
from mltrainer.tasks.samples import sample_bytes, tensor_hashes
from mltrainer.tasks.splits import ids_digest
from tests.refusals import refused

HEAD = """
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset
import mltrainer

X = torch.arange(80.0).reshape(40, 2)
Y = torch.arange(40) % 2

class Base(mltrainer.Task):
    def model(self): return nn.Linear(2, 2)
    def loss(self, outputs, targets): return nn.functional.cross_entropy(outputs, targets)
    def metrics(self, outputs, targets): return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}

"""
NAMES = iter(f"own_{nr}" for nr in range(10_000))


@pytest.fixture
def own(own_config, tmp_path, monkeypatch):
    """Open the task `Mine` of a module with the given body."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def opened(body, use="Mine", **changes):
        name = next(NAMES)
        (tmp_path / f"{name}.py").write_text(HEAD + textwrap.dedent(body))
        return open_task(own_config(f"{name}:{use}", **changes), tmp_path)

    return opened


PLAIN = """
class Mine(Base):
    def samples(self): return X, Y
"""

RANDOM = """
class Noisy(Dataset):
    def __len__(self): return {length}
    def __getitem__(self, i): return torch.full((2,), float(i)) + torch.randn(2), i % 2

class Mine(Base):
    def samples(self): return Noisy()
"""

GIVEN = """
class Mine(Base):
    def dataset(self, split):
        return {{"train": (X[:20], Y[:20]), "validation": TensorDataset(X[20:30], Y[20:30]), "test": {test}}}[split]
"""


def iris(config, tmp_path, **changes):
    return open_task(config(**changes), tmp_path)


# --- the seal and the digest ---


def test_the_test_split_is_sealed_until_it_is_opened(config, tmp_path):
    opened = iris(config, tmp_path)
    with pytest.raises(GateError, match="sealed until finalization"):
        opened.split("test")
    assert len(opened.open_test()) == 15
    assert opened.split("test") is opened.open_test()


def test_a_users_test_split_is_sealed_too(own):
    with pytest.raises(GateError, match="sealed"):
        own(PLAIN).split("test")


def test_without_a_test_share_there_is_nothing_to_open(config, tmp_path):
    with pytest.raises(InputError, match="there is no test split"):
        iris(config, tmp_path, split={"validation": 0.2, "test": 0.0}).open_test()


def test_an_unknown_split_is_refused(config, tmp_path):
    with pytest.raises(InputError, match="there is no split 'valid'"):
        iris(config, tmp_path).split("valid")


def test_facts_describe_data_and_splits(config, project):
    facts = open_task(config(data={"source": "data.csv", "target": "sold"}), project).facts(DataLimits())
    assert facts["samples"] == 60 == sum(s["samples"] for s in facts["splits"].values())
    assert facts["columns"][2] == {"name": "colour", "kind": "category", "missing": facts["columns"][2]["missing"], "distinct": 3}
    assert facts["class_counts"]["train"] == {"no": 32, "yes": 11}
    assert (facts["kind"], facts["source"], facts["files"][0]["path"]) == ("tabular_classification", "data.csv", "data.csv")


def test_facts_are_the_same_before_and_after_the_test_split_was_opened(config, tmp_path):
    opened = iris(config, tmp_path)
    before = opened.facts(DataLimits())
    opened.open_test()
    assert opened.facts(DataLimits()) == before


def test_ids_are_those_of_the_whole_set(config, tmp_path):
    opened = iris(config, tmp_path)
    train = opened.split("train")
    assert opened.facts(DataLimits())["splits"]["train"]["sha256"] == ids_digest(train.ids)
    assert len(train) == len(train.tensors[0]) == len(train.tensors[1])


@pytest.mark.slow
def test_the_same_data_has_the_same_digest_in_another_process(config, project, tmp_path):
    settings = config(data={"source": "data.csv", "target": "sold"})
    code = f"""
import sys; from pathlib import Path
from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.opening import open_task
print(open_task(TrainingConfig.model_validate_json({settings.model_dump_json()!r}), Path({str(project)!r})).data_sha256)"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert found == open_task(settings, project).data_sha256


def edit(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: edit(t, "0.636", "0.637"),
        lambda t: edit(t, ",yes", ",no"),
        lambda t: edit(t, "size", "length"),
        lambda t: "\n".join([*t.splitlines()[:1], *t.splitlines()[:0:-1]]) + "\n",
    ],
    ids=["cell", "label", "name", "order"],
)
def test_any_change_of_the_data_changes_its_digest(config, project, change):
    (project / "data.csv").write_text((project / "data.csv").read_text().replace("0.667", "0.636"))
    settings = config(data={"source": "data.csv", "target": "sold"})
    before = open_task(settings, project).data_sha256
    (project / "data.csv").write_text(change((project / "data.csv").read_text()))
    assert open_task(settings, project).data_sha256 != before


def test_another_split_of_the_same_data_has_another_digest(config, tmp_path):
    assert iris(config, tmp_path).data_sha256 != iris(config, tmp_path, seed=7).data_sha256


def test_comparisons_over_seeds_can_keep_the_split(config, tmp_path):
    kept = iris(config, tmp_path, seed=7, split={"validation": 0.2, "test": 0.1, "seed": 42})
    assert kept.data_sha256 == iris(config, tmp_path, seed=42).data_sha256


def test_batches_larger_than_the_training_split_are_refused(config, tmp_path):
    with pytest.raises(InputError, match="105 training samples are fewer than batch_size 106"):
        iris(config, tmp_path, batch_size=106)


# --- a user's samples ---


def test_tensors_are_split_and_stratified(own):
    opened = own(PLAIN)
    assert [len(opened.split(name)) for name in ("train", "validation")] == [28, 8]
    assert opened.split("validation").tensors[1].bincount().tolist() == [4, 4]
    assert opened.facts(DataLimits())["kind"] == "own"


def test_a_tensor_dataset_is_the_same_as_its_tensors(own):
    wrapped = own("class Mine(Base):\n    def samples(self): return TensorDataset(X, Y)")
    assert wrapped.data_sha256 == own(PLAIN).data_sha256


def test_real_numbers_as_targets_are_split_without_strata(own):
    assert len(own("class Mine(Base):\n    def samples(self): return X, X[:, 0]").split("train")) == 28


def test_a_map_style_data_set_is_read_by_position(own):
    train = own(RANDOM.format(length=40)).split("train")
    assert train.tensors is None
    assert abs(float(train.dataset[3][0].mean()) - int(train.ids[3])) < 5  # seven deviations of its noise


def test_a_random_data_set_has_a_stable_fingerprint(own):
    torch.manual_seed(1)
    first = own(RANDOM.format(length=40)).data_sha256
    torch.manual_seed(2)
    assert own(RANDOM.format(length=40)).data_sha256 == first
    assert own(RANDOM.format(length=40).replace("i % 2", "1 - i % 2")).data_sha256 != first


def test_a_fingerprint_reads_at_most_2048_samples_and_leaves_the_generators(own):
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    opened = own(RANDOM.format(length=5000))
    assert opened.facts(DataLimits())["fingerprinted"] == 2048
    assert torch.equal(torch.rand(1), expected)


def test_given_splits_are_used_as_they_are(own):
    opened = own(GIVEN.format(test="(X[30:], Y[30:])"))
    assert opened.split("validation").ids.tolist() == list(range(20, 30))
    assert opened.open_test().ids.tolist() == list(range(30, 40))


def test_given_splits_need_no_test_split(own):
    opened = own(GIVEN.format(test="None"))
    assert opened.facts(DataLimits())["splits"]["test"]["samples"] == 0
    with pytest.raises(InputError, match="there is no test split"):
        opened.open_test()


def test_the_digest_covers_the_given_test_split(own):
    assert own(GIVEN.format(test="(X[30:], Y[30:])")).data_sha256 != own(GIVEN.format(test="(X[30:], 1 - Y[30:])")).data_sha256


def test_rows_repeated_across_given_splits_are_found(own):
    facts = own(GIVEN.format(test="(X[10:20], Y[10:20])")).facts(DataLimits())
    assert facts["duplicates_across_splits"] == 10
    assert facts["findings"][0]["what"] == "0 of 10 validation rows and 10 test rows are in the training split too"


@pytest.mark.parametrize("rows", ["torch.arange(2**24, 2**24 + 40)", "(1 + torch.arange(40.0).double() / 2**30)"])
def test_samples_that_differ_beyond_float32_are_no_repeats(own, rows):
    opened = own(f"class Mine(Base):\n    def samples(self): return {rows}.reshape(40, 1), Y")
    assert opened.repeated_shares() == {"shared": 0.0, "repeated": 0.0}
    assert len(set(opened.test_rows("salt")["digests"].split())) == len(opened.open_test())


def test_samples_that_float32_holds_have_the_hashes_of_their_float32():
    whole = torch.arange(300).reshape(100, 3) % 200
    expected = row_hashes([whole.float().numpy()])
    for kind in (torch.int64, torch.int32, torch.uint8, torch.bfloat16, torch.float16, torch.float64):
        assert np.array_equal(tensor_hashes([whole.to(kind)]), expected)
    # Also beside others that it does not hold, and with gaps.
    assert tensor_hashes([torch.tensor([5, 2**24 + 1])])[0] == tensor_hashes([torch.tensor([5])])[0]
    gap = torch.full((1, 2), torch.nan, dtype=torch.float64)
    assert np.array_equal(tensor_hashes([gap]), tensor_hashes([gap.float()]))


def test_a_users_samples_that_repeat_by_nature_are_no_leakage(own):
    facts = own("class Mine(Base):\n    def samples(self): return X[:4].repeat(10, 1), Y[:4].repeat(10)").facts(DataLimits())
    assert {f["severity"] for f in facts["findings"]} == {"warning"}


def test_prepare_sees_the_training_split_alone(own):
    opened = own(PLAIN + "    def prepare(self, train): self.seen = train")
    assert torch.equal(opened.task.seen[0], opened.split("train").tensors[0])


def test_nan_in_a_users_samples_is_a_warning(own):
    body = "X[:30, 0] = torch.nan\nclass Mine(Base):\n    def samples(self): return X, Y"
    found = own(body).facts(DataLimits())["findings"]
    assert {f["severity"] for f in found} == {"warning"}
    assert "train samples hold NaN or infinity in tensor 0; the first is sample" in found[0]["what"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("X", "samples.*: expected tensors, .* found Tensor"),
        ("(X,)", r"expected two or more tensors .*, found \(torch.float32 \[40, 2\]\)"),
        ("(X, Y[:39])", r"torch.int64 \[39\]"),
        ("(X.numpy(), Y)", "ndarray"),
        ("None", "found NoneType"),
        ("iter([1])", "gave an iterable, which mltrainer cannot split"),
        ("type('Stream', (IterableDataset,), {'__iter__': iter})()", "gave an iterable, which mltrainer cannot split"),
    ],
)
def test_samples_that_are_none_are_refused(own, value, message):
    with pytest.raises(InputError, match=message):
        own(f"class Mine(Base):\n    def samples(self): return {value}")


def test_samples_of_unknown_kinds_are_refused():
    with pytest.raises(InputError, match="a sample: expected tensors, arrays, numbers and text, found object"):
        samples.fingerprint(samples.Samples(np.arange(1), dataset=[object()]), 1)


def test_the_fingerprint_tells_structures_apart():
    values = [
        [(1, 2)],
        [[1, 2]],
        [{"a": 1}],
        [{"b": 1}],
        [1],
        [1.0],
        ["1"],
        [b"1"],
        [np.ones(2)],
        [np.ones((2, 1))],
        [torch.ones(2)],
    ]
    digests = {samples.fingerprint(samples.Samples(np.arange(1), dataset=value), 1)[0] for value in values}
    assert len(digests) == len(values)


# --- a user's module ---


def test_options_reach_the_task(own):
    body = PLAIN + "    def __init__(self, width: int = 3): self.width = width"
    assert own(body, options={"width": 5}).task.width == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widht": 5}, "no option 'widht' of Mine; did you mean 'width'"),
        ({}, "Mine needs the options width"),
        ({"width": 1, "zzz": 2}, "no option 'zzz' of Mine; there is only width"),
    ],
)
def test_wrong_options_are_refused(own, options, message):
    with pytest.raises(InputError, match=message):
        own(PLAIN + "    def __init__(self, width): self.width = width", options=options)


def test_a_class_that_is_no_task_lists_the_tasks(own):
    with pytest.raises(InputError, match=r"has no 'Main'; its tasks are: Base, Mine"):
        own(PLAIN, use="Main")
    with pytest.raises(InputError, match=r"has 'X', but it is no mltrainer.Task"):
        own(PLAIN, use="X")


def test_a_missing_module_names_the_nearest(own_config, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_tasks_module.py").write_text("")
    with pytest.raises(InputError, match=r"there is no module 'my_task_module' .*did you mean 'my_tasks_module'"):
        open_task(own_config("my_task_module:Mine"), tmp_path)


def test_a_task_without_samples_is_refused(own):
    with pytest.raises(InputError, match="Mine has neither samples"):
        own("class Mine(Base): pass")


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("1 / 0", 15, "importing own_.*ZeroDivisionError: division by zero"),
        ("import nowhere_to_be_found", 15, "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("def f(:", 15, "SyntaxError"),
        ("import sys\nsys.exit(3)", 16, "SystemExit: 3"),
        (PLAIN + "    def __init__(self): raise ValueError('no')", 18, "making Mine: ValueError: no"),
        (
            "class Mine(Base):\n    def samples(self): return torch.ones(2) @ torch.ones(3)",
            16,
            "samples of your task: RuntimeError",
        ),
        (PLAIN + "    def prepare(self, train): return train.nothing", 18, "prepare of your task: AttributeError"),
    ],
)
def test_what_a_users_code_raises_is_told_by_its_line(own, body, line, message):
    with pytest.raises(InputError, match=message) as caught:
        own(body)
    assert caught.value.where.endswith(f".py:{line}")


def test_an_error_of_the_machine_stays_one(own):
    with pytest.raises(OSError, match="No space"):
        own("raise OSError(28, 'No space left on device')")


# --- the model ---


def check(opened):
    check_model(opened, opened.task.model())


@pytest.mark.parametrize("body", [PLAIN, RANDOM.format(length=40), GIVEN.format(test="None")])
def test_a_model_that_fits_passes(own, body):
    check(own(body))


def test_a_model_that_is_wrapped_for_several_devices_is_refused_with_what_to_use(own):
    with refused("model\\(\\) gave a DataParallel", hint="--processes"):
        check_model(own(PLAIN), torch.nn.Sequential(torch.nn.DataParallel(torch.nn.Linear(2, 2))))


def test_checking_leaves_no_trace(own):
    opened = own(PLAIN)
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout(), torch.nn.Linear(2, 2)).train()
    model[2].eval()
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    check_model(opened, model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model] == [True, True, False]


def test_a_built_in_layer_that_does_not_fit_is_named_with_its_input(own):
    opened = own(PLAIN + "    def model(self): return nn.Sequential(nn.ReLU(), nn.Linear(3, 2))")
    with pytest.raises(
        InputError, match=r"does not fit the data: forward raised .* layer 1 = Linear\(in_features=3.*got float32 \[4, 2\]"
    ):
        check(opened)


def test_memory_that_runs_out_in_the_first_forward_pass_is_not_taken_for_shapes_that_disagree(own):
    opened = own(PLAIN + "    def forward(self, model, inputs): return torch.empty(2**45)")
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        check(opened)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "def loss(self, outputs, targets): raise KeyError('weights')",
            r"own_.*:18: .*loss raised KeyError: 'weights'; outputs float32 \[4, 2\]",
        ),
        (
            "def loss(self, outputs, targets): return outputs",
            r"loss: expected a scalar tensor, the mean per sample, found float32 \[4, 2\]",
        ),
        ("def loss(self, outputs, targets): return 0.0", "loss: expected a scalar tensor, the mean per sample, found float"),
        ("def forward(self, model, batch): return model(batch[0])", "expected two parts, outputs and targets, each of tensors"),
        ("def forward(self, model, batch): return model(batch[0])[:2], batch[1]", "2 outputs for 4 targets"),
        ("def forward(self, model, batch): return model(batch[0], 1), batch[1]", "forward raised TypeError"),
        ("def model(self): return 5", "expected a torch.nn.Module, found int"),
    ],
)
def test_a_task_that_does_not_fit_its_data_is_told_why(own, method, message):
    with pytest.raises(InputError) as caught:
        check(own(PLAIN + f"    {method}"))
    assert pytest.importorskip("re").search(message, str(caught.value).replace("\n", " ")), str(caught.value)


def test_a_list_of_samples_is_refused_in_a_line_that_says_what_to_return(own):
    body = PLAIN.replace("return X, Y", "return [(torch.zeros(2), 0) for _ in range(300)]")
    with refused(r"found \(tuple, tuple, tuple, tuple, \.\.\. 300 in all\)", hint="torch Dataset"):
        own(body)


def test_a_data_set_that_fails_on_a_sample_is_told_by_its_line(own):
    body = RANDOM.format(length=40).replace("return torch.full", "return self.missing if i else torch.full")
    with pytest.raises(MltrainerError, match="samples of your task: AttributeError"):
        own(body)


# --- samples of one split in another ---

DATASETS = """
    class Some(Dataset):
        def __init__(self, rows, noise=0.0): self.rows, self.noise = rows, noise
        def __len__(self): return len(self.rows)
        def __getitem__(self, i): return X[self.rows[i]] + self.noise * torch.randn(2), Y[self.rows[i]]

    class Mine(Base):
        def dataset(self, split): return {{"train": {train}, "validation": {validation}, "test": None}}[split]
"""


def compared(opened):
    """Return the number of samples in two splits, and what is said of them, or that nothing is."""
    facts = opened.facts(DataLimits())
    told = [*(row["what"] for row in facts["findings"]), *facts["not_looked_at"]]
    return facts["duplicates_across_splits"], [what for what in told if "duplicates" in what or "in the training split" in what]


def test_samples_of_a_data_set_are_looked_for_in_other_splits(own):
    """160 of 400 validation samples of a Dataset were training samples, and 0 duplicates were sealed."""
    count, found = compared(own(DATASETS.format(train="Some(range(30))", validation="Some(range(26, 36))")))
    assert count == 4
    assert found[0].startswith("leakage: 4 of 10 validation rows and 0 test rows are in the training split too")
    assert found[0].endswith("give each sample to one split alone, in Mine")


def test_data_sets_that_share_nothing_are_said_to(own):
    assert compared(own(DATASETS.format(train="Some(range(30))", validation="Some(range(30, 40))"))) == (0, [])


def test_samples_that_are_drawn_anew_are_said_not_to_be_compared(own):
    opened = own(DATASETS.format(train="Some(range(30), 0.1)", validation="Some(range(20, 30))"))
    assert compared(opened) == (
        None,
        ["duplicates across splits: each reading of a sample draws random numbers, or one is too large"],
    )


STREAMS = """
    class Mine(Base):
        def dataset(self, split): return {{"train": Stream({train}), "validation": Stream({validation}), "test": None}}[split]
    class Stream(IterableDataset):
        def __init__(self, rows): self.rows = rows
        def __len__(self): return len(self.rows)
        def __iter__(self): return iter([(X[i]{noise}, Y[i]) for i in self.rows])
"""


def test_samples_of_an_iterable_are_looked_for_in_other_splits(own):
    streams = STREAMS.format(train="range(30)", validation="range(20, 40)", noise="")
    count, found = compared(own(streams))
    assert count == 10
    assert found[0].startswith("leakage: 10 of 20 validation rows")
    assert compared(own(STREAMS.format(train="range(20)", validation="range(20, 40)", noise=""))) == (0, [])


def test_an_iterable_that_draws_anew_is_said_not_to_be_compared(own):
    opened = own(STREAMS.format(train="range(30)", validation="range(20, 40)", noise=" + torch.randn(2)"))
    assert compared(opened) == (
        None,
        ["duplicates across splits: each reading of a sample draws random numbers, or one is too large"],
    )


@pytest.mark.parametrize("body", [DATASETS, STREAMS])
def test_of_a_large_data_set_it_is_said_how_many_were_compared(own, monkeypatch, body):
    monkeypatch.setattr(reading, "MAX_COMPARED", 10)
    monkeypatch.setattr(reading, "MAX_LOOKED", 10)
    rows = {"train": "range(30)", "validation": "range(30, 40)"}
    named = {"train": "Some(range(30))", "validation": "Some(range(30, 40))"} if body is DATASETS else {**rows, "noise": ""}
    count, found = compared(own(body.format(**named)))
    assert count == 0
    assert found == ["duplicates across splits: compared 10 of 30 train samples; all are too much to read"]


def test_of_large_samples_as_many_are_compared_as_hold_so_much(own, monkeypatch):
    opened = own(DATASETS.format(train="Some(range(30))", validation="Some(range(30, 40))"))
    monkeypatch.setattr(reading, "MAX_BYTES", 20 * sample_bytes(opened.split("train").read(1, "sample", 0, 0)))
    assert compared(opened)[1] == ["duplicates across splits: compared 20 of 30 train samples; all are too much to read"]


def test_where_a_sample_is_too_large_there_is_no_count_and_nothing_is_drawn(own, monkeypatch):
    opened = own(DATASETS.format(train="Some(range(30))", validation="Some(range(40))"))
    monkeypatch.setattr(reading, "MAX_BYTES", 1)
    state = torch.get_rng_state()
    assert compared(opened) == (
        None,
        ["duplicates across splits: each reading of a sample draws random numbers, or one is too large"],
    )
    assert torch.equal(torch.get_rng_state(), state)


def digests(task):
    return set(task.test_rows("s")["digests"].split())


READ = """
class Read(Dataset):
    def __init__(self, x): self.x = x
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return self.x[i], int(i) % 2

class Mine(Base):
    def samples(self): return Read(X{change})
"""


@pytest.mark.parametrize("body", [PLAIN, READ.format(change="")], ids=["tensors", "data set"])
def test_a_tasks_own_test_samples_are_known_again_by_what_they_hold(own, body):
    before = digests(own(body))
    assert len(before) == 4
    assert digests(own(body.replace("X", "X.clone()"))) == before
    assert not digests(own(body.replace("return Read(X", "return Read(X + 100").replace("return X,", "return X + 100,"))) & before
    assert digests(own(body, split={"validation": 0.2, "test": 0.5})) & before


def test_a_large_data_sets_test_samples_are_known_by_so_many_of_them(own, monkeypatch):
    monkeypatch.setattr("mltrainer.tasks.data_adapters.KEPT", 5)
    body = READ.format(change=".repeat(20, 1) + torch.arange(800.0)[:, None]")
    one, other = (digests(own(body, split={"validation": 0.2, "test": share})) for share in (0.5, 0.6))
    assert (len(one), len(other)) == (5, 5)
    assert one & other
