"""Models of texts as token ids; none of them sees the padding, and each can be exported with a batch of any size."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.project import Bag, Gru, ModelConfig, TextCnn, TextModel, Transformer
from mltrainer.errors import InputError

SPREAD = 0.1  # deviation of new embeddings; chosen by us: torch's 1 is too large to learn from some thousand short texts
BUCKETS, FACTOR = 1 << 14, 1_000_003  # hash buckets of neighbouring tokens, chosen by us: some thousand texts fill fewer; a prime
EXPANSION = 4  # the factor by which a block's perceptron is wider than the block (Vaswani et al., 2017, arXiv 1706.03762)


def classifier(config: TextModel, vocabulary: int, padding: int, length: int, outputs: int) -> nn.Sequential:
    """Return a model from token ids [samples, length] to a logit for each class.

    Args:
        config: The `model` part of a config.
        vocabulary: Number of token ids.
        padding: The id that fills up short texts.
        length: Number of tokens of a sample.
        outputs: The number of classes.
    """
    if isinstance(config, TextCnn):
        body: nn.Module = Convolutions(config, vocabulary, padding)
        width = config.channels * len(config.kernels)
    else:
        reader, width = _reader(config, vocabulary, padding, length)
        body = Mean(reader, padding)
    layers: OrderedDict[str, nn.Module] = OrderedDict(body=body)
    if config.dropout:
        layers.update(dropout=nn.Dropout(config.dropout))
    layers.update(output=nn.Linear(width, outputs))
    return nn.Sequential(layers)


def language_model(config: ModelConfig | None, vocabulary: int, length: int) -> nn.Sequential:
    """Return a model from token ids [samples, length] to logits [samples, length, vocabulary] of each next token.

    Args:
        config: The `model` part of a config.
        vocabulary: Number of token ids.
        length: Number of tokens of a sample.

    Raises:
        InputError: The model does not read from left to right.
    """
    if isinstance(config, Gru):
        reader: nn.Module = Recurrent(config, vocabulary, None)
        width = config.hidden
    elif isinstance(config, Transformer):
        reader, width = Attentive(config, vocabulary, None, length, causal=True), config.width
    else:
        name = config.name if config is not None else "null"
        raise InputError(
            f"{name} does not predict the next token", where="model.name", hint="model: {name: transformer} (or gru)"
        )
    return nn.Sequential(OrderedDict(reader=reader, dropout=nn.Dropout(config.dropout), output=nn.Linear(width, vocabulary)))


def _reader(config: Bag | Gru | Transformer, vocabulary: int, padding: int, length: int) -> tuple[nn.Module, int]:
    """Return the module from token ids to a state of each token, and the state's width."""
    if isinstance(config, Gru):
        return Recurrent(config, vocabulary, padding), config.hidden
    if isinstance(config, Transformer):
        return Attentive(config, vocabulary, padding, length, causal=False), config.width
    tokens = embedding(vocabulary, config.width, padding)
    return Neighbours(tokens, config.ngrams, padding) if config.ngrams > 1 else tokens, config.width


def embedding(vocabulary: int, width: int, padding: int | None) -> nn.Embedding:
    """Return new embeddings; the padding's is always 0."""
    made = nn.Embedding(vocabulary, width, padding_idx=padding)
    with torch.no_grad():
        made.weight.mul_(SPREAD)
    return made


class Mean(nn.Module):
    """The mean of the states of a text's tokens, 0 where there is none."""

    def __init__(self, reader: nn.Module, padding: int) -> None:
        super().__init__()
        self.reader, self.padding = reader, padding

    def forward(self, tokens: Tensor) -> Tensor:
        """Return [samples, width] for token ids [samples, length]."""
        is_token = (tokens != self.padding).unsqueeze(-1)
        states = self.reader(tokens).masked_fill(~is_token, 0.0)
        mean: Tensor = states.sum(1) / is_token.sum(1).clamp(min=1)
        return mean


class Neighbours(nn.Module):
    """Token embeddings, to each of which the embedding of the token with those before it is added, by a hash bucket.

    The embeddings of neighbours begin as 0, so that those in no training text have no effect.
    """

    def __init__(self, tokens: nn.Embedding, most: int, padding: int) -> None:
        super().__init__()
        self.tokens, self.most, self.padding = tokens, most, padding
        self.neighbours = nn.Embedding(BUCKETS, tokens.embedding_dim)
        with torch.no_grad():
            self.neighbours.weight.zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a state for each token, [samples, length, width]; padding precedes a text's first token."""
        states: Tensor = self.tokens(tokens)
        hashed, before = tokens, tokens
        for _ in range(self.most - 1):
            before = functional.pad(before[:, :-1], (1, 0), value=self.padding)
            hashed = (hashed * FACTOR + before + 1) % BUCKETS
            states = states + self.neighbours(hashed)
        return states


