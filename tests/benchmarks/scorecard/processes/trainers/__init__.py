"""The trainers under measurement, one module each. None of them is imported before it trains."""

from __future__ import annotations

from tests.benchmarks.scorecard.processes.case import Trainer
from tests.benchmarks.scorecard.processes.trainers.accelerate import Accelerate
from tests.benchmarks.scorecard.processes.trainers.huggingface import HuggingFace
from tests.benchmarks.scorecard.processes.trainers.lightning import Lightning
from tests.benchmarks.scorecard.processes.trainers.ours import Fsdp as OwnFsdp
from tests.benchmarks.scorecard.processes.trainers.ours import Mltrainer, Zero
from tests.benchmarks.scorecard.processes.trainers.peer import Peer
from tests.benchmarks.scorecard.processes.trainers.stock import Ddp, Fsdp

PEERS: list[Peer] = [Ddp(), Fsdp(), Lightning(), Accelerate(), HuggingFace()]
TRAINERS: list[Trainer] = [Mltrainer(), Zero(), OwnFsdp(), *PEERS]
