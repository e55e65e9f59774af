"""The built-in models: which there are for images, tables and texts, and their options."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mltrainer.configs.loading import Strict


class Mlp(Strict):
    """A multi-layer perceptron with ReLU."""

    name: Literal["mlp"] = "mlp"
    hidden: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=lambda: [256, 256], description="units of each hidden layer"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="share of hidden units dropped in training")


class Cnn(Strict):
    """A small convolutional network for images: 3x3 convolutions with batch norm, pooled after each."""

    name: Literal["cnn"] = "cnn"
    channels: list[Annotated[int, Field(ge=1)]] = Field(default_factory=lambda: [32, 64], description="channels of each layer")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of features dropped before the last layer")


class ResNet(Strict):
    """A residual network for images (He et al., 2016, arXiv 1512.03385): stages of blocks, each with half the pixels."""

    name: Literal["resnet"] = "resnet"
    stem: int = Field(1, ge=1, le=16, description="by how much the first convolution shrinks an image; 4 for 128 pixels and more")
    stages: int = Field(3, ge=1, le=6, description="stages; each has twice the channels and half the pixels of the one before")
    blocks: int = Field(2, ge=1, le=64, description="blocks of two 3x3 convolutions in each stage")
    width: int = Field(32, ge=1, description="channels of the first stage")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of features dropped before the last layer")


class Vit(Strict):
    """A vision transformer (Dosovitskiy et al., 2021, arXiv 2010.11929), its tokens averaged."""

    name: Literal["vit"] = "vit"
    patch: int = Field(4, ge=1, description="pixels of a patch's side; an image's sides must be multiples of it")
    width: int = Field(64, ge=1, description="features of a token; a multiple of heads")
    depth: int = Field(4, ge=1, le=64, description="blocks of attention and a perceptron")
    heads: int = Field(4, ge=1, description="attention heads of a block")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of features dropped behind attention and perceptron")

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of heads {self.heads}")
        return self


class Linear(Strict):
    """A linear model."""

    name: Literal["linear"] = "linear"


class TableModel(Strict):
    """What the networks for tables share: each column becomes a vector."""

    numbers: Literal["piecewise", "periodic", "plain"] = Field(
        "piecewise", description="how numbers become vectors: linear, and piecewise linear or periodic beside it"
    )
    bins: int = Field(16, ge=2, le=256, description="pieces of a number column, with equal shares of the training rows")
    codes: bool = Field(
        False, description="a vector for each whole number of a column whose numbers have effects beside their trend"
    )
    embedding: int = Field(8, ge=1, description="length of a column's vector")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of hidden units dropped in training")


class TabularMlp(TableModel):
    """An ensemble of multi-layer perceptrons for tables, whose members share most of their weights."""

    name: Literal["tabular_mlp"] = "tabular_mlp"
    hidden: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=lambda: [128, 128], min_length=1, description="units of each hidden layer"
    )
    members: int = Field(8, ge=1, le=256, description="members of the ensemble")


class FtTransformer(TableModel):
    """A transformer over the columns of a table."""

    name: Literal["ft_transformer"] = "ft_transformer"
    embedding: int = Field(32, ge=1, description="length of a column's vector")
    blocks: int = Field(2, ge=1, description="blocks of attention and a perceptron")
    heads: int = Field(4, ge=1, description="heads of the attention, which share a column's vector")

    @model_validator(mode="after")
    def _heads_share(self) -> Self:
        if self.embedding % self.heads:
            raise ValueError(f"embedding {self.embedding} cannot be shared evenly by {self.heads} heads")
        return self


class Bag(Strict):
    """The mean of the embeddings of a text's tokens and of neighbouring ones (Joulin et al., 2017, arXiv 1607.01759)."""

    name: Literal["bag"] = "bag"
    width: int = Field(64, ge=1, description="numbers that stand for a token")
    ngrams: int = Field(
        2, ge=1, le=3, description="how many neighbouring tokens have an embedding together; 1: order says nothing"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="share of the mean's numbers dropped in training")


class TextCnn(Strict):
    """Convolutions over some neighbouring tokens, the largest of each over the text (Kim, 2014, arXiv 1408.5882)."""

    name: Literal["text_cnn"] = "text_cnn"
    width: int = Field(64, ge=1, description="numbers that stand for a token")
    kernels: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=lambda: [2, 3, 4], min_length=1, description="how many neighbouring tokens a convolution sees"
    )
    channels: int = Field(64, ge=1, description="channels of each convolution")
    dropout: float = Field(0.2, ge=0, lt=1, description="share of features dropped before the last layer")


class Gru(Strict):
    """A gated recurrent network that reads tokens from left to right (Cho et al., 2014, arXiv 1406.1078)."""

    name: Literal["gru"] = "gru"
    width: int = Field(64, ge=1, description="numbers that stand for a token")
    hidden: int = Field(128, ge=1, description="units of each layer")
    layers: int = Field(1, ge=1, description="layers, each reading the one before")
    dropout: float = Field(0.2, ge=0, lt=1, description="share of units dropped in training, after each layer")


class Transformer(Strict):
    """Self-attention with normalization in front of each block (Xiong et al., 2020, arXiv 2002.04745)."""

    name: Literal["transformer"] = "transformer"
    width: int = Field(64, ge=2, description="numbers that stand for a token, in every layer")
    heads: int = Field(4, ge=1, description="attention heads; the width is a multiple of them")
    layers: int = Field(2, ge=1, description="blocks of attention and a perceptron")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of units dropped in training")

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of heads {self.heads}")
        return self


TextModel = Bag | TextCnn | Gru | Transformer
ModelConfig = Annotated[Mlp | Cnn | ResNet | Vit | Linear | TabularMlp | FtTransformer | TextModel, Field(discriminator="name")]
