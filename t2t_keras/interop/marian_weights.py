"""Weights of a Marian or M2M-100 model under the names and in the order of ours.

transformers has a matrix [out, in] where Keras has [in, out]. Its position encodings have all sines before all cosines,
where section 3.5 alternates them: the D columns of every weight are put in that order, on which layer normalization and
attention do not depend. The frequencies are 10000^(-2i / D) in Marian, and 10000^(-i / (D / 2 - 1)) in M2M-100.

Letters: D d_model, V vocabulary.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from t2t_keras.config import BOS, PAD, PRE, ModelConfig
from t2t_keras.interop.huggingface_folder import ALL, Tensors
from t2t_keras.interop.marian_config import M2M, MarianConfig

Read = Callable[..., np.ndarray]  # Of rows, a slice; without it of all.
_BLOCK = 4096  # Rows of an embedding that are read at a time.
# Logit of an id that a translation must not have, at most: its probability is below e^-100 of the best one's.
FORBIDDEN = -100.0
# Names of the parts of layers, ours and theirs.
_ATTENTION = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
NORM = {"gamma": "weight", "beta": "bias"}
SHARED, LOGITS, LOGITS_BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
SOURCE, TARGET = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
_POSITIONS = tuple(
    f"model.{side}.embed_positions.{name}" for side in ("encoder", "decoder") for name in ("weight", "weights")
)


def check_embeddings(config: MarianConfig, tensors: Tensors) -> None:
    """Raises `ValueError` if the embeddings have fewer rows than config.json says, before sub-words of that number take
    memory. `Model` checks all shapes.
    """
    rows = dict.fromkeys((SHARED, SOURCE), config.source_rows) | dict.fromkeys((TARGET, LOGITS), config.target_rows)
    shapes = {name: tensors.shape(name) for name in rows if name in tensors.names}
    if not shapes:
        raise ValueError(f"Expected the weight {tensors.label(SHARED)}. It is missing.")
    largest = max(shapes.values())
    for name in rows:
        if shapes.get(name, largest) < (rows[name],):
            expected = f"{tensors.label(name)} of shape {(rows[name], config.model.d_model)}, as the options have it"
            raise ValueError(f"Expected {expected}. Received: {shapes.get(name, 'none')}.")


class Place(NamedTuple):
    """A weight of a layer.

    Attributes:
        path: its name.
        name: its name in transformers.
        shape: its shape.
        of_model: the axis of the D columns; `None` if there is none.
    """

    path: str
    name: str
    shape: tuple[int, ...]
    of_model: int | None

    def ordered(self, array: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Returns an array of this shape with its D columns in an order."""
        return array if self.of_model is None else array.take(order, self.of_model)


def layers(model: ModelConfig) -> Iterator[Place]:
    """Returns the weights of all layers."""
    width, keys, values = model.d_model, model.num_heads * model.d_k, model.num_heads * model.d_v

    def linear(path: str, name: str, shape: tuple[int, int], of_model: int, has_bias: bool) -> Iterator[Place]:
        yield Place(f"{path}/kernel", f"{name}.weight", shape, of_model)
        if has_bias:
            yield Place(f"{path}/bias", f"{name}.bias", shape[1:], 0 if of_model == 1 else None)

    def norm(path: str, name: str) -> Iterator[Place]:
        for ours, theirs in NORM.items():
            yield Place(f"{path}/{ours}", f"{name}.{theirs}", (width,), 0)

    for side, number in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        for index in range(number):
            path, name = f"transformer/{side}_{index}", f"model.{side}.layers.{index}"
            for ours, theirs in list(_ATTENTION.items())[: 1 if side == "encoder" else 2]:
                for part, theirs_part, *projection in (
                    ("query", "q_proj", (width, keys), 0),
                    ("key", "k_proj", (width, keys), 0),
                    ("value", "v_proj", (width, values), 0),
                    ("output", "out_proj", (values, width), 1),
                ):
                    names = f"{path}/{ours}/{part}", f"{name}.{theirs}.{theirs_part}"
                    yield from linear(*names, *projection, model.attention_bias)
                yield from norm(f"{path}/{ours}_norm/norm", f"{name}.{theirs}_layer_norm")
            yield from linear(f"{path}/feed_forward/inner", f"{name}.fc1", (width, model.d_ff), 0, True)
            yield from linear(f"{path}/feed_forward/outer", f"{name}.fc2", (model.d_ff, width), 1, True)
            yield from norm(f"{path}/feed_forward_norm/norm", f"{name}.final_layer_norm")
        if model.norm == PRE:
            yield from norm(f"transformer/{side}", f"model.{side}.layer_norm")


