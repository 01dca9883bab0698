"""The model card of an export for the Hugging Face hub: a README.md with what the run knows of itself, and no path of
this machine.
"""

import dataclasses
import json
import pathlib
import re
import shlex

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.interop.imported_run import IMPORT, OF_HUB
from t2t_keras.runs import data_folder, run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import markdown
from t2t_keras.system.files import read_json
from t2t_keras.system.log import number_of

_CARD = """---
{languages}library_name: transformers
pipeline_tag: translation
tags:
- translation
- marian
{base}---

# {name}

A Transformer ("Attention Is All You Need") that translates {pair}: {encoder_layers} + {decoder_layers} layers, d_model {d_model}, \
{num_weights:,} weights, {vocab_size:,} sub-words. {origin}

## Use

```python
from transformers import MarianMTModel, MarianTokenizer
model, tokenizer = (each.from_pretrained({name!r}) for each in (MarianMTModel, MarianTokenizer))
batch = tokenizer(["The first sentence.", "And another."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

The decoder starts from the embedding of `<pad>`. The converter of CTranslate2 takes zeros in its place: unless that row is zero, what it
converts has other translations.
{tags}
## Data

{data}

## Scores

{scores}

## Command

```
{command}
```

Weights: {weights}.

## Licence

None is given. Whoever publishes the model chooses one that the terms of the data allow. Add a line `license: …` to the head of this
file.

## Search

`generation_config.json` has the search of the run where `generate` has a counterpart. t2t_keras divides log P by ((5 + |Y|) / 6)^{alpha:g},
`generate` by |Y|^length_penalty, which has the same slope near 20 sub-words. A translation has at most source + {extra_length} sub-words
there and at most {max_input} here.
"""  # noqa: E501


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of a test set.

    Attributes:
        name: of the test set.
        weights: those that were scored, and their arithmetic, if it is not float32.
        figures: metric, value and sacreBLEU's signature.
    """

    name: str
    weights: str
    figures: list[tuple[str, float, str]]


def read_scores(path: pathlib.Path, search: DecodeConfig) -> Scores:
    """Reads what `tools/evaluate.py --json` printed. Raises `ValueError` if it has no score with a signature, or if the
    translations are not those of the model's own `search`.
    """
    found = read_json(path)
    is_searched = "decode_seconds" in found  # Else of given translations.
    searched = ("terms",) if is_searched else ()
    if more := [name for name in ("ensemble_mean", "mbr", "rerank_with", *searched) if found.get(name)]:
        raise ValueError(
            f"Expected the scores of one model and its search. Received: {path}, of `t2t-evaluate` with "
            f"{', '.join(more)}."
        )
    defaults = DecodeConfig().of_translations
    now = {name: (found.get(name, defaults[name]), value) for name, value in search.of_translations.items()}
    if is_searched and (others := [f"{name}={had} ({value})" for name, (had, value) in now.items() if had != value]):
        raise ValueError(
            f"Expected scores of the search that is exported. Received: {path}, with {', '.join(others)}. Give "
            "`t2t-evaluate` and `t2t-export` the same options; earlier versions of `t2t-evaluate` wrote `beam_size` "
            "and `alpha` alone."
        )
    named = {"BLEU": ("bleu", "signature"), "chrF2": ("chrf", "chrf_signature")}
    figures = [(label, *map(found.get, keys)) for label, keys in named.items()]
    figures = [each for each in figures if isinstance(each[1], int | float) and isinstance(each[2], str)]
    if not figures:
        raise ValueError(
            f"Expected what `t2t-evaluate --json` printed. Received: {path}, which has no score with a signature."
        )
    dtype = str(found.get("dtype", "float32"))
    weights = [str(found.get("checkpoint", "")), dtype * (dtype != "float32"), "int8" * bool(found.get("int8"))]
    return Scores(path.stem, ", ".join(filter(None, weights)), figures)


def card(
    name: str, run: SavedRun, data: DataConfig, decode: DecodeConfig, weights: str, state: dict, scores: list[Scores]
) -> str:
    """Returns the card of an export named `name`. `weights` says which weights of the run these are, `state` is that of
    their newest checkpoint, and `scores` are of test sets; `data` is the `corpus` of the run.
    """
    spoken, tags, options = data_folder.languages(data), sorted(set(filter(None, run.data.tags))), run.options
    origin, command, base = _origin(run, state)
    return _CARD.format(
        languages="".join(f"{line}\n" for line in ["language:", *(f'- "{code}"' for code in spoken)] if spoken),
        base=f"base_model: {json.dumps(base)}\n" if base else "",
        name=_plain(name),
        pair=" to ".join(spoken) or "one language to another",
        origin=origin,
        tags=f"\nA sentence begins with its tag: {', '.join(f'`{_code(tag)}`' for tag in tags)}.\n" if tags else "",
        data=_corpora(data),
        scores=_table(options, state, scores),
        command=command,
        weights=weights,
        **{field: value for group in (options.model, decode) for field, value in vars(group).items()},
        num_weights=options.model.num_weights,
    )


def _plain(text: str) -> str:
    """Returns text without what Markdown, YAML and HTML give a meaning."""
    return re.sub(r"\|", "?", _cell(text))


def _cell(text: str) -> str:
    """Returns text that may stand in a table, where "|" is escaped: without HTML, links and images."""
    return re.sub(r"[<>\\]|(?<=\])[(\[]|(?<=:)/(?=/)|!(?=\[)", "?", _code(text))


def _code(text: str) -> str:
    """Returns text that may stand in code."""
    return "".join(character if character.isprintable() and character != "`" else "?" for character in text)


def _names(paths: str) -> str:
    """Returns the names of files without their folders."""
    return ",".join(pathlib.PurePath(path).name for path in paths.split(","))


def _origin(run: SavedRun, state: dict) -> tuple[str, str, str]:
    """Returns a sentence on where the model is from, the command that made it, and the model of the hub that it was
    imported from.
    """
    options = run.options
    source = options.sources.get("d_model", "")
    *_, name = source.rpartition(IMPORT)  # By the run, or by the one that its weights started from.
    base = name.removeprefix(OF_HUB) if name.startswith(OF_HUB) else ""
    if source.startswith(IMPORT):
        name = _plain(base or _names(name))
        return (
            f"Imported from {name} into t2t_keras.",
            f"python tools/import_marian.py --from={shlex.quote(name)} --model_dir=runs/model",
            base,
        )
    given = ["python tools/train.py --model_dir=runs/model"]
    for group in options.groups.values():
        for field in dataclasses.fields(group):
            value = getattr(group, field.name)
            source = options.sources.get(field.name, "")
            # A child may set an option back to its default.
            changed = value != field.default or (options.train.parent and source)
            if changed and not source.startswith(run_options.OF_PARENT) and not field.metadata.get("local"):
                value = _names(value) if field.metadata.get("path") else value
                given.append(f"--{field.name}={_code(shlex.quote(str(value)))}")
    step = state.get("step")
    trained = (
        f"Trained with t2t_keras for {number_of(step, 'update')}." if type(step) is int else "Trained with t2t_keras."
    )
    if origin := options.train.starts_from:
        trained += f" Its weights started from those of the run {_plain(_names(origin))}{_hashes(run)}."
    return trained, " ".join(given), base


def _hashes(run: SavedRun) -> str:
    """Returns the SHA-256 of the parent's checkpoints, in parentheses."""
    files = run.parent.get("checkpoints") if isinstance(run.parent, dict) else None
    known = {name: file for name, file in (files or {}).items() if isinstance(file, dict) and "sha256" in file}
    found = [f"{name}: SHA-256 {file['sha256']}" for name, file in known.items()]
    return f" ({_plain(', '.join(found))})" if found else ""


