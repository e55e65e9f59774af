"""Text generation: a language model of tokens, trained on contiguous blocks of text files."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Split, Tokens, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks import data_findings, metrics
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.content import Corpus, Source
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.splits import SPLITS, SplitConstraints, SplitIds
from mltrainer.tasks.text import interface, tokenizing
from mltrainer.tasks.text.corpus import blocks, line_hashes
from mltrainer.tasks.text.interface import TOKENIZER_FILE
from mltrainer.tasks.text.models import language_model
from mltrainer.tasks.text.token_file import token_file

METRICS = ("loss", "perplexity", "bits_per_byte")
SHOWN, SHOWN_TOKENS, PROMPT_TOKENS = 2, 200, 32  # samples in the reports, tokens written in each, and tokens of the prompt


class TextGeneration(BuiltinTask):
    """Predicts each token of a text from those before it.

    A sample is a window of `length` tokens and the one after it; windows overlap by that one, so that every token of a block but
    its first and the last few is predicted once. Outputs are a window's summed loss in nats, targets its mean number of bytes.
    """

    targets = "tokens"

    def __init__(self, config: TrainingConfig, source: Source) -> None:
        assert config.data is not None
        if not isinstance(source.content, Corpus):
            what = "text_generation needs a text file or a folder of some, found a table, arrays or texts by class"
            raise InputError(what, where="data.source", hint="data: {source: FILE.txt}")
        self._config, self._source, self._tokens = config, source, config.data.tokens or Tokens()
        data_findings.refuse_unknown_metric(config.metric.name, METRICS)
        # The model writes text, so its tokens must decode to the text that they were made from.
        if self._tokens.kind == "word" and self._tokens.file is None:
            hint = "data: {tokens: {kind: char}} (or bpe)"
            raise InputError("words in lower case cannot be turned back into a text", where="data.tokens.kind", hint=hint)
        self._bounds = blocks(source.content, config.split)
        self._file = token_file(source.content, self._tokens, source.tokenizer, self._bounds)
        self._tokenizer = tokenizing.load(self._file.tokenizer, TOKENIZER_FILE)
        self._windows = {split: max(0, count - 1) // self._tokens.length for split, count in self._file.counts.items()}
        self.size = sum(self._windows.values())
        self.tokens_per_sample = self._tokens.length
        self._refuse_short()

    def _refuse_short(self) -> None:
        """Refuse a block without a window.

        Raises:
            InputError: A block is too short; the message has its size.
        """
        for split in SPLITS if self._config.split.test else SPLITS[:2]:
            if not self._windows[split]:
                what = f"the {split} block has {self._file.counts[split]} tokens, fewer than one sample of {self._tokens.length}"
                raise InputError(what, where="data.tokens.length", hint="bring more text, or take shorter samples")

    def split_constraints(self, split: Split) -> SplitConstraints:
        """Return the windows of each block: the text is cut in three, so that no window is in two of them."""
        super().split_constraints(split)
        return SplitConstraints(given=np.repeat(np.arange(len(SPLITS)), [self._windows[name] for name in SPLITS]))

    def refuse_forgetting(self) -> None:
        """Refuse if the tokens were learned from the whole training block.

        Raises:
            InputError: They were.
        """
        if self._tokens.file is None:
            what = "the tokens were learned from the whole training text, the windows to forget among it"
            raise InputError(what, where="forget", hint="bring one: data: {tokens: {file: tokenizer.json}}")

    def place(self, row: int) -> str:
        """Return the number of a window in its block."""
        split, first = self._block(np.array([row]))
        return f"{self._source.content.place}, {split}, window {row - first}"

    def cells(self, row: int) -> dict[str, str]:
        """Return a window's text."""
        return {"text": self.decoded(self.rows(np.array([row]))[0][0])}

    def decoded(self, tokens: Tensor) -> str:
        """Return the text of some tokens."""
        return str(self._tokenizer.decode(tokens.tolist()))

    def keys(self) -> np.ndarray:
        """Return a unique number for each window: repeats in a text are legitimate training data."""
        return np.arange(self.size, dtype=np.uint64)

    @property
    def repeats_belong(self) -> bool:
        """Whether repeats are legitimate training data: in a text they are."""
        return True

    def hashes(self, ids: np.ndarray) -> np.ndarray:
        """Return the windows' numbers."""
        return ids.astype(np.uint64)

    def content_hashes(self, ids: np.ndarray) -> np.ndarray:
        """Return a hash of each longer line of the block: windows have numbers alone, and tokens depend on the training block."""
        split, _ = self._block(ids)
        assert isinstance(self._source.content, Corpus)
        return line_hashes(self._source.content, *self._bounds[split])

    def all_targets(self) -> np.ndarray:
        """Return zeros: targets do not distinguish windows."""
        return np.zeros(self.size, dtype=np.int64)

    def fit(self, train: np.ndarray) -> None:
        """Do nothing: the tokenizer was trained on the training block when the tokens were made."""

    def rows(self, ids: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return windows [samples, length + 1] of the file, which overlap by one token, and the number of bytes of each."""
        split, first = self._block(ids)
        begins = sum(self._file.counts[name] for name in SPLITS[: SPLITS.index(split)])
        tokens = torch.from_numpy(self._file.ids[begins : begins + self._file.counts[split]])
        length = self._tokens.length
        # A view: copies of overlapping windows would hold the whole block a second time.
        windows = tokens.as_strided((self._windows[split], length + 1), (length, 1))
        places = ids - first
        whole = len(ids) == self._windows[split]
        start, end = self._bounds[split]
        size = torch.full((len(ids),), (end - start) / max(1, len(tokens)) * length, dtype=torch.float64)
        # The whole block, in its order, stays a view of the mapped file; any choice of windows is a copy.
        return windows if whole else windows[torch.from_numpy(places)], size

    def _block(self, ids: np.ndarray) -> tuple[str, int]:
        """Return the split that samples belong to, and the number of its first window."""
        first = 0
        for split in SPLITS:
            if len(ids) and ids[0] < first + self._windows[split]:
                return split, first
            first += self._windows[split]
        return SPLITS[-1], first - self._windows[SPLITS[-1]]

    def model(self) -> nn.Module:
        """Return the config's model of sequences."""
        return language_model(self._config.model, self._tokenizer.get_vocab_size(), self._tokens.length)

    def forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the loss of each window, summed over its tokens, and its bytes; that of a shorter one is scaled up."""
        tokens = batch[0].long()
        logits = model(tokens[:, :-1])
        # In float32 also under mixed precision, as the sum over a window's tokens loses digits in bfloat16.
        each = functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        return each.reshape(len(tokens), -1).sum(1) * (self._tokens.length / (tokens.shape[1] - 1)), batch[-1]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of a token, in nats; every window has as many."""
        return outputs.mean() / self._tokens.length

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return `perplexity`, of a token, and `bits_per_byte` of the text, which is comparable between tokenizers."""
        nats = float(outputs.double().sum())
        perplexity = metrics.perplexity(nats / (max(1, len(outputs)) * self._tokens.length))
        return {"perplexity": perplexity, "bits_per_byte": nats / math.log(2) / max(1.0, float(targets.sum()))}

    def shown(self, model: nn.Module) -> dict[str, Any]:
        """Return the model's continuations of the first tokens of the validation block, under the run's seed."""
        device = next(model.parameters()).device
        start = self._file.counts.train
        prompt = self._file.ids[start : start + min(PROMPT_TOKENS, self._tokens.length)].tolist()
        found = [self._continued(model, prompt, number, device) for number in range(SHOWN)]
        return {"kind": "generation", "prompt": self._tokenizer.decode(prompt), "samples": found}

    @torch.no_grad()
    def _continued(self, model: nn.Module, prompt: list[int], number: int, device: torch.device) -> str:
        draws, ids = seeds.generator(self._config.seed, "generate", number), list(prompt)
        for _ in range(SHOWN_TOKENS):
            window = ids[-self._tokens.length :]
            # Filled up at the right, where a causal model does not look; the model's width is fixed.
            given = torch.tensor([window + [0] * (self._tokens.length - len(window))], device=device)
            ids.append(int(_drawn(model(given)[:, len(window) - 1], 1.0, np.array([draws.random()]))[0]))
        return str(self._tokenizer.decode(ids[len(prompt) :]))

    @torch.no_grad()
    def written(self, model: nn.Module, windows: Tensor, prompt: int, temperature: float, draws: np.ndarray) -> Tensor:
        """Return windows in which a model continues the first tokens.

        Args:
            model: A causal model of the same tokens.
            windows: The windows [samples, length + 1].
            prompt: Number of tokens of each window that stay.
            temperature: The divisor of the scores before a token is drawn; 0: the likeliest one each time.
            draws: A number from [0, 1) for each token that is written: [samples, length + 1 - prompt].
        """
        found = windows.to(torch.int64, copy=True)
        found[:, prompt:] = 0
        for nr, place in enumerate(range(prompt, found.shape[1])):
            # Whole windows, filled up at the right, where the model does not look: its width may be fixed.
            found[:, place] = _drawn(model(found[:, :-1])[:, place - 1], temperature, draws[:, nr]).to(found.device)
        return found.to(windows.dtype)

    def inference(self) -> dict[str, Any]:
        """Return the model's number of input tokens, and the tokenizer's file."""
        return interface.inference("text_generation", self._tokens.length, self._source.notes, "logits of each next token")

    def delivered(self) -> dict[str, bytes]:
        """Return the tokenizer."""
        return {TOKENIZER_FILE: self._file.tokenizer}

    def describe(self, ids: SplitIds) -> dict[str, Any]:
        """Return a sample's shape: its number of tokens."""
        return {"columns": None, "target": None, "shape": [self._tokens.length]}

    def findings(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        """Return notes on the blocks of the text and on its tokens."""
        parts = [f"{name} {end - start} bytes, {self._file.counts[name]} tokens" for name, (start, end) in self._bounds.items()]
        size, origin = self._tokenizer.get_vocab_size(), "trained on the training block"
        notes = [
            f"the text is cut into contiguous blocks: {'; '.join(parts)}",
            f"the tokenizer ({self._tokens.file or f'{self._tokens.kind}, {origin}'}) knows {size} tokens",
        ]
        return [Finding("info", note) for note in [*self._source.notes, *notes]]


def _drawn(logits: Tensor, temperature: float, draws: np.ndarray) -> Tensor:
    """Return a token for each row of logits [rows, vocabulary], by a draw from [0, 1) for each; at 0 the likeliest one."""
    # On the CPU and in float64, with addressed draws: the token does not depend on the device's generator.
    scores = logits.double().cpu().numpy()
    if temperature == 0:
        return torch.from_numpy(scores.argmax(1))
    # Less the maximum, which changes no share: the exponential of a large logit would be infinite.
    shares = np.exp((scores - scores.max(1, keepdims=True)) / temperature).cumsum(1)
    return torch.from_numpy((shares < (draws * shares[:, -1])[:, None]).sum(1))
