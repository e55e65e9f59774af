"""What training does to images: each batch_transform for itself, and the addresses of its draws."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mltrainer.configs.augmenting import Affine, Augment, Colour, RandAugment
from mltrainer.tasks.batch_transform import BatchTransform
from mltrainer.tasks.images import augmentation
from mltrainer.tasks.images.augmentation import OPERATIONS, Levels, augment, mix_samples, warp
from tests.trainers.native.digits_runs import same, train

LEVELS = Levels(0.0, 255.0)
SATURATION = 11  # of one channel, it is nothing
EVERY = Augment(
    crop=1,
    flip="both",
    affine=Affine(rotate=10, translate=0.1, scale=0.1, shear=5),
    colour=Colour(brightness=0.2, contrast=0.2, saturation=0.2),
    randaugment=RandAugment(),
    erase=0.5,
    mixup=0.2,
    cutmix=1.0,
)


def pictures(count: int = 6, channels: int = 3) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, channels, 8, 10), dtype=np.uint8))


def drawn(value: float) -> Any:
    """Every draw is one value."""
    return lambda _what, count: np.full((6, count), value)


def altered(config: Augment, x: Tensor, ids: np.ndarray, epoch: int = 0, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    x, y = BatchTransform(42, 5, config, LEVELS, smoothing)((x, torch.from_numpy(ids % 5)), ids, epoch)
    return x, y


# --- one by one ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("flip", "axes"), [("horizontal", (3,)), ("vertical", (2,)), ("both", (2, 3))])
def test_an_image_is_mirrored_where_the_draw_says_so(flip, axes):
    x = pictures()
    assert torch.equal(augment(x, Augment(flip=flip), LEVELS, drawn(0.1)), x.flip(axes))
    assert torch.equal(augment(x, Augment(flip=flip), LEVELS, drawn(0.9)), x)


def test_cutting_moves_whole_pixels_and_fills_with_black():
    x = pictures()
    found = augment(x, Augment(crop=2), LEVELS, drawn(0.0))
    assert torch.equal(found[:, :, 2:, 2:], x[:, :, :-2, :-2])
    assert found[:, :, :2].max() == found[:, :, :, :2].max() == 0
    assert torch.equal(augment(x, Augment(crop=2), LEVELS, drawn(0.5)), x)


def test_a_quarter_turn_is_a_quarter_turn():
    x, still = pictures()[:, :, :, :8].float(), np.zeros((6, 2))
    found = warp(x, LEVELS, np.full(6, np.pi / 2), still, still)
    assert min(float((found - x.rot90(k, (2, 3))).abs().max()) for k in (1, 3)) < 0.01


def test_black_comes_in_from_outside():
    found = warp(pictures().float() + 10, Levels(10.0, 265.0), np.zeros(6), np.zeros((6, 2)), np.ones((6, 2)))
    assert torch.equal(found, torch.full_like(found, 10.0))


@pytest.mark.parametrize("config", [Augment(affine=Affine()), Augment(colour=Colour(brightness=0.5, contrast=0.5))])
def test_the_middle_of_the_draws_changes_nothing(config):
    x = pictures()
    assert (augment(x, config, LEVELS, drawn(0.5)) - x).abs().max() < 0.01


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("operation", range(len(OPERATIONS)))
def test_operations_stay_between_black_and_white(operation, channels):
    x = pictures(channels=channels).float()
    for amount in (-1.0, 0.3, 1.0):
        found = OPERATIONS[operation](x, np.full(6, amount), LEVELS)
        assert found.shape == x.shape
        assert -0.01 <= float(found.min()) <= float(found.max()) <= 255.01
        assert torch.equal(found, x) == (operation == 0 or (channels, operation) == (1, SATURATION))


def test_a_rectangle_of_the_mean_is_erased_from_some():
    x = pictures(400, 1)
    found, _ = altered(Augment(erase=0.25), x, np.arange(400))
    share = ((found != x).flatten(1).float().mean(1)).numpy()
    assert 0.18 < (share > 0).mean() < 0.32
    assert share[share > 0].min() > 0.01
    assert share.max() < 0.4


def test_cutmix_gives_a_target_the_share_of_its_pixels():
    x = torch.arange(6, dtype=torch.uint8).reshape(6, 1, 1, 1).expand(6, 1, 8, 10)
    y = functional.one_hot(torch.arange(6), 6).float()
    found, targets = mix_samples(x, y, Augment(cutmix=1.0), np.random.default_rng(3))
    own = (found == x).flatten(1).float().mean(1)
    assert 0 < float(own[0]) < 1
    assert torch.allclose(targets.diagonal(), own)
    assert torch.allclose(targets.sum(1), torch.ones(6))


def test_mixup_mixes_images_and_targets_alike():
    x, y = torch.eye(6).reshape(6, 1, 6, 1), torch.eye(6)
    found, targets = mix_samples(x, y, Augment(mixup=1.0), np.random.default_rng(3))
    assert torch.allclose(found.reshape(6, 6), targets)


def test_smoothing_leaves_each_class_its_share():
    _, targets = altered(Augment(), pictures(2), np.array([0, 6]), smoothing=0.1)
    assert torch.allclose(targets, torch.tensor([[0.92, 0.02, 0.02, 0.02, 0.02], [0.02, 0.92, 0.02, 0.02, 0.02]]))


# --- addresses ----------------------------------------------------------------------------------


def test_what_is_done_to_an_image_depends_on_its_id_and_epoch_alone():
    x, ids = pictures(), np.array([3, 14, 15, 92, 65, 35])
    config = EVERY.model_copy(update={"mixup": None, "cutmix": None})
    whole, _ = altered(config, x, ids)
    parts = [altered(config, x[place : place + 1], ids[place : place + 1])[0] for place in range(6)]
    assert torch.allclose(whole, torch.cat(parts), atol=1e-3)
    assert not torch.allclose(altered(config, x, ids, epoch=1)[0], whole, atol=1)


def test_an_alteration_more_leaves_the_others_draws():
    x, ids = pictures(), np.arange(6)
    alone, _ = altered(Augment(flip="both"), x, ids)
    beside, _ = altered(Augment(flip="both", colour=Colour()), x, ids)
    assert torch.equal(beside, alone.float())


@pytest.fixture
def digits(tmp_path: Path) -> dict[str, Any]:
    """A config of a small image classification with all alterations, beside its data."""
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = generator.integers(0, 200, (90, 6, 6), dtype=np.uint8)
    x[np.arange(90), y * 2] += 50
    np.savez(tmp_path / "x.npz", x=x, y=y)
    return {
        "task": {"kind": "image_classification"},
        "data": {"source": str(tmp_path / "x.npz")},
        "model": {"name": "cnn", "channels": [4]},
        "augment": EVERY.model_dump(),
        "label_smoothing": 0.1,
        "early_stopping": None,
        "epochs": 2,
    }


@pytest.mark.slow
def test_an_augmented_run_repeats_and_resumes_in_the_middle_of_an_epoch(tmp_path, digits):
    roots = [tmp_path / name for name in ("whole", "halves", "often", "plain")]
    for root in roots:
        root.mkdir()
    whole = train(roots[0], **digits)
    assert same(train(roots[1], (3,), **digits), whole)
    assert train(roots[2], evaluate={"every_n_steps": 1}, **digits)["weights_sha256"] == whole["weights_sha256"]
    plain = train(roots[3], **{**digits, "augment": None, "label_smoothing": 0.0})
    assert plain["weights_sha256"] != whole["weights_sha256"]
    assert plain["first_loss"] != whole["first_loss"]


@pytest.mark.slow
def test_draws_that_go_on_from_one_another_are_found_out(tmp_path, digits, monkeypatch):
    begun: dict[int, tuple[BatchTransform, np.random.Generator]] = {}  # one for each process of a run

    def draws(self: BatchTransform, _what: str, count: int, _epoch: int, ids: np.ndarray) -> np.ndarray:
        _, generator = begun.setdefault(id(self), (self, np.random.default_rng(7)))
        return generator.random((len(ids), count))

    monkeypatch.setattr(BatchTransform, "_draws", draws)
    for name in ("whole", "halves"):
        (tmp_path / name).mkdir()
    assert not same(train(tmp_path / "halves", (3,), **digits), train(tmp_path / "whole", **digits))


def test_a_run_without_alterations_gets_its_batches_untouched():
    from mltrainer.trainers.native.data.addresses import Plan
    from mltrainer.trainers.native.data.addresses import altered as steps_altered

    steps = iter(())
    assert steps_altered(steps, Plan(1, 1, 1, 1), 0, []) is steps
    assert augmentation.augment(pictures(), Augment(), LEVELS, drawn(0.5)).dtype == torch.uint8
