"""Options of training (section 5)."""

import dataclasses
import re

from t2t_keras.config.options import check_types, option, require

# Choices of the weights of a run, beside the number of an update.
CHECKPOINTS = AVERAGE, BEST, LATEST, EMA = "average", "best", "latest", "ema"


def is_checkpoint(which: str) -> bool:
    """Returns whether a text chooses weights of a run: one of `CHECKPOINTS`, or the number of an update."""
    return which in CHECKPOINTS or re.fullmatch("[0-9]{1,18}", which) is not None


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Options of training (section 5): batches, optimizer, schedule, regularization, validation and checkpoints."""

    train_steps: int = option(100_000, "Total number of updates (section 5.2).")
    warmup_steps: int = option(4000, "Number of updates over which the learning rate increases (section 5.3).")
    learning_rate_factor: float = option(1.0, "Factor on the learning rate of section 5.3.")
    learning_rate: float = option(
        0.0,
        "Constant learning rate after a linear warm-up, as for fine-tuning, in place of that of section 5.3; 0 for the "
        "paper's.",
    )
    cooldown_steps: int = option(
        0,
        "Number of updates up to --train_steps over which the learning rate also falls linearly to 0, as in Zhai et "
        "al. (2022); 0, as in the paper, has none. A run that is resumed with more --train_steps goes back to the rate "
        "of section 5.3 until its new last updates. Skipped updates do not lower the rate.",
    )
    label_smoothing: float = option(0.1, "Label smoothing, epsilon_ls, over the whole vocabulary (section 5.4).")
    clip_norm: float = option(0.0, "Maximum global norm of the gradient; 0, as in the paper, does not clip it.")
    batch_tokens: int = option(
        25_000, "Tokens of one update on each side, padding included (section 5.1), on all devices together."
    )
    buckets_per_update: int = option(
        4, "Number of batches in one update, each with sentences of similar length; the paper has 1 (section 5.1)."
    )
    micro_batch_tokens: int = option(
        8192, "Tokens on each side, padding included, that one device processes at once; larger batches are split."
    )
    micro_batches_at_once: int = option(
        0,
        "Number of micro-batches that a device computes at a time; 0: one on a GPU, and on a CPU as cores and memory "
        "allow.",
        64,
    )
    device_tflops: float = option(
        0.0,
        "Sustained TFLOPS of one device, for the paper's estimate of the training cost (Table 2: 9.5 for a P100); 0 "
        "makes no estimate.",
    )
    dtype: str = option(
        "float32",
        "Type of the layers' arithmetic: float32, bfloat16, or float16 with loss scaling. Weights stay float32.",
    )
    tf32: bool = option(
        True,
        "Round the factors of float32 products to TF32 on GPUs that can, as TensorFlow does by default: faster, and "
        "less exact.",
    )
    parent: str = option("", "Folder of a run whose weights a new run starts from, for fine-tuning; empty for none.")
    parent_checkpoint: str = option(
        CHECKPOINTS[0], f"<{'|'.join(CHECKPOINTS)}|STEP>: Weights of --parent to start from."
    )
    parent_subwords: bool = option(
        True,
        "Keep the sub-words of --parent. If not, the rows of those that both runs have are copied, and the others "
        "start at random.",
    )
    parent_optimizer: bool = option(
        False,
        "Start with the optimizer of --parent too: its moments and its number of updates, where the schedule of this "
        "run's learning rate begins. It requires one checkpoint of the parent (best, latest or the number of an "
        "update) and its sub-words, without --freeze, --cooldown_steps and --ema_decay.",
    )
    encoder_from: str = option(
        "",
        "Folder of a run, such as one of t2t-pretrain, whose encoder a new run of another architecture starts from, "
        "with its sizes; empty for none. --parent_checkpoint and --parent_subwords apply.",
    )
    freeze: str = option(
        "",
        "Parts of the model that keep their weights, separated by commas: names in the paths of the weights, such as "
        "embedding, encoder or decoder_0/self_attention; empty trains all.",
    )
    bpe_dropout: float = option(
        0.0,
        "Probability of skipping a merge of byte-pair encoding, so that each epoch divides the training text into "
        "other sub-words (Provilkov et al. 2020: 0.1); 0 divides it once.",
    )
    ema_decay: float = option(
        0.0,
        "Decay of an exponential moving average of the weights, such as 0.999, which --checkpoint=ema uses; 0 keeps "
        "none. An update leaves this share of the average and adds the rest of the new weights.",
    )
    embeddings: str = option(
        "",
        "File of word vectors of Word2Vec (text or binary) or GloVe, as wide as the embeddings: the rows of sub-words "
        "that are whole words start as these; empty for none.",
    )
    freeze_embeddings: int = option(0, "Number of updates before the rows of --embeddings are trained.")
    seed: int = option(1, "Seed of the initial weights, the order of the data, and dropout.")
    deterministic: bool = option(False, "Make runs with the same seed on the same machine bit-identical; slower.")
    data_service: str = option(
        "",
        "Dispatcher of a tf.data service that reads the training data, as grpc://host:port; empty reads it in this "
        "process.",
    )
    damaged_records: str = option(
        "stop",
        "What to do with a data record that has a wrong checksum: stop training, or skip the record and count it.",
    )
    checkpoint_steps: int = option(1000, "Updates between checkpoints; 0 saves by --checkpoint_minutes only.")
    checkpoint_minutes: float = option(
        10.0, "Minutes between checkpoints, 10 in section 6.1; 0 saves by --checkpoint_steps only."
    )
    keep_checkpoints: int = option(5, "Number of newest checkpoints to keep; their average is the model (section 6.1).")
    valid_steps: int = option(1000, "Updates between validations.")
    valid_sentences: int = option(
        500,
        "Number of validation sentences to translate greedily for BLEU at each validation; 0 computes the loss only.",
    )
    attention_images: int = option(
        1,
        "Number of validation sentences whose attention is drawn for TensorBoard, at most --valid_sentences; 0 draws "
        "none.",
    )
    log_steps: int = option(100, "Updates between points in TensorBoard.")
    histogram_steps: int = option(
        0, "Updates between histograms of weights and gradient norms in TensorBoard; 0 writes none."
    )
    profile_steps: str = option(
        "", "First and last update to profile for TensorBoard, such as 10,20; empty profiles none."
    )
    patience: int = option(0, "Stop after this many validations without improvement; 0 never stops early.")
    max_skipped: int = option(
        20, "Stop after skipping this many updates in a row because their loss or gradient was not finite."
    )
    max_hours: float = option(
        0.0, "Save and stop, as on SIGTERM, this many hours after training was started; 0 sets no limit."
    )
    best_metric: str = option(
        "bleu", "Metric that selects the best checkpoint and that --patience observes; for translation bleu or loss."
    )

    def __post_init__(self):
        check_types(self)
        for name in (
            "train_steps",
            "warmup_steps",
            "batch_tokens",
            "buckets_per_update",
            "micro_batch_tokens",
            "keep_checkpoints",
            "valid_steps",
            "log_steps",
            "max_skipped",
        ):
            require(self, getattr(self, name) >= 1, name, "a positive number")
        for name in (
            "seed",
            "checkpoint_steps",
            "checkpoint_minutes",
            "valid_sentences",
            "attention_images",
            "patience",
            "clip_norm",
            "learning_rate",
            "max_hours",
            "histogram_steps",
            "device_tflops",
            "micro_batches_at_once",
            "freeze_embeddings",
        ):
            require(self, getattr(self, name) >= 0, name, "0 or more")
        require(self, self.learning_rate_factor > 0, "learning_rate_factor", "a positive factor")
        factor = "`learning_rate_factor=1` with a constant learning_rate, which it does not change"
        require(
            self, self.learning_rate_factor == 1 or not self.learning_rate, "learning_rate_factor learning_rate", factor
        )
        require(
            self,
            is_checkpoint(self.parent_checkpoint),
            "parent_checkpoint",
            f"{', '.join(CHECKPOINTS)} or the number of an update",
        )
        of_parent = self.parent_checkpoint != AVERAGE or not self.parent_subwords or self.parent_optimizer
        options = "parent parent_checkpoint parent_subwords parent_optimizer"
        require(
            self,
            bool(self.starts_from) or not of_parent,
            options,
            "`parent` or `encoder_from` with the options of what is taken from it",
        )
        require(
            self, not (self.parent and self.encoder_from), "parent encoder_from", "`parent` or `encoder_from`, not both"
        )
        options = "encoder_from parent_checkpoint parent_optimizer"
        require(
            self,
            not (self.encoder_from and self.parent_optimizer),
            options,
            "a parent, whose optimizer fits all weights",
        )
        one_state = self.parent_checkpoint not in (AVERAGE, EMA) and self.parent_subwords
        one_state = one_state and not (self.freeze or self.cooldown_steps or self.ema_decay)
        options = "parent_optimizer parent parent_checkpoint parent_subwords freeze cooldown_steps ema_decay"
        expected = (
            "an optimizer of one checkpoint (best, latest, or a number), for all weights, without a cooldown or a "
            "moving average"
        )
        require(self, one_state or not self.parent_optimizer, options, expected)
        require(
            self,
            not self.freeze or re.search(r"[^\s,/]", self.freeze),
            "freeze",
            "names of parts of the model, or nothing",
        )
        one_start = "at most one of the two, because the weights of a parent are trained ones"
        require(self, not (self.embeddings and self.starts_from), "embeddings parent encoder_from", one_start)
        held = "`embeddings` with `freeze_embeddings`"
        require(self, bool(self.embeddings) or not self.freeze_embeddings, "freeze_embeddings embeddings", held)
        cooldown = "a cooldown of 0 or more updates, at most all of them"
        require(self, 0 <= self.cooldown_steps <= self.train_steps, "cooldown_steps train_steps", cooldown)
        require(self, 0 <= self.bpe_dropout < 1, "bpe_dropout", "a probability in [0, 1)")
        of_service = "no data_service with bpe_dropout, which Python code in this process computes"
        require(self, not (self.bpe_dropout and self.data_service), "bpe_dropout data_service", of_service)
        require(self, 0 <= self.ema_decay < 1, "ema_decay", "a share in [0, 1)")
        require(self, 0 <= self.label_smoothing < 1, "label_smoothing", "a share in [0, 1)")
        require(self, self.dtype in ("float32", "bfloat16", "float16"), "dtype", "float32, bfloat16 or float16")
        require(
            self,
            not (self.deterministic and self.data_service),
            "deterministic data_service",
            "at most one of the two, because a data service sends batches in an order that is not reproducible",
        )
        require(self, self.damaged_records in ("stop", "skip"), "damaged_records", "stop or skip")
        bounds = re.fullmatch(r"(\d{1,9}),(\d{1,9})", self.profile_steps, re.ASCII)
        require(
            self,
            not self.profile_steps or (bounds is not None and 1 <= int(bounds[1]) <= int(bounds[2])),
            "profile_steps",
            "the first and the last update to profile, such as 10,20",
        )
        require(
            self,
            self.checkpoint_steps or self.checkpoint_minutes,
            "checkpoint_steps checkpoint_minutes",
            "one of them above 0",
        )
        require(
            self,
            self.best_metric != "bleu" or self.valid_sentences > 0,
            "best_metric valid_sentences",
            "best_metric=loss if valid_sentences=0",
        )

    @property
    def starts_from(self) -> str:
        """Folder of the run whose weights a new run starts from: all of them, or those of the encoder; empty for
        none.
        """
        return self.parent or self.encoder_from
