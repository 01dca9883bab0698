"""Models of OpenNMT-tf: checkpoints under the names of its objects, and a forward pass written from its sources."""

import pathlib

import numpy as np
import tensorflow as tf

SPECIAL = ["<blank>", "<s>", "</s>"]
SHAPES = {
    "base": {},
    "all shared": {"shared": ("input", "logits")},
    "target shared": {"shared": ("logits",), "layers": (1, 2)},
    "input shared": {"shared": ("input",), "heads": 2},
    "scaling": {"norm": "output", "shared": ("input", "logits"), "logits_bias": False, "end": True},
    "post-norm, no biases in attention": {"norm": "output", "attention_bias": False},
}


def tokens(number: int) -> list[str]:
    return SPECIAL + [f"{'▁' * (index % 2)}w{index}" for index in range(number - 4)]  # One row more is unknown.


def arrays_of(*, layers=(2, 1), d_model=16, d_ff=24, rows=(23, 29), norm="input", shared=(), attention_bias=True,
              logits_bias=True, seed=1, **_) -> dict[str, np.ndarray]:  # fmt: skip
    """Random weights by the path of their objects."""
    draw, arrays = np.random.default_rng(seed), {}
    source, target = (rows[0], rows[0]) if "input" in shared else rows

    def linear(name, inputs, outputs, bias=True):
        arrays[f"{name}/kernel"] = draw.normal(size=(inputs, outputs)) * inputs**-0.5
        if bias:
            arrays[f"{name}/bias"] = draw.normal(size=outputs) * 0.3

    def normalization(name):
        arrays[f"{name}/gamma"], arrays[f"{name}/beta"] = draw.normal(1, 0.3, d_model), draw.normal(0, 0.3, d_model)

    def layer(name, attentions):
        for attention in attentions:
            normalization(f"{name}/{attention}/{norm}_layer_norm")
            for part in ("queries", "keys", "values", "output"):
                linear(f"{name}/{attention}/layer/linear_{part}", d_model, d_model, attention_bias)
        normalization(f"{name}/ffn/{norm}_layer_norm")
        linear(f"{name}/ffn/layer/inner", d_model, d_ff)
        linear(f"{name}/ffn/layer/outer", d_ff, d_model)

    arrays["examples_inputter/features_inputter/embedding"] = draw.normal(size=(source, d_model)) * 0.4
    if "input" not in shared:
        arrays["examples_inputter/labels_inputter/embedding"] = draw.normal(size=(target, d_model)) * 0.4
    for side, number, attentions in zip(
        ("encoder", "decoder"), layers, (["self_attention"], ["self_attention", "attention/0"]), strict=True
    ):
        if norm == "input":
            normalization(f"{side}/layer_norm")
        for index in range(number):
            layer(f"{side}/layers/{index}", attentions)
    if "logits" not in shared:
        linear("decoder/output_layer", d_model, target, logits_bias)
    elif logits_bias:
        arrays["decoder/output_layer/bias"] = draw.normal(size=target)
    return {name: array.astype("float32") for name, array in arrays.items()}


def write(folder: pathlib.Path, arrays: dict[str, np.ndarray], number: int = 5) -> None:
    """Writes a checkpoint as OpenNMT-tf does: of objects, with an optimizer beside the model."""
    model, nodes = tf.Module(), {}
    for name, array in arrays.items():
        node, parts = model, name.split("/")
        for index, part in enumerate(parts[:-1]):
            key = "/".join(parts[: index + 1])
            if key not in nodes:
                nodes[key] = tf.Module()
                setattr(node, part, nodes[key])
            node = nodes[key]
        setattr(node, parts[-1], tf.Variable(array))
    root = tf.train.Checkpoint(model=model, optimizer=tf.train.Checkpoint(iter=tf.Variable(number, dtype=tf.int64)))
    tf.train.CheckpointManager(root, str(folder), None).save(number)


