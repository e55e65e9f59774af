"""Models of Hugging Face's transformers as tasks: classes of texts, the next token, masked tokens.

Model and tokenizer come from the project's own files or from a config; nothing is downloaded and nothing in a folder is executed.
Texts are read and tokenized once and held in memory, and masks are drawn at the start of a step, from the run's addressed
generators: neither loader processes nor an interruption can change it.
"""

from __future__ import annotations

import importlib
import json
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.project import Data as DataConfig
from mltrainer.errors import InputError, did_you_mean
from mltrainer.redaction import shortened
from mltrainer.tasks import metrics
from mltrainer.tasks.content import Corpus, Table
from mltrainer.tasks.sources import read_source
from mltrainer.tasks.task import Data, Task
from mltrainer.tasks.text import interface, tokenizing
from mltrainer.tasks.text.corpus import pieces
from mltrainer.tasks.text.interface import TOKENIZER_FILE
from mltrainer.tasks.text.labelled_texts import TEXT, classes_of, folder_target, text_cells, text_column
from mltrainer.workspace import machine_faults

EXTRA = 'pip install "mltrainer[hf]"'
OPTIONS = "task.options"
CONFIG_FILE = "config.json"
IGNORED = -100  # Hugging Face's label of a token that does not count
MASK_NAMES = ("[MASK]", "<mask>")
MOST_MESSAGE = 400  # characters of another package's message
MASKED, KEPT = (
    0.8,
    0.1,
)  # shares of the chosen tokens; the rest is replaced by drawn tokens (Devlin et al., 2019, arXiv 1810.04805)


