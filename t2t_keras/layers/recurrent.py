"""Recurrent cells whose inputs are projected for all positions at once, and the conditional recurrence of a decoder
with attention.

A cell is Keras's own, with layer normalisation by option (Ba et al. 2016, https://arxiv.org/abs/1607.06450, section
3.1):

    GRU     z, r = σ(x_z + u_z), σ(x_r + u_r)         h' = z ⊙ h + (1 - z) ⊙ tanh(x_h + r ⊙ u_h)
    LSTM    i, f, o = σ(x_i + u_i), σ(x_f + u_f), …   c' = f ⊙ c + i ⊙ tanh(x_c + u_c)    h' = o ⊙ tanh(c')

where x = W input + b and u = U h are what the layer normalisation normalises. The reset gate r is applied after the
product with U, as in Nematus, cuDNN and the first version of Cho et al. (2014); its third version applies it before. u
of a GRU has a bias too.

Letters: B sentences, W beams, T target tokens, S source tokens, D units, C width of the memory, G gates: 3 of a GRU, 4
of an LSTM.
"""

import keras
from keras import ops

from t2t_keras.layers.attention_functions import Attention
from t2t_keras.layers.dense import leading, linear
from t2t_keras.layers.inference import mode
from t2t_keras.layers.layer_norm import LayerNorm

# Keras's default does not exist in bfloat16.
_INITIALIZER = {"recurrent_initializer": "glorot_uniform"}


class _Cell:
    """What both cells add to Keras's: the projection of inputs, layer normalisation, and any leading axes."""

    def __init__(self, units: int, layer_norm: bool = False, **kwargs):
        super().__init__(units, **{**_INITIALIZER, **kwargs})
        self.layer_norm = layer_norm
        names = ("input_norm", "recurrent_norm") if layer_norm else ()
        self.norms = [LayerNorm(epsilon=1e-6, name=name, dtype=self.dtype_policy) for name in names]

    def build(self, input_shape):
        super().build(input_shape)
        for norm in self.norms:
            norm.build((None, self.kernel.shape[-1]))

    def _product(self, x, kernel, bias, place: int):
        """Computes x W + b, [..., G D], with layer normalisation. It also runs outside `call`, where Keras casts no
        weights.
        """
        kernel, bias = (None if weight is None else ops.cast(weight, self.compute_dtype) for weight in (kernel, bias))
        product = ops.reshape(linear(ops.cast(x, self.compute_dtype), kernel, bias), (*leading(x), kernel.shape[-1]))
        return self.norms[place](product) if self.norms else product

    def project(self, inputs):
        """Projects inputs [..., X] for `transition`: [..., G D]."""
        return self._product(inputs, self.kernel, self._biases()[0], 0)

    def transition(self, projected, states: list) -> list:
        """Returns the next states, given `project`'s result [..., G D] and the states h [..., D], of an LSTM also c."""
        return self._next(projected, self._product(states[0], self.recurrent_kernel, self._biases()[1], 1), states)

    def call(self, inputs, states, training=False):
        states = self.transition(self.project(inputs), list(states))
        return states[0], states

    def get_config(self):
        return {**super().get_config(), "layer_norm": self.layer_norm}


@keras.saving.register_keras_serializable("t2t_keras")
class GRUCell(_Cell, keras.layers.GRUCell):
    """`keras.layers.GRUCell` with a state of D `units` that can project its inputs first, with layer normalisation by
    option: of W x and U h, each over all gates together. Weights are the same.
    """

    def _biases(self) -> list:
        return ops.unstack(ops.convert_to_tensor(self.bias), 2)

    def _next(self, x, u, states: list) -> list:
        (x_z, x_r, x_h), (u_z, u_r, u_h), [h] = ops.split(x, 3, axis=-1), ops.split(u, 3, axis=-1), states
        z, r = ops.sigmoid(x_z + u_z), ops.sigmoid(x_r + u_r)
        return [z * h + (1 - z) * ops.tanh(x_h + r * u_h)]


@keras.saving.register_keras_serializable("t2t_keras")
class LSTMCell(_Cell, keras.layers.LSTMCell):
    """`keras.layers.LSTMCell` that can project its inputs first; see `GRUCell`."""

    def _biases(self) -> list:
        return [self.bias, None]

    def _next(self, x, u, states: list) -> list:
        (i, f, candidate, o), (_, c) = ops.split(x + u, 4, axis=-1), states
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(candidate)
        return [ops.sigmoid(o) * ops.tanh(c), c]


