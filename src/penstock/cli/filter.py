"""`penstock filter`: what a predicate means, and whether a message matches it.

`explain` shows the normal form, which is what brokers tell each other: they route by it exactly. With `--encoded` it
shows what a network with `interest = "encoded"` would know of each constraint: Bloom bits only, so an equality is
decided on the way (but for false positives) while of `price < 120` no more is known than that a price exists; the rest
is decided at the edge, where the subscriber's broker matches exactly. What is probably a mistake, such as an attribute
that must be a number and a string at once, gets a warning. `test` takes attributes from the command line and says
whether they match and which constraint decided.

Exit codes: 0 the message matches (or the predicate was explained), 1 it does not match, 2 the predicate, an attribute
or the usage is wrong. Results go to stdout, complaints to stderr. Everything heavy is imported by the command that
needs it, so that `--help` stays quick.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.errors import InvalidMessage, InvalidPredicate

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.content.bloom import EncodingScheme
    from penstock.content.language.evaluate import Decision
    from penstock.content.message import Value
    from penstock.content.predicate import Constraint, Filter, Predicate

app = typer.Typer(
    help="Explain a predicate, or test it on a message.",
    epilog='Example: penstock filter explain "price < 120"',
    no_args_is_help=True,
)

_WORDS = {True: "true", False: "false", None: "unknown"}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?")

Text = Annotated[str, typer.Argument(metavar="PREDICATE", help="What a subscriber wants, as in SQL's WHERE.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on one line instead of words.")]


@app.command("explain")
def explain_command(
    text: Text,
    encoded: Annotated[bool, typer.Option("--encoded", help="For a network that tells Bloom encodings.")] = False,
    bits: Annotated[int, typer.Option(help="Bits of an encoding (M).")] = 512,
    hashes: Annotated[int, typer.Option(help="Hashes per tag (h).")] = 3,
    as_json: AsJson = False,
) -> None:
    """Show the normal form by which brokers route, and whether something in it looks like a mistake.

    Example: penstock filter explain "symbol = 'IBM' AND (price < 120 OR price BETWEEN 200 AND 250)"
    """
    from penstock.content.bloom import EncodingScheme
    from penstock.content.language.parser import parse_predicate
    from penstock.errors import InvalidEncoding

    try:
        predicate = parse_predicate(text)
        scheme = EncodingScheme(bits=bits, hashes=hashes)
    except (InvalidPredicate, InvalidEncoding) as error:
        raise _refused(error) from None
    found = _explained_encoded(predicate, scheme) if encoded else _explained_exact(predicate)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _draw_encoded(found) if encoded else _draw_exact(found)


@app.command("test")
def match_command(
    text: Text,
    attributes: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            "-a",
            metavar="NAME=VALUE",
            help="An attribute of the message: true or false, a number, or else a string; quotes force a string.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a message with these attributes matches, and which constraint decided. Exit code 0 or 1.

    Example: penstock filter test "symbol = 'IBM' AND price < 120" -a symbol=IBM -a price=110
    """
    from penstock.content.language.evaluate import explain
    from penstock.content.language.parser import parse_expression, parse_predicate
    from penstock.content.message import Identity, make_message

    try:
        predicate = parse_predicate(text)
        message = make_message(Identity("command-line", 1, 1), read_attributes(attributes or []), reserved=True)
    except (InvalidPredicate, InvalidMessage) as error:
        raise _refused(error) from None
    matched = predicate.matches(message.attributes)
    explanation = explain(parse_expression(text), message.attributes)
    assert matched is (explanation.truth is True), "the compiled and the explained meaning must agree"
    if as_json:
        decided = [_decision_json(decision) for decision in explanation.decisions]
        typer.echo(json.dumps({"matches": matched, "truth": _WORDS[explanation.truth], "decided_by": decided}))
    else:
        typer.echo("matches" if matched else f"does not match: the predicate is {_WORDS[explanation.truth]}")
        for decision in explanation.decisions:
            typer.echo(f"  {_decision_words(decision)}")
        if not explanation.decisions:
            typer.echo("  a constant decided")
    raise typer.Exit(0 if matched else 1)


def _refused(error: Exception) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(2)


def read_attributes(texts: list[str]) -> dict[str, Value]:
    attributes: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidMessage(f"-a {text}: write NAME=VALUE, such as -a price=110")
        if name in attributes:
            raise InvalidMessage(f"-a {text}: the attribute {name} is given twice")
        attributes[name] = _read_value(value)
    return attributes


def _read_value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        if len(text) > 40:  # no need to make an integer of it to see that it is too large
            raise InvalidMessage(f"{text[:40]}... does not fit a 64-bit integer")
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _decision_words(decision: Decision) -> str:
    from penstock.content.language.expression import constraint_text, name_text, value_text

    name = name_text(decision.constraint.name)
    state = f"{name} is missing" if decision.value is None else f"{name} is {value_text(decision.value)}"
    if decision.truth is None and decision.value is not None:
        state += f", {_other_class(decision.constraint, decision.value)}"
    return f"{constraint_text(decision.constraint)} is {_WORDS[decision.truth]}: {state}"


