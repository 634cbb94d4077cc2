"""Every error that Penstock raises on purpose.

    PenstockError
    ├── InvalidMessage        an attribute or a body that no message may have
    ├── InvalidPredicate      a WHERE text that cannot be used
    │   ├── PredicateSyntaxError      it does not parse; carries the place and what was expected
    │   └── PredicateTooLarge         it parses, but is over a limit
    ├── InvalidEncoding       Bloom bits of the wrong size, or too full to mean anything
    ├── InvalidPacket         bytes from a peer that are no packet of ours
    ├── InvalidHeader         a transport header that nobody would have written
    │   └── ForeignScheme             its record has entries of another size than ours
    ├── InvalidScenario       a network file that describes no network; carries the place in the file
    ├── InvalidOption         an option of a subscription that no service knows, or with a wrong value; carries its name
    ├── InvalidService        a declaration that does not fit the list of services; carries its name
    ├── InvalidRun            a folder that holds no run, or a file of its trace that cannot be read; carries the path
    ├── PipelineError         the pipeline cannot do its work
    │   ├── SparkUnavailable          no Java, no PySpark, or Spark does not start; carries the remedy
    │   └── SchemaMismatch            a table lacks a column, or has one of another type
    ├── Unreachable           no broker answers at any of the addresses; carries what each of them said
    │   └── NotConnected              the connection is gone for the moment; nothing was sent
    ├── StreamError           a stream cannot do what was asked
    │   ├── StreamRefused             nothing was changed; says why
    │   │   └── UnknownStream             there is no stream of this name
    │   ├── OutcomeUnknown            nobody can say whether the message was stored; carries its publication_id
    │   ├── ReaderEnded               the durable subscription is served no longer: somebody else took over
    │   └── StreamGap                 retention has taken messages that were not read; carries which
    ├── NotPossibleHere       a port in use, a library that is missing; carries the remedy
    ├── UnknownExperiment     a name that the lab does not know; carries the nearest one it does
    └── CheckFailed           a run broke an invariant; carries the command that replays it

Those that begin with `Invalid` blame input from outside, and they are raised before anything has been changed.
Each message says what is wrong, where, and how to mend it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CHOICES_LISTED_MAX = 20
BEGUN_LISTED_MAX = 5  # names that begin with what was typed


class PenstockError(Exception):
    """The root of all errors that are raised on purpose."""


class InvalidMessage(PenstockError):
    """The message breaks a rule of the content model; the text names the rule or the limit."""


class InvalidPredicate(PenstockError):
    """The text is no predicate that can be used."""


class PredicateSyntaxError(InvalidPredicate):
    """The text does not parse. `str()` shows it with a caret under the place."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        self.text = text
        self.position = position
        self.problem = problem
        super().__init__(text, position, problem)

    def __str__(self) -> str:
        line_start = self.text.rfind("\n", 0, self.position) + 1
        line_end = self.text.find("\n", self.position)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        return f"{self.problem}\n  {line}\n  {' ' * (self.position - line_start)}^"


class PredicateTooLarge(InvalidPredicate):
    """The text parses but is over a stated limit."""


class InvalidEncoding(PenstockError):
    """The bits cannot be an encoding: wrong size, or fuller than the fill limit."""


class InvalidPacket(PenstockError):
    """The bytes are no packet of this protocol."""


class InvalidHeader(PenstockError):
    """The bytes are no header of the transport, or say what cannot be."""


class ForeignScheme(InvalidHeader):
    """The publisher's `record_bits` are not ours, so its records tell us nothing."""


class InvalidScenario(PenstockError):
    """The scenario cannot be run; `where` is the place in the file, such as `link[3].rate`."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(where, problem)

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem


class InvalidOption(PenstockError):
    """An option that no service knows, or a value that it cannot have."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        self.problem = problem
        super().__init__(option, problem)

    def __str__(self) -> str:
        return f"{self.option}: {self.problem}" if self.option else self.problem


