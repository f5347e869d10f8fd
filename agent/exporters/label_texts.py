"""Labels as text, written once for as long as the attributes behind them stay the same objects.

A collector hands out the same attributes from one collection to the next, and a page has thousands of series: putting
their labels together took more time than everything else.
"""

from collections.abc import Callable, Mapping

from agent.telemetry.model import Attributes

Labels = Mapping[str, str]

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_Known = dict[int, tuple[Attributes, str]]


class LabelTexts:
    """Keeps what one page was made of for the next page; not for two pages at a time.

    An entry holds its attributes, so that their `id` stays theirs.
    """

    def __init__(self) -> None:
        self._before: dict[str, _Known] = {}
        self._now: dict[str, _Known] = {}

    def turn(self) -> None:
        """Begin a page: what is not on it is forgotten at the next one."""
        self._before, self._now = self._now, {}

    def writer(
        self, name: str, labels: Callable[[Attributes], Labels]
    ) -> Callable[[Attributes], str]:
        """Return what writes the labels that a function, known by a name, makes of attributes."""
        before, now = self._before.get(name, {}), self._now.setdefault(name, {})

        def write(attributes: Attributes) -> str:
            number = id(attributes)
            known = now.get(number) or before.get(number) or (attributes, text(labels(attributes)))
            now[number] = known
            return known[1]

        return write


def text(labels: Labels) -> str:
    """Return labels as they stand between the braces."""
    return ",".join([f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)])


def _escaped(value: str) -> str:
    return value if value.isalnum() else value.translate(_ESCAPES)
