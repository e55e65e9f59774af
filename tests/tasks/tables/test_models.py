"""Networks for tables: what they embed, what their members give, and that every export says the same."""

import warnings

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch.nn import functional

import mltrainer
from mltrainer.configs.project import ModelConfig
from mltrainer.errors import InputError
from mltrainer.tasks.models import Standardize, build
from mltrainer.tasks.tables.embeddings import Evidence, PiecewiseLinear, Tokens, fit_codes, fit_edges, standardized
from mltrainer.tasks.tables.encoder import Destandardize, TabularEncoder, fit_statistics
from mltrainer.tasks.tables.models import SharedDropout, SharedLinear, build_for_table, each_member

NAN = float("nan")
MATRIX = np.array(
    [[1, 0, 10], [2, 1, NAN], [6, -1, 30], [3, 1, 20]], dtype=np.float32
)  # number, category of 2, number with a gap
RETURNING = np.concatenate(
    [MATRIX + np.array([[number, 0, 0]], dtype=np.float32) for number in [*range(20)] * 2]
)  # codes in front
KINDS = [{"name": "tabular_mlp", "hidden": [8], "members": 3}, {"name": "ft_transformer", "embedding": 8, "heads": 2}]
KINDS += [{**kind, "numbers": numbers} for kind in KINDS for numbers in ("periodic", "plain")]
CODED = {**KINDS[0], "codes": True}


def table_config(**values):
    return TypeAdapter(ModelConfig).validate_python(values)


def made(classes=3, matrix=MATRIX, exit_module=None, **values):
    torch.manual_seed(0)
    config, statistics = table_config(**values), fit_statistics(matrix, {1: 2})
    codes = fit_codes(matrix, statistics, evidence(effects(matrix[:, 0]))) if config.codes else []
    return build_for_table(config, statistics, fit_edges(matrix, statistics, config.bins), codes, classes, exit_module)


def effects(column, seed=0):
    """A target that each number of a column moves by an amount of its own."""
    _, number = np.unique(column, return_inverse=True)
    return standardized(np.random.default_rng(seed).normal(size=number.max() + 1)[number], 0)


def evidence(targets):
    """Every fourth row is held out in turn."""
    rows = np.arange(len(targets))
    return Evidence(rows, targets, [(rows[rows % 4 != fold], rows[rows % 4 == fold]) for fold in range(4)])


def stirred(model):
    for values in model.parameters():
        torch.nn.init.normal_(values, std=0.3)
    return model


def tokens(matrix=MATRIX, **values):
    return made(matrix=matrix, **{"name": "tabular_mlp", **values}).tokens


# --- numbers and categories -----------------------------------------------------------------------


def test_bins_hold_equal_shares_of_the_training_rows():
    column = np.arange(101, dtype=np.float32)[:, None] ** 3
    edges = fit_edges(column, fit_statistics(column, {}), 4)[0]
    assert edges * column.std() + column.mean() == pytest.approx(np.array([0, 25, 50, 75, 100.0]) ** 3, rel=1e-4, abs=1)


def test_equal_values_share_a_bin_and_a_constant_column_has_none():
    column = np.stack([[0, 0, 0, 0, 1, 2], [5] * 6], axis=1).astype(np.float32)
    ties, constant = fit_edges(column, fit_statistics(column, {}), 5)
    assert (len(ties), len(constant)) == (3, 1)  # fifths of the rows end at 0, 0, 0, 0, 1 and 2


def test_a_number_is_piecewise_linear_between_the_edges_and_constant_outside():
    more = PiecewiseLinear([np.array([0.0, 1, 3])], 1)
    with torch.no_grad():
        more.weight.copy_(torch.tensor([[[1.0], [10.0]]]))
    given = torch.tensor([[-5.0], [0.5], [1], [2], [3], [99]])
    assert more(given).flatten().tolist() == [0, 0.5, 1, 6, 11, 11]


