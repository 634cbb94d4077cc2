"""Closed sets of words, such as the kinds of a link: a wrong one is answered with those there are.

A field has a choice if its type is a `Literal`. Files and JSON are checked by msgspec, whose message does not name the
choices; `explain_choice` finds them by the place in the message. What Python code builds nobody checks, so settings
call `check_choices` when they are made.
"""

from __future__ import annotations

import re
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from penstock.errors import wrong_choice

_PART = re.compile(r"\.(\w+)|(\[[^\]]*\])")
_PLACE = re.compile(r"^(?P<problem>.*) - at `(?P<key>key` in `)?\$?(?P<path>[^`]*)`$", re.DOTALL)
_WRONG = re.compile(r"Invalid enum value (?P<given>.*)$", re.DOTALL)


def explain_choice(message: str, kind: Any) -> str | None:
    """What is wrong, and which words there are, in a message of msgspec's about this type; None: it is about others."""
    place = _PLACE.match(message)
    wrong = _WRONG.match(place["problem"] if place else message)
    if wrong is None:
        return None
    kinds = _plain(kind)
    for name, index in _PART.findall(place["path"]) if place else ():
        kinds = [inner for one in kinds for inner in _inside(one, name, key=False if index else None)]
    if place and place["key"]:
        kinds = [inner for one in kinds for inner in _inside(one, "", key=True)]
    choices = [word for one in kinds if get_origin(one) is Literal for word in get_args(one)]
    return wrong_choice(wrong["given"].strip("'"), choices) if choices else None


def check_choices(settings: Struct) -> None:
    """Raise ValueError if a field has none of the words that it may have."""
    problem = wrong_field(settings)
    if problem is not None:
        raise ValueError(f"{problem[0]} {problem[1]}")


def wrong_field(settings: Struct) -> tuple[str, str] | None:
    """The first field that has none of the words that it may have, and what is wrong; None: there is none."""
    for name, choices in _choices(type(settings)):
        given = getattr(settings, name)
        if given not in choices:
            return name, wrong_choice(given, choices)
    return None


@cache
def _choices(kind: type[Struct]) -> list[tuple[str, tuple[Any, ...]]]:
    fields = [(field.name, _plain(field.type)) for field in msgspec.structs.fields(kind)]
    return [(name, get_args(kinds[0])) for name, kinds in fields if len(kinds) == 1 and get_origin(kinds[0]) is Literal]


def _plain(kind: Any) -> list[Any]:
    """The types that a value may have, without what is said about them."""
    if get_origin(kind) is Annotated:
        return _plain(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [plain for each in get_args(kind) for plain in _plain(each)]
    return [kind]


def _inside(kind: Any, name: str, *, key: bool | None) -> list[Any]:
    """The types of a field, or of what stands in a container; `key`: of its keys."""
    arguments = [each for each in get_args(kind) if each is not Ellipsis]
    if key is None:
        if not (isinstance(kind, type) and issubclass(kind, Struct)):
            return []
        return [plain for field in msgspec.structs.fields(kind) if field.name == name for plain in _plain(field.type)]
    if get_origin(kind) is dict:
        return _plain(arguments[0 if key else 1])
    return [plain for each in arguments for plain in _plain(each)] if get_origin(kind) in (tuple, list) else []