CELLS = {"gru": GRUCell, "lstm": LSTMCell}


class _Portable:
    """Uses cuDNN in training alone: an export that is made beside a GPU also runs without one."""

    def __init__(self, units: int, **kwargs):
        super().__init__(units, **{**_INITIALIZER, **kwargs})

    def inner_loop(self, *args, **kwargs):
        if mode().inference:
            return keras.layers.RNN.inner_loop(self, *args, **kwargs)
        return super().inner_loop(*args, **kwargs)


@keras.saving.register_keras_serializable("t2t_keras")
class GRU(_Portable, keras.layers.GRU):
    """`keras.layers.GRU` whose exports run on any device."""


@keras.saving.register_keras_serializable("t2t_keras")
class LSTM(_Portable, keras.layers.LSTM):
    """`keras.layers.LSTM` whose exports run on any device."""


def bidirectional(cell: str, units: int, layer_norm: bool, **kwargs) -> keras.layers.Bidirectional:
    """Makes Keras's layer that reads a sequence in both directions, [B, S, X] → [B, S, 2 D], with one of the `CELLS`; a
    GPU trains it in one kernel. That cannot normalise: with `layer_norm`, each position is a step of a loop.
    """
    options = {"return_sequences": True, "name": cell, "dtype": kwargs["dtype"]}
    if layer_norm:
        inner = CELLS[cell](units, layer_norm=True, name=f"{cell}_cell", dtype=kwargs["dtype"])
        one_way = keras.layers.RNN(inner, **options)
    else:
        one_way = {"gru": GRU, "lstm": LSTM}[cell](units, **options)
    return keras.layers.Bidirectional(one_way, **kwargs)


@keras.saving.register_keras_serializable("t2t_keras")
class ConditionalRecurrence(keras.layers.Layer):
    """One step of a decoder: a transition, attention to the source from the new state, and a transition that reads its
    result.

    With a GRU it is the conditional GRU of Nematus (Sennrich et al. 2017, https://arxiv.org/abs/1703.04357):

        s' = GRU_1(y, s)    c = ATT(memory, s')    s = GRU_2(c, s')

    Args:
        cell: name of a cell, one of `CELLS`.
        units: width of the state, D, and of the attention.
        attention: name of an attention function, one of `attention_functions.FUNCTIONS`.
        layer_norm: whether the cells normalise.

    Call arguments:
        projected: a token, projected by `first.project`, [B, W, G D].
        states: [B, W, D] each.
        memory: [B, S, C].
        keys: the memory, projected by `attention.keys`, [B, S, D].
        mask: boolean [B, S], True where the decoder may attend.

    Returns:
        The next states, the context c [B, W, C], and the attention weights [B, W, S] float32 or float64.
    """

    def __init__(self, cell: str, units: int, attention: str = "additive", layer_norm: bool = False, **kwargs):
        super().__init__(**kwargs)
        policy = {"dtype": self.dtype_policy}
        self.options = {"cell": cell, "units": units, "attention": attention, "layer_norm": layer_norm}
        self.first, self.second = (
            CELLS[cell](units, layer_norm=layer_norm, name=name, **policy) for name in ("first", "second")
        )
        self.attention = Attention(units, attention, name="attention", **policy)

    @property
    def num_states(self) -> int:
        """Number of states: 1 of a GRU, 2 of an LSTM."""
        return 2 if self.options["cell"] == "lstm" else 1

    def build(self, input_shape, memory_shape):
        """Builds all weights for tokens [B, T, X] and a memory [B, S, C]."""
        self.first.build((None, input_shape[-1]))
        self.attention.build((None, None, self.options["units"]), memory_shape)
        self.second.build((None, memory_shape[-1]))

    def call(self, projected, states, memory, keys, mask):
        states = self.first.transition(projected, states)
        weights = self.attention.weights_of(states[0], keys, mask)
        context = ops.matmul(ops.cast(weights, self.compute_dtype), memory)
        return self.second.transition(self.second.project(context), states), context, weights

    def get_config(self):
        return {**super().get_config(), **self.options}