def _corpora(data: DataConfig) -> str:
    """Returns the names of the texts."""
    rows = []
    for split, label in (("train", "training"), ("valid", "validation")):
        texts = [_names(text) for side in ("source", "target") if (text := getattr(data, f"{split}_{side}"))]
        if data.dataset:
            texts = [f"{data.dataset}, {getattr(data, f'{split}_split')}"]
        if texts:
            rows.append(f"- {label}: {_plain(' and '.join(texts))}")
    return "\n".join(rows) or "The run does not name its data."


def _table(options: run_options.Options, state: dict, scores: list[Scores]) -> str:
    rows = [
        (_plain(each.name), label, f"{value:.2f}", _plain(each.weights), _cell(signature))
        for each in scores
        for label, value, signature in each.figures
    ]
    best, step, table = state.get("best"), state.get("best_step"), "None were given."
    if rows:
        table = markdown.table(("test set", "metric", "score", "weights", "signature"), rows, right=("score",))
    if options.train.best_metric == "bleu" and type(best) is float and type(step) is int and step:
        chosen_by = state.get("valid_sentences")  # Of the best, not of a later start.
        number = chosen_by if type(chosen_by) is int and chosen_by > 0 else options.train.valid_sentences
        sentences = f"of greedy translations of at most the first {number} validation sentences"
        table += f"\n\nThe best BLEU while training, {sentences}: {best:.2f} after {number_of(step, 'update')}."
    return table
