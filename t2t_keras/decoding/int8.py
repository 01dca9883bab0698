"""Matrices with 8 bits per weight: W ≈ Q · s, with integers Q from -127 to 127 and a scale s for each output.

An export stores Q and s, a quarter of the size. Loading it multiplies them once; all arithmetic uses the dtype of the
model.
"""

import hashlib

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.frozen_weights import values_of


def quantize(values, axis: int):
    """Quantizes a matrix so that the largest weight of each output becomes ±127.

    Args:
        values: W.
        axis: the axis that an output sums over.

    Returns:
        Q, int8, of the shape of `values`; and s, float32, of the same shape with size 1 at `axis`.
    """
    values = np.asarray(values, np.float32)
    scales = np.abs(values).max(axis=axis, keepdims=True) / 127
    return np.round(np.divide(values, scales, out=np.zeros_like(values), where=scales > 0)).astype(np.int8), scales


class DequantizedMatrix(tf.saved_model.experimental.TrackableResource):
    """A matrix Q · s, which a program computes when it loads the export and keeps until it ends. A call returns the
    product.

    Args:
        values: W.
        axis: the axis that an output sums over.
        dtype: dtype of the product.
    """

    def __init__(self, values, axis: int, dtype: str):
        super().__init__()
        self._quantized, self._scales = quantize(values, axis)
        self._dtype = tf.as_dtype(dtype)
        # TensorFlow shares resources of the same name, so two models in one program need different names.
        content = (
            self._quantized.tobytes() + f"{axis} {self._quantized.shape} {dtype}".encode() + self._scales.tobytes()
        )
        self._shared_name = "t2t_keras_int8_" + hashlib.sha256(content).hexdigest()
        self._initialize()

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(dtype=self._dtype, shape=self._quantized.shape, shared_name=self._shared_name)

    def _initialize(self):
        product = tf.cast(self._quantized, tf.float32) * self._scales
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=tf.cast(product, self._dtype))

    def __call__(self):
        return tf.ensure_shape(
            tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._dtype), self._quantized.shape
        )


class Int8:
    """The weights of a model with matrices in 8 bits. Vectors, which are small, keep their values.

    Args:
        model: an `EncoderDecoder`. Its matrices, whose names end in kernel, embedding/matrix or
            embedding/logits_matrix, are set to the dequantized values, so that it computes the same as an export.
        trained: a model with the same weights in float32, if `model` has another dtype. Its weights are quantized.

    Attributes:
        values: the argument of `FrozenWeights`.
        matrices: the values in 8 bits, as `DequantizedMatrix` objects.
    """

    def __init__(self, model, trained=None):
        self.values = values_of(model)
        self.matrices = []
        for variable, original in zip(model.trainable_variables, (trained or model).trainable_variables, strict=True):
            if variable.path.endswith(("kernel", "embedding/matrix", "embedding/logits_matrix")):
                # A row of such a matrix embeds one token or gives one logit.
                axis = 1 if variable.path.endswith("matrix") else 0
                matrix = DequantizedMatrix(original.numpy(), axis, variable.dtype)
                variable.assign(matrix())
                self.values[id(variable)] = matrix
                self.matrices.append(matrix)
