"""HTML and SVG elements that escape by construction: plain strings are data, `Markup` is not."""

from html import escape

from detector.report import units

_VOID = frozenset({"meta", "br", "hr"})


class Markup(str):
    """Text that is already safe to put into a page."""

    __slots__ = ()


def element(tag: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Build an element; a child that is not `Markup` is escaped, and so is every attribute.

    `_` in an attribute's name stands for `-`, a trailing one keeps Python keywords apart (`class_`);
    None leaves the attribute out.
    """
    head = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{head}>")
    return Markup(f"<{tag}{head}>{join(*children)}</{tag}>")


def join(*children: str) -> Markup:
    """Put children one after the other, escaped unless they are `Markup`."""
    return Markup(
        "".join(c if isinstance(c, Markup) else escape(units.printable(c)) for c in children)
    )


def _attribute(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return escape(units.printable(str(value)))
