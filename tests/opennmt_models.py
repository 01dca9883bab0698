"""Models of OpenNMT-tf: checkpoints under the names of its objects, and a forward pass written from its sources."""

import pathlib

import numpy as np
import numpy_transformer as paper
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


def _projection(arrays, name):
    kernel = arrays[f"{name}/kernel"]
    return kernel, arrays.get(f"{name}/bias", np.zeros(kernel.shape[1]))


def _norm(arrays, name):
    return arrays[f"{name}/gamma"], arrays[f"{name}/beta"], 1e-3


def _layers(arrays, side, heads, attentions) -> dict:
    """The weights of a side, by the names of `numpy_transformer.py`."""
    pre = f"{side}/layer_norm/gamma" in arrays
    norm, found = f"{'input' if pre else 'output'}_layer_norm", []
    for index in range(sum(name.startswith(f"{side}/layers/") and name.endswith("inner/bias") for name in arrays)):
        name = f"{side}/layers/{index}"
        inner, outer = (_projection(arrays, f"{name}/ffn/layer/{part}") for part in ("inner", "outer"))
        layer = {"feed_forward": (*inner, *outer, "relu"), "feed_forward_norm": _norm(arrays, f"{name}/ffn/{norm}")}
        for own, theirs in attentions.items():
            parts = ("queries", "keys", "values", "output")
            projections = (_projection(arrays, f"{name}/{theirs}/layer/linear_{part}") for part in parts)
            layer[own] = paper.in_heads(heads, *projections)
            layer[f"{own}_norm"] = _norm(arrays, f"{name}/{theirs}/{norm}")
        found.append(layer)
    return {"pre": pre, side: found} | ({f"{side}_norm": _norm(arrays, f"{side}/layer_norm")} if pre else {})


def _embedded(ids, matrix):
    width = matrix.shape[1]
    return matrix[ids] * width**0.5 + paper.sines_before_cosines(len(ids), width, first=1)


def logits(arrays: dict[str, np.ndarray], source: list[int], target: list[int], heads: int = 4) -> np.ndarray:
    """Logits of the token after each of `target`, by their ids."""
    source_matrix = arrays["examples_inputter/features_inputter/embedding"]
    target_matrix = arrays.get("examples_inputter/labels_inputter/embedding", source_matrix)
    attentions = {"self_attention": "self_attention"}
    memory = paper.encoder(_embedded(source, source_matrix), _layers(arrays, "encoder", heads, attentions))
    attentions |= {"cross_attention": "attention/0"}
    hidden = paper.decoder(memory, _embedded(target, target_matrix), _layers(arrays, "decoder", heads, attentions))
    kernel = arrays.get("decoder/output_layer/kernel", target_matrix.T)
    return hidden @ kernel + arrays.get("decoder/output_layer/bias", 0)
