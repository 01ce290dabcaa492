"""The written form of parts: one codec for files, messages and digests.

An algorithm, a task or a release is a composition of small frozen dataclasses, the *parts*. Three
things depend on how a part is written: the record of a run (`experiment.toml`), the messages
between a server and its nodes, and the digests that name a release in a ledger and key its noise.
All three use this module, so a part has one written form:

    {"part": "optimiser.sgd", "learning_rate": 0.1}

The tag and the field names are fixed here, by the decorator, and not by the names of classes and
attributes:

    @part("optimiser.sgd", learning_rate="rate")
    @dataclass(frozen=True)
    class SGD:
        rate: float

    >>> words = encode(SGD(0.1))
    >>> words
    {'part': 'optimiser.sgd', 'learning_rate': 0.1}
    >>> decode(words) == SGD(0.1)
    True

`digest_of` hashes the canonical bytes of that form. A class that nobody registered, such as a part
of a user's own, has its import path as its tag (`tag_of`).

A class or an attribute can be renamed without a change to any file, message or random draw.
`tests/test_codec.py` pins the bytes of every part. A field that is added later must be `optional`:
it is written only where it differs from its default, so the bytes of existing parts stay the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from numbers import Integral, Real
from types import MethodType
from typing import Any, TypeVar

from dpfl.errors import DpflError

FORMAT = 2
"""The version of the written form. Format 1, of dpfl 0.1, wrote the names of classes
(`run/records/format_1.py` reads it).
"""

TAG = "part"
"""The key that holds the tag of a part."""

_Class = TypeVar("_Class", bound=type[Any])
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class PartFormat:
    """The written form of one class of parts.

    Attributes:
        tag: The fixed name of the class.
        type: The class.
        names: The written name of each attribute, in the order of the class.
        optional: The default of each attribute that is written only where it differs from that
            default.
    """

    tag: str
    type: type[Any]
    names: Mapping[str, str]
    optional: Mapping[str, Any]


_BY_TYPE: dict[type[Any], PartFormat] = {}
_BY_TAG: dict[str, PartFormat] = {}


def part(tag: str, *, optional: Iterable[str] = (), **names: str) -> Callable[[_Class], _Class]:
    """Registers a dataclass as a part.

    Args:
        tag: The fixed name that is written for the class.
        optional: Attributes that are written only where they differ from their defaults.
        **names: Written names of attributes that are called otherwise in the class, as
            `written_name="attribute"`.

    Returns:
        A decorator that returns the class unchanged. It stands above `@dataclass`.
    """

    def register(cls: _Class) -> _Class:
        written_names = {attribute: name for name, attribute in names.items()}
        attributes = {field.name: field for field in fields(cls)}
        if tag in _BY_TAG or not {*written_names, *optional} <= attributes.keys():
            raise TypeError(
                f"The part {tag!r} is registered twice, or names an attribute that {cls.__name__} "
                "does not have."
            )
        defaults = {name: _default(attributes[name]) for name in optional}
        all_names = {name: written_names.get(name, name) for name in attributes}
        form = PartFormat(tag, cls, all_names, defaults)
        _BY_TYPE[cls] = _BY_TAG[tag] = form
        return cls

    return register


def _default(field: Any) -> Any:
    return field.default_factory() if field.default is MISSING else field.default


def tag_of(value: Any) -> str:
    """Names the class of a part.

    Args:
        value: A part, or an object of a class that was not registered.

    Returns:
        The tag; for a class of a user's own, its import path.
    """
    form = _BY_TYPE.get(type(value))
    return form.tag if form else f"{type(value).__module__}:{type(value).__qualname__}"


def format_of(cls: type[Any]) -> PartFormat:
    """Looks up the written form of a class.

    Args:
        cls: A class with the decorator `part`.

    Returns:
        Its written form.

    Raises:
        KeyError: The class was not registered.
    """
    return _BY_TYPE[cls]


def formats() -> Mapping[str, PartFormat]:
    """Lists the written forms of all classes that are registered so far.

    Returns:
        Each form by its tag.
    """
    return _BY_TAG


def encode(value: Any) -> Any:
    """Returns a part, or anything that is made of parts, as values that JSON and TOML can hold.

    Args:
        value: A part, a tuple or list, a bound method of a part, a number, a string, a truth value
            or None.

    Returns:
        Mappings, lists, numbers, strings, truth values and None.

    Raises:
        DpflError: The value holds something else, such as a function. It has no written form.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)  # numpy has numbers of its own
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, MethodType) and is_dataclass(value.__self__):
        return {**encode(value.__self__), "method": value.__name__}
    if is_dataclass(value) and not isinstance(value, type):
        return _encode_part(value)
    raise DpflError(
        f"A {type(value).__name__} has no written form: use a frozen dataclass of numbers and "
        "strings instead."
    )


