"""What all blocks of the terminal report share: width, accent colour, the line that heads a section."""

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Screen:
    """The terminal that a report is laid out for."""

    width: int
    accent: str

    @property
    def wide(self) -> bool:
        """Tell whether there is room for a long note."""
        return self.width >= 100

    def heading(self, title: str, note: str = "") -> Text:
        """Draw a section's title on a line across the screen, with a quiet note at its right end."""
        line = Text()
        line.append("── ", "dim").append(title, "bold").append(" ")
        tail = f" {note} ──" if note else ""
        line.append("─" * max(self.width - line.cell_len - len(tail), 1), "dim")
        line.append(tail, "dim")
        line.truncate(self.width, overflow="ellipsis")
        return line

    def grid(self, *columns: int) -> Table:
        """Make a borderless table; width 0 takes what is left, a negative width is aligned right."""
        table = Table.grid(padding=(0, 1, 0, 0), expand=True)
        for width in columns:
            if width == 0:
                table.add_column(ratio=1, overflow="fold")
            else:
                table.add_column(
                    width=abs(width),
                    justify="right" if width < 0 else "left",
                    no_wrap=True,
                    overflow="ellipsis",
                )
        return table
