"""Changes to an experiment from the command line: `--set section.key=value`."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl.bad_values import too_deep
from dpfl.errors import DpflError


def with_settings(content: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Returns a copy of an experiment's content with some keys changed.

    Args:
        content: The experiment as TOML has it. It is not changed.
        settings: Changes, such as `budget.rounds=5`. A value is read as TOML where it is valid
            TOML, and as text where it is not.

    Returns:
        The changed copy.

    Raises:
        DpflError: A setting is not of the form `section.key=value`.
    """
    try:
        new_content = copy.deepcopy(dict(content))
    except RecursionError:
        raise too_deep("the experiment") from None
    for setting in settings:
        _change(new_content, setting)
    return new_content


def _change(content: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise DpflError(f"--set takes section.key=value, such as budget.rounds=5, not {setting!r}.")
    *sections, last = key.strip().split(".")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise DpflError(f"--set {setting}: {section!r} is a value, not a section.")
    content[last] = _value(text.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
