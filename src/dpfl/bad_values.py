"""Turns whatever a user got wrong into one sentence, which every interface prints.

There is one wording for each kind of mistake: a name that does not exist, an option that a part
does not have, a value of the wrong type or out of range, and a file that is not valid TOML. Each
function raises a `DpflError`, so the command line prints the sentence and exits with code 2.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, get_args

from dpfl.errors import DpflError

Part = TypeVar("Part")
LONGEST_VALUE = 80
"""Characters of a bad value that a sentence quotes."""


class ValidationProblems(Protocol):
    """The error that pydantic and FastAPI raise where a document does not fit its schema."""

    def errors(self) -> Sequence[Any]:
        """Lists the problems.

        Returns:
            One mapping per problem, with `loc`, `msg`, `type` and `input`.
        """
        ...


def suggest(word: str, choices: Iterable[str]) -> str:
    """Suggests the name that a user may have meant.

    Args:
        word: The word as the user wrote it.
        choices: The words that exist here.

    Returns:
        The second half of a sentence, such as "did you mean 'dirichlet'?".
    """
    names = [str(name) for name in choices]
    if near := difflib.get_close_matches(str(word), names, n=1, cutoff=0.5):
        return f"did you mean {near[0]!r}?"
    return f"choose one of {', '.join(names)}." if names else "remove it: there are none."


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> DpflError:
    """Describes a name that does not exist.

    Args:
        kind: What the name names, such as "partition".
        name: The name as the user wrote it.
        choices: The names that exist.

    Returns:
        An error to raise, which suggests the nearest name.
    """
    return DpflError(f"There is no {kind} {name!r}; {suggest(name, choices)}")


def require_name(kind: str, name: str, choices: Iterable[str]) -> str:
    """Refuses a name that does not exist, and suggests the nearest one.

    Args:
        kind: What the name names, such as "partition".
        name: The name as the user wrote it.
        choices: The names that exist.

    Returns:
        The name.

    Raises:
        DpflError: There is no such name.
    """
    names = list(choices)
    if name not in names:
        raise unknown_name(kind, name, names)
    return name


def choose(kind: str, name: str, parts: Mapping[str, Part]) -> Part:
    """Looks up a part by its name.

    Args:
        kind: What the name names, such as "clipping".
        name: The name as the user wrote it.
        parts: Every part by its name.

    Returns:
        The part of that name.

    Raises:
        DpflError: There is no such name.
    """
    return parts[require_name(kind, name, parts)]


def refuse_unknown_options(
    owner: str, options: Iterable[str], choices: Iterable[str], kind: str = "option"
) -> None:
    """Refuses an option that its owner does not have, and suggests the nearest one.

    Args:
        owner: Who has the options, as the sentence begins, such as "The model 'cnn'".
        options: The options as the user wrote them.
        choices: The options that the owner has.
        kind: What an option is called here, such as "key" in a file.

    Raises:
        DpflError: The owner does not have one of the options.
    """
    names = list(choices)
    for option in options:
        if option not in names:
            raise DpflError(f"{owner} has no {kind} {option!r}; {suggest(option, names)}")


def is_number(value: object) -> bool:
    """Tells numbers from other values; truth values, infinity and NaN are not numbers here.

    Args:
        value: The value as the user wrote it.

    Returns:
        True for a finite int or float.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and bool(-math.inf < cast(float, value) < math.inf)


def require_above(value: object, name: str, bound: float) -> None:
    """Refuses a value that is not a number above a bound.

    Args:
        value: The value as the user wrote it.
        name: What the value is called where the user wrote it.
        bound: The value must be larger than this.

    Raises:
        DpflError: The value is not a finite number, or it is too small.
    """
    if not is_number(value) or cast(float, value) <= bound:
        raise wrong_value(value, name, f"give a number above {bound}")


