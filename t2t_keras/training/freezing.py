"""Trains a part of a model only, such as the decoder of a pretrained model: the other weights keep their values."""

import re


def freeze(model, parts: str) -> None:
    """Freezes parts of a built model, before its optimizer is built.

    `parts` are names in the paths of weights, separated by commas, such as "embedding,encoder" or
    "decoder_0/self_attention". A name stands for numbered ones too: "encoder" for "encoder_0", "encoder_1" and so on.
    The model must have each part, and something must be left to train.
    """
    variables = model.trainable_variables
    paths = [f"/{variable.path.removeprefix(f'{model.name}/')}/" for variable in variables]
    known = ", ".join(dict.fromkeys(re.sub(r"_\d+$", "", path.split("/")[1]) for path in paths))
    for part in filter(None, (name.strip().strip("/") for name in parts.split(","))):
        pattern = re.compile("".join(rf"/{re.escape(name)}(_\d+)?" for name in part.split("/")) + "/")
        chosen = [variable for variable, path in zip(variables, paths, strict=True) if pattern.search(path)]
        if not chosen:
            raise ValueError(
                f"Expected parts of the model as `freeze`: {known}, or names of their layers. Received: {part}."
            )
        for variable in chosen:
            variable.trainable = False
    if not model.trainable_variables:
        raise ValueError(
            f"Expected a part of the model to train: one of {known}. Received: freeze={parts}, which is all of it."
        )
