"""The same model behind LitServe: `python serving_peer.py FOLDER PORT MOST_IN_BATCH`, in an environment that has it.

It reads and answers by the functions that `mltrainer serve` uses, without types, checks of the model, or anything kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import litserve
import numpy as np

from mltrainer.checkpointing import inference_script


class Served(litserve.LitAPI):
    def __init__(self, folder: Path, most: int) -> None:
        super().__init__(max_batch_size=most, batch_timeout=0.005 if most > 1 else 0.0)
        self.folder = folder

    def setup(self, device: str) -> None:
        self.spec = json.loads((self.folder / "inference.json").read_text("utf-8"))
        self.run = inference_script.open_model(self.folder)

    def decode_request(self, request):  # without types, which LitServe would read as the address's parameters
        rows = [{name: inference_script.as_text(cell) for name, cell in row.items()} for row in request["rows"]]
        return inference_script.to_matrix(rows, self.spec)

    def predict(self, inputs: np.ndarray) -> list[dict[str, Any]]:
        return list(inference_script.answers(self.run(inputs), self.spec))

    def encode_response(self, output):
        return {"answers": output}


class InBatches(Served):
    def batch(self, inputs: list[np.ndarray]) -> tuple[np.ndarray, list[int]]:
        return np.concatenate(inputs), [len(one) for one in inputs]

    def predict(self, given: tuple[np.ndarray, list[int]]) -> Any:
        return super().predict(given[0]), given[1]

    def unbatch(self, output: tuple[list[dict[str, Any]], list[int]]) -> list[list[dict[str, Any]]]:
        answers = iter(output[0])
        return [[next(answers) for _ in range(size)] for size in output[1]]


if __name__ == "__main__":
    most = int(sys.argv[3])
    served = InBatches(Path(sys.argv[1]), most) if most > 1 else Served(Path(sys.argv[1]), most)
    server = litserve.LitServer(served, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False, log_level="error")
