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
_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_SELF_ATTENTION = ("self_attention", "self_attn")
_CROSS_ATTENTION = ("cross_attention", "encoder_attn")
_FEED_FORWARD = {"inner": "fc1", "outer": "fc2"}
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


class Linear(NamedTuple):
    """A matrix and its bias, ours and theirs; `of_model` has "i" and "o" if the inputs and the outputs are D
    columns.
    """

    path: str
    name: str
    inputs: int
    outputs: int
    of_model: str


class Norm(NamedTuple):
    """A layer normalization, ours and theirs."""

    path: str
    name: str


def layers(model: ModelConfig) -> Iterator[Linear | Norm]:
    """Returns the parts of all layers."""
    width = model.d_model
    for side, number in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        for index in range(number):
            path, name = f"transformer/{side}_{index}", f"model.{side}.layers.{index}"
            for ours, theirs in (_SELF_ATTENTION, *([_CROSS_ATTENTION] if side == "decoder" else [])):
                for part, theirs_part in _ATTENTION.items():
                    of_model = "o" if part == "output" else "i"
                    yield Linear(f"{path}/{ours}/{part}", f"{name}.{theirs}.{theirs_part}", width, width, of_model)
                yield Norm(f"{path}/{ours}_norm/norm", f"{name}.{theirs}_layer_norm")
            for part, inputs, outputs, of_model in (
                ("inner", width, model.d_ff, "i"),
                ("outer", model.d_ff, width, "o"),
            ):
                yield Linear(f"{path}/feed_forward/{part}", f"{name}.{_FEED_FORWARD[part]}", inputs, outputs, of_model)
            yield Norm(f"{path}/feed_forward_norm/norm", f"{name}.final_layer_norm")
        if model.norm == PRE:
            yield Norm(f"transformer/{side}", f"model.{side}.layer_norm")


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