class Texts(Task):
    """The base of the tasks: texts of a file, a tokenizer, a model.

    Args:
        data: A table (CSV, JSONL, Parquet), a folder with a folder of `.txt` files for each class, or for a language model also a
            text file; relative to the project.
        model: A model's config, `{model_type: bert, hidden_size: 64, ...}`, for drawn weights; or a folder with `config.json` and
            safetensors. Vocabulary, padding and number of classes follow from tokenizer and texts where the config names none.
        tokenizer: A `tokenizer.json`, or a folder with one; None for the model's folder.
        text: Column of texts, if a table has several beside the target.
        length: Number of tokens of a sample; longer texts are cut.
        lora: Options of peft's `LoraConfig`, such as `{r: 8}`: adapters are trained, and a new head; None for all weights.
        architecture: A model class of transformers, such as `BertForSequenceClassification`, in place of the config's usual one.

    Raises:
        InputError: A file is missing or invalid, or options do not fit together.
    """

    auto: str  # the class of transformers that chooses the model's class by its config

    def __init__(
        self,
        data: str,
        model: dict[str, Any] | str,
        tokenizer: str | None = None,
        text: str | None = None,
        length: int = 128,
        lora: dict[str, Any] | None = None,
        architecture: str | None = None,
    ) -> None:
        self._data, self._model_source, self._text, self._length = data, model, text, length
        self._lora, self._architecture = lora, architecture
        if isinstance(model, str):
            _refuse_folder(Path(model))
        elif tokenizer is None:
            raise InputError("a model from a config has no tokenizer", where=OPTIONS, hint="tokenizer: a tokenizer.json")
        self._tokenizer_file = _tokenizer_file(tokenizer or str(model))
        with machine_faults(str(self._tokenizer_file)):
            content = self._tokenizer_file.read_bytes()
        self._tokenizer = tokenizing.load(content, str(self._tokenizer_file), pads=self._pads)
        self._padding = tokenizing.padding_of(self._tokenizer) if self._pads else 0

    # --- samples ---

    def bound_files(self) -> list[str]:
        """Return the texts, the tokenizer and the model's folder."""
        folder = Path(self._model_source) if isinstance(self._model_source, str) else None
        model = [] if folder is None else [str(folder / CONFIG_FILE), *map(str, sorted(folder.glob("*.safetensors")))]
        return [*self._data_files(), str(self._tokenizer_file), *model]

    def _data_files(self) -> list[str]:
        return [row.path for row in self._source.files]

    def _read(self, target: str | None = None) -> Table | Corpus:
        self._source = read_source(DataConfig(source=self._data, target=target), Path.cwd())
        content = self._source.content
        if isinstance(content, (Table, Corpus)):
            return content
        raise InputError(f"{self._data} holds no texts", where=f"{OPTIONS}.data", hint="bring a table, or .txt files")

    def _encoded(self, texts: list[str]) -> np.ndarray:
        """Return token ids, int64 [texts, tokens of the longest]."""
        encoded, rows = tokenizing.encode(self._tokenizer, texts, self._length), np.arange(len(texts))
        self._width = encoded.width(rows, self._length)
        return encoded.matrix(rows, self._width, self._padding)

    # --- model ---

    def model(self) -> nn.Module:
        """Return a new model, with drawn weights or those of its folder."""
        config = self._config()
        self._refuse_misfit(config)
        net = _made(self._kind(), config, self._model_source)
        if self._lora is not None:
            _adapt(net, self._lora, new_head=self._head_is_new)
        return Reader(net, self._padding if self._sees_padding else None)

    _head_is_new = False
    _sees_padding = True
    _pads = True  # whether the tokenizer must have a token for padding

    def _extra_keys(self) -> dict[str, Any]:
        """Return the config keys of a model that the data decides."""
        return {}

    def _config(self) -> Any:
        transformers = library("transformers")
        if isinstance(self._model_source, str):
            with faults_at(f"{self._model_source}/{CONFIG_FILE}"):
                kept = transformers.AutoConfig.from_pretrained(self._model_source, local_files_only=True, trust_remote_code=False)
                kept.update(self._extra_keys())
                return kept
        keys = dict(self._model_source)
        kind = keys.pop("model_type", None)
        _refuse_unknown(str(kind), list(transformers.CONFIG_MAPPING), "model_type")
        plain = transformers.AutoConfig.for_model(kind)
        # transformers' configs accept any key, even a misspelt one.
        for key in keys:
            if not hasattr(plain, key):
                _refuse_unknown(key, list(plain.to_dict()), f"key of a {kind}'s config")
        padding = {"pad_token_id": self._padding} if self._pads else {}
        known = {"vocab_size": self._tokenizer.get_vocab_size(), **padding}
        with faults_at(f"{OPTIONS}.model"):
            return transformers.AutoConfig.for_model(kind, **{**known, **keys, **self._extra_keys()})

    def _kind(self) -> Any:
        transformers = library("transformers")
        if self._architecture is None:
            return getattr(transformers, self.auto)
        kind = getattr(transformers, self._architecture, None)
        if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
            return kind
        what = f"transformers has no model class {self._architecture!r}{did_you_mean(self._architecture, dir(transformers))}"
        hint = "name one as the model's config.json does under architectures, or leave it out"
        raise InputError(what, where=f"{OPTIONS}.architecture", hint=hint)

    def _refuse_misfit(self, config: Any) -> None:
        """Refuse a model with a smaller vocabulary or a shorter input than the samples.

        Raises:
            InputError: The model is too small; the message has both numbers.
        """
        size, known = self._tokenizer.get_vocab_size(), config.get_text_config().vocab_size
        if size > known:
            hint = f"vocab_size: {size}, or the tokenizer that belongs to the model"
            raise InputError(f"the tokenizer has {size} tokens, the model knows {known}", where=f"{OPTIONS}.model", hint=hint)
        most = getattr(config.get_text_config(), "max_position_embeddings", None)
        if most is not None and 0 < most < self._width:
            what = f"samples have {self._width} tokens, the model reads {most}"
            raise InputError(what, where=f"{OPTIONS}.length", hint=f"length: {most}, or a larger max_position_embeddings")

    def delivered(self) -> dict[str, bytes]:
        """Return the tokenizer with the truncation and padding of the model's input."""
        return {TOKENIZER_FILE: tokenizing.fixed(self._tokenizer, self._width)}


