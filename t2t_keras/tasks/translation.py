"""The task of the paper: a source and its translation, sub-words of both; BLEU of greedy translations (sections 5 and
6.1).
"""

import dataclasses
from collections.abc import Callable, Iterator

from t2t_keras.runs.task import LOSS, Column, Metric, Renewal, Task, perplexity
from t2t_keras.system import markdown
from t2t_keras.system.log import logger
from t2t_keras.text.scripts import is_unspaced

SAMPLES = 5  # Validation sentences shown in TensorBoard.


class Translation(Task):
    """Translation from a source to a target, with the model's `cross_entropy`."""

    columns = (Column("source"), Column("target"))
    separate_subwords = augments = generates = True
    sums = ("loss", "smoothed_loss")
    objective = "smoothed_loss"
    metrics = (
        LOSS,
        Metric("perplexity", "Perplexity", train="Exponential of train/loss.", valid="Exponential of valid/loss."),
        Metric(
            "smoothed_loss",
            "",
            train="The loss with label smoothing, which training minimises, in nats per target sub-word.",
        ),
        Metric(
            "bleu",
            "BLEU",
            valid="sacreBLEU of greedy translations of the first validation sentences by the weights of the moment.",
            translates=True,
        ),
    )
    best_metrics = ("bleu", "loss")

    def records(self, tokenizer, source: list[bytes], target: list[bytes]) -> Iterator[tuple]:
        """See `Task.records`: the sub-words of both sides, with end tokens. Placeholders stand for what both sides
        keep.
        """
        kept = tokenizer.kept(source, target)
        return zip(tokenizer.source.sentences(source, kept), tokenizer.sentences(target, kept), strict=True)

    def renewal(self, tokenizer, options, training: bool) -> Renewal | None:
        """See `Task.renewal`: the noise of `augment`, then the sub-words of BPE-dropout."""
        train = options.train
        if not (training and (train.augment or train.bpe_dropout)):
            return None
        from t2t_keras.text.augmentation import Augmentation  # Here, because a task imports no TensorFlow.
        from t2t_keras.text.bpe_dropout import BpeDropout

        sides = {"source": tokenizer.source, "target": tokenizer}
        # The longest that fit into the batches of an update.
        most = min(options.data.max_length, train.batch_tokens // train.buckets_per_update)
        noise = train.augment and Augmentation(train.noise, *sides.values(), options.data.tags, most)
        divide = [BpeDropout(subwords, train.bpe_dropout, most) for subwords in sides.values() if train.bpe_dropout]

        def change(records: dict, seed) -> dict:
            columns = [records[name] for name in sides]
            if noise:
                columns = noise(columns, seed + len(sides))
            if divide:
                of_sides = enumerate(zip(divide, columns, strict=True))
                columns = [of_side(ids, seed + number) for number, (of_side, ids) in of_sides]
            return dict(zip(sides, columns, strict=True))

        return Renewal(tuple(sides), change, most=most)

    def loss(self, model, batch: dict, *, label_smoothing: float, training: bool) -> dict:
        """See `Task.loss`: the negative log likelihood, and the smoothed cross entropy of section 5.4."""
        sides = batch["source"], batch["target"]
        smoothed, negative_log_likelihood = model.cross_entropy(*sides, label_smoothing, training=training)
        return {"loss": negative_log_likelihood, "smoothed_loss": smoothed}

    def measure(self, sums: dict[str, float], training: bool) -> dict[str, float]:
        """See `Task.measure`."""
        loss = sums["loss"] / sums["target_tokens"]
        smoothed = {"smoothed_loss": sums["smoothed_loss"] / sums["target_tokens"]} if training else {}
        return {"loss": loss, "perplexity": perplexity(loss), **smoothed}

    def validation(self, model, tokenizer, options, texts: tuple[list[str], ...]) -> Callable[[], dict]:
        """See `Task.validation`: BLEU of greedy translations, samples of them, and attention to some sources."""
        # Here, because preparing data needs no translator.
        from t2t_keras.decoding.translator import Translator, translate_lines
        from t2t_keras.reporting import pictures

        greedy = Translator(model, tokenizer, dataclasses.replace(options.decode, beam_size=1, diverse_groups=1))
        sources, references = (lines[: options.train.valid_sentences] for lines in texts)
        if self.translates(options.train.best_metric) and is_unspaced(references):
            logger.warning(
                "Validation BLEU counts words between spaces, which the script of the references does not have: choose "
                "`best_metric=loss`."
            )
        pairs = list(zip(sources, references, strict=True))
        draw_attention = pictures.attention_images(greedy, pairs, options.train.attention_images)

        def validate() -> dict:
            from t2t_keras.evaluation import scores  # Here, because importing sacreBLEU takes half a second.

            if not sources:
                return {}
            results = translate_lines(greedy, sources, batch_size=greedy.limits.batch_size)
            hypotheses = [result["text"] for result in results]
            rows = zip(sources[:SAMPLES], hypotheses, references, strict=False)
            return {
                "bleu": scores.bleu(hypotheses, references)["bleu"],
                "samples": markdown.table(("source", "translation", "reference"), rows),
                **draw_attention(),
            }

        return validate
