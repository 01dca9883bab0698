"""What an option is: a field of a dataclass with its default, its help text and the facts about it.

A fact stands at the option alone. `check_fields` refuses values that the facts do not allow, `cli.flags` makes flags
with the same bounds and choices, and `options_with` lists the options that have a fact: those that a resumed run must
not change, those that name text, and so on.
"""

import dataclasses
import difflib
import fnmatch
import operator
import re
import reprlib
import sys
from collections.abc import Collection, Iterable, Mapping

# Headings of the groups that `--help` and the table of a run's options have, in their order.
GROUPS = PLACES, TEXT, MODEL, REGULARISATION, TRAINING, FINE_TUNING, VALIDATION, LIMITS, SEARCH, DEVICES = (
    "Where things lie", "Text and sub-words", "Model", "Regularisation", "Training", "Starting from other weights",
    "Validation and TensorBoard", "Checkpoints and limits", "Search", "Devices and arithmetic"
)  # fmt: skip
MAX_INT = 2**31 - 1  # Largest value of an integer option that sets no smaller limit.
_BOUNDS = {
    "minimum": ("at least", operator.ge), "above": ("more than", operator.gt), "maximum": ("at most", operator.le),
    "below": ("less than", operator.lt)
}  # fmt: skip
_TYPES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
_SHORTENED = reprlib.Repr()  # For messages: values may have any size.
_SHORTENED.maxstring = _SHORTENED.maxother = _SHORTENED.maxlong = 200


def option(
    default,
    text: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    group: str = MODEL,
    first: bool = False,
    path: str = "",
    fixed: bool = False,
    affects: str = "scores",
    inherited: bool = False,
    needs: str = "",
    unless: str = "",
    task: str = "",
    encoder: bool = False,
    any_corpus: bool = False,
    prepares: bool = False,
    local: bool = False,
):
    """Returns a dataclass field that is an option: `--help` shows it, and `config.json` records it.

    All options of a network are fixed for a run. Those of a plugin need a default and a text, and may have bounds or
    choices.

    Args:
        default: the default value.
        text: the help text.
        minimum: smallest value of a number.
        maximum: largest value of a number; for a whole number 2^31 - 1 if not given.
        above: what a number must exceed.
        below: what a number must be less than.
        choices: all values of a text; empty: any.
        group: heading of the option, one of `GROUPS` for the options of a run.
        first: whether it is among the few options that `--help` shows a newcomer.
        path: what the value names, if it is a path or several: "text" or "file", of which the contents count and not
            the name, or "run".
        fixed: whether a resumed run must keep the value.
        affects: what the value changes: the "scores" of a model, only those of "averages" of checkpoints, or "nothing".
        needs: conditions with spaces between them, one of which must hold for the option to have an effect: `dataset`,
            `!dataset`, `dataset=builtin`, `train_source=*.tmx`, `diverse_groups!=1`, or several of these with & between
            them.
        unless: such conditions, none of which may hold.
        task: the attribute that a `Task` must have for the option to have an effect.
        inherited: whether a run that starts from the weights of a parent must have its value.
        encoder: whether the weights of an encoder depend on it, or what the encoder computes with them.
        any_corpus: whether it says how to prepare text, whichever text it is.
        prepares: whether prepared data depend on it, though it is no option of the data.
        local: whether the value means something on one machine or network only.
    """
    facts = dict(locals())
    return dataclasses.field(default=facts.pop("default"), metadata={"help": facts.pop("text"), **facts})


def options_with(options: type, fact: str, value=None) -> tuple[str, ...]:
    """Returns the names of the options of a dataclass that have a fact, or this value of it, in their order."""
    facts = {field.name: field.metadata.get(fact) for field in dataclasses.fields(options)}
    return tuple(name for name, of_option in facts.items() if (of_option if value is None else of_option == value))


def _holds(condition: str, values: Mapping) -> bool:
    """Returns whether a condition of `option` holds for the values of options."""
    for part in condition.split("&"):
        name, comparison, value = re.fullmatch(r"!?(\w+)(!?=)?(.*)", part).groups()
        text = str(values.get(name))
        same = fnmatch.fnmatchcase(text.lower(), value) if "*" in value else text == value
        is_so = same if comparison else bool(values.get(name))
        if is_so == (part.startswith("!") or comparison == "!="):
            return False
    return True


def check_effects(facts: Mapping[str, Mapping], values: Mapping, given: Iterable[str], task=None) -> None:
    """Raises `ValueError` if an option in `given`, those that the user set, has no effect beside the values of the
    others, or in the `Task` of a run. `facts` has the facts of each option.
    """
    reasons = {}
    for name in given:
        conditions, excluding = (facts[name].get(fact, "").split() for fact in ("needs", "unless"))
        met = [condition for condition in excluding if _holds(condition, values)]
        if task and (attribute := facts[name].get("task")) and not getattr(task, attribute):
            reasons.setdefault(f"in the task {task.name}", []).append(name)
        elif conditions and not any(_holds(condition, values) for condition in conditions):
            missing = " or ".join(f"`{condition.partition('!=')[0]}`" for condition in conditions)
            reasons.setdefault(f"without {missing}", []).append(name)
        elif met:
            reasons.setdefault(f"with `{met[0].partition('&')[0]}`", []).append(name)
    for reason, names in reasons.items():
        listed = " and ".join(f"`{name}`" for name in names)
        received = ", ".join(f"{name}={_SHORTENED.repr(values[name])}" for name in names)
        raise ValueError(f"{listed} {'has' if len(names) == 1 else 'have'} no effect {reason}. Received: {received}.")


def require(options, condition: bool, rule: str, names: str = "") -> None:
    """Raises `ValueError` unless a condition holds; `rule` is a sentence that states it. The message shows the values
    of the options in `names`, a text with spaces between them; by default those in backticks in the rule.
    """
    if not condition:
        shown = dict.fromkeys(names.split() or re.findall(r"`(\w+)(?:=\w+)?`", rule))
        received = ", ".join(f"{name}={_SHORTENED.repr(getattr(options, name))}" for name in shown)
        raise ValueError(f"{rule} Received: {received}.")


def check_names(names: Iterable[str], known: Collection[str]) -> None:
    """Raises `TypeError` for the first unknown name, and suggests similar ones."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            advice = f"Did you mean {' or '.join(near)}?" if near else f"Expected one of {', '.join(sorted(known))}."
            raise TypeError(f"Unknown option {name}. {advice}")


def check_fields(options) -> None:
    """Raises `ValueError` if a value does not have the type of its option, or is not what the option's facts allow."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        fits = isinstance(value, (int, float) if field.type is float else field.type) and (
            field.type is bool or not isinstance(value, bool)
        )
        if fits and field.type is float:
            fits = abs(value) <= sys.float_info.max
        require(options, fits, f"Expected {_TYPES[field.type]}.", field.name)
        if choices := field.metadata.get("choices"):
            require(options, value in choices, f"Expected one of {', '.join(choices)}.", field.name)
        if field.type in (int, float):
            limits = {bound: field.metadata.get(bound) for bound in _BOUNDS}
            if field.type is int and value > MAX_INT:
                limits["maximum"] = min(limits["maximum"] or MAX_INT, MAX_INT)
            limits = {bound: limit for bound, limit in limits.items() if limit is not None}
            rule = " and ".join(f"{_BOUNDS[bound][0]} {limit:,}" for bound, limit in limits.items())
            within = all(_BOUNDS[bound][1](value, limit) for bound, limit in limits.items())
            require(options, within, f"Expected {rule}.", field.name)