def test_what_is_added_to_numbers_begins_at_0():
    rows = torch.from_numpy(MATRIX)
    assert torch.equal(tokens(numbers="piecewise")(rows), tokens(numbers="plain")(rows))


YEARS = np.array(
    [2001, *np.repeat(np.arange(2003, 2026), 6), 2030, 2031], dtype=np.float32
)  # of 2001, 2030 and 2031 one row each


def coded(column, targets=None):
    matrix = np.stack([column, np.linspace(0, 1, len(column))], axis=1).astype(np.float32)
    return fit_codes(matrix, fit_statistics(matrix, {}), evidence(effects(column) if targets is None else targets))


def test_whole_numbers_that_return_are_codes_and_others_are_none():
    years, quantities = coded(YEARS)
    assert (years.tolist(), len(quantities)) == (list(range(2003, 2026)), 0)
    others = [
        YEARS + 0.5,
        np.arange(100),
        YEARS // 4,
        (YEARS - 2000) * 1e4,
        YEARS + 1e8,
    ]  # halves; once each; few; far apart; far out
    assert not any(len(one) for column in others for one in coded(column))


DRAWS = np.random.default_rng(1)
SHOPS = DRAWS.integers(0, 60, 3000)
NOISE = DRAWS.normal(size=3000)


@pytest.mark.parametrize(
    "target",
    [
        NOISE,
        0.1 * SHOPS + NOISE,
        np.sin(SHOPS / 8) + NOISE,
        np.maximum(SHOPS - 30, 0) / 5 + NOISE,
        np.abs(SHOPS - 40.0) * np.exp(NOISE),
    ],
    ids=["noise", "line", "wave", "kink", "spread"],
)
def test_a_quantity_has_no_codes_whatever_its_trend(target):
    assert len(coded(SHOPS, standardized(target, 0))[0]) == 0


def test_numbers_with_effects_beside_a_trend_are_codes_of_quantities_and_of_classes():
    value = np.random.default_rng(2).normal(size=60)[SHOPS] + 0.05 * SHOPS
    assert len(coded(SHOPS, standardized(value + NOISE, 0))[0]) == 60
    assert len(coded(SHOPS, standardized((value + NOISE > 1).astype(int) + (NOISE > 1), 3))[0]) == 60


def test_the_counts_of_a_census_have_no_codes_where_the_older_rule_gave_each_count_a_vector():
    households = np.exp(DRAWS.normal(6, 0.7, 3000)).round()
    rooms = (households * np.exp(DRAWS.normal(1.65, 0.2, 3000))).round()
    matrix = np.stack([households, rooms, SHOPS], axis=1).astype(np.float32)
    value = np.log(rooms / households) + 0.01 * SHOPS + 0.3 * NOISE
    found = fit_codes(matrix, fit_statistics(matrix, {}), evidence(standardized(value, 0)))
    assert [len(one) for one in found] == [0, 0, 0]


def test_a_target_counts_by_the_variance_of_all_its_classes_together():
    columns = standardized(np.array([0, 1, 2, 2]), 3)
    assert columns.mean(0) == pytest.approx([0, 0, 0])
    assert columns.var(0).sum() == pytest.approx(1)
    assert standardized(np.array([4.0, 4.0]), 0).tolist() == [[0], [0]]


def test_each_code_has_a_vector_and_all_other_numbers_share_one():
    matrix = np.stack([YEARS, np.zeros(len(YEARS)), np.linspace(0, 1, len(YEARS))], axis=1).astype(np.float32)
    entry = made(matrix=matrix, name="tabular_mlp", codes=True).tokens
    plain = made(matrix=matrix, name="tabular_mlp").tokens
    asked = torch.tensor([[2003.0], [2004], [2025], [2001], [2002], [-1e30], [1e30], [NAN], [2003.5], [2003.9]])
    asked = torch.cat([asked, torch.zeros(10, 2)], dim=1)
    assert torch.equal(entry(asked), plain(asked))  # as codes begin at 0
    with torch.no_grad():
        entry.codes.weight.copy_(torch.arange(len(entry.codes.weight)).unsqueeze(1))
    added = (entry(asked) - plain(asked))[:, :, 0].round().tolist()
    assert [row[0] for row in added] == [1, 2, 23, 0, 0, 0, 0, 0, 0, 0]
    assert {row[1] for row in added} == {24}  # the column of quantities: a vector that tells nothing apart


