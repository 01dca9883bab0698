"""JoeyNMT's encoder, decoder and embeddings, with its post-norm layers.

Its attention has biases, which are removed; it drops attention weights and the output of the ReLU, which is turned off.
Its requirements contradict TensorFlow's, but the layers need few of them; `contestants.py` has the command that
installs these.
"""

import torch
from joeynmt.decoders import TransformerDecoder
from joeynmt.embeddings import Embeddings
from joeynmt.encoders import TransformerEncoder
from joeynmt.transformer_layers import MultiHeadedAttention, PositionwiseFeedForward
from torch import nn

from benchmarks.train_peers.pytorch import copy, copy_linear, copy_norm, sub_weights
from t2t_keras.config import PAD, ModelConfig

# (ours, theirs).
PROJECTIONS = (("query", "q_layer"), ("key", "k_layer"), ("value", "v_layer"), ("output", "output_layer"))
# (ours, theirs, the norm after it) of the layers of each side.
ATTENTIONS = {
    "encoder": (("self_attention", "src_src_att", "layer_norm"),),
    "decoder": (
        ("self_attention", "trg_trg_att", "x_layer_norm"),
        ("cross_attention", "src_trg_att", "dec_layer_norm"),
    ),
}


class Model(nn.Module):
    """Maps (source [B, S], shifted target [B, T]) to logits [B, T, V]."""

    def __init__(self, config: ModelConfig, positions: int, dtype: torch.dtype):
        super().__init__()
        sizes = {"hidden_size": config.d_model, "ff_size": config.d_ff, "num_heads": config.num_heads}
        sizes |= {"layer_norm": "post", "dropout": config.dropout, "emb_dropout": config.dropout}
        self.embedding = Embeddings(config.d_model, scale=True, vocab_size=config.vocab_size, padding_idx=PAD)
        nn.init.normal_(self.embedding.lut.weight, std=config.d_model**-0.5)
        self.encoder = TransformerEncoder(num_layers=config.encoder_layers, **sizes)
        self.decoder = TransformerDecoder(num_layers=config.decoder_layers, vocab_size=config.vocab_size, **sizes)
        self.decoder.output_layer.weight = self.embedding.lut.weight
        for module in self.modules():
            if isinstance(module, MultiHeadedAttention):
                module.dropout.p = 0.0
                for _, name in PROJECTIONS:
                    getattr(module, name).bias = None
            elif isinstance(module, PositionwiseFeedForward):
                module.pwff_layer[2].p = 0.0

    def forward(self, source, target):
        source_mask, target_mask = ((ids != PAD)[:, None] for ids in (source, target))
        memory, _ = self.encoder(self.embedding(source), None, source_mask)
        return self.decoder(self.embedding(target), memory, None, source_mask, None, None, target_mask)[0]

    def load(self, weights: dict) -> None:
        """Copies the weights of `ours.named_variables`."""
        copy(self.embedding.lut.weight, weights["embedding"])
        for side, attentions in ATTENTIONS.items():
            for index, layer in enumerate(getattr(self, side).layers):
                of = sub_weights(weights, f"{side}/{index}")
                for kind, name, norm in attentions:
                    for ours, theirs in PROJECTIONS:
                        copy(getattr(getattr(layer, name), theirs).weight, of[f"{kind}/{ours}"].T)
                    copy_norm(getattr(layer, norm), of, kind)
                copy_linear(layer.feed_forward.pwff_layer[0], of, "feed_forward/inner")
                copy_linear(layer.feed_forward.pwff_layer[3], of, "feed_forward/outer")
                copy_norm(layer.feed_forward.layer_norm, of, "feed_forward")
