"""Options of training (section 5)."""

import dataclasses
import re

from t2t_keras.config.options import (
    DEVICES,
    FINE_TUNING,
    LIMITS,
    REGULARISATION,
    TEXT,
    TRAINING,
    VALIDATION,
    check_fields,
    option,
    options_with,
    require,
)

# Choices of the weights of a run, beside the number of an update.
CHECKPOINTS = AVERAGE, BEST, LATEST, EMA = "average", "best", "latest", "ema"
AUGMENTATIONS = ("noise", "endpunct", "title", "upper", "typos")  # Kinds of noise in training text.
AUTO = "auto"  # The type of the arithmetic that measures which one is fast.


def grpc_address(text: str) -> tuple[str, int] | None:
    """Returns host and port of an address grpc://host:port, or `None` for other text. An IPv6 host has brackets."""
    address = re.fullmatch(r"grpc://([^\s/:]+|\[[\da-fA-F:.]+\]):([1-9]\d{0,4})", text, re.ASCII)
    return (address[1].strip("[]"), int(address[2])) if address and int(address[2]) < 2**16 else None


def is_checkpoint(which: str) -> bool:
    """Returns whether a text chooses weights of a run: one of `CHECKPOINTS`, or the number of an update."""
    return which in CHECKPOINTS or re.fullmatch("[0-9]{1,18}", which) is not None


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Options of training (section 5): batches, optimizer, schedule, regularization, validation and checkpoints."""

    # fmt: off
    train_steps: int = option(
        100_000, "Total number of updates (section 5.2). --epochs computes it.", minimum=1, group=TRAINING, first=True)
    epochs: float = option(
        0.0, "Length of the training in passes over the training text, from which --train_steps is computed; 0: "
        "--train_steps.", minimum=0, group=TRAINING, first=True)
    warmup_steps: int = option(
        4000, "Number of updates over which the learning rate increases (section 5.3).", minimum=1, group=TRAINING)
    learning_rate_factor: float = option(
        1.0, "Factor on the learning rate of section 5.3.", above=0, group=TRAINING, unless="learning_rate")
    learning_rate: float = option(
        0.0, "Constant learning rate after a linear warm-up, as for fine-tuning, in place of that of section 5.3; 0 "
        "for the paper's.", minimum=0, group=TRAINING)
    cooldown_steps: int = option(
        0, "Number of updates up to --train_steps over which the learning rate also falls linearly to 0, as in Zhai "
        "et al. (2022); 0, as in the paper, has none. A run that is resumed with more --train_steps goes back to the "
        "rate of section 5.3 until its new last updates. Skipped updates do not lower the rate.",
        minimum=0, group=TRAINING)
    cooldown_share: float = option(
        0.0, "--cooldown_steps as a share of all updates, such as 0.5; 0: --cooldown_steps.",
        minimum=0, maximum=1, group=TRAINING)
    label_smoothing: float = option(
        0.1, "Label smoothing, epsilon_ls, over the whole vocabulary (section 5.4).",
        minimum=0, below=1, group=REGULARISATION)
    clip_norm: float = option(
        0.0, "Maximum global norm of the gradient; 0, as in the paper, does not clip it.", minimum=0, group=TRAINING)
    batch_tokens: int = option(
        25_000, "Tokens of one update on each side, padding included (section 5.1), on all devices together.",
        minimum=1, group=TRAINING, first=True, fixed=True)
    buckets_per_update: int = option(
        4, "Number of batches in one update, each with sentences of similar length; the paper has 1 (section 5.1).",
        minimum=1, group=TRAINING, fixed=True)
    micro_batch_tokens: int = option(
        8192, "Tokens on each side, padding included, that one device processes at once; larger batches are split.",
        minimum=1, group=DEVICES, affects="nothing")
    micro_batches_at_once: int = option(
        0, "Number of micro-batches that a device computes at a time; 0: one on a GPU, and on a CPU as cores and "
        "memory allow.", minimum=0, maximum=64, group=DEVICES, affects="nothing")
    jit_compile: str = option(
        AUTO, "Whether XLA compiles the forward and the backward pass, which takes some seconds for each shape of a "
        "micro-batch: true, false, or auto: on GPUs, if --length_buckets makes the shapes few.",
        choices=("true", "false", AUTO),
        group=DEVICES, affects="nothing")
    length_buckets: float = option(
        0.0, "Factor between the lengths that sentences are padded to, such as 1.15, so that micro-batches have few "
        "shapes; 1 pads to the longest sentence; 0: 1.15 in a new run with --jit_compile, else 1.",
        minimum=0, maximum=16, group=DEVICES, fixed=True)
    device_tflops: float = option(
        0.0, "Sustained TFLOPS of one device, for the paper's estimate of the training cost (Table 2: 9.5 for a "
        "P100); 0 makes no estimate.", minimum=0, group=DEVICES, affects="nothing")
    dtype: str = option(
        "float32", "Type of the layers' arithmetic: float32, bfloat16, float16 with loss scaling, or auto: bfloat16 "
        "where it is much faster. Weights stay float32.", choices=("float32", "bfloat16", "float16", AUTO),
        group=DEVICES, first=True)
    tf32: bool = option(
        True, "Round the factors of float32 products to TF32 on GPUs that can, as TensorFlow does by default: faster, "
        "and less exact.", group=DEVICES, affects="nothing")
    parent: str = option(
        "", "Folder of a run whose weights a new run starts from, for fine-tuning; empty for none.",
        group=FINE_TUNING, path="run", fixed=True, prepares=True)
    parent_checkpoint: str = option(
        CHECKPOINTS[0], f"<{'|'.join(CHECKPOINTS)}|STEP>: Weights of --parent to start from.",
        group=FINE_TUNING, fixed=True, needs="parent encoder_from")
    parent_subwords: bool = option(
        True, "Keep the sub-words of --parent. If not, the rows of those that both runs have are copied, and the "
        "others start at random.", group=FINE_TUNING, fixed=True, needs="parent encoder_from", prepares=True)
    parent_optimizer: bool = option(
        False, "Start with the optimizer of --parent too: its moments and its number of updates, from which the "
        "learning rate schedule goes on. It requires one checkpoint of the parent (best, latest or the number of an "
        "update) and its sub-words, without --freeze, --cooldown_steps and --ema_decay.",
        group=FINE_TUNING, fixed=True, needs="parent encoder_from")
    encoder_from: str = option(
        "", "Folder of a run, such as one of `t2t-pretrain`, whose encoder a new run of another architecture starts "
        "from, with its sizes; empty for none. --parent_checkpoint and --parent_subwords apply.",
        group=FINE_TUNING, path="run", fixed=True, prepares=True)
    freeze: str = option(
        "", "Parts of the model that keep their weights, separated by commas: names in the paths of the weights, such "
        "as embedding, encoder or decoder_0/self_attention; empty trains all.", group=FINE_TUNING, fixed=True)
    bpe_dropout: float = option(
        0.0, "Probability of skipping a merge of byte-pair encoding, so that each epoch divides the training text "
        "into other sub-words (Provilkov et al. 2020: 0.1); 0 divides it once.",
        minimum=0, below=1, group=REGULARISATION, fixed=True, task="augments")
    augment: str = option(
        "", "Noise in the training text of each epoch: kinds with the share of the pairs that get each, such as "
        "upper:0.07,title:0.05,typos:0.05,endpunct:0.2,noise:0.0005 (capitals, capitals of words, typos in the "
        "source, no full stop at the end, random characters to copy); empty: none.",
        group=REGULARISATION, fixed=True, task="augments", prepares=True)
    ema_decay: float = option(
        0.0, "Decay of an exponential moving average of the weights, such as 0.999, which --checkpoint=ema uses; 0 "
        "keeps none. An update leaves this share of the average and adds the rest of the new weights.",
        minimum=0, below=1, group=REGULARISATION, fixed=True, affects="averages")
    embeddings: str = option(
        "", "File of word vectors of Word2Vec (text or binary) or GloVe, as wide as the embeddings: the rows of "
        "sub-words that are whole words start as these; empty for none.", group=FINE_TUNING, path="file", fixed=True)
    freeze_embeddings: int = option(
        0, "Number of updates before the rows of --embeddings are trained.",
        minimum=0, group=FINE_TUNING, fixed=True, needs="embeddings")
    seed: int = option(
        1, "Seed of the initial weights, the order of the data, and dropout.", minimum=0, group=TRAINING, fixed=True)
    deterministic: bool = option(
        False, "Make runs with the same seed on the same machine bit-identical; slower.",
        group=DEVICES, affects="nothing")
    data_service: str = option(
        "", "Dispatcher of a tf.data service that reads the training data, as grpc://host:port; empty reads it in "
        "this process.", group=DEVICES, affects="nothing", local=True)
    damaged_records: str = option(
        "stop", "What to do with a data record that has a wrong checksum: stop training, or skip the record and count "
        "it.", choices=("stop", "skip"), group=TEXT, affects="nothing")
    checkpoint_steps: int = option(
        1000, "Updates between checkpoints; 0 saves by --checkpoint_minutes only.",
        minimum=0, group=LIMITS, affects="averages")
    checkpoint_minutes: float = option(
        10.0, "Minutes between checkpoints, 10 in section 6.1; 0 saves by --checkpoint_steps only.",
        minimum=0, group=LIMITS, affects="averages")
    keep_checkpoints: int = option(
        5, "Number of newest checkpoints to keep; their average is the model (section 6.1).",
        minimum=1, group=LIMITS, affects="averages")
    valid_steps: int = option(1000, "Updates between validations.", minimum=1, group=VALIDATION, first=True)
    valid_sentences: int = option(
        500, "Number of validation sentences to translate greedily for BLEU at each validation; 0 computes the loss "
        "only.", minimum=0, group=VALIDATION, task="generates")
    attention_images: int = option(
        1, "Number of validation sentences whose attention is drawn for TensorBoard, at most --valid_sentences; 0 "
        "draws none.", minimum=0, group=VALIDATION, affects="nothing", needs="valid_sentences", task="generates")
    log_steps: int = option(
        100, "Updates between points in TensorBoard.", minimum=1, group=VALIDATION, affects="nothing")
    histogram_steps: int = option(
        0, "Updates between histograms of weights and gradient norms in TensorBoard; 0 writes none.",
        minimum=0, group=VALIDATION, affects="nothing")
    profile_steps: str = option(
        "", "First and last update to profile for TensorBoard, such as 10,20; empty profiles none.",
        group=VALIDATION, affects="nothing")
    patience: int = option(
        0, "Stop after this many validations without improvement; 0 never stops early.", minimum=0, group=VALIDATION)
    max_skipped: int = option(
        20, "Stop after skipping this many updates in a row because their loss or gradient was not finite.",
        minimum=1, group=LIMITS, affects="nothing")
    max_hours: float = option(
        0.0, "Save and stop, as on SIGTERM, this many hours after training was started; 0 sets no limit.",
        minimum=0, group=LIMITS, affects="nothing")
    best_metric: str = option(
        "bleu", "Metric that selects the best checkpoint and that --patience observes; for translation bleu or loss.",
        group=VALIDATION, fixed=True)
    # fmt: on

    def __post_init__(self):
        check_fields(self)
        rule = "`cooldown_steps` must be at most `train_steps`."
        # The updates of epochs are counted later.
        require(self, self.epochs or self.cooldown_steps <= self.train_steps, rule)
        rule = "`cooldown_steps` and `cooldown_share` exclude each other."
        require(self, not (self.cooldown_steps and self.cooldown_share), rule)
        steps = re.fullmatch(r"(\d{1,9}),(\d{1,9})", self.profile_steps, re.ASCII)
        rule = "`profile_steps` must be the first and the last update to profile, such as 10,20."
        require(self, not self.profile_steps or (steps and 1 <= int(steps[1]) <= int(steps[2])), rule)
        rule = "`checkpoint_steps` or `checkpoint_minutes` must be above 0."
        require(self, self.checkpoint_steps or self.checkpoint_minutes, rule)
        require(self, not 0 < self.length_buckets < 1, "`length_buckets` must be 0, or 1 or more.")
        rule = "`data_service` must be the address of its dispatcher, grpc://host:port."
        require(self, not self.data_service or grpc_address(self.data_service), rule)
        for name in options_with(TrainConfig, "task", "augments"):
            service = f"`{name}` does not work with a `data_service`, because Python code in this process computes it."
            require(self, not (getattr(self, name) and self.data_service), service)
        rule = (
            "`augment` must be kinds of noise with shares above 0 and at most 1, such as upper:0.07,typos:0.05, of the "
            f"kinds {', '.join(AUGMENTATIONS)}, each once."
        )
        kinds = self.augment.split(",") if self.augment else []
        names, shares = {kind.partition(":")[0] for kind in kinds}, self.noise
        fits = len(names) == len(kinds) and shares.keys() == names <= {*AUGMENTATIONS}
        fits = fits and all(0 < share <= 1 for share in shares.values())
        require(self, fits, rule)
        measured = "`deterministic` does not work with `dtype=auto`, which measures the machine."
        require(self, not (self.deterministic and self.dtype == AUTO), measured)
        service = "`deterministic` does not work with a `data_service`, whose order of batches is not reproducible."
        require(self, not (self.deterministic and self.data_service), service)
        self._check_start()

    def _check_start(self) -> None:
        """Checks the options of the weights that a run starts from."""
        parts = not self.freeze or re.search(r"[^\s,/]", self.freeze)
        require(self, parts, "`freeze` must name parts of the model.")
        rule = f"`parent_checkpoint` must be {', '.join(CHECKPOINTS)} or the number of an update."
        require(self, is_checkpoint(self.parent_checkpoint), rule)
        require(self, not (self.parent and self.encoder_from), "`parent` and `encoder_from` exclude each other.")
        names = "encoder_from parent_checkpoint parent_optimizer"
        rule = "`parent_optimizer` needs a `parent`: `encoder_from` has no optimizer for all weights."
        require(self, not (self.encoder_from and self.parent_optimizer), rule, names)
        without = [name for name in ("freeze", "cooldown_steps", "cooldown_share", "ema_decay") if getattr(self, name)]
        one_state = self.parent_checkpoint not in (AVERAGE, EMA) and self.parent_subwords and not without
        names = " ".join(["parent_optimizer parent parent_checkpoint parent_subwords", *without])
        rule = (
            "`parent_optimizer` needs `parent_checkpoint` best, latest or the number of an update, and none of "
            "`freeze`, a cooldown, `ema_decay` and `parent_subwords=false`."
        )
        require(self, one_state or not (self.parent_optimizer and self.parent), rule, names)
        rule = "`embeddings` cannot be combined with `parent` or `encoder_from`, which have trained embeddings."
        require(self, not (self.embeddings and self.starts_from), rule)

    @property
    def profiled(self) -> range:
        """The updates of `profile_steps` that the run has; empty for none."""
        first, last = map(int, self.profile_steps.split(",")) if self.profile_steps else (1, 0)
        return range(first, min(last, self.train_steps) + 1)

    @property
    def rate_option(self) -> str:
        """The name of the option that makes the learning rate higher or lower."""
        return "learning_rate" if self.learning_rate else "learning_rate_factor"

    @property
    def noise(self) -> dict[str, float]:
        """The share of the pairs that get each kind of noise of `augment`."""
        number = r"(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?"
        shares = (re.fullmatch(rf"(\w+):({number})", each, re.ASCII) for each in self.augment.split(","))
        return {share[1]: float(share[2]) for share in shares if share}

    @property
    def cooldown(self) -> int:
        """Number of updates, the last ones, over which the learning rate falls to 0."""
        return self.cooldown_steps or round(self.cooldown_share * self.train_steps)

    @property
    def starts_from(self) -> str:
        """Folder of the run whose weights a new run starts from: all of them, or those of the encoder; empty for
        none.
        """
        return self.parent or self.encoder_from


STARTS = options_with(TrainConfig, "path", "run")  # Options that name a run whose weights a new run starts from.
