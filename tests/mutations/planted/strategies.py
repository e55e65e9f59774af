"""Faults planted in `mltrainer/strategies`."""

from __future__ import annotations

from tests.mutations.fault import Fault

DISTILLATION = "mltrainer/strategies/distillation.py"
TESTS = "tests/strategies/test_distillation.py"
ATTACK = "mltrainer/strategies/adversarial.py"
ATTACK_TESTS = "tests/strategies/test_adversarial.py"
CONTRASTIVE = "mltrainer/strategies/contrastive.py"
CONTRASTIVE_TESTS = "tests/strategies/test_contrastive.py"
CURRICULUM = "mltrainer/strategies/curriculum.py"
CURRICULUM_TESTS = "tests/strategies/test_curriculum.py"
LORA = "mltrainer/strategies/lora.py"
LORA_TESTS = "tests/strategies/test_lora.py"
PROGRESSIVE = "mltrainer/strategies/progressive.py"
PROGRESSIVE_TESTS = "tests/strategies/test_progressive.py"

FAULTS = (
    Fault(
        "a distance loses the temperature's square",
        DISTILLATION,
        "return heat * heat * _mean(distances, targets)",
        "return heat * _mean(distances, targets)",
        f"{TESTS} -k written_by_hand",
    ),
    Fault(
        "a teacher drops units and takes a batch's statistics",
        DISTILLATION,
        ".eval().requires_grad_(False)",
        ".requires_grad_(False)",
        f"{TESTS} -k written_by_hand",
    ),
    Fault(
        "a teacher is followed in items that do not count",
        DISTILLATION,
        "torch.where(counted, distances, 0.0)",
        "torch.where(counted, distances, distances)",
        f"{TESTS} -k do_not_count",
    ),
    Fault(
        "a teacher of the same classes in another order is followed",
        DISTILLATION,
        'for part in ("kind", "classes", "target"',
        'for part in ("kind", "target"',
        f"{TESTS} -k teacher_of_another_task",
    ),
    Fault(
        "a teacher is made while the model's draws go on",
        "mltrainer/strategies/joined.py",
        "with seeds.kept():",
        "if True:",
        f"{TESTS} -k draws_nothing",
    ),
    Fault(
        "the labels count beside a teacher that has the whole loss",
        "mltrainer/strategies/joined.py",
        "parts = [self._left * terms[0], *shared] if self._left > 0 else shared",
        "parts = [terms[0], *shared]",
        f"{TESTS} -k weight_of_one",
    ),
    Fault(
        "terms are the summed ones, and not before their shares",
        "mltrainer/strategies/joined.py",
        "*(term.detach().to(joined.dtype) for term in terms)",
        "*(term.detach().to(joined.dtype) * self._each[0].share for term in terms)",
        f"{TESTS} -k written_by_hand",
    ),
    Fault(
        "a teacher sees what the model's forward pass left of the batch",
        "mltrainer/strategies/joined.py",
        "return type(batch)(part.clone() for part in batch)",
        "return batch",
        f"{TESTS} -k as_it_was",
    ),
    Fault(
        "texts are told to a teacher in the ids of another tokenizer",
        DISTILLATION,
        "(folder / name).read_bytes() != content:",
        "(folder / name).read_bytes() == b'':",
        f"{TESTS} -k same_tokenizer",
    ),
    Fault(
        "an adapter is taken away again by subtracting it, which leaves other bits",
        LORA,
        "        weight.copy_(kept)\n    layer.merged_adapters.clear()",
        "        pass\n    layer.unmerge()",
        f"{LORA_TESTS} -k says_what_the_adapted",
    ),
    Fault(
        "an adapted model adds its adapters to weights that have them in already",
        LORA,
        "layer.merged_adapters[:] = [ADAPTER] if is_merged else []",
        "layer.merged_adapters[:] = []",
        f"{LORA_TESTS} -k takes_a_plain_state",
    ),
    Fault(
        "an adapted model rests after it has its own state again",
        LORA,
        "layer.merged_adapters[:] = [ADAPTER] if is_merged else []",
        "layer.merged_adapters[:] = [ADAPTER]",
        f"{LORA_TESTS} -k takes_a_plain_state",
    ),
    Fault(
        "an adapter may lie beside a weight that is passed by",
        LORA,
        'isinstance(model.get_submodule(name.rpartition(".")[0]), nn.MultiheadAttention)',
        "False",
        f"{LORA_TESTS} -k cannot_have",
    ),
    Fault(
        "an adapter may lie beside a weight that another layer shares",
        LORA,
        ") > 1:",
        ") > 2:",
        f"{LORA_TESTS} -k cannot_have",
    ),
    Fault(
        "what a file lacks is taken from the model that it is compared with",
        LORA,
        'parameter.fill_(float("nan"))',
        "pass",
        f"{LORA_TESTS} -k file_alone",
    ),
    Fault(
        "the digest of an adapter's base leaves trained norms in",
        LORA,
        "if plain is not None and name not in saved}",
        "if plain is not None}",
        f"{LORA_TESTS} -k belongs_to",
    ),
    Fault(
        "an attack goes down and not up",
        ATTACK,
        "moved.detach() + size * slope.sign()",
        "moved.detach() - size * slope.sign()",
        f"{ATTACK_TESTS} -k foolbox",
    ),
    Fault(
        "a move leads beyond the bound",
        ATTACK,
        "(moved.detach() + size * slope.sign()).clamp(-1, 1)",
        "(moved.detach() + size * slope.sign())",
        f"{ATTACK_TESTS} -k foolbox",
    ),
    Fault(
        "moved inputs lie beyond their limits while an attack looks for them",
        ATTACK,
        "torch.where(bound > 0, (self._limited(given, given + moved * bound) - given) / bound, 0.0)",
        "moved",
        f"{ATTACK_TESTS} -k foolbox",
    ),
    Fault(
        "an attack takes statistics of inputs on their way",
        ATTACK,
        "        with evaluating(self.model), torch.enable_grad():",
        "        with torch.enable_grad():",
        f"{ATTACK_TESTS} -k leaves_modes",
    ),
    Fault(
        "a held norm is woken by an attack",
        ATTACK,
        "            module.training = training\n\n\n# --- what is moved",
        "            module.training = True\n\n\n# --- what is moved",
        f"{ATTACK_TESTS} -k leaves_modes",
    ),
    Fault(
        "columns that may not be moved are",
        ATTACK,
        "name in settings.columns for name in",
        "name is not None for name in",
        f"{ATTACK_TESTS} -k columns_are_those",
    ),
    Fault(
        "embeddings are moved in their own unit",
        ATTACK,
        "bound = self.bound * self.module.weight.detach().std()",
        "bound = self.bound",
        f"{ATTACK_TESTS} -k embeddings_are_moved",
    ),
    Fault(
        "the most difficult samples come first",
        CURRICULUM,
        "self._difficulty = -found if self.settings.descending else found",
        "self._difficulty = found if self.settings.descending else -found",
        f"{CURRICULUM_TESTS} -k easiest",
    ),
    Fault(
        "samples of which a run was surest are taken for the most difficult ones",
        CURRICULUM,
        "return -np.frombuffer",
        "return np.frombuffer",
        f"{CURRICULUM_TESTS} -k margins_of_a_run",
    ),
    Fault(
        "each turn of an epoch has the order of the first",
        CURRICULUM,
        'seeds.generator(seed, "curriculum", epoch, turn)',
        'seeds.generator(seed, "curriculum", epoch, 0)',
        f"{CURRICULUM_TESTS} -k seed_and_epoch",
    ),
    Fault(
        "the margins that order samples are in no digest",
        CURRICULUM,
        "self.files = [file_row(self._file(settings.margins), settings.margins)]",
        "self._file(settings.margins)",
        f"{CURRICULUM_TESTS} -k margins_of_a_run",
    ),
    Fault(
        "samples without a difficulty are ordered anyhow",
        CURRICULUM,
        "or not np.isfinite(found[ids]).all()",
        "",
        f"{CURRICULUM_TESTS} -k without_a_difficulty",
    ),
    Fault(
        "labels decide weights before the probe",
        CONTRASTIVE,
        "features.detach() if self._is_apart and self.training else features",
        "features",
        f"{CONTRASTIVE_TESTS} -k labels_decide",
    ),
    Fault(
        "both views of a sample are the same one",
        CONTRASTIVE,
        "first, second = (self._projected(micro.batch) for _ in range(2))",
        "first = second = self._projected(micro.batch)",
        f"{CONTRASTIVE_TESTS} -k papers_formula",
    ),
    Fault(
        "a view is told from itself",
        CONTRASTIVE,
        "masked_fill(itself, -torch.inf)",
        "masked_fill(itself, 0.0)",
        f"{CONTRASTIVE_TESTS} -k simclr_is",
    ),
    Fault(
        "cells come from other columns",
        CONTRASTIVE,
        "x.gather(0, others)",
        "x.gather(1, others % x.shape[1])",
        f"{CONTRASTIVE_TESTS} -k share_of_a_rows",
    ),
    Fault(
        "torch's fast path passes adapters by",
        LORA,
        "block.activation_relu_or_gelu = 0",
        "pass",
        f"{LORA_TESTS} -k encoder_layers",
    ),
    Fault(
        "a layer with a forward pass of its own gets an adapter beside it",
        LORA,
        "type(module).forward is not kind.forward",
        "False",
        f"{LORA_TESTS} -k cannot_have",
    ),
    Fault(
        "inputs beyond the limits are moved to them",
        ATTACK,
        "torch.minimum(torch.maximum(x, given.clamp(max=low)), given.clamp(min=high))",
        "x.clamp(low, high)",
        f"{ATTACK_TESTS} -k beyond_the_limits",
    ),
    Fault(
        "two views that are the same are compared without a word",
        CONTRASTIVE,
        "if torch.equal(first, second):",
        "if False:",
        f"{CONTRASTIVE_TESTS} -k are_the_same",
    ),
    Fault(
        "the first stage of smaller inputs lasts an epoch longer",
        PROGRESSIVE,
        "stage = epoch * len(settings.shares) // settings.epochs",
        "stage = max(0, epoch - 1) * len(settings.shares) // settings.epochs",
        f"{PROGRESSIVE_TESTS} -k share_their_epochs",
    ),
    Fault(
        "images are shrunk by leaving pixels out",
        PROGRESSIVE,
        "antialias=True",
        "antialias=False",
        f"{PROGRESSIVE_TESTS} -k pillow",
    ),
    Fault(
        "a mask beside tokens keeps its length",
        PROGRESSIVE,
        "if part.shape == shape and not part.is_floating_point() else part, batch)",
        "if part is x else part, batch)",
        f"{PROGRESSIVE_TESTS} -k beside_tokens",
    ),
    Fault(
        "a window of text loses the token after its last",
        PROGRESSIVE,
        "beyond = 1 if isinstance(self._task, TextGeneration) else 0",
        "beyond = 0",
        f"{PROGRESSIVE_TESTS} -k shorter_window",
    ),
    Fault(
        "a model of one size is told in the middle of a training",
        PROGRESSIVE,
        "sanity_check.check_batch(training.task, training.model, small, length(small), training.root)",
        "pass",
        f"{PROGRESSIVE_TESTS} -k one_size",
    ),
    Fault(
        "smaller inputs are shown to no step",
        "mltrainer/strategies/joined.py",
        "[strategy.alter for strategy in self._each if strategy.alters]",
        "[]",
        f"{PROGRESSIVE_TESTS} -k grow",
    ),
)
