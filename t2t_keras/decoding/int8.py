"""Matrices in 8 bits a weight: W ≈ Q · s, with whole numbers Q from -127 to 127 and a scale s for each output.

An export holds Q and s, a quarter of the size. Whoever loads it multiplies them once, and computes in the model's own dtype.
"""

import hashlib

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.frozen_weights import values_of


def quantize(values, axis: int):
    """Q, int8, as large as `values`, and s, float32, with 1 in place of `axis`: the largest of each output becomes ±127."""
    values = np.asarray(values, np.float32)
    scales = np.abs(values).max(axis=axis, keepdims=True) / 127
    return np.round(values / np.where(scales > 0, scales, 1)).astype(np.int8), scales


class DequantizedMatrix(tf.saved_model.experimental.TrackableResource):
    """Q · s, multiplied where an export is loaded, and held as long as its program runs. Calling it reads the product.

    Args:
        values: W.
        axis: over which an output sums.
        dtype: of the product.
    """

    def __init__(self, values, axis: int, dtype: str):
        super().__init__()
        self._quantized, self._scales = quantize(values, axis)
        self._dtype = tf.as_dtype(dtype)
        # Resources of one name are one: another model's of the same program must have other names.
        content = self._quantized.tobytes() + f"{axis} {self._quantized.shape} {dtype}".encode() + self._scales.tobytes()
        self._shared_name = "t2t_keras_int8_" + hashlib.sha256(content).hexdigest()
        self._initialize()

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(dtype=self._dtype, shape=self._quantized.shape, shared_name=self._shared_name)

    def _initialize(self):
        product = tf.cast(self._quantized, tf.float32) * self._scales
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=tf.cast(product, self._dtype))

    def __call__(self):
        return tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._dtype), self._quantized.shape)


class Int8:
    """A model's weights, the matrices in 8 bits; vectors, of which there are few, as they are.

    Args:
        model: a `Transformer`. Its own matrices are rounded to what 8 bits hold, so that it computes the same.
        trained: one with the same weights in float32, where the model has them in less; they are what is rounded.

    Attributes:
        values: what `FrozenWeights` takes.
        matrices: those of them in 8 bits.
    """

    def __init__(self, model, trained=None):
        self.values = values_of(model)
        self.matrices = []
        for variable, original in zip(model.trainable_variables, (trained or model).trainable_variables, strict=True):
            if variable.path.endswith(("kernel", "embedding/matrix")):
                # A row of the shared matrix embeds one token and gives one logit.
                axis = 1 if variable.path.endswith("matrix") else 0
                matrix = DequantizedMatrix(original.numpy(), axis, variable.dtype)
                variable.assign(matrix())
                self.values[id(variable)] = matrix
                self.matrices.append(matrix)
