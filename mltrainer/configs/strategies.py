"""Strategies: what a training does beside its task, such as to follow a teacher; each a model of its settings."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mltrainer.configs.augmenting import Augment
from mltrainer.configs.loading import Strict
from mltrainer.configs.models import ModelConfig
from mltrainer.configs.starting import Pattern


class Teacher(Strict):
    """A model whose outputs are followed: a trained one, whose files' digests are part of the data's, or the own average."""

    weights: str | None = Field(
        None,
        description="a .safetensors file, a torch file (.pt, .pth, .bin, .ckpt), or a folder with one, such as another project's "
        "final_model/; relative to the project",
    )
    model: ModelConfig | None = Field(
        None, description="the teacher's built-in model; null: the student's own. A task of your own writes teacher(self)"
    )
    use: str | None = Field(
        None,
        pattern=r"^[\w.]+:\w+$",
        description='in place of weights: a function that returns the trained teacher, as "module.path:function"',
    )
    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="in place of weights: the teacher is the moving average of the trained weights, of which a step keeps this "
        "share (Tarvainen and Valpola, 2017, arXiv 1703.01780)",
    )

    @model_validator(mode="after")
    def _one_teacher(self) -> Self:
        if [self.weights, self.use, self.ema].count(None) != 2:
            raise ValueError(
                "give weights, of a trained model, or use, a function that returns one, or ema, of the own average: one of them "
                "is the teacher"
            )
        if self.model is not None and self.weights is None:
            raise ValueError(
                "model belongs to weights: a function returns the whole model, and the average has the trained one's form"
            )
        return self


class LayerPair(Strict):
    """Two modules that are to give the same, each by its name in its model."""

    student: str = Field(min_length=1, description="a module of the trained model, as named_modules() has it")
    teacher: str = Field(min_length=1, description="a module of the teacher")


class Texts(Strict):
    """Texts that a teacher writes, to be learned from in place of the corpus's own (Kim and Rush, 2016, arXiv 1606.07947)."""

    prompt: int = Field(ge=1, description="the first tokens of a training sample, which the teacher goes on with")
    temperature: float = Field(
        1.0, ge=0, le=100, description="what scores are divided by before a token is drawn; 0: the likeliest one each time"
    )


class Distillation(Strict):
    """The outputs of a teacher as soft targets (Hinton et al., 2015, arXiv 1503.02531), and those of its layers."""

    name: Literal["distillation"]
    teacher: Teacher
    temperature: float = Field(2.0, gt=0, le=100, description="what the outputs of both are divided by before the softmax")
    weight: float = Field(0.5, gt=0, le=1, description="the teacher's share of the loss; the rest is the task's own")
    features: list[LayerPair] = Field(
        [], description="layers whose outputs are to be the teacher's, too (Romero et al., 2015, arXiv 1412.6550)"
    )
    feature_weight: float = Field(
        1.0, gt=0, description="what the layers' squared differences count beside the distance of the outputs"
    )
    keep: bool = Field(
        False, description="the teacher's outputs on the training samples are computed once, before the steps, and kept in a file"
    )
    texts: Texts | None = Field(
        None,
        description="of text_generation, in place of scores: the teacher's share of the training samples, by weight, are texts "
        "that it writes",
    )

    @model_validator(mode="after")
    def _weighs_what_is_there(self) -> Self:
        if self.feature_weight != 1 and not self.features:
            raise ValueError(f"feature_weight: {self.feature_weight} weighs features, and features names no layer")
        return self

    @property
    def reads_once(self) -> str | None:
        """The key by which the teacher is asked of each sample once, before the steps; None: it is asked in each step."""
        return "keep" if self.keep else "texts" if self.texts is not None else None

    @model_validator(mode="after")
    def _says_the_same_each_time(self) -> Self:
        if self.reads_once is None:
            return self
        if self.teacher.ema is not None:
            raise ValueError(f"{self.reads_once} asks the teacher once, and the average of teacher.ema changes with each step")
        if self.features:
            raise ValueError(f"{self.reads_once} keeps what the teacher gives in the end, and features reads its layers")
        return self

    @model_validator(mode="after")
    def _learns_scores_or_texts(self) -> Self:
        if self.texts is None:
            return self
        if self.keep:
            raise ValueError("keep is of the teacher's outputs, and texts are kept anyway: leave it out")
        if self.temperature != 2:
            raise ValueError("temperature divides scores that are compared; texts are drawn by texts.temperature")
        return self


