"""SQL without its literals, for queries that become attributes.

Dialects disagree on where a literal ends (backslashes, double quotes, brackets, comments). Where two readings
differ, or the text is malformed, the rest of the statement is cut: a reading that is out of step would take
literals for names. Lists of literals become one, so that statements of one shape are one text.

Sources: PostgreSQL documentation, "Lexical Structure"; MySQL reference manual, "Language Structure"; Oracle
SQL language reference, "Literals"; Transact-SQL reference, "Identifiers"; OpenTelemetry semantic conventions,
"Sanitization of `db.query.text`".
"""

import json
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

LITERAL = "?"
CUT = "? …"
MAX_CHARS = 8_192
"""What is longer is cut there."""


class Dialect(Enum):
    """What tells how a text is to be read."""

    POSTGRES = auto()
    MYSQL = auto()
    MSSQL = auto()
    OTHER = auto()


_DIALECTS = {
    "postgresql": Dialect.POSTGRES,
    "cockroachdb": Dialect.POSTGRES,
    "redshift": Dialect.POSTGRES,
    "aws.redshift": Dialect.POSTGRES,
    "mysql": Dialect.MYSQL,
    "mariadb": Dialect.MYSQL,
    "mssql": Dialect.MSSQL,
    "microsoft.sql_server": Dialect.MSSQL,
}
_COMMANDS = frozenset({"redis", "memcached", "valkey"})
_VERBS = re.compile(
    r"[\s(;]*(?:/\*(?:(?!\*/).)*\*/\s*|--[^\n]*\n\s*)*"
    r"(?:SELECT|INSERT|UPDATE|DELETE|WITH|MERGE|REPLACE|UPSERT|CREATE|ALTER|DROP|TRUNCATE|BEGIN|START|COMMIT|ROLLBACK|"
    r"SAVEPOINT|RELEASE|SHOW|EXPLAIN|CALL|EXEC|EXECUTE|DECLARE|FETCH|GRANT|REVOKE|VACUUM|ANALYZE|PRAGMA|USE|LOCK|UNLOCK|"
    r"DESCRIBE|VALUES|SET)\b",
    re.IGNORECASE | re.DOTALL,
)
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--[^\r\n]*|/\*(?:(?!/\*|\*/).)*\*/)
  | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
  | (?P<param>\$\d+(?!\w)|%\(\w+\)s|%s|:[^\W\d]\w*|@{1,2}[^\W\d]\w*)
  | (?P<oracle>[nN]?[qQ]'.)
  | (?P<escaped>[eE]')
  | (?P<string>(?:[nNbBxXrR]|[uU]&)?')
  | (?P<double>(?:[uU]&)?")
  | (?P<backtick>`[^\W\d][\w$.\- ]*`)
  | (?P<number>0[xX][\da-fA-F]+\w*|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\w*)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<odd>/[*/]|[`#\[\\])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# What both readings of a backslash take for the same: no backslash stands just before a quote.
_SINGLE = re.compile(r"(?:[^'\\]|''|\\[^'\\]|\\\\)*'", re.DOTALL)
_DOUBLE = re.compile(r'(?:[^"\\]|""|\\[^"\\]|\\\\)*"', re.DOTALL)
_ESCAPED = re.compile(r"(?:[^'\\]|''|\\.)*'", re.DOTALL)
_NAME = re.compile(r'(?:[^"]|"")*"', re.DOTALL)
_BRACKETS = re.compile(r"\[(?:[^\]]|\]\])*\]", re.DOTALL)
_CLOSERS = {"[": "]", "(": ")", "{": "}", "<": ">"}
_LIST = re.compile(r"\(\s*\?(?:\s*,\s*\?)+\s*\)")
_ROWS = re.compile(r"\(\?\)(?:\s*,\s*\(\?\))+")


class _AmbiguousError(Exception):
    """From here on the text can be read in two ways, or in none."""


def redact_query(text: str, system: str) -> str:
    """Return a query without its literals; `system` is `db.system.name` or its older form, or empty."""
    system = system.lower()
    if system in _COMMANDS:
        return _command(text)
    if text.lstrip().startswith(("{", "[")):
        return _shape(text)
    if _VERBS.match(text) is None:
        return LITERAL
    return _statement(text, _DIALECTS.get(system, Dialect.OTHER))


def _command(text: str) -> str:
    """Return the name of a command of a key-value store."""
    name, _, rest = text.strip().partition(" ")
    if not name.isalpha():
        return LITERAL
    return f"{name} {LITERAL}" if rest else name


def _shape(text: str) -> str:
    """Return a JSON query with its keys alone."""
    try:
        return json.dumps(_without_values(json.loads(text[:MAX_CHARS])))
    except (ValueError, RecursionError):
        return LITERAL


def _without_values(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_values(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_values(item) for item in node[:1]]
    return LITERAL


def _statement(text: str, dialect: Dialect) -> str:
    parts: list[str] = []
    place, end = 0, min(len(text), MAX_CHARS)
    try:
        while place < end:
            part, place = _next(text, place, dialect)
            if part != " " or parts[-1:] != [" "]:
                parts.append(part)
        cut = len(text) > MAX_CHARS
    except _AmbiguousError:
        cut = True
    shape = _ROWS.sub("(?)", _LIST.sub("(?)", "".join(parts).strip()))
    return f"{shape} {CUT}" if cut else shape


_Read = tuple[str, int]
"""What stands for a token, and where the next one begins."""


def _next(text: str, place: int, dialect: Dialect) -> _Read:
    token = _TOKEN.match(text, place)
    if token is None or token.end() > MAX_CHARS:
        raise _AmbiguousError
    return _READERS.get(token.lastgroup or "", _keep)(text, token, dialect)


def _keep(_: str, token: re.Match[str], __: Dialect) -> _Read:
    return token.group(), token.end()


def _space(_: str, token: re.Match[str], __: Dialect) -> _Read:
    return " ", token.end()


def _number(_: str, token: re.Match[str], __: Dialect) -> _Read:
    return LITERAL, token.end()


def _comment(_: str, token: re.Match[str], dialect: Dialect) -> _Read:
    text = token.group()
    # MySQL wants a space after the dashes; without one it reads two minus signs.
    tight = text.startswith("--") and len(text) > 2 and not text[2].isspace()
    if tight and dialect in {Dialect.MYSQL, Dialect.OTHER}:
        raise _AmbiguousError
    return " ", token.end()


def _literal(body: re.Pattern[str], text: str, start: int) -> _Read:
    found = body.match(text, start)
    if found is None:
        raise _AmbiguousError
    return LITERAL, found.end()


def _dollar(text: str, token: re.Match[str], dialect: Dialect) -> _Read:
    if dialect in {Dialect.MYSQL, Dialect.MSSQL}:
        raise _AmbiguousError
    end = text.find(token.group(), token.end())
    if end < 0:
        raise _AmbiguousError
    return LITERAL, end + len(token.group())


def _string(text: str, token: re.Match[str], dialect: Dialect) -> _Read:
    _refuse_triple(text, token.end() - 1, dialect)
    return _literal(_SINGLE, text, token.end())


def _refuse_triple(text: str, start: int, dialect: Dialect) -> None:
    """Three quotes begin a string of their own in BigQuery, and hold an escaped quote elsewhere."""
    if dialect is Dialect.OTHER and text[start : start + 3] in {"'''", '"""'}:
        raise _AmbiguousError


def _escaped(text: str, token: re.Match[str], _: Dialect) -> _Read:
    return _literal(_ESCAPED, text, token.end())


def _oracle(text: str, token: re.Match[str], _: Dialect) -> _Read:
    opener = token.group()[-1]
    closer = _CLOSERS.get(opener, opener) + "'"
    end = text.find(closer, token.end())
    if end < 0:
        raise _AmbiguousError
    return LITERAL, end + len(closer)


def _double(text: str, token: re.Match[str], dialect: Dialect) -> _Read:
    """Double quotes hold a name in standard SQL and a string in MySQL."""
    if dialect is Dialect.POSTGRES:
        found = _NAME.match(text, token.end())
        if found is None:
            raise _AmbiguousError
        return text[token.start() : found.end()], found.end()
    _refuse_triple(text, token.end() - 1, dialect)
    return _literal(_DOUBLE, text, token.end())


def _odd(text: str, token: re.Match[str], dialect: Dialect) -> _Read:
    """Read what means something else in each dialect; a comment or name that never ends is cut."""
    sign = token.group()
    if sign == "[":
        return _bracket(text, token, dialect)
    if sign == "#" and dialect is Dialect.MYSQL:
        end = text.find("\n", token.end())
        return " ", len(text) if end < 0 else end
    if sign == "#" and dialect in {Dialect.POSTGRES, Dialect.MSSQL}:
        return sign, token.end()
    raise _AmbiguousError


def _bracket(text: str, token: re.Match[str], dialect: Dialect) -> _Read:
    """Brackets hold a name in Transact-SQL and an index or a list elsewhere."""
    if dialect is Dialect.POSTGRES:
        return "[", token.end()
    found = _BRACKETS.match(text, token.start())
    if found is None or (dialect is not Dialect.MSSQL and re.search("['\"`]", found.group())):
        raise _AmbiguousError
    if dialect is Dialect.MSSQL:
        return found.group(), found.end()
    return "[", token.end()


_READERS: dict[str, Callable[[str, re.Match[str], Dialect], _Read]] = {
    "space": _space,
    "comment": _comment,
    "dollar": _dollar,
    "oracle": _oracle,
    "escaped": _escaped,
    "string": _string,
    "double": _double,
    "number": _number,
    "odd": _odd,
}
