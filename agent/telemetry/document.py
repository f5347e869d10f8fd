"""The catalogue as a page of Markdown."""

from collections.abc import Iterable, Sequence

import msgspec

_HEAD = """# Every metric of the agent

Written by `tailcause-agent signals --markdown` from `agent/telemetry/catalogue`; a test fails when it is stale.
Units are UCUM. A metric whose source is not there has no series: see `tailcause.signal.state`. Counters and histograms are
cumulative. A name for Prometheus in italics is another exporter's, exposed beside ours for the dashboards that use it.
"""


class Row(msgspec.Struct, frozen=True):
    """One metric as it is shown."""

    signal: str
    name: str
    unit: str
    kind: str
    description: str
    attributes: tuple[str, ...]
    prometheus: str
    alias: str
    aliases: tuple[str, ...]

    @property
    def also(self) -> tuple[str, ...]:
        """Return the names of other exporters that it bears too."""
        return tuple(name for name in (self.alias, *self.aliases) if name)


class Group(msgspec.Struct, frozen=True):
    """One signal as it is shown."""

    signal: str
    source: str
    help: str


def markdown(groups: Iterable[Group], rows: Sequence[Row]) -> str:
    """Return the page: a section and a table for each signal."""
    sections = [
        _section(group, [row for row in rows if row.signal == group.signal]) for group in groups
    ]
    return "\n".join([_HEAD, *sections])


def _section(group: Group, rows: Sequence[Row]) -> str:
    lines = [
        f"## {group.signal}\n",
        f"{group.help[:1].upper()}{group.help[1:]}. From: {group.source}.\n",
        "| metric | unit | kind | what | attributes | Prometheus |",
        "|---|---|---|---|---|---|",
        *(_line(row) for row in rows),
    ]
    return "\n".join([*lines, ""])


def _line(row: Row) -> str:
    attributes = " ".join(f"`{key}`" for key in row.attributes)
    names = " ".join([f"`{row.prometheus}`", *(f"*`{name}`*" for name in row.also)])
    cells = (f"`{row.name}`", f"`{row.unit}`", row.kind, row.description, attributes, names)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