class Lora(Strict):
    """Low-rank adapters beside held layers (Hu et al., 2021, arXiv 2106.09685); the model that is delivered has them added in."""

    name: Literal["lora"]
    layers: list[Pattern] | None = Field(
        None, min_length=1, description="patterns of the modules' names that get an adapter; null: each linear layer that can"
    )
    rank: int = Field(8, ge=1, le=1024, description="columns of an adapter's first matrix, and rows of its second")
    alpha: float | None = Field(None, gt=0, description="an adapter's product counts alpha / rank times; null: once")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of an adapter's inputs that training leaves out")
    dora: bool = Field(False, description="length and direction are adapted apart (Liu et al., 2024, arXiv 2402.09353)")
    train: list[Pattern] = Field(
        [],
        description="patterns of parameters that are trained whole, such as norms; those that begin as new ones are too",
    )
    base_bits: Literal[8, 4] | None = Field(
        None,
        description="bits of the frozen weights of layers with an adapter, by bitsandbytes (QLoRA: Dettmers et al., "
        "2023, arXiv 2305.14314); null: whole",
    )


class Adversarial(Strict):
    """Inputs that are moved, within a bound, to where the loss is larger (Madry et al., 2018, arXiv 1706.06083)."""

    name: Literal["adversarial"]
    method: Literal["pgd", "fgsm", "trades"] = Field("pgd", description="how inputs are moved while training")
    epsilon: float = Field(
        gt=0,
        description="largest move of each number: of images a share of the range from black to white, of a table a share of the "
        "column's deviation, of texts of the embedding's; in a task of your own in the input's unit",
    )
    steps: int = Field(10, ge=1, le=1000, description="of pgd and trades, and of the attack by which robust metrics are measured")
    step_size: float | None = Field(None, gt=0, description="in the unit of epsilon; null: 2.5 * epsilon / steps")
    weight: float = Field(
        1.0, gt=0, le=1, description="of pgd and fgsm, the moved inputs' share of the loss; the rest is the given ones'"
    )
    beta: float = Field(
        6.0, gt=0, le=1000, description="of trades, the factor of its term beside the loss of the given inputs (arXiv 1901.08573)"
    )
    columns: list[str] | None = Field(None, min_length=1, description="of a table those that may be moved; null: all numbers")
    limits: list[float] | None = Field(
        None, min_length=2, max_length=2, description="in a task of your own, between which two numbers inputs lie"
    )
    layer: Pattern | None = Field(None, description="the embedding whose outputs are moved in place of inputs, by its name")

    @model_validator(mode="after")
    def _limits_ascend(self) -> Self:
        if self.limits is not None and self.limits[0] >= self.limits[1]:
            raise ValueError(f"limits: {self.limits} are in the wrong order: the smaller one comes first")
        return self

    @model_validator(mode="after")
    def _weighs_by_the_methods_own_key(self) -> Self:
        other, default = ("weight", 1.0) if self.method == "trades" else ("beta", 6.0)
        if getattr(self, other) != default:
            own = "beta" if self.method == "trades" else "weight"
            raise ValueError(f"{other}: {getattr(self, other)} has no meaning for method: {self.method}; give {own} instead")
        return self


