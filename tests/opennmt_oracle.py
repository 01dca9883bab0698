"""What OpenNMT-tf makes of a random model of it: run by a Python of its own, which has the package.

python opennmt_oracle.py FOLDER NAME: writes the checkpoint `run`, the SavedModel `saved`, vocabularies, `data.yml` and
`result.json`.
"""

import json
import pathlib
import sys

import numpy as np


def main(folder: pathlib.Path, name: str) -> None:
    import opennmt
    import tensorflow as tf

    level, sizes = opennmt.models.EmbeddingsSharingLevel, {"num_layers": 2, "num_units": 16, "ffn_inner_dim": 24}
    shapes = {
        "all": {"share_embeddings": level.ALL},
        "target": {"share_embeddings": level.TARGET},
        "input": {"share_embeddings": level.SOURCE_TARGET_INPUT},
        "no biases": {"mha_bias": False, "num_layers": (2, 1)},
        # As the class of the catalogue, but smaller.
        "ScalingNmtEnDe": {"share_embeddings": level.AUTO, "pre_norm": False, "output_layer_bias": False},
    }
    heads = 2 if name == "Tiny" else 4
    model = (
        opennmt.models.get_model_from_catalog("TransformerTiny")
        if name == "Tiny"
        else opennmt.models.Transformer(**sizes | shapes[name] | {"num_heads": heads})
    )
    folder.mkdir(exist_ok=True)
    for side, number in (("source", 20), ("target", 26)):
        tokens = ["<blank>", "<s>", "</s>", *(f"w{index}" for index in range(number))]
        (folder / f"{side}.vocab").write_text("".join(f"{token}\n" for token in tokens))
    target = "source" if name in ("all", "input") else "target"
    data = {"source_vocabulary": "source.vocab", "target_vocabulary": f"{target}.vocab"}
    end = [2] if name == "ScalingNmtEnDe" else []
    if end:
        data["source_sequence_controls"] = {"end": True}
    (folder / "data.yml").write_text(json.dumps({"data": data}))  # JSON is YAML.
    paths = {key: str(folder / value) if isinstance(value, str) else value for key, value in data.items()}
    model.initialize(paths, params={"beam_width": 1, "maximum_decoding_length": 20})
    optimizer = tf.keras.optimizers.legacy.Adam()
    model.create_variables(optimizer=optimizer)
    draw = np.random.default_rng(7)
    for variable in model.variables:
        if variable.dtype.is_floating:
            variable.assign(draw.normal(1 if "gamma" in variable.name else 0, 0.2, variable.shape))
    opennmt.utils.checkpoint.Checkpoint(model, optimizer=optimizer, model_dir=str(folder / "run")).save(step=5)
    tf.saved_model.save(model, str(folder / "saved"), signatures=model.serve_function())
    rows = [side.vocabulary_size for side in (model.features_inputter, model.labels_inputter)]
    result = {"rows": rows, "heads": heads, "sources": [], "targets": [], "logits": [], "written": []}
    for length in (5, 1, 9):
        source = draw.integers(3, rows[0], length).tolist() + end
        target = [1, *draw.integers(3, rows[1], 6).tolist()]
        features = {"ids": [source], "length": [len(source)], "tokens": [["x"] * len(source)]}
        labels = {"ids": [target], "length": [len(target)], "ids_out": [[*target[1:], 2]]}
        outputs, predictions = model(*({key: tf.constant(x) for key, x in each.items()} for each in (features, labels)))
        number = predictions["length"][0, 0].numpy()
        tokens = model.labels_inputter.tokens_to_ids.lookup(predictions["tokens"][0, 0, :number])
        values = (source, target, outputs["logits"][0].numpy().tolist(), tokens.numpy().tolist())
        for key, value in zip(("sources", "targets", "logits", "written"), values, strict=True):
            result[key].append(value)
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