def require_whole(value: object, name: str, least: int, most: int | None = None) -> int:
    """Refuses a value that is not a whole number within bounds.

    Args:
        value: The value as the user wrote it.
        name: What the value is called where the user wrote it.
        least: The smallest value that is allowed.
        most: The largest value that is allowed; without it there is no upper bound.

    Returns:
        The value.

    Raises:
        DpflError: The value is not a whole number, or it is out of range.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and least <= cast(int, value) and (most is None or cast(int, value) <= most):
        return cast(int, value)
    bounds = f"of at least {least}" if most is None else f"from {least} to {most:,}"
    raise wrong_value(value, name, f"give a whole number {bounds}")


def wrong_value(value: object, name: str, advice: str) -> DpflError:
    """Describes a value that cannot stand where it does.

    Args:
        value: The value as the user wrote it.
        name: What the value is called where the user wrote it.
        advice: What to write instead, as the second half of a sentence without its full stop.

    Returns:
        An error to raise.

    Example:
            raise wrong_value(3, "data.label", "give the name of a column")
            # DpflError: data.label is 3: give the name of a column.
    """
    return DpflError(f"{name} is {_quote(value)}: {advice}{'' if advice.endswith('?') else '.'}")


def require_choice(value: object, name: str, choices: Iterable[str]) -> None:
    """Refuses a value that is none of a few words, and suggests the nearest one.

    Args:
        value: The value as the user wrote it.
        name: What the value is called where the user wrote it.
        choices: The words that exist here.

    Raises:
        DpflError: The value is none of them.
    """
    words = list(choices)
    if value not in words:
        raise wrong_value(value, name, suggest(str(value), words).removesuffix("."))


def require_bool(value: object, name: str) -> None:
    """Refuses a value that is neither true nor false.

    Args:
        value: The value as the user wrote it.
        name: What the value is called where the user wrote it.

    Raises:
        DpflError: The value is of another type.
    """
    if not isinstance(value, bool):
        raise wrong_value(value, name, "give true or false")


def require_share(value: object, name: str, share: str = "a number") -> None:
    """Refuses a value that is not between 0 and 1. The two ends are refused as well.

    Args:
        value: The value as the user wrote it.
        name: What the value is called where the user wrote it.
        share: What the value is, such as "a share of epsilon".

    Raises:
        DpflError: The value is not a number, or it is out of range.
    """
    if not is_number(value) or not 0 < cast(float, value) < 1:
        raise wrong_value(value, name, f"give {share} between 0 and 1")


def invalid(error: ValidationProblems, document: str, schema: type[Any] | None = None) -> DpflError:
    """Describes the first problem that pydantic reports.

    Args:
        error: What pydantic raised.
        document: What was validated, within a sentence, such as "the experiment".
        schema: The pydantic model that was validated, for the keys that exist.

    Returns:
        An error to raise, which names the place, the value and what it should be.

    Example:
            raise invalid(error, "the experiment", Experiment) from None
            # DpflError: data.clients of the experiment is 0: it should be greater than or equal to
            # 1.
    """
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    place, problem = ".".join(location), _problem(first["msg"])
    start = document[0].upper() + document[1:]
    if first["type"] == "missing":
        return DpflError(f"{start} has no {place}: add it.")
    if first["type"] == "extra_forbidden":
        keys = _keys_at(schema, location[:-1])
        hint = suggest(location[-1], keys) if keys else "remove it."
        return DpflError(f"{start} has no key {place!r}; {hint}")
    subject = f"{place} of {document}" if place else start
    return DpflError(f"{subject} is {_quote(first['input'])}: {problem}.")


def _problem(message: str) -> str:
    """Turns a message of pydantic into half a sentence, such as "it should be a valid number"."""
    words = message.removeprefix("Value error, ").rstrip(".")
    if words.startswith("Input should"):
        return "it" + words.removeprefix("Input")
    return words[:1].lower() + words[1:]


def read_toml(path: Path, kind: str, advice: str) -> dict[str, Any]:
    """Reads a TOML file that a user wrote.

    Args:
        path: The file.
        kind: What the file is, such as "experiment file".
        advice: What to do where there is no such file, as half a sentence.

    Returns:
        The content of the file.

    Raises:
        DpflError: There is no such file, or it cannot be read, or it is not valid TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise DpflError(f"There is no {kind} {path}; {advice}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DpflError(f"The {kind} {path} cannot be read ({error}).") from None
    except ValueError as error:  # of TOML, or of a number with too many digits
        raise DpflError(f"The {kind} {path} is not valid TOML: {error}.") from None
    except RecursionError:
        raise too_deep(f"the {kind} {path}") from None


def too_deep(document: str) -> DpflError:
    """Describes a document whose tables are nested too deeply to read.

    Args:
        document: What was read, within a sentence, such as "the experiment".

    Returns:
        An error to raise.
    """
    start = document[0].upper() + document[1:]
    return DpflError(f"{start} is nested too deeply: write sections of keys.")


def _quote(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 8 * LONGEST_VALUE:
        return "a number of many digits"  # Python refuses to write some of these
    return repr(value[:LONGEST_VALUE]) if isinstance(value, str) else repr(value)[:LONGEST_VALUE]


def _keys_at(schema: type[Any] | None, location: Iterable[str]) -> list[str]:
    """Lists the keys of the section at a location, whose annotation may be `Section | None`."""
    section: Any = schema
    for part in location:
        field = getattr(section, "model_fields", {}).get(part)
        annotation = getattr(field, "annotation", None)
        choices = (annotation, *get_args(annotation))
        section = next((choice for choice in choices if hasattr(choice, "model_fields")), None)
    return list(getattr(section, "model_fields", ()))