def _encode_part(value: Any) -> dict[str, Any]:
    form = _BY_TYPE.get(type(value))
    if form is None:
        return {TAG: tag_of(value)} | {
            field.name: encode(getattr(value, field.name)) for field in fields(value)
        }
    words: dict[str, Any] = {TAG: form.tag}
    for attribute, name in form.names.items():
        content = getattr(value, attribute)
        if attribute not in form.optional or content != form.optional[attribute]:
            words[name] = encode(content)
    return words


def decode(words: Any) -> Any:
    """Returns the part that `encode` wrote, from a record.

    A field that the record leaves out has its default if the field is optional; else it is None,
    which TOML cannot hold.

    Args:
        words: What `encode` returned, as TOML or JSON gives it back.

    Returns:
        The part, with tuples in the place of lists.

    Raises:
        DpflError: The tag is unknown, or the values do not make a part.
    """
    if isinstance(words, list):
        return tuple(decode(item) for item in words)
    if not isinstance(words, Mapping):
        return words
    form = _BY_TAG.get(str(words.get(TAG)))
    if form is None:
        raise DpflError(
            f"The part {words.get(TAG)!r} is unknown, so it cannot be read from its record."
        )
    attributes = {
        attribute: decode(words.get(name))
        for attribute, name in form.names.items()
        if name in words or attribute not in form.optional
    }
    try:
        value, method = form.type(**attributes), str(words.get("method", ""))
        if method.startswith("_"):
            raise ValueError(f"it has no method {method!r}")
        return getattr(value, method) if method else value
    except (TypeError, ValueError, AttributeError) as error:
        raise DpflError(
            f"The part {form.tag!r} cannot be read from its record ({error})."
        ) from error


def decode_as(kind: type[_Part], words: Any, refusal: str) -> _Part:
    """Returns the part that `encode` wrote, if it is of one class.

    Args:
        kind: The class.
        words: What `encode` returned, as TOML or JSON gives it back.
        refusal: The sentence of the error where the part is of another class.

    Returns:
        The part.

    Raises:
        DpflError: It is of another class, or cannot be read.
    """
    value = decode(words)
    if not isinstance(value, kind):
        raise DpflError(refusal)
    return value


def canonical(value: Any) -> bytes:
    """Writes a JSON value in the one form that is hashed and signed.

    Keys are sorted, there are no spaces, the text is UTF-8, and numbers are as Python writes them.

    Args:
        value: A value that JSON can hold.

    Returns:
        The bytes of its text.

    Raises:
        ValueError: The value holds a number that is not finite.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest_of(value: Any, *beside: bytes | memoryview) -> str:
    """Returns a digest of a value's canonical bytes, and of arrays beside it.

    Args:
        value: Anything that `encode` takes.
        *beside: The bytes of arrays, in order.

    Returns:
        128 bits of BLAKE2b, in hexadecimal.

    Raises:
        DpflError: The value has no written form, or holds a number that is not finite.
    """
    try:
        text = canonical(encode(value))
    except ValueError:
        raise DpflError(
            "A part holds a number that is not finite, so it has no written form: give it finite "
            "numbers."
        ) from None
    digest = hashlib.blake2b(text, digest_size=16)
    for array in beside:
        digest.update(array)
    return digest.hexdigest()
