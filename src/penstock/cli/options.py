"""Options of subscriptions and publications on the command line, made from what the services declare.

A service's option (`ordered`, `priority`) is a flag or a value of `penstock sub` or `penstock pub` without a line of
its own here: its name, its type, its default and its description come from the declaration, and so does the check of
its value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
import typer
from msgspec import Meta, Struct

from penstock import services
from penstock.errors import InvalidOption


def with_service_options(command: Callable[..., None], kind: type[Struct]) -> Callable[..., None]:
    """The command with a parameter for every option of this kind; it gets those that were set as `options`, checked."""
    fields = msgspec.structs.fields(kind)
    flags = {field.name: _flag(field) for field in fields}

    @wraps(command)
    def run(**given: Any) -> None:
        named = {field.name: given.pop(field.name) for field in fields}
        chosen = {field.name: named[field.name] for field in fields if named[field.name] not in (None, field.default)}
        try:
            services.options(chosen, kind)
        except InvalidOption as error:
            if {"recover", "max"} <= set(chosen):
                problem = "--max asks caches, --recover asks publishers; choose one"
                raise typer.BadParameter(problem, param_hint="--recover and --max") from None
            hint = flags.get(error.option)
            raise typer.BadParameter(error.problem, param_hint=hint) from None
        command(**given, options=chosen)

    hints = {name: kind for name, kind in get_type_hints(command, include_extras=True).items() if name != "options"}
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "options"
    ]
    added = [_parameter(field) for field in fields]
    run.__signature__ = inspect.Signature(own + added)  # type: ignore[attr-defined]  # typer reads it, as inspect does
    run.__annotations__ = hints | {parameter.name: parameter.annotation for parameter in added}
    return run


def _parameter(field: Any) -> inspect.Parameter:
    """One option as typer wants it."""
    kind, *metas = get_args(field.type) if get_args(field.type) else (field.type,)
    description = next((meta.description for meta in metas if isinstance(meta, Meta) and meta.description), "")
    least = next((meta.ge for meta in metas if isinstance(meta, Meta) and meta.ge is not None), None)
    made: Any = Annotated  # a type that is known at run time only
    option = made[kind if least is None else kind | None, typer.Option(_flag(field), help=description, min=least)]
    default = field.default if least is None else None  # a default below the least means that nobody asked
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)


def _flag(field: Any) -> str:
    """As it is typed: the option's name, unless its declaration has another word for the command line."""
    named = (meta.extra["flag"] for meta in get_args(field.type) if isinstance(meta, Meta) and meta.extra)
    return next(named, f"--{field.name.replace('_', '-')}")