class InvalidService(PenstockError):
    """The declaration of a service does not fit the list of services."""

    def __init__(self, service: str, problem: str) -> None:
        self.service = service
        self.problem = problem
        super().__init__(service, problem)

    def __str__(self) -> str:
        return f"service '{self.service}': {self.problem}"


class InvalidRun(PenstockError):
    """The folder holds no run that can be read; `path` is the folder, or the very file that is bad."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(path, problem)

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class PipelineError(PenstockError):
    """The pipeline cannot do its work."""


class SparkUnavailable(PipelineError):
    """Spark cannot start on this machine; `remedy` says what would help."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(problem, remedy)

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


class SchemaMismatch(PipelineError):
    """A table has not the columns that a step relies on."""


class Unreachable(PenstockError):
    """No broker answers; the text says where it was looked for and what happened there."""


class NotConnected(Unreachable):
    """The connection to the broker is gone for the moment, and with best effort nothing waits for it."""


class StreamError(PenstockError):
    """A stream cannot do what was asked of it."""


class StreamRefused(StreamError):
    """The network refuses it, and nothing was changed: no message was stored, no position moved."""


class UnknownStream(StreamRefused):
    """There is no stream of this name, as far as the network knows."""


class OutcomeUnknown(StreamError):
    """Nobody can say whether the message was stored. To publish it again under the same id is safe."""

    def __init__(self, publication_id: str, problem: str) -> None:
        self.publication_id = publication_id
        self.problem = problem
        super().__init__(publication_id, problem)

    def __str__(self) -> str:
        return self.problem


class ReaderEnded(StreamError):
    """The durable subscription is served no longer; its name and its position stay."""


class StreamGap(StreamError):
    """Messages from tick `first` to `last` of a pubend are not kept any more; whatever was there was missed."""

    def __init__(self, stream: str, pubend: str, first: int, last: int) -> None:
        self.stream = stream
        self.pubend = pubend
        self.first = first
        self.last = last
        super().__init__(stream, pubend, first, last)

    def __str__(self) -> str:
        missed = f"messages between the ticks {self.first} and {self.last} of {self.pubend} may have been missed"
        return f"{missed}: retention has taken them; reading goes on behind them"


class NotPossibleHere(PenstockError):
    """This machine cannot do what was asked; `remedy` says what would help."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(problem, remedy)

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


class UnknownExperiment(PenstockError):
    """There is no such experiment; `known` are those there are."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        self.known = known
        super().__init__(name, known)

    def __str__(self) -> str:
        begun = [known for known in self.known if self.name and known.startswith(self.name)]
        close = begun[:BEGUN_LISTED_MAX] or get_close_matches(self.name, self.known, n=1)
        meant = " or ".join(f"'{known}'" for known in close)
        advice = f"did you mean {meant}?" if close else "'penstock lab list' shows them all"
        return f"there is no experiment '{self.name}'; {advice}"


class CheckFailed(PenstockError):
    """An invariant did not hold in a run; `replay` is the command that shows it again."""

    def __init__(self, problem: str, replay: str) -> None:
        self.problem = problem
        self.replay = replay
        super().__init__(problem, replay)

    def __str__(self) -> str:
        return f"{self.problem}\nreplay: {self.replay}"


def wrong_choice(given: object, choices: Iterable[object]) -> str:
    """What to say of the value of a field that is none of those there are."""
    return f"is {given!r}; {choose_one(given, choices)}"


def choose_one(given: object, choices: Iterable[object]) -> str:
    """The words there are, and the one that was probably meant."""
    words = list(choices)
    listed = ", ".join(map(repr, words[:CHOICES_LISTED_MAX]))
    more = f" and {len(words) - CHOICES_LISTED_MAX} more" if len(words) > CHOICES_LISTED_MAX else ""
    close = get_close_matches(str(given), list(map(str, words)), n=1)
    meant = f" (did you mean '{close[0]}'?)" if close else ""
    return f"choose one of {listed}{more}{meant}"


def did_you_mean(word: str, known: list[str]) -> str:
    """A suggestion to append to an error, or nothing."""
    close = get_close_matches(word, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