class Convolutions(nn.Module):
    """The largest response of each channel over a text, for kernels of several lengths."""

    def __init__(self, config: TextCnn, vocabulary: int, padding: int) -> None:
        super().__init__()
        self.padding = padding
        self.embedding = embedding(vocabulary, config.width, padding)
        self.kernels = config.kernels
        self.layers = nn.ModuleList(nn.Conv1d(config.width, config.channels, size) for size in config.kernels)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return [samples, channels of all kernels] for token ids [samples, length]; no response is less than 0."""
        is_token = (tokens != self.padding).unsqueeze(1)
        embedded = self.embedding(tokens).transpose(1, 2)
        found = []
        for size, layer in zip(self.kernels, self.layers, strict=True):
            # Padded by hand: an even kernel needs one more at the right, and Conv1d pads both ends equally.
            responses = layer(functional.pad(embedded, ((size - 1) // 2, size // 2)))
            # Padding becomes 0, below which no rectified response is: it is never the largest alone.
            found.append(responses.relu().masked_fill(~is_token, 0.0).amax(2))
        return torch.cat(found, dim=1)


class Recurrent(nn.Module):
    """GRU layers from left to right; the padding is at the right, so that no token's state depends on it.

    Each layer is a separate module: the dropout between the layers of one module has a generator that no address can seed.
    """

    def __init__(self, config: Gru, vocabulary: int, padding: int | None) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, config.width, padding)
        sizes = [config.width, *[config.hidden] * (config.layers - 1)]
        self.layers = nn.ModuleList(nn.GRU(size, config.hidden, batch_first=True) for size in sizes)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a state for each token, [samples, length, hidden]."""
        states: Tensor = self.embedding(tokens)
        for number, layer in enumerate(self.layers):
            states, _ = layer(self.dropout(states) if number else states)
        return states


class Attentive(nn.Module):
    """Blocks of self-attention over tokens and their places; in a causal one no token sees those after it.

    Texts may be shorter than `length`, the most that they may have.
    """

    hidden: Tensor

    def __init__(self, config: Transformer, vocabulary: int, padding: int | None, length: int, *, causal: bool) -> None:
        super().__init__()
        self.padding = padding
        self.embedding = embedding(vocabulary, config.width, padding)
        self.places = nn.Parameter(torch.randn(length, config.width) * SPREAD)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        after = torch.ones(length, length, dtype=torch.bool).triu(1) if causal else torch.zeros(1, 1, dtype=torch.bool)
        # Not part of the weights: it follows from the length alone.
        self.register_buffer("hidden", after, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a state for each token, [samples, length, width]."""
        length = tokens.shape[1]
        states = self.dropout(self.embedding(tokens) + self.places[:length])
        hidden = self.hidden[:length, :length]
        if self.padding is not None:
            hidden = hidden | (tokens == self.padding)[:, None, None, :]
        for block in self.blocks:
            states = block(states, hidden)
        normalized: Tensor = self.norm(states)
        return normalized


class Block(nn.Module):
    """Self-attention, then a perceptron, each added to its input and normalized before."""

    def __init__(self, config: Transformer) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, EXPANSION * width), nn.GELU(), nn.Linear(EXPANSION * width, width))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Tensor, hidden: Tensor) -> Tensor:
        """Return new states.

        Args:
            states: The tokens' states [samples, length, width].
            hidden: The mask of the tokens that a token does not see; it broadcasts to [samples, heads, length, length].
        """
        states = states + self.dropout(self._attention(self.attention_norm(states), hidden))
        added: Tensor = states + self.dropout(self.perceptron(self.norm(states)))
        return added

    def _attention(self, states: Tensor, hidden: Tensor) -> Tensor:
        """Attend by plain products: the fused kernels have gradients that are summed in no fixed order on a GPU."""
        length, width = states.shape[1:]
        parts = self.projections(states).reshape(-1, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5
        # not minus infinity: where a text has no token, every place is hidden, and their softmax would be NaN
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        found: Tensor = self.joined((weights @ value).transpose(1, 2).reshape(-1, length, width))
        return found