class Model:
    """The weights of a model, as `checkpoint.write` takes it, from open tensors; `source_rows` and `target_rows` are
    Marian's id for each of ours. Weights that are missing, unknown or of another shape are an error.
    """

    def __init__(self, config: MarianConfig, tensors: Tensors, source_rows: np.ndarray, target_rows: np.ndarray):
        self._config, self._tensors, self._used = config, tensors, set()
        model = config.model
        self._order = alternating(model.d_model)
        self.weights = [*self._embeddings(source_rows, target_rows), *self._layers(model)]
        self._check_positions()
        if unknown := sorted(map(tensors.label, tensors.names - self._used)):
            expected = f"Expected the weights of a model of type {config.kind} with {model.norm}-norm layers."
            raise ValueError(f"{expected} Received {_some(unknown)} besides.")

    def _read(self, name: str, shape: tuple[int, ...]) -> Read:
        """Returns what reads a tensor, whose shape is checked here."""
        label = self._tensors.label(name)
        if name not in self._tensors.names:
            raise ValueError(f"Expected the weight {label}. It is missing.")
        if (received := self._tensors.shape(name)) != shape:
            raise ValueError(f"Expected {label} of shape {shape}, as the options have it. Received: {received}.")
        self._used.add(name)

        def read(rows: slice = ALL) -> np.ndarray:
            array = self._tensors.read(name, slice(*rows.indices(shape[0])))
            if not np.isfinite(array).all():
                raise ValueError(f"Expected finite weights. Received: {label} with infinity or NaN.")
            return array

        return read

    def _linear(self, path: str, name: str, inputs: int, outputs: int, of_model: str) -> Iterator[Weight]:
        rows, columns = (self._order if letter in of_model else slice(None) for letter in "io")
        kernel, bias = self._read(f"{name}.weight", (outputs, inputs)), self._read(f"{name}.bias", (outputs,))
        yield Weight(f"{path}/kernel", lambda: kernel().T[rows][:, columns])
        yield Weight(f"{path}/bias", lambda: bias()[columns])

    def _norm(self, path: str, name: str) -> Iterator[Weight]:
        for ours, theirs in NORM.items():
            read = self._read(f"{name}.{theirs}", (len(self._order),))
            yield Weight(f"{path}/{ours}", lambda read=read: read()[self._order])

    def _layers(self, model: ModelConfig) -> Iterator[Weight]:
        for part in layers(model):
            yield from self._linear(*part) if isinstance(part, Linear) else self._norm(*part)

    def _embeddings(self, source_rows: np.ndarray, target_rows: np.ndarray) -> Iterator[Weight]:
        """The matrices of both sides and of the logits, and the bias of the logits."""
        config, model = self._config, self._config.model
        source, target, logits = self._matrices()
        scale = 1.0 if config.scaled else model.d_model**-0.5

        def rows(path: str, read: Read, chosen: np.ndarray, factor: float = 1.0) -> Weight:
            def array() -> np.ndarray:
                matrix = np.empty((len(chosen), model.d_model), np.float32)
                for first in range(0, max(chosen) + 1, _BLOCK):  # The matrix may be most of the model.
                    block = read(slice(first, first + _BLOCK))
                    in_block = np.flatnonzero((chosen >= first) & (chosen < first + _BLOCK))
                    matrix[in_block] = block[np.ix_(chosen[in_block] - first, self._order)]
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
        config, stored = self._config, self._tensors.names
        source, target, logits = (SOURCE,), (TARGET,), (LOGITS,)
        if config.tied:
            target = logits = target + logits
        if config.tied and config.shared:
            source = target = logits = (SHARED, *source, *target)
        elif config.shared:  # Versions of transformers before 5 tie the embeddings of both sides nevertheless.
            source, target = (names if stored.issuperset(names) else (SHARED,) for names in (source, target))
            self._used.add(SHARED)

        def one_of(names: tuple[str, ...], number: int) -> Read:
            present = [name for name in names if name in stored] or names[:1]
            read, *others = (self._read(name, (number, config.model.d_model)) for name in present)

            def same(rows: slice = ALL) -> np.ndarray:
                array = read(rows)
                if any(not np.array_equal(array, other(rows)) for other in others):
                    raise ValueError(
                        f"Expected {' and '.join(present)} to be equal, because config.json ties them. They differ."
                    )
                return array

            return same

        return (
            one_of(source, config.source_rows),
            one_of(target, config.target_rows),
            one_of(logits, config.target_rows),
        )

    def _logits_bias(self, logits: Read, target_rows: np.ndarray) -> Callable[[], np.ndarray]:
        """Returns what reads the bias, with which no translation has padding, the start token or a forbidden id.

        The last layer normalization gives γ ∘ n + β with ‖n‖ ≤ √D, so the logit of row e is at most √D ‖γ ∘ e‖ + |β ·
        e| without the bias.
        """
        config = self._config
        of_last_layer = f"layers.{config.model.decoder_layers - 1}.final_layer_norm"
        last = f"model.decoder.{'layer_norm' if config.model.norm == PRE else of_last_layer}"
        gamma, beta = (self._read(f"{last}.{name}", (config.model.d_model,)) for name in ("weight", "bias"))
        stored = LOGITS_BIAS in self._tensors.names
        bias = (
            self._read(LOGITS_BIAS, (1, config.target_rows))
            if stored
            else lambda: np.zeros(config.target_rows, np.float32)
        )
        never = np.isin(target_rows, config.forbidden)
        never[[PAD, BOS]] = True

        def read() -> np.ndarray:
            e = np.concatenate([logits(slice(row, row + 1)) for row in target_rows[never]])
            biases = bias().ravel()[target_rows]
            with np.errstate(over="ignore", invalid="ignore"):
                largest = config.model.d_model**0.5 * np.linalg.norm(gamma() * e, axis=1) + np.abs(e @ beta())
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
        rows = config.positions + config.model.first_position * is_m2m
        for name in _POSITIONS:
            if name in self._tensors.names:
                stored = self._read(name, (rows, width))()
                angles = np.arange(rows)[:, None] / 10000 ** (np.arange(width // 2) / (width / 2 - is_m2m))
                expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
                if is_m2m:
                    expected[config.pad] = 0
                if not np.allclose(stored, expected, atol=2e-3):
                    raise ValueError(f"Expected the sinusoids of transformers as {name}. Received: other values.")


def _some(names: list[str]) -> str:
    return " ".join(names[0].split())[:100] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