def alternating(d_model: int) -> np.ndarray:
    """Returns their column for each of ours, [D] int."""
    half = np.arange(d_model // 2)
    return np.stack([half, half + d_model // 2], axis=1).reshape(-1)


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight that is read when it is converted to an array: a model of these is written without being in memory.

    Attributes:
        path: its name.
        array: reads it.
    """

    path: str
    array: Callable[[], np.ndarray]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.ascontiguousarray(self.array(), dtype or np.float32)


class Weights:
    """Takes tensors as weights: names and shapes are checked at once, values when they are read."""

    def __init__(self, tensors: Tensors):
        self._tensors, self.names, self.unused = tensors, tensors.names, set(tensors.names)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor, which must be there."""
        if name not in self.names:
            raise ValueError(f"Expected the weight {self._tensors.label(name)}{self._tensors.where}. It is missing.")
        return self._tensors.shape(name)

    def read(self, name: str, shape: tuple[int, ...]) -> Read:
        """Returns what reads a tensor of this shape."""
        label, where = self._tensors.label(name), self._tensors.where
        if (received := self.shape(name)) != shape:
            told = self._tensors.sizes_from
            raise ValueError(f"Expected {label} of shape {shape}{where}, as {told} have it. Received: {received}.")
        self.unused.discard(name)

        def read(rows: slice = ALL) -> np.ndarray:
            array = self._tensors.read(name, slice(*rows.indices(shape[0])))
            if not np.isfinite(array).all():
                raise ValueError(f"Expected finite weights. Received: {label} with infinity or NaN.")
            return array

        return read

    def take(self, path: str, name: str, shape: tuple[int, ...], change: Callable = np.asarray) -> Weight:
        """Returns the weight `path`: a tensor of this shape, which `change` converts."""
        read = self.read(name, shape)
        return Weight(path, lambda: change(read()))

    def of_layers(self, model: ModelConfig, name_of: Callable[[Place], str], transposed: bool) -> Iterator[Weight]:
        """Returns the weights of all layers, with their columns in our order. `name_of` returns the name of a tensor;
        `transposed` ones have the outputs first.
        """
        order = alternating(model.d_model)
        for place in layers(model):
            shape = place.shape[::-1] if transposed else place.shape
            change = lambda array, place=place: place.ordered(array.T if transposed else array, order)  # noqa: E731
            yield self.take(place.path, name_of(place), shape, change)

    def check_all_taken(self, what: str) -> None:
        """Raises `ValueError` if there are other tensors; `what` says whose weights were expected."""
        if unknown := sorted(map(self._tensors.label, self.unused)):
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            first = " ".join(unknown[0].split())[:100]
            raise ValueError(f"Expected only the weights of {what}. Received {first}{more} besides.")


class Model:
    """The weights of a model, as `checkpoint.write` takes it, from open tensors; `source_rows` and `target_rows` are
    Marian's id for each of ours. Weights that are missing, unknown or of another shape are an error.
    """

    def __init__(self, config: MarianConfig, tensors: Tensors, source_rows: np.ndarray, target_rows: np.ndarray):
        self._config, self._weights, model = config, Weights(tensors), config.model
        layers = self._weights.of_layers(model, lambda place: place.name, transposed=True)
        self.weights = [*self._embeddings(source_rows, target_rows), *layers]
        self._check_positions()
        self._weights.check_all_taken(f"a model of type {config.kind} with {model.norm}-norm layers")

    def _embeddings(self, source_rows: np.ndarray, target_rows: np.ndarray) -> Iterator[Weight]:
        """The matrices of both sides and of the logits, and the bias of the logits."""
        config, model = self._config, self._config.model
        width, order = model.d_model, alternating(config.model.d_model)
        source, target, logits = self._matrices()
        scale = 1.0 if config.scaled else width**-0.5

        def rows(path: str, read: Read, chosen: np.ndarray, factor: float = 1.0) -> Weight:
            def array() -> np.ndarray:
                matrix = np.empty((len(chosen), width), np.float32)
                for first in range(0, max(chosen) + 1, _BLOCK):  # The matrix may be most of the model.
                    block = read(slice(first, first + _BLOCK))
                    in_block = np.flatnonzero((chosen >= first) & (chosen < first + _BLOCK))
                    matrix[in_block] = block[np.ix_(chosen[in_block] - first, order)]
                matrix *= np.float32(factor)
                return matrix

            return Weight(path, array)

        if model.source_vocab_size:
            yield rows("transformer/source_embedding/matrix", source, source_rows, scale)
        yield rows("transformer/embedding/matrix", target, target_rows, scale)
        if not model.tie_logits:
            yield rows("transformer/embedding/logits_matrix", logits, target_rows)
        yield Weight("transformer/embedding/logits_bias", self._logits_bias(logits, target_rows))

    def _matrices(self) -> tuple[Read, Read, Read]:
        """Returns what reads the embeddings of source and target and the matrix of the logits, which may be one under
        several names.
        """
        config, stored = self._config, self._weights.names
        source, target, logits = (SOURCE,), (TARGET,), (LOGITS,)
        if config.tied:
            target = logits = target + logits
        if config.tied and config.shared:
            source = target = logits = (SHARED, *source, *target)
        elif config.shared:  # Versions of transformers before 5 tie the embeddings of both sides nevertheless.
            source, target = (names if stored.issuperset(names) else (SHARED,) for names in (source, target))
            self._weights.unused.discard(SHARED)

        def one_of(names: tuple[str, ...], number: int) -> Read:
            present = [name for name in names if name in stored] or names[:1]
            read, *others = (self._weights.read(name, (number, config.model.d_model)) for name in present)

            def same(rows: slice = ALL) -> np.ndarray:
                array = read(rows)
                if any(not np.array_equal(array, other(rows)) for other in others):
                    raise ValueError(
                        f"Expected {' and '.join(present)} to be equal, because config.json ties them. They differ."
                    )
                return array

            return same

        rows = config.target_rows
        return one_of(source, config.source_rows), one_of(target, rows), one_of(logits, rows)

    def _logits_bias(self, logits: Read, target_rows: np.ndarray) -> Callable[[], np.ndarray]:
        """Returns what reads the bias, with which no translation has padding, the start token or a forbidden id.

        The last layer normalization gives γ ∘ n + β with ‖n‖ ≤ √D, so the logit of row e is at most √D ‖γ ∘ e‖ + |β ·
        e| without the bias.
        """
        config, width, rows = self._config, self._config.model.d_model, self._config.target_rows
        of_last_layer = f"layers.{config.model.decoder_layers - 1}.final_layer_norm"
        last = f"model.decoder.{'layer_norm' if config.model.norm == PRE else of_last_layer}"
        gamma, beta = (self._weights.read(f"{last}.{name}", (width,)) for name in ("weight", "bias"))
        stored = LOGITS_BIAS in self._weights.names
        bias = self._weights.read(LOGITS_BIAS, (1, rows)) if stored else lambda: np.zeros(rows, np.float32)
        never = np.isin(target_rows, config.forbidden)
        never[[PAD, BOS]] = True

        def read() -> np.ndarray:
            e = np.concatenate([logits(slice(row, row + 1)) for row in target_rows[never]])
            biases = bias().ravel()[target_rows]
            with np.errstate(over="ignore", invalid="ignore"):
                largest = width**0.5 * np.linalg.norm(gamma() * e, axis=1) + np.abs(e @ beta())
                biases[never] = FORBIDDEN - largest
            if not np.isfinite(biases).all():
                raise ValueError(
                    f"Expected weights that give finite logits. Received: too large ones of {last} and the embedding."
                )
            return biases

        return read

    def _check_positions(self) -> None:
        """Checks the position encodings, which files of early versions of transformers hold."""
        config, width = self._config, self._config.model.d_model
        is_m2m = config.kind == M2M
        rows = config.decode.max_input + config.model.first_position * is_m2m
        for name in _POSITIONS:
            if name in self._weights.names:
                stored = self._weights.read(name, (rows, width))()
                angles = np.arange(rows)[:, None] / 10000 ** (np.arange(width // 2) / (width / 2 - is_m2m))
                expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
                if is_m2m:
                    expected[config.pad] = 0
                if not np.allclose(stored, expected, atol=2e-3):
                    raise ValueError(f"Expected the sinusoids of transformers as {name}. Received: other values.")