@pytest.mark.parametrize("code", [0.5, -0.5, 1.5, NAN])
def test_a_code_that_is_no_whole_number_is_an_unknown_category_to_each_model(code):
    unknown, other = (torch.tensor([[1.0, value, 10.0]]) for value in (-1.0, code))
    for entry in (stirred(tokens()), TabularEncoder(fit_statistics(MATRIX, {1: 2}))):
        assert torch.equal(entry(other), entry(unknown))
        assert not torch.equal(entry(other), entry(torch.tensor([[1.0, 1.0, 10.0]])))


def test_numbers_come_first_and_each_column_has_a_vector():
    assert tokens(embedding=5)(torch.from_numpy(MATRIX)).shape == (4, 3, 5)


def test_far_numbers_are_clipped_smoothly():
    vectors = tokens()(torch.tensor([[1e4, 0, 20], [1e6, 0, 20]]))
    assert torch.allclose(vectors[0], vectors[1], atol=1e-3)


def test_a_gap_that_training_has_not_seen_is_the_median():
    entry = tokens(MATRIX[[0, 2, 3]])
    assert torch.equal(entry(torch.tensor([[3.0, 0, NAN]])), entry(torch.tensor([[3.0, 0, 20]])))


def test_a_gap_that_training_has_seen_can_be_told_from_the_median():
    entry = tokens()
    with torch.no_grad():
        entry.gap.fill_(1)
    given = entry(torch.tensor([[3.0, 0, NAN], [3, 0, 20]]))
    assert torch.allclose(given[0, 1] - given[1, 1], torch.ones(8))


def test_an_unknown_category_begins_at_0_and_others_have_vectors_of_their_own():
    vectors = tokens()(torch.tensor([[1.0, -1, 1], [1, NAN, 1], [1, 0, 1], [1, 1, 1]]))[:, 2]
    assert not vectors[:2].any()
    assert not torch.equal(vectors[2], vectors[3])


@pytest.mark.parametrize(("matrix", "categories"), [(MATRIX[:, [0]], {}), (np.array([[0], [1]], dtype=np.float32), {0: 2})])
def test_numbers_alone_or_categories_alone_make_a_model(matrix, categories):
    statistics = fit_statistics(matrix, categories)
    entry = Tokens(table_config(name="tabular_mlp"), statistics, fit_edges(matrix, statistics, 16))
    assert entry(torch.from_numpy(matrix)).shape == (len(matrix), 1, 8)


# --- members --------------------------------------------------------------------------------------


def test_in_evaluation_members_give_the_logarithm_of_their_mean_probabilities():
    model, rows = made(**KINDS[0]), torch.from_numpy(MATRIX)
    each, together = model.train()(rows), model.eval()(rows)
    assert (each.shape, together.shape) == ((4, 3, 3), (4, 3))
    assert not torch.allclose(each[:, 0], each[:, 1], atol=1e-3)
    assert torch.allclose(together.exp(), _without_dropout(model)(rows).softmax(2).mean(1), atol=1e-6)


def _without_dropout(model):
    for module in model.train().modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    return model


def test_a_shared_layer_is_the_members_own_matrices():
    layer = stirred(SharedLinear(3, 4, 5, is_first=True))
    x = torch.randn(3, 7, 4)
    wanted = [(x[m] * layer.scale_in[m]) @ layer.weight * layer.scale_out[m] + layer.bias[m] for m in range(3)]
    assert torch.allclose(layer(x), torch.stack(wanted), atol=1e-6)
    assert torch.allclose(layer(x[:1]), layer(x[:1].expand(3, -1, -1)))