def make(folder: pathlib.Path, **shape) -> dict[str, np.ndarray]:
    """Writes a run with its vocabularies and configuration; returns the weights."""
    arrays = arrays_of(**shape)
    folder.mkdir(parents=True)
    names = ["source.vocab", "source.vocab" if "input" in shape.get("shared", ()) else "target.vocab"]
    for name, number in zip(("source.vocab", "target.vocab"), (23, 29), strict=True):
        (folder / name).write_text("".join(f"{token}\n" for token in tokens(number)))
    config = f"data:\n  source_vocabulary: {names[0]}\n  target_vocabulary: {names[1]}\n"
    if shape.get("end"):
        config += "  source_sequence_controls: {end: true}\n"
    (folder / "data.yml").write_text(config + "params:\n  beam_width: 3\n  length_penalty: 0.4\n")
    write(folder, arrays)
    return arrays


# The forward pass.


def _norm(x, arrays, name):
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    return normal * arrays[f"{name}/gamma"] + arrays[f"{name}/beta"]


def _linear(x, arrays, name):
    return x @ arrays[f"{name}/kernel"] + arrays.get(f"{name}/bias", 0)


def _attention(x, memory, arrays, name, heads, causal):
    queries, keys, values = (
        _linear(y, arrays, f"{name}/linear_{part}")
        for y, part in ((x, "queries"), (memory, "keys"), (memory, "values"))
    )
    width, contexts = x.shape[1] // heads, []
    for head in range(heads):
        columns = slice(head * width, (head + 1) * width)
        scores = queries[:, columns] @ keys[:, columns].T * width**-0.5
        if causal:
            scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        contexts.append(weights / weights.sum(axis=1, keepdims=True) @ values[:, columns])
    return _linear(np.concatenate(contexts, axis=1), arrays, f"{name}/linear_output")


def _embedded(ids, matrix):
    width = matrix.shape[1]
    scales = np.exp(-np.arange(width // 2) * np.log(10000) / (width / 2 - 1))
    angles = (np.arange(len(ids)) + 1)[:, None] * scales
    return matrix[ids] * width**0.5 + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _stack(x, memory, arrays, side, heads):
    pre = f"{side}/layer_norm/gamma" in arrays

    def sublayer(x, name, apply):
        if pre:
            return x + apply(_norm(x, arrays, f"{name}/input_layer_norm"), f"{name}/layer")
        return _norm(x + apply(x, f"{name}/layer"), arrays, f"{name}/output_layer_norm")

    def feed_forward(x, name):
        return _linear(np.maximum(_linear(x, arrays, f"{name}/inner"), 0), arrays, f"{name}/outer")

    for index in range(sum(name.startswith(f"{side}/layers/") and name.endswith("inner/bias") for name in arrays)):
        layer, causal = f"{side}/layers/{index}", side == "decoder"

        def self_attention(y, name, causal=causal):
            return _attention(y, y, arrays, name, heads, causal)

        x = sublayer(x, f"{layer}/self_attention", self_attention)
        if causal:
            x = sublayer(x, f"{layer}/attention/0", lambda y, name: _attention(y, memory, arrays, name, heads, False))
        x = sublayer(x, f"{layer}/ffn", feed_forward)
    return _norm(x, arrays, f"{side}/layer_norm") if pre else x


def logits(arrays: dict[str, np.ndarray], source: list[int], target: list[int], heads: int = 4) -> np.ndarray:
    """Logits of the token after each of `target`, by their ids."""
    source_matrix = arrays["examples_inputter/features_inputter/embedding"]
    target_matrix = arrays.get("examples_inputter/labels_inputter/embedding", source_matrix)
    memory = _stack(_embedded(source, source_matrix), None, arrays, "encoder", heads)
    hidden = _stack(_embedded(target, target_matrix), memory, arrays, "decoder", heads)
    kernel = arrays.get("decoder/output_layer/kernel", target_matrix.T)
    return hidden @ kernel + arrays.get("decoder/output_layer/bias", 0)
