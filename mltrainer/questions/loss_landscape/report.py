"""What surrounds a trained model, as a page and as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mltrainer.questions.loss_landscape.findings import FoundLandscape
from mltrainer.reports import markdown as md
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, number, signed

if TYPE_CHECKING:
    from mltrainer.figures.figure import Figure


def rows(found: FoundLandscape) -> list[tuple[str, str]]:
    """Return the measurements of the loss landscape as pairs of label and value, in words."""
    sharp, line = found.sharpness, found.line.train
    return [
        ("training loss at the checkpoint", _measured(found.center.train, found.samples.train)),
        (
            "validation loss at the checkpoint",
            _measured(found.center.validation, found.samples.validation),
        ),
        ("training loss in the middle of the figures", number(line[len(line) // 2])),
        ("training loss at the ends of the line", f"{number(line[0])} and {number(line[-1])}"),
        ("largest eigenvalue of the Hessian", f"{number(sharp.largest)} ± {number(sharp.residual, 2)}"),
        ("smallest eigenvalue", f"{number(sharp.smallest)} ± {number(sharp.residual, 2)}"),
        (f"rise of the loss within {sharp.sam.rho} (SAM)", signed(sharp.sam.rise)),
        (f"the same, relative to the weights, {sharp.adaptive.rho} (ASAM)", signed(sharp.adaptive.rise)),
        ("norm of the gradient", number(sharp.gradient_norm)),
        *_edge(found),
    ]


def _measured(loss: float, samples: float) -> str:
    return f"{number(loss)} ({counted(int(samples), 'sample')})"


def _edge(found: FoundLandscape) -> list[tuple[str, str]]:
    """Return the sharpness that a plain gradient step can follow (Cohen et al., 2021, arXiv 2103.00065)."""
    optimizer = found.optimizer
    if optimizer["name"] != "sgd":
        return []
    momentum = float(optimizer.get("momentum") or 0.0)
    return [("largest that the peak rate can follow, (2 + 2 momentum) / lr", number((2 + 2 * momentum) / optimizer["lr"]))]


def text(found: FoundLandscape) -> str:
    """Return the values as a person reads them at the keyboard, and where the page is."""
    head = f"around the best checkpoint of run {found.run} (step {number(found.step)})"
    sharp = found.sharpness
    how = f"eigenvalues by {counted(sharp.iterations, 'iteration')} of Lanczos' method, products by {sharp.method}"
    values = table([list(row) for row in rows(found)], ["what", "measured"]).rstrip("\n")
    return "\n".join([head, "", values, "", how, f"page: {found.page}, with its figures"])


def markdown(found: FoundLandscape, figures: Sequence[Figure]) -> str:
    """Return the page; identical numbers give identical bytes."""
    sharp = found.sharpness
    shown = [f"![{figure.title}]({figure.file})\n\n*{md.text(figure.caption)}*" for figure in figures]
    told = (
        f"Around the best checkpoint of run {md.code(found.run)}, step {number(found.step)}, with "
        f"{counted(found.parameters, 'trained number')}. The directions are random, addressed by the run's seed, and scaled "
        "filter by filter to the weights' norms, so that figures of different runs can be compared (Li et al., 2018); biases and "
        "scales stay, and the statistics of batch normalization are measured anew at each point. A plane of two directions out "
        "of so many shows valleys, and hides most of what there is."
    )
    curved = (
        f"The eigenvalues were found by {counted(sharp.iterations, 'iteration')} of Lanczos' method with products of the "
        f"Hessian by {sharp.method}, at the statistics of the checkpoint. SAM: the loss after one step up the gradient (Foret "
        "et al., 2021); ASAM: with steps in proportion to the weights (Kwon et al., 2021). How sharp a minimum is tells by "
        "itself little of how well it generalizes: layers can be rescaled without changing the function (Dinh et al., 2017)."
    )
    values = md.table(["measured", "value"], [[md.text(name), md.text(value)] for name, value in rows(found)])
    return md.document(["# Loss landscape", told, *shown, "## Sharpness", values, curved])
