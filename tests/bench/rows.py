"""The table that a benchmark prints: what was measured, its interval, the budget and whether it is kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.paired import Estimate, noise, over


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    key: str
    what: str
    unit: str
    value: Estimate
    budget: float | None = None
    control: Estimate | None = None
    """What the same measurement says of nothing at all, where noise may be as large as the budget."""
    at_least: float | None = None
    """A budget from below."""

    @property
    def missed(self) -> bool:
        """Whether the budget is missed: `tests.bench.paired.over` has the rule."""
        if self.at_least is not None and not self.value.median >= self.at_least:
            return True
        return self.budget is not None and over(self.value, self.budget, self.control)

    @property
    def remark(self) -> str:
        """What stands behind the budget."""
        if self.missed:
            return "MISSED"
        if self.budget is None or self.control is None or noise(self.control) <= self.budget:
            return ""
        return f"noise {noise(self.control):.2g}"


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out: median, 95 % interval, budget."""
    lines = [f"{'':40} {'median':>9} {'95 % interval':>21} {'budget':>9}"]
    for row in rows:
        value = row.value
        budget = "" if row.budget is None else f"{row.budget:g}"
        budget = budget if row.at_least is None else f"≥ {row.at_least:g}"
        what = f"{row.what}, {row.unit}" if row.unit else row.what
        interval = f"{value.low:.3g} … {value.high:.3g}"
        lines.append(
            f"{what:40} {value.median:>9.3g} {interval:>21} {budget:>9}  {row.remark}".rstrip()
        )
    return "\n".join(lines)