def test_dropout_drops_a_share_of_the_units_the_same_ones_in_each_member():
    torch.manual_seed(0)
    dropped, ones = SharedDropout(0.25), torch.ones(3, 400, 50)
    found = dropped(ones)
    assert torch.equal(found[0], found[1])
    assert sorted(found.unique().tolist()) == pytest.approx([0, 1 / 0.75])
    assert (found == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(dropped.eval()(ones), ones)


def test_in_evaluation_members_give_their_mean_value_in_the_targets_units():
    model, rows = made(classes=None, exit_module=Destandardize(100, 10), **KINDS[0]), torch.from_numpy(MATRIX)
    each = _without_dropout(model)(rows)
    assert each.shape == (4, 3)
    assert torch.allclose(model.eval()(rows), each.mean(1))


def test_each_member_has_a_loss_of_its_own():
    outputs, targets = torch.rand(5, 2, 3), torch.tensor([0, 1, 2, 1, 0])
    loss = functional.cross_entropy(*each_member(outputs, targets, axes=2))
    assert loss == pytest.approx(sum(functional.cross_entropy(outputs[:, member], targets).item() for member in (0, 1)) / 2)


# --- the whole model ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, CODED])
def test_first_weights_come_from_torchs_generator_alone(kind):
    first, second = made(**kind).state_dict(), made(**kind).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", [*KINDS[2:4], CODED])
def test_models_export_with_a_batch_of_any_size(kind):
    model, rows = stirred(made(matrix=RETURNING, **kind)).eval(), torch.from_numpy(MATRIX)
    more = torch.cat([rows, rows.flip(0), rows])
    assert (model.tokens.codes is not None) == (kind is CODED)
    program = torch.export.export(model, (rows,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    assert torch.allclose(program.module()(more), model(more), atol=1e-6)
    assert torch.allclose(program.module()(more[:1]), model(more[:1]), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4], CODED])
def test_models_trace_and_export_to_onnx(kind, tmp_path):
    runtime, _ = pytest.importorskip("onnxruntime"), pytest.importorskip("onnxscript")
    model, rows = stirred(made(matrix=RETURNING, **kind)).eval(), torch.from_numpy(MATRIX)
    more, path = torch.cat([rows, rows.flip(0), rows + 0.5]), str(tmp_path / "model.onnx")  # fractions are no codes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own deprecations
        traced = torch.jit.trace(model, rows)
        torch.onnx.export(
            model, (rows,), path, dynamo=True, dynamic_shapes=({0: torch.export.Dim("batch")},), input_names=["x"], verbose=False
        )
        found = runtime.InferenceSession(path).run(None, {"x": more.numpy()})[0]
    assert torch.allclose(traced(more), model(more), atol=1e-6)
    assert np.allclose(found, model(more).detach().numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [{"name": "tabular_mlp", "hidden": [16], "members": 2}, {"name": "ft_transformer", "blocks": 1}]
)
def test_they_train_in_bfloat16_with_accumulated_gradients(model):
    found = mltrainer.fit(
        {"kind": "tabular_regression"}, data={"source": "sklearn:diabetes"}, model=model, split={"stratify": False},
        metric={"name": "r2", "mode": "max"}, epochs=6, batch_size=16, accumulate=2, precision="bf16", set={"optimizer.lr": 4e-3},
        tell=lambda _event: None,
    )  # fmt: skip
    assert found.metrics["r2"] > 0.3


def test_images_have_no_columns():
    with pytest.raises(InputError, match="tabular_mlp is a model for tables"):
        build(table_config(name="tabular_mlp"), Standardize(np.zeros(1), np.ones(1)), [1, 8, 8], 10)


def test_heads_share_a_vector_evenly():
    with pytest.raises(ValidationError, match="embedding 10 cannot be shared evenly by 4 heads"):
        table_config(name="ft_transformer", embedding=10)