def _other_class(constraint: Constraint, value: Value) -> str:
    """Why a value that is there leaves a constraint unknown: "a string, compared with a number"."""
    from penstock.content.predicate import Differs, Equals, OneOf, Range, value_class

    wanted: tuple[Value | None, ...] = ("",)  # a pattern is for strings
    if isinstance(constraint, Equals | Differs):
        wanted = (constraint.value,)
    elif isinstance(constraint, OneOf):
        wanted = constraint.values
    elif isinstance(constraint, Range):
        wanted = (constraint.low, constraint.high)
    classes = sorted({value_class(one) for one in wanted if one is not None})
    return f"a {value_class(value)}, compared with a {' or a '.join(classes)}"


def _decision_json(decision: Decision) -> dict[str, Any]:
    from penstock.content.language.expression import constraint_text

    words = constraint_text(decision.constraint)
    return {"constraint": words, "truth": _WORDS[decision.truth], "value": decision.value}


def _explained_exact(predicate: Predicate) -> dict[str, Any]:
    """All that `explain` shows, as plain data."""
    from penstock.content.filter_bytes import filter_bytes
    from penstock.content.language.expression import constraint_text
    from penstock.content.language.warnings import warnings

    filters = [
        {"constraints": [constraint_text(one) for one in selected.constraints], "bytes": len(filter_bytes(selected))}
        for selected in predicate.filters
    ]
    return {"text": predicate.text, "interest": "exact", "filters": filters, "warnings": list(warnings(predicate))}


def _explained_encoded(predicate: Predicate, scheme: EncodingScheme) -> dict[str, Any]:
    """The same for a network that tells encodings."""
    from penstock.content.bloom import spread_lists
    from penstock.content.language.warnings import warnings

    announced = spread_lists(predicate.filters, scheme.encodings_max)
    unspread = {id(constraint) for selected in announced for constraint in selected.constraints}
    return {
        "text": predicate.text,
        "interest": "encoded",
        "filters": [_explained_filter(selected, scheme, unspread) for selected in predicate.filters],
        "encodings": len(scheme.routing_encodings(predicate)),
        "encoding_bits": scheme.bits,
        "hashes": scheme.hashes,
        "warnings": list(warnings(predicate)),
    }


def _explained_filter(selected: Filter, scheme: EncodingScheme, unspread: set[int]) -> dict[str, Any]:
    from penstock.content.language.expression import constraint_text
    from penstock.content.tags import constraint_tags, tag_text

    encoding = scheme.encode_filter(selected)
    used = scheme.used_tags(selected)
    constraints = []
    for constraint in selected.constraints:
        spread = id(constraint) not in unspread
        tags = [tag for tag in constraint_tags(constraint) if tag in used]
        where = "network" if spread or (tags and _is_decided_by_tags(constraint)) else "edge"
        known = ["one equality per value"] if spread else [tag_text(tag) for tag in tags]
        constraints.append({"constraint": constraint_text(constraint), "decided": where, "network_knows": known})
    return {"constraints": constraints, "bits": encoding.bit_count(), "fill": round(scheme.fill(encoding), 4)}


def _is_decided_by_tags(constraint: Constraint) -> bool:
    """Whether its tags say the same as the constraint, so that only false positives are left to the edge."""
    from penstock.content.language.like import compile_like
    from penstock.content.predicate import Equals, Exists, Like
    from penstock.content.tags import PREFIX_LENGTHS

    if isinstance(constraint, Like) and not constraint.negated:
        pattern = compile_like(constraint.pattern, constraint.escape)
        return pattern.is_prefix and len(pattern.literal_prefix) in PREFIX_LENGTHS
    return isinstance(constraint, Equals | Exists)


def _draw_exact(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for number, selected in enumerate(found["filters"], 1):
        table = Table()
        table.add_column(f"filter {number} of {len(found['filters'])}: all of", overflow="fold")
        for constraint in selected["constraints"]:
            table.add_row(Text(constraint))
        if not selected["constraints"]:
            table.add_row("none: every message matches")
        console.print(table)
    sizes = " and ".join(str(selected["bytes"]) for selected in found["filters"])
    if found["filters"]:
        console.print(f"told to all brokers in {sizes} bytes; they route by it exactly", highlight=False)
    _draw_warnings(found, console)


def _draw_encoded(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for number, selected in enumerate(found["filters"], 1):
        title = f"filter {number} of {len(found['filters'])}: all of"
        caption = f"{selected['bits']} of {found['encoding_bits']} bits set, fill {selected['fill']:.1%}"
        table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
        for heading in ("constraint", "decided in", "the network knows"):
            table.add_column(heading, overflow="fold")
        for row in selected["constraints"]:
            known = ", ".join(row["network_knows"]) or "nothing"
            table.add_row(Text(row["constraint"]), "the " + row["decided"], Text(known))
        if not selected["constraints"]:
            table.add_row("none: every message matches", "the network", "everything is wanted")
        console.print(table)
    plural = "" if found["encodings"] == 1 else "s"
    announced = f"announced as {found['encodings']} encoding{plural} of {found['encoding_bits']} bits"
    console.print(announced, highlight=False)
    _draw_warnings(found, console)


def _draw_warnings(found: dict[str, Any], console: Console) -> None:
    for warning in found["warnings"]:
        console.print(f"warning: {warning}", highlight=False, markup=False, soft_wrap=True)
