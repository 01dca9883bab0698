"""Marian of Hugging Face, with the sizes of a `Transformer`."""

from transformers import MarianConfig

from t2t_keras.config import BOS, EOS, PAD, POST, SCALED, ModelConfig

MARIAN = {
    **{"attention_window": 0, "attention": SCALED, "activation": "relu", "norm": POST, "source_vocab_size": 0},
    **{"tie_logits": True, "logits_bias": False},
}


def marian_config(config: ModelConfig, positions: int, **options) -> MarianConfig:
    """Returns the config of a Marian model of the sizes of a `Transformer`, for sentences of so many `positions`, with
    further `options` of `MarianConfig`. Raises `ValueError` if the heads are not d_model / num_heads wide, or other
    options are not those of Marian.
    """
    if not config.num_heads * config.d_k == config.num_heads * config.d_v == config.d_model:
        raise ValueError(
            "Expected num_heads · d_k = num_heads · d_v = d_model, as Hugging Face requires. "
            f"Received: num_heads={config.num_heads}, d_k={config.d_k}, d_v={config.d_v}, d_model={config.d_model}."
        )
    if differ := [name for name in MARIAN if getattr(config, name) != MARIAN[name]]:
        expected, received = (
            ", ".join(f"{name}={values[name]}" for name in differ) for values in (MARIAN, vars(config))
        )
        raise ValueError(f"Expected {expected}, as Marian requires. Received: {received}.")
    return MarianConfig(
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=positions,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        **options,
    )