class Reader(nn.Module):
    """A model of transformers that reads token ids alone and finds padding itself.

    Args:
        net: The model.
        padding: Padding id of short texts; None if the model need not know.
    """

    def __init__(self, net: nn.Module, padding: int | None) -> None:
        super().__init__()
        self.net, self.padding = net, padding

    def forward(self, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return logits.

        Args:
            ids: int64 [texts, tokens].
            positions: The place of each token in its text, int64, where several texts share a row; None: each row is one text.
        """
        mask = {} if self.padding is None else {"attention_mask": (ids != self.padding).long()}
        # Without a cache: with one, transformers does not look for texts that share a row.
        places = {} if positions is None else {"position_ids": positions, "use_cache": False}
        logits: Tensor = self.net(input_ids=ids, **mask, **places).logits
        return logits


class SequenceClassification(Texts):
    """Classes of texts, by any model of transformers that has a head for them.

    Args:
        data: Data as in `Texts`.
        model: Model as in `Texts`.
        target: Column of classes; None for a folder of text files.
        **options: The others of `Texts`.
    """

    targets = "classes"
    auto = "AutoModelForSequenceClassification"
    _head_is_new = True

    def __init__(
        self,
        data: str,
        model: dict[str, Any] | str,
        tokenizer: str | None = None,
        target: str | None = None,
        text: str | None = None,
        length: int = 128,
        lora: dict[str, Any] | None = None,
        architecture: str | None = None,
    ) -> None:
        super().__init__(data, model, tokenizer, text, length, lora, architecture)
        self._target = target

    def samples(self) -> tuple[Tensor, Tensor]:
        """Return token ids and class numbers; rows without a text or a class are left out."""
        table = self._read(self._target)
        target = self._target or (folder_target(table) if isinstance(table, Table) else None)
        if not isinstance(table, Table) or target is None or target not in table.columns:
            what = f"{self._data} has no column {target!r}" if isinstance(table, Table) else f"{self._data} has no classes"
            raise InputError(what, where=f"{OPTIONS}.target", hint="name the column of classes")
        self._column = text_column(table, self._text, target, [])
        rows = zip(text_cells(table, self._column), text_cells(table, target), strict=True)
        kept = [(text, cell) for text, cell in rows if text and cell]
        labels, self.classes = classes_of([cell for _, cell in kept])
        self._target = target
        return torch.from_numpy(self._encoded([text for text, _ in kept])), torch.from_numpy(labels)

    def _extra_keys(self) -> dict[str, Any]:
        return {"num_labels": len(self.classes), "pad_token_id": self._padding}

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy."""
        return functional.cross_entropy(outputs, targets)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return accuracy and the others of a built-in classification."""
        return metrics.classification(outputs, targets)

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return the confusion matrix."""
        return metrics.classification_evaluation(outputs, targets, self.classes)

    def inference(self) -> dict[str, Any]:
        """Return the description of inputs and outputs: the text's column, the tokenizer's file and the classes."""
        columns: dict[str, Any] = {"text": self._column, "target": self._target}
        return interface.inference("text_classification", self._width, self._source.notes, **columns, classes=self.classes)


class LanguageModel(Texts):
    """A model of texts alone, measured by `perplexity` and `accuracy` of the tokens that count.

    A table's texts are a sample each; a text file is cut into samples of `length` tokens.
    """

    targets = "tokens"
    _column = TEXT  # a table's own column replaces it

    def samples(self) -> Data:
        """Return token ids, and the same as labels, padding left out."""
        content = self._read()
        if isinstance(content, Corpus):
            ids = self._cut(content)
        else:
            self._column = text_column(content, self._text, "", [])
            ids = self._encoded([text for text in text_cells(content, self._column) if text])
        tokens = torch.from_numpy(ids)
        return tokens, tokens.where(tokens != self._padding, IGNORED)

    def _cut(self, corpus: Corpus) -> np.ndarray:
        texts = list(pieces(corpus, 0, sum(corpus.sizes)))
        encoded = [np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64) for text in texts]
        ids = np.concatenate(encoded)
        count, self._width = len(ids) // self._length, self._length
        if not count:
            hint = "bring more text, or a smaller length"
            raise InputError(f"{self._data} has {len(ids)} tokens, fewer than one sample's", where=f"{OPTIONS}.length", hint=hint)
        return ids[: count * self._length].reshape(count, self._length)

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        """Return each token's cost and rightness, and the labels of those that count: logits of all would fill the memory."""
        ids, labels = self._inputs_and_labels(*batch)
        return self._compared(model(ids), labels)

    def _compared(self, logits: Tensor, labels: Tensor) -> tuple[Any, Any]:
        logits, labels = self._aligned(logits.float(), labels)
        costs = functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
        return {"costs": costs[..., None], "right": logits.argmax(2) == labels}, {"labels": labels}

    @abstractmethod
    def _inputs_and_labels(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's input ids, and the labels of the tokens to predict, `IGNORED` elsewhere."""

    @abstractmethod
    def _aligned(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and their labels, place by place."""

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Return the mean cost of the counted tokens; 0 without any."""
        total: Tensor = outputs["costs"].sum() / self.loss_items(targets).clamp_min(1)
        return total

    def loss_items(self, targets: Any) -> Tensor:
        """Return the number of tokens that count."""
        count: Tensor = (targets["labels"] != IGNORED).sum()
        return count

    def accumulate(self, state: Any, outputs: Any, targets: Any) -> Any:
        """Return cost, right answers and tokens so far."""
        cost, right, count = state or (0.0, 0, 0)
        known = outputs["costs"].double().sum().item()
        return cost + known, right + int(outputs["right"].sum()), count + int(self.loss_items(targets))

    def compute(self, state: Any) -> dict[str, float]:
        """Return `perplexity` and `accuracy`."""
        cost, right, count = state
        return {"perplexity": metrics.perplexity(cost / max(1, count)), "accuracy": right / max(1, count)}


class CausalLM(LanguageModel):
    """The next token, by any causal model of transformers."""

    auto = "AutoModelForCausalLM"
    _sees_padding = False  # padding comes after all that a token sees

    def _inputs_and_labels(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return ids, labels

    def _aligned(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return logits[:, :-1], labels[:, 1:]

    def inference(self) -> dict[str, Any]:
        """Return the description of inputs and outputs: the number of tokens that the model reads, and the tokenizer's file."""
        return interface.inference("text_generation", self._width, self._source.notes, "logits of each next token")

    def delivered(self) -> dict[str, bytes]:
        """Return the tokenizer, which neither cuts nor fills up a prompt."""
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        return {TOKENIZER_FILE: str(self._tokenizer.to_str(pretty=True)).encode()}


class MaskedLM(LanguageModel):
    """Masked tokens, by any model of transformers that has a head for them.

    Args:
        data: Data as in `Texts`.
        model: Model as in `Texts`.
        masked: Share of the tokens to predict.
        **options: The others of `Texts`.
    """

    auto = "AutoModelForMaskedLM"

    def __init__(
        self,
        data: str,
        model: dict[str, Any] | str,
        tokenizer: str | None = None,
        text: str | None = None,
        length: int = 128,
        masked: float = 0.15,
        lora: dict[str, Any] | None = None,
        architecture: str | None = None,
    ) -> None:
        super().__init__(data, model, tokenizer, text, length, lora, architecture)
        if not 0 < masked < 1:
            raise InputError(expected="a share between 0 and 1 for masked", found=masked, where=f"{OPTIONS}.masked")
        mask_ids = (self._tokenizer.token_to_id(name) for name in MASK_NAMES)
        mask = next((number for number in mask_ids if number is not None), None)
        if mask is None:
            what = f"the tokenizer has no token {' or '.join(MASK_NAMES)}"
            raise InputError(what, where=f"{OPTIONS}.tokenizer", hint="bring one that was made for masked language modelling")
        self._mask, self._share = mask, masked
        special = [number for number, token in self._tokenizer.get_added_tokens_decoder().items() if token.special]
        self._special = torch.tensor(sorted({*special, self._padding}))

    def _inputs_and_labels(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens with some masked; the draws are those of the step, or of the evaluation's batch."""
        # Drawn on the CPU: each device has another generator, with other numbers.
        chosen, how = torch.rand((2, *ids.shape)).to(ids.device)
        drawn = torch.randint(self._tokenizer.get_vocab_size(), ids.shape).to(ids.device)
        is_masked = (chosen < self._share) & ~torch.isin(ids, self._special.to(ids.device))
        replaced = torch.where(how < MASKED, self._mask, torch.where(how < 1 - KEPT, drawn, ids))
        return torch.where(is_masked, replaced, ids), labels.where(is_masked, IGNORED)

    def _aligned(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return logits, labels

    def inference(self) -> dict[str, Any]:
        """Return the description of inputs and outputs: the text's column and the tokenizer's file."""
        notes, outputs = self._source.notes, "logits of each token"
        return interface.inference("masked_language_model", self._width, notes, outputs, text=self._column)


# --- transformers and peft ------------------------------------------------------------------------


def library(name: str) -> Any:
    """Return an optional package.

    Raises:
        InputError: The package is not installed.
    """
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"{name} is not installed", where="task.use", hint=EXTRA) from error
    if name == "transformers":
        found.logging.set_verbosity_error()  # planning's record names new heads
        found.logging.disable_progress_bar()
    return found


@contextmanager
def faults_at(where: str) -> Iterator[None]:
    """Turn what transformers or peft raise about a config or a folder into an `InputError`."""
    try:
        yield
    except (ValueError, OSError, RuntimeError, TypeError, KeyError, AttributeError) as error:
        text = shortened(" ".join(str(error).split()), MOST_MESSAGE)
        raise InputError(f"{type(error).__name__}: {text}", where=where, hint="fix the options or the files") from error


def _made(kind: Any, config: Any, given: dict[str, Any] | str) -> Any:
    """Return a model in fp32; of a folder, nothing but safetensors is read."""
    with faults_at(f"{OPTIONS}.model"):
        if isinstance(given, str):
            safe = {"local_files_only": True, "use_safetensors": True}
            safe |= {"trust_remote_code": False} if kind.__name__.startswith("Auto") else {}
            return kind.from_pretrained(given, config=config, dtype=torch.float32, **safe)
        # A config may name a narrower type, in which the weights would be drawn.
        config.dtype = torch.float32
        return kind.from_config(config) if kind.__name__.startswith("Auto") else kind(config)


def _adapt(net: Any, options: dict[str, Any], *, new_head: bool) -> None:
    """Put adapters into a model, in place, and train them alone; a head that is new is trained whole.

    Raises:
        InputError: An option is not one of `LoraConfig`'s, or peft does not know the places of such a model's adapters.
    """
    peft = library("peft")
    with faults_at(f"{OPTIONS}.lora"):
        peft.inject_adapter_in_model(peft.LoraConfig(**options), net)
    for name, parameter in net.named_parameters():
        is_head = new_head and not name.startswith(f"{net.base_model_prefix}.")
        parameter.requires_grad_("lora_" in name or is_head)


def _tokenizer_file(given: str) -> Path:
    """Return the `tokenizer.json` that an option names.

    Raises:
        InputError: There is no such file.
    """
    path = Path(given) / TOKENIZER_FILE if Path(given).is_dir() else Path(given)
    if path.is_file():
        return path
    hint = "bring a tokenizer.json (transformers writes one: tokenizer.save_pretrained(FOLDER)); nothing is downloaded"
    raise InputError(f"there is no {path.as_posix()}", where=f"{OPTIONS}.tokenizer", hint=hint)


def _refuse_folder(folder: Path) -> None:
    """Refuse a folder without a config and safetensors, and one whose model has custom code.

    Raises:
        InputError: A file is missing, or there is code; the message names it.
    """
    where, hint = (
        f"{OPTIONS}.model",
        "bring config.json and model.safetensors: model.save_pretrained(FOLDER); nothing is downloaded",
    )
    if not (folder / CONFIG_FILE).is_file():
        raise InputError(f"there is no {(folder / CONFIG_FILE).as_posix()}", where=where, hint=hint)
    if not any(folder.glob("*.safetensors")):
        raise InputError(f"{folder.as_posix()} has no .safetensors; pickled weights are never read", where=where, hint=hint)
    with machine_faults(str(folder)):
        given = json.loads((folder / CONFIG_FILE).read_bytes())
    if "auto_map" in given:
        hint = "take a model of transformers' own, or write a mltrainer.Task with the code in your project"
        raise InputError(f"{folder.as_posix()} names custom code (auto_map), which is never executed", where=where, hint=hint)


def _refuse_unknown(name: str, known: list[str], what: str) -> None:
    """Refuse an unknown name of the model's options.

    Raises:
        InputError: The name is unknown; the message has the nearest known one.
    """
    if name not in known:
        raise InputError.unknown(what, name, known, where=f"{OPTIONS}.model")
