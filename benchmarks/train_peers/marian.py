"""Hugging Face's `MarianMTModel` from a config of the same sizes.

Its attention has biases, which are removed; its sinusoids have another order and its ε is 1e-5, which are replaced.
"""

import torch
from torch import nn
from transformers import MarianMTModel

from benchmarks.hugging_face import marian_config
from benchmarks.train_peers.pytorch import EPSILON, copy, copy_linear, copy_norm, sinusoids, sub_weights
from t2t_keras.config import PAD, ModelConfig

# (ours, theirs).
PROJECTIONS = (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "out_proj"))
ATTENTIONS = (("self_attention", "self_attn"), ("cross_attention", "encoder_attn"))


class Model(nn.Module):
    """Maps (source [B, S], shifted target [B, T]) to logits [B, T, V]."""

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype):
        super().__init__()
        options = {"dropout": config.dropout, "attention_dropout": 0.0, "activation_dropout": 0.0}
        options |= {"init_std": config.d_model**-0.5, "use_cache": False}
        self.marian = MarianMTModel(marian_config(config, positions, **options))
        for stack in self._stacks():
            copy(stack.embed_positions.weight, sinusoids(positions, config.d_model))
            stack.embed_positions.weight.requires_grad_(False)
        for module in self.marian.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = EPSILON
            for _, name in PROJECTIONS:
                if hasattr(module, name):
                    getattr(module, name).bias = None

    def _stacks(self) -> tuple:
        return self.marian.model.encoder, self.marian.model.decoder

    def forward(self, source, target):
        return self.marian(input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=target).logits

    def load(self, weights: dict) -> None:
        """Copies the weights of `ours.named_variables`."""
        copy(self.marian.model.shared.weight, weights["embedding"])
        for side, stack in zip(("encoder", "decoder"), self._stacks(), strict=True):
            for index, layer in enumerate(stack.layers):
                of = sub_weights(weights, f"{side}/{index}")
                for kind, name in ATTENTIONS:
                    if f"{kind}/query" in of:
                        for ours, theirs in PROJECTIONS:
                            copy(getattr(getattr(layer, name), theirs).weight, of[f"{kind}/{ours}"].T)
                        copy_norm(getattr(layer, f"{name}_layer_norm"), of, kind)
                copy_linear(layer.fc1, of, "feed_forward/inner")
                copy_linear(layer.fc2, of, "feed_forward/outer")
                copy_norm(layer.final_layer_norm, of, "feed_forward")