class Curriculum(Strict):
    """The easiest samples first, the others epoch by epoch (Hacohen and Weinshall, 2019, arXiv 1904.03626)."""

    name: Literal["curriculum"]
    by: str | None = Field(
        None,
        description="what is larger for a more difficult sample: a column of numbers, tokens of texts, brightness or contrast of "
        "images; null: margins, losses, or what a task of your own says in difficulty(self)",
    )
    margins: str | None = Field(None, description="the margins.f32 of a run on the same data and split, relative to the project")
    losses: str | None = Field(
        None, description="what mltrainer rows RUN --hardest --json printed of a run on the same data and split, as a file"
    )
    descending: bool = Field(False, description="the samples with the largest values are the easiest")
    begin: float = Field(0.3, gt=0, lt=1, description="the easiest share of the samples, which the first epoch reads")
    epochs: int = Field(ge=1, description="epochs in which not all samples are read")
    pacing: Literal["linear", "root", "step"] = Field(
        "linear",
        description="how the share grows; root: first fast (Platanios et al., 2019, arXiv 1903.09848); step: at once",
    )

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        given = [name for name in ("by", "margins", "losses") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give {' or '.join(given)}: one of them must give the difficulty of each sample")
        return self


class Contrastive(Strict):
    """Two views of a sample that shall lie close together (SimCLR: Chen et al., 2020, arXiv 2002.05709)."""

    name: Literal["contrastive"]
    method: Literal["simclr", "supcon", "vicreg"] = Field(
        "simclr", description="supcon: samples of one class, too (arXiv 2004.11362); vicreg: without negatives (arXiv 2105.04906)"
    )
    augment: Augment | None = Field(None, description="of images, the alterations that make a view")
    corrupt: float = Field(0.6, gt=0, lt=1, description="of tables, the share of a row's cells that come from other rows")
    temperature: float = Field(0.5, gt=0, le=10, description="of simclr and supcon, that similarities are divided by")
    projection: int = Field(64, ge=2, le=4096, description="width of the projection that is compared")
    miner: Literal["multi_similarity", "batch_hard"] | None = Field(
        None,
        description="of supcon, which pairs count: multi_similarity (arXiv 1904.06627), batch_hard (arXiv 1703.07737); null: all",
    )
    weight: float = Field(0.5, gt=0, le=1, description="the views' share of the loss; the rest is the task's own")
    head: Pattern | None = Field(None, description="the linear layer that reads the features; null: the model's last one")
    probe: bool = Field(True, description="the task's own loss trains the last layer alone, and labels decide no other weight")

    @model_validator(mode="after")
    def _mines_pairs_of_classes(self) -> Self:
        if self.miner is not None and self.method != "supcon":
            raise ValueError(f"miner: {self.miner} chooses pairs by their classes, which method: {self.method} does not see")
        return self

    @model_validator(mode="after")
    def _alters_one_sample(self) -> Self:
        if self.augment is not None and not any(value for value in self.augment.model_dump().values()):
            raise ValueError("augment switches nothing on, so two views of a sample would be the same")
        if self.augment is not None and self.augment.mixes:
            raise ValueError("augment.mixup and augment.cutmix mix samples, and a view is of one sample")
        return self


class Masked(Strict):
    """Parts of a sample that are hidden, to be told from the rest (SimMIM, VIME, BERT: Devlin et al., 2019, arXiv 1810.04805)."""

    name: Literal["masked"]
    share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="of the parts, that are hidden; null: 0.6 of an image's patches, 0.3 of cells, 0.15 of tokens",
    )
    patch: int | None = Field(None, ge=1, description="of images, pixels along a patch; null: a seventh of the shorter side")
    layer: Pattern | None = Field(
        None, description="the layer whose outputs predict the hidden parts; null: the last one that has a state for each part"
    )
    weight: float = Field(0.5, gt=0, le=1, description="the hidden parts' share of the loss; the rest is the task's own")
    head: Pattern | None = Field(None, description="the linear layer that reads the features; null: the model's last one")
    probe: bool = Field(True, description="the task's own loss trains the last layer alone, and labels decide no other weight")


class Progressive(Strict):
    """Smaller images or shorter texts first (Tan and Le, 2021, arXiv 2104.00298; Li et al., 2022, arXiv 2108.06084)."""

    name: Literal["progressive"]
    shares: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        [0.5, 0.75], min_length=1, description="of each stage the share of an image's sides, or of a text's tokens; they ascend"
    )
    epochs: int = Field(ge=1, description="epochs in which inputs are smaller, the stages sharing them equally")

    @model_validator(mode="after")
    def _stages_ascend(self) -> Self:
        if self.shares != sorted(set(self.shares)):
            raise ValueError(f"shares: {self.shares} must ascend: the smallest comes first")
        if self.epochs < len(self.shares):
            raise ValueError(f"epochs: {self.epochs} are fewer than the {len(self.shares)} stages; give each one at least")
        return self


class Balancing(Strict):
    """The losses of several targets, weighed while they are learned (Kendall et al., 2018, arXiv 1705.07115)."""

    name: Literal["balancing"]
    method: Literal["uncertainty", "gradients"] = Field(
        "uncertainty",
        description="uncertainty: by a log variance of each target, which is learned; gradients: by an aggregator of torchjd",
    )
    aggregator: Literal["upgrad", "dualproj", "pcgrad", "mgda", "imtl_g", "aligned_mtl"] | None = Field(
        None, description="of gradients, what makes weights of their inner products; null: upgrad (arXiv 2406.16232)"
    )

    @model_validator(mode="after")
    def _aggregates_gradients(self) -> Self:
        if self.aggregator is not None and self.method != "gradients":
            raise ValueError(f"aggregator: {self.aggregator} belongs to method: gradients; method: {self.method} has none")
        return self


class Quantization(Strict):
    """Layers that compute with rounded numbers, as an export in 8 bits does (Jacob et al., 2018, arXiv 1712.05877)."""

    name: Literal["quantization"]
    layers: list[Pattern] | None = Field(
        None, min_length=1, description="patterns of the names of linear and convolution layers that do; null: all of them"
    )


Probing = Contrastive | Masked  # those that learn features beside a probe of them
Strategy = Annotated[
    Distillation | Lora | Adversarial | Curriculum | Contrastive | Masked | Progressive | Balancing | Quantization,
    Field(discriminator="name", description="a strategy, by its name"),
]
