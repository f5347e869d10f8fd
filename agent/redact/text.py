"""Log lines, error messages and stack traces without their values, and URLs without their query.

What is left of a line is its template: lines that differ in their values alone become equal.
"""

import re

REDACTED = "REDACTED"
MAX_CHARS = 16_384
"""What is longer is cut there."""

_GIVEAWAYS = r"pass(?:word|wd|phrase)|pwd|secret|authorization|bearer"
_EVERYDAY_GIVEAWAYS = r"token|api[-_ ]?key|credential|cookie"
"""Words of everyday use, so that only what follows a colon is taken for a secret."""
_TEMPLATE = re.compile(
    rf"""
    (?P<secret>(?<![a-zA-Z])(?i:
            (?:{_GIVEAWAYS})s?\b["']?\s*+(?:[:=]|is\b)?
          | (?:{_EVERYDAY_GIVEAWAYS})s?\b["']?\s*+(?:[:=]|is\b)
        )\s*+(?i:(?:bearer|basic)\s++)?)
        (?:"[^"]*"?|'[^']*'?|[^\s"',;<>]+)
  | (?P<key>(?<![\w.\-])[\w.\-]++=)(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^\s<>]+)
  | (?P<quoted>"(?:[^"\\]|\\.)*(?:"|$)|(?<!\w)'(?:[^'\\\n]|\\.)*(?:'|$)|`[^`]*(?:`|$)|«[^»]*(?:»|$)|“[^”]*(?:”|$))
  | (?P<url>(?<![\w+.\-])[a-zA-Z][a-zA-Z0-9+.\-]*+://[^\s"'<>]+)
  | (?P<email>(?<![^\s@"'<>(),;:=])[^\s@"'<>(),;:=]++@[^\s@"'<>(),;:]+)
  | (?P<uuid>\b[0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}\b)
  | (?P<hex>\b(?:0[xX][0-9a-fA-F]+|(?=[a-fA-F]*\d)[0-9a-fA-F]{{8,}})\b)
  | (?P<num>(?<!\w)\w*\d[\w+/]*=*)
  | (?P<long>(?<!\w)[^\W\d]{{32,}})
    """,
    re.VERBOSE,
)
_QUERY = re.compile("[?#]")
_FRAMES = re.compile(
    r"""
    (?P<python>\s*File\ "[^"\n]+",\ line\ \d+(?:,\ in\ [^\s'"]+)?)
  | (?P<java>\s*at\ [\w.$/<>]+\((?:[\w$.\-]+(?::\d+)?|Native\ Method|Unknown\ Source)\))
  | (?P<script>\s*at\ (?:async\ |new\ )?(?:[\w.$<>\[\]]+\ )?\(?[^\s()'"?]+:\d+:\d+\)?)
  | (?P<dotnet>\s*at\ [\w.`<>\[\],+]+\([\w.,&\ \[\]]*\)(?:\ in\ [^\s'"]+:line\ \d+)?)
  | (?P<go>\s+/?[^\s'"?]+\.go:\d+(?:\ \+0x[0-9a-f]+)?|goroutine\ \d+\ \[[a-z ]+\]:)
  | (?P<ruby>\s*(?:from\ )?[^\s'"?]+\.rb:\d+:in\ [`'][\w?!<>\ ]+')
  | (?P<more>\s*\.\.\.\ \d+\ (?:more|common\ frames\ omitted))
  | (?P<head>Traceback\ \(most\ recent\ call\ last\):)
    """,
    re.VERBOSE,
)
_TYPE = re.compile(
    r"(?P<type>(?:Caused by:\s+|Suppressed:\s+)?(?:[a-zA-Z_$][\w$]*\.)*"
    r"[a-zA-Z_$][\w$]*(?:Error|Exception|Warning|Interrupt|Exit|Failure|Fault|Timeout))(?::.*)?"
)


def template(text: str) -> str:
    """Return a line with placeholders for its values: quoted strings, numbers, ids, addresses, `key=` values."""
    cut = " …" if len(text) > MAX_CHARS else ""
    return _TEMPLATE.sub(_placeholder, text[:MAX_CHARS]) + cut


def _placeholder(found: re.Match[str]) -> str:
    kind = found.lastgroup or ""
    if kind in {"secret", "key"}:
        return f"{found.group(kind)}<*>"
    if kind == "quoted":
        return "<str>"
    if kind == "url":
        return template_url(found.group())
    return f"<{'*' if kind == 'long' else kind}>"


def template_url(text: str) -> str:
    """Return a URL in a line of text: its query, its user and every number are gone."""
    return re.sub(r"\w*\d\w*", "<num>", redact_url(text))


def redact_url(text: str) -> str:
    """Return a URL, or a path with a query, without user, query and fragment."""
    base, mark = text[:MAX_CHARS], ""
    if found := _QUERY.search(base):
        base, mark = base[: found.start()], found.group() + REDACTED
    scheme, slashes, rest = base.partition("//")
    _, user, host = rest.rpartition("@")
    return f"{scheme}{slashes}{REDACTED}@{host}{mark}" if user else base + mark


def redact_stack(text: str) -> str:
    """Return a stack trace's frames and the types of its exceptions; messages and source lines are gone."""
    kept = (_stack_line(line) for line in text[:MAX_CHARS].splitlines())
    return "\n".join(line for line in kept if line)


def _stack_line(line: str) -> str:
    if _FRAMES.fullmatch(line.rstrip()):
        return line.rstrip()
    found = _TYPE.fullmatch(line.strip())
    return found.group("type") if found else ""
