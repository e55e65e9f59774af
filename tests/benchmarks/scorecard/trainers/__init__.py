"""The trainers under measurement, one module each. None of them is imported before it trains."""

from __future__ import annotations

from tests.benchmarks.scorecard.case import Trainer
from tests.benchmarks.scorecard.trainers.accelerate import Accelerate
from tests.benchmarks.scorecard.trainers.builtin import Pictures, Table, Texts
from tests.benchmarks.scorecard.trainers.frameworks import HuggingFaceModel, LightningModule
from tests.benchmarks.scorecard.trainers.huggingface import HuggingFace
from tests.benchmarks.scorecard.trainers.ignite import Ignite
from tests.benchmarks.scorecard.trainers.lightning import Lightning
from tests.benchmarks.scorecard.trainers.ours import Mltrainer
from tests.benchmarks.scorecard.trainers.peer import Peer
from tests.benchmarks.scorecard.trainers.strategies import STRATEGIES as STRATEGIES

PEERS: list[Peer] = [Lightning(), HuggingFace(), Accelerate(), Ignite()]
TRAINERS: list[Trainer] = [Mltrainer(), *PEERS]
BUILT_IN: list[Trainer] = [Table(), Texts(), Pictures(), LightningModule(), HuggingFaceModel()]
