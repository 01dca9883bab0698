"""Command-line flags: each option of the chosen architecture, of training, search and data is an absl flag of the same
name, default and help text.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
import sys

from absl import flags

from t2t_keras.cli import flagfiles, help, messages
from t2t_keras.config import (
    CHECKPOINTS,
    ENSEMBLE_MEANS,
    RERANK_DIRECTIONS,
    TEXTS,
    TRANSLATING_DTYPES,
    DecodeConfig,
    SampleConfig,
    TrainConfig,
    is_checkpoint,
    paper,
)
from t2t_keras.config import check_effects as check_options
from t2t_keras.config.options import MODEL
from t2t_keras.config.search import SAMPLING
from t2t_keras.decoding.trained_model import TrainedModel, languages_of
from t2t_keras.runs import registry, run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving.saved_export import SavedExport, open_model

# Flags of `define_trained_model` that are useless without the run of --model_dir.
OF_TRAINED_MODEL = (
    *(field.name for field in dataclasses.fields(TrainedModel) if field.name not in ("runs", "search")),
    *(field.name for field in dataclasses.fields(DecodeConfig)),
)
OF_CHOICE = ("mbr", "rerank_with", "rerank_weight", "rerank_direction")  # Flags of `define_choice`.

TABLE_3 = "Rows of Table 3"  # Heading of the flags of `define_table_3`.
CHOICE = "Choosing among translations"  # Heading of the flags of `define_choice`.
_facts: dict[str, dict[str, str]] = {}  # Of flags that `needs` and `excludes` name.
_DIVISORS = {"divide_widths": "d_model, d_ff, d_k and d_v", "divide_layers": "the number of layers"}  # By flag.


def define(*groups) -> None:
    """Defines a flag for each field of the given dataclasses.

    `--help` shows all of them, or the first ones of a program that trains.
    """
    for field in itertools.chain.from_iterable(dataclasses.fields(group) for group in groups):
        name, facts = field.name, field.metadata
        if field.type is bool:
            flags.DEFINE_boolean(name, field.default, facts["help"])
        elif field.type is str and facts.get("choices"):
            flags.DEFINE_enum(name, field.default, facts["choices"], facts["help"])
        elif field.type is str:
            flags.DEFINE_string(name, field.default, facts["help"])
        else:
            define_number = flags.DEFINE_integer if field.type is int else flags.DEFINE_float
            bounds = {"lower_bound": facts.get("minimum"), "upper_bound": facts.get("maximum")}
            define_number(name, field.default, facts["help"], **bounds)
        help.place(name, facts.get("group", MODEL))
        if TrainConfig in groups and not facts.get("first"):
            help.leave_out(name)


def needs(condition: str, *names: str) -> None:
    """Says that flags have no effect unless a condition holds, or one of several; see `config.option`."""
    for name in names:
        _facts.setdefault(name, {})["needs"] = condition


def excludes(condition: str, *names: str) -> None:
    """Says that flags have no effect if a condition holds."""
    for name in names:
        facts = _facts.setdefault(name, {})
        facts["unless"] = f"{facts.get('unless', '')} {condition}".strip()


def check_effects() -> None:
    """Raises `ValueError` for given flags that have no effect beside the others, as `needs` and `excludes` say."""
    values = {name: flags.FLAGS[name].value for name in flags.FLAGS}
    given = [name for name in _facts if flags.FLAGS[name].present]
    check_options(_facts, values, [name for name in given if values[name] is not False and values[name] != ""])


def define_run(architecture: str = run_options.TRANSFORMER) -> None:
    """Defines `--architecture`, and a flag for each option of a run with this architecture: the given one, that of the
    run, or this.
    """
    text = (
        f"Architecture of the model: {run_options.TRANSFORMER}; rnn, a recurrent translator (Bahdanau et al. 2015); "
        "bert and classifier, of `t2t-pretrain` and `t2t-classify`; or one that an installed package registers. A run "
        "keeps its own."
    )
    with help.under(MODEL):
        flags.DEFINE_string(run_options.ARCHITECTURE, architecture, text)
    groups, task = run_options.groups_of(chosen_architecture()).values(), registry.task_of(chosen_architecture())
    define(*groups)
    for field in itertools.chain.from_iterable(map(dataclasses.fields, groups)):
        is_text_of_task = field.name not in TEXTS or field.name.split("_")[1] in task.texts
        if not (is_text_of_task and getattr(task, field.metadata.get("task", ""), True)):
            help.leave_out(field.name)  # It has no effect in the task.
    for name, value in dataclasses.asdict(run_options.Options.default(chosen_architecture()).train).items():
        flags.FLAGS.set_default(name, value)


@functools.cache
def opened_run(folder: pathlib.Path) -> SavedRun:
    """Opens a run that the arguments name, before flags are parsed, and returns the same one later."""
    return SavedRun.open(folder)


def chosen_architecture() -> str:
    """Returns the architecture that the arguments choose, before flags are parsed: `--help` shows its options alone.

    It is the given one, or that of the run or of its parent. Ends the program with a message if it is not registered.
    """
    values = {}
    for argument, following in itertools.pairwise([*flagfiles.expand(sys.argv[1:]), ""]):
        if name := _name(argument):
            _, equals, value = argument.partition("=")
            values[name] = value if equals else following
    if run_options.ARCHITECTURE in values:
        try:
            return registry.architecture(values[run_options.ARCHITECTURE]).name
        except ValueError as error:
            sys.exit(f"Error: {messages.name_flags(str(error))}")
    for name in ("model_dir", "parent"):
        # A new run, or one that is refused later.
        with contextlib.suppress(KeyError, OSError, ValueError, RuntimeError):
            return opened_run(pathlib.Path(values[name]).expanduser()).architecture
    defined = run_options.ARCHITECTURE in flags.FLAGS
    return flags.FLAGS[run_options.ARCHITECTURE].default if defined else run_options.TRANSFORMER


def read_run() -> dict:
    """Returns the groups of options of a run by name, with the values of their flags."""
    return {name: read(group) for name, group in run_options.groups_of(chosen_architecture()).items()}


def given_run() -> dict:
    """Returns the options of a run that the command line or a flagfile sets, by name."""
    architecture = flags.FLAGS[run_options.ARCHITECTURE]
    others = architecture.present or architecture.default != run_options.TRANSFORMER
    own = {run_options.ARCHITECTURE: architecture.value} if others else {}
    return own | given(*run_options.groups_of(chosen_architecture()).values())


def define_checkpoint() -> None:
    """Defines `--checkpoint`, the weights of a run to use."""
    choices = "|".join(CHECKPOINTS)
    flags.DEFINE_string(
        "checkpoint", CHECKPOINTS[0], f"<{choices}|STEP>: Weights to use; STEP is the number of an update."
    )
    flags.register_validator("checkpoint", is_checkpoint, message=f"Expected {choices} or the number of an update.")


def define_scoring() -> tuple[flags.FlagHolder[bool], flags.FlagHolder[str]]:
    """Defines `--lowercase` and `--tokenize`, the settings of BLEU and chrF, and returns their holders."""
    tokenizers = ["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"]
    text = "sacreBLEU's tokenisation; none if the text is already tokenised."
    lowercase = flags.DEFINE_boolean("lowercase", False, "Compute BLEU and chrF of lower-cased text.")
    return lowercase, flags.DEFINE_enum("tokenize", "13a", tokenizers, text)


def define_trained_model(required: bool = True, *, several: bool = True, exports: bool = False) -> None:
    """Defines the flags that `trained_model` reads: the run, its checkpoint, the precision, and the search options.

    `several` are those of an ensemble too; with `exports`, the folder may be an export.
    """
    text = f"Folder of a training run{' or an export' * exports}"
    if several:
        text += f"; or several{' runs' * exports} that write the same sub-words, separated by commas, which translate "
        text += "together"
    flags.DEFINE_string("model_dir", None, f"{text}.", required=required)
    with help.under(MODEL):
        if several:
            text = "Weights of several runs, a number for each; empty: equal weights."
            flags.DEFINE_list("ensemble_weights", [], text)
            text = "Average the probabilities of several runs, or their logs."
            flags.DEFINE_enum("ensemble_mean", ENSEMBLE_MEANS[0], ENSEMBLE_MEANS, text)
        define_checkpoint()
        text = "Type of weights and arithmetic; bfloat16 is faster if the processor supports it."
        flags.DEFINE_enum("dtype", TRANSLATING_DTYPES[0], TRANSLATING_DTYPES, text)
        flags.DEFINE_boolean(
            "int8", False, "Keep matrices in 8 bits per weight: an export is several times smaller, and slower."
        )
        for side in ("source", "target"):
            text = f"Code of the {side} language, such as eng_Latn, of a multilingual model; empty for the run's."
            flags.DEFINE_string(f"{side}_language", "", text)
    define(DecodeConfig)
    for field in dataclasses.fields(DecodeConfig):
        flags.FLAGS[field.name].help += " By default that of the run."
        flags.FLAGS.set_default(field.name, None)


def run_folders(paths: str) -> list[pathlib.Path]:
    """Returns the folders in a text with commas between them. The path of an existing folder may have commas."""
    whole = pathlib.Path(paths).expanduser()
    if os.path.isdir(whole):
        return [whole]
    folders = [pathlib.Path(path.strip()).expanduser() for path in paths.split(",") if path.strip()]
    if not folders:
        raise ValueError(f"`model_dir` must be the folder of a run. Received: {paths!r}.")
    return folders


def _given_model() -> dict:
    """Returns the given options of `TrainedModel.open`. Raises `ValueError` for weights that are no numbers."""
    defined = [name for name in OF_TRAINED_MODEL if name in flags.FLAGS]
    options = {name: flags.FLAGS[name].value for name in defined if flags.FLAGS[name].present}
    if "ensemble_weights" in options:
        try:
            options["ensemble_weights"] = [float(weight) for weight in options["ensemble_weights"]]
        except ValueError as error:
            received = ",".join(options["ensemble_weights"])
            raise ValueError(f"`ensemble_weights` must be numbers. Received: {received}.") from error
    return options


def trained_model(of_text: bool = False) -> TrainedModel:
    """Opens the runs of --model_dir with the options of the model, and sets the environment that they decode in.

    With `of_text`, languages are also those of files of text: a model that is not multilingual does not get them.
    """
    folders, given = run_folders(flags.FLAGS["model_dir"].value), _given_model()
    if of_text and not languages_of(SavedRun.open(folders[0])):
        given = {name: value for name, value in given.items() if not name.endswith("_language")}
    model = TrainedModel.open(folders, **given)
    model.choose_environment()
    return model


def translating_model() -> TrainedModel | SavedExport:
    """Opens what `trained_model` does, or the export in --model_dir. Raises the errors of `saved_export.open_model`."""
    model = open_model(run_folders(flags.FLAGS["model_dir"].value), **_given_model())
    model.choose_environment()
    return model


def define_terms() -> flags.FlagHolder[str]:
    """Defines `--terms`."""
    return flags.DEFINE_string(
        "terms",
        "",
        "File of terms: a term, a tab and its translation in each line, and optionally a tab and forms with | between "
        "them. Where the term is in the source as whole words, the translation must appear, and the forms must not.",
    )


def define_choice() -> None:
    """Defines the flags that `choice` reads: how the best of several translations of a line is chosen."""
    with help.under(CHOICE):
        flags.DEFINE_enum(
            "mbr",
            None,
            ["chrf"],
            "Choose among the --beam_size translations, or --draws, of a line by minimum Bayes risk: the largest "
            "expected chrF, which is then the score.",
        )
        flags.DEFINE_string(
            "rerank_with",
            "",
            "Folder of a second run, with the same --checkpoint, --dtype and --int8. Its score of each of the "
            "--beam_size translations, or --draws, of a line is added to the first run's.",
        )
        flags.DEFINE_float("rerank_weight", 1.0, "Weight of the scores of --rerank_with.", lower_bound=0)
        flags.DEFINE_enum(
            "rerank_direction",
            RERANK_DIRECTIONS[0],
            RERANK_DIRECTIONS,
            "What the run of --rerank_with models: translations; translations with their words in reverse order; or "
            "sources, given translations.",
        )
    needs("rerank_with", "rerank_weight", "rerank_direction")


def choice() -> dict:
    """Returns the arguments of `line_translation.LineTranslation` that choose the best translation of a line."""
    return {name: flags.FLAGS[name].value for name in OF_CHOICE} | {"mbr": flags.FLAGS["mbr"].value or ""}


def define_sampling(*of_search: str) -> None:
    """Defines `--sample` and the options of sampling; `of_search` are flags that have no effect on it."""
    with help.under(SAMPLING):
        flags.DEFINE_boolean(
            "sample",
            False,
            "Draw translations at random, with the probabilities of the model, in place of searching for the best; "
            "several --draws are printed as --n_best is, with log P as their score.",
        )
    define(SampleConfig)
    needs("sample", *(field.name for field in dataclasses.fields(SampleConfig)))
    excludes("sample", *of_search)


def sampling() -> SampleConfig | None:
    """Returns the options of sampling, or `None` without `--sample`."""
    return read(SampleConfig) if flags.FLAGS["sample"].value else None


def define_table_3() -> None:
    """Defines the flags that `with_table_3` reads."""
    with help.under(TABLE_3):
        flags.DEFINE_string(
            "model",
            "",
            f"Row of Table 3, with all its options: table3/NAME, where NAME is {', '.join(paper.TABLE_3)}. Flags on "
            "the command line override the row, and the row overrides a flagfile, except its --train_steps. Empty: the "
            "options as given.",
        )
    help.leave_out("model")
    define_divisors()


def define_divisors() -> None:
    """Defines the flags that make the rows of Table 3 smaller."""
    for name, divided in _DIVISORS.items():
        with help.under(TABLE_3):
            flags.DEFINE_float(
                name, 1.0, f"Divide {divided} of the row of Table 3 by this, and round.", lower_bound=1.0
            )
        help.leave_out(name)


def with_table_3(given: dict, sources: dict[str, str]) -> tuple[dict, dict[str, str]]:
    """Adds the options of the row of Table 3 that --model names; see `with_row`."""
    name = flags.FLAGS["model"].value
    table, _, row = name.partition("/")
    if name and table != "table3":
        raise ValueError(
            f"Expected --model=table3/NAME, where NAME is one of {', '.join(paper.TABLE_3)}. Received: --model={name}."
        )
    if name:
        return with_row(row, given, sources, f"--model={name}")
    if any(flags.FLAGS[divisor].value != 1 for divisor in _DIVISORS):
        raise ValueError("Expected --model=table3/NAME with --divide_widths and --divide_layers. Received no --model.")
    return given, sources


def with_row(row: str, given: dict, sources: dict[str, str], source: str) -> tuple[dict, dict[str, str]]:
    """Adds the options of a row of Table 3, divided by --divide_widths and --divide_layers. `source` is where the row
    comes from.

    The row overrides flagfiles, and the command line overrides the row. The row's number of updates is used only if
    none is given.
    """
    own = paper.table_3(row, **{divisor: flags.FLAGS[divisor].value for divisor in _DIVISORS})
    kept = {option for option in own if sources.get(option) == "command line"}
    kept |= {"train_steps"} if given.get("train_steps") or given.get("epochs") else set()
    own = {option: value for option, value in own.items() if option not in kept}
    return given | own, sources | dict.fromkeys(own, source)


def read(group):
    """Returns an options dataclass with the values of its flags."""
    return group(**{field.name: flags.FLAGS[field.name].value for field in dataclasses.fields(group)})


def folder(name: str) -> pathlib.Path:
    """Returns the folder that a flag names. Raises `ValueError` for an empty name, which would be the working
    directory.
    """
    if not flags.FLAGS[name].value:
        raise ValueError(f"Expected a folder as --{name}. Received none.")
    return pathlib.Path(flags.FLAGS[name].value).expanduser()


def given(*groups) -> dict:
    """Returns the options of the given dataclasses that the command line or a flagfile sets, by name."""
    found = {field.name: flags.FLAGS[field.name] for group in groups for field in dataclasses.fields(group)}
    return {name: flag.value for name, flag in found.items() if flag.present}


def sources() -> dict[str, str]:
    """Returns where each given option was set last, by name: "command line" or "flagfile NAME"."""
    found = {}
    for source, argument in flagfiles.with_sources(sys.argv[1:]):
        if name := _name(argument):
            found[name if name in flags.FLAGS else name.removeprefix("no")] = source
    return found


def _name(argument: str) -> str:
    """Returns the name of a flag, such as "alpha" of "--alpha=1"; empty for the value of the one before it, unless that
    begins with a dash.
    """
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else ""


def positive_numbers(flag) -> list[int]:
    """Returns the numbers of a list flag, in increasing order."""
    if not flag.value or not all(word.strip().isdecimal() and int(word) for word in flag.value):
        raise ValueError(f"Expected --{flag.name} to be positive numbers. Received: {','.join(flag.value) or 'none'}.")
    return sorted({int(word) for word in flag.value})


flags.disclaim_key_flags()  # --help attributes the flags that `define` defines to the calling program.
