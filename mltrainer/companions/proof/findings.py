"""What an audit measures and answers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mltrainer.records.common import Difference, Divergence, Metrics, Number, Part

CASE_FILE = "case.safetensors"


class SegmentReplay(Part):
    """A segment that was trained again.

    Attributes:
        begin: The step of the checkpoint that it started from.
        end: Its last step.
        seconds: The time of its steps, without evaluations.
        first_divergence: The first difference of its chain, or of the state at its end from the checkpoint there; None: none.
        compared_state: Whether there was a checkpoint at its end to compare with, bit for bit.
    """

    begin: int
    end: int
    seconds: Number
    first_divergence: Divergence | None
    compared_state: bool


class Evaluated(Part):
    """The metrics that were measured after a step.

    Attributes:
        step: The step.
        validation: The metrics on validation.
        train: The metrics on training samples; None if a checkpoint was measured alone.
        others: The other numbers of this row of the history, such as the mean loss, but for times and memory.
    """

    step: int
    validation: Metrics
    train: Metrics | None = None
    others: dict[str, Any] = Field(default_factory=dict)


class Replay(Part):
    """What the process that trained the segments found.

    Attributes:
        segments: The segments.
        evaluations: What was measured again.
        weights_sha256: The digest of the weights after the last segment; `weights_tree_sha256`: the same over chunks.
        delivered_sha256: The digest of the weights that the best checkpoint delivers; None if that is not here.
        init_sha256: The digest of the weights before the first step.
        ended: Why the training ends after the last segment: `epochs`, `early_stopping`, or empty if it would go on.
        numerics_class: That of this machine.
        data_sha256: The digest of the samples and splits.
    """

    segments: list[SegmentReplay]
    evaluations: list[Evaluated]
    weights_sha256: str
    weights_tree_sha256: str
    delivered_sha256: str | None
    init_sha256: str
    ended: str
    numerics_class: str
    data_sha256: str


class Score(Part):
    """The metrics of a model on a split.

    Attributes:
        samples: The number of samples.
        metrics: The metrics, as the task computes them.
        intervals: Each metric's interval, by its two ends.
        own: Those that mltrainer computes, too, of the outputs of a task that is the project's own code.
    """

    samples: int
    metrics: Metrics
    intervals: dict[str, list[Number]]
    own: Metrics


class Scored(Part):
    """What the process that measured weights found: their digest, the score on each split, the digest of each file it read."""

    weights_sha256: str
    splits: dict[str, Score]
    files: dict[str, str] = Field(default_factory=dict)


class Missed(Part):
    """The probability that an audit of this size misses a forgery.

    Attributes:
        share: The share of the run's steps that is forged.
        segments: The fewest segments that hold it.
        probability: The probability that none of them was trained again.
    """

    share: Number
    segments: int
    probability: Number


class Audit(Part):
    """The answer of `mltrainer reproduce --segments`.

    Attributes:
        run: The run.
        identical: Whether everything that was compared has the same bits.
        record: The phase whose record holds the run; None: none does.
        commit: The commit that holds that record; None: no commit does, so that the author can still change it.
        commitment: The digest of commit, record's seal and ledger's end, from which the segments are drawn.
        nonce: The auditor's text, from which they are drawn, too.
        steps: The steps of the run.
        replayed: The steps that were trained again.
        of_segments: The number of the run's segments.
        segments: Those that were trained again.
        seconds: The time of the replayed steps; `recorded_seconds`: that of all steps, as recorded, of the run's last process.
        evaluations: The number of the run's evaluations; `measured`: how many were measured again.
        unlike: A sentence for each number that differs from the claimed one.
        checkpoints: The number of checkpoints that were compared with the ledger.
        differences: What differs here from what the run was trained with.
        missed: The probability that a forgery was missed, for several shares of the run.
    """

    run: str
    identical: bool
    record: str | None
    commit: str | None
    commitment: str
    nonce: str
    steps: int
    replayed: int
    of_segments: int
    segments: list[SegmentReplay]
    seconds: Number
    recorded_seconds: Number
    evaluations: int
    measured: int
    unlike: list[str] = Field(default_factory=list)
    checkpoints: int
    differences: list[Difference] = Field(default_factory=list)
    missed: list[Missed] = Field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing differs, the environment included."""
        return self.identical and not self.differences


class Operator(Part):
    """An operator of PyTorch that ran in a step, with a digest of each argument and of each result."""

    name: str
    inputs: list[str]
    outputs: list[str]


class StepTrace(Part):
    """The operators of one step as one party's machine ran them.

    Attributes:
        run: The run.
        step: The step.
        chain_head: The head of the run's chain, by which the two parties know that they speak of the same run.
        numbers: The bits of the step's loss and gradient norm, as computed here.
        claimed: The same as the run's chain has them.
        numerics_class: That of the machine.
        operators: The operators in the order in which they ran.
    """

    run: str
    step: int
    chain_head: str
    numbers: str
    claimed: str
    numerics_class: str
    operators: list[Operator]


class Case(Part):
    """An operator whose inputs two parties agree on, and whose results they do not.

    Attributes:
        run: The run; `step`: its step; `number`: the place of the operator in the step, from 0.
        operator: The operator's name.
        threads: The number of threads that computed it.
        inputs: Digests of its inputs, as both parties' operators.json have them.
        here: Digests of the results of the party that wrote the case.
        there: Digests of the results of the other party.
        numerics_class: That of the machine that wrote the case.
        libraries: The versions of that machine's native libraries, by name.
    """

    run: str
    step: int
    number: int
    operator: str
    threads: int = Field(ge=1, le=1024)
    inputs: list[str]
    here: list[str]
    there: list[str]
    numerics_class: str
    libraries: dict[str, str]


class Recomputed(Part):
    """A case's operator, computed again: the digests of its results; numerics class and libraries of this machine."""

    case: Case
    outputs: list[str]
    numerics_class: str
    libraries: dict[str, str]

    @property
    def right(self) -> str:
        """Who had these results: `here` (who wrote the case), `there` (the other party), or `neither`."""
        parties = {"here": self.case.here, "there": self.case.there}
        return next((name for name, outputs in parties.items() if outputs == self.outputs), "neither")


class Dispute(Part):
    """The answer of `mltrainer reproduce --dispute`.

    Attributes:
        run: The run; `step`: its disputed step.
        numbers: The bits of loss and gradient norm as computed here; `claimed`: as the run's chain has them.
        operators: The number of operators in the step.
        trace: The file with all of them, for the other party.
        kind: The kind of the first difference from the other party's trace: `outputs` of an operator with the same inputs,
            `inputs` that no operator of the step computed, or `operators` that are others; None: none, or there is no such trace.
        number: The place of that operator, from 0; `operator`: its name.
        case: The file with which a third party computes it again; None where the outputs do not differ.
        verdict: What follows, in a sentence.
    """

    run: str
    step: int
    numbers: str
    claimed: str
    operators: int
    trace: str
    kind: str | None = None
    number: int | None = None
    operator: str | None = None
    case: str | None = None
    verdict: str
