"""Bars as inline SVG: shares with their band, excess per operation, requests by part."""

from detector.report import units
from detector.report.markup import Markup, element
from detector.report.view import Part, RequestRow, Share


def share_bar(share: Share, label: str) -> Markup:
    """Draw a share of the excess, with its band as a whisker."""
    whisker = (share.high - share.low) > 0
    low, high = f"{share.low * 100:.2f}%", f"{share.high * 100:.2f}%"
    marks = [
        element("line", x1=low, x2=high, y1="7", y2="7", class_="whisker"),
        element("line", x1=low, x2=low, y1="3", y2="11", class_="whisker"),
        element("line", x1=high, x2=high, y1="3", y2="11", class_="whisker"),
    ]
    return _bar(
        f"{label}: {share.text} of the excess",
        element("rect", x="0", y="2", width="100%", height="10", rx="2", class_="track"),
        element(
            "rect",
            x="0",
            y="2",
            width=f"{share.value * 100:.2f}%",
            height="10",
            rx="2",
            class_="share",
        ),
        *(marks if whisker else []),
    )


def excess_bar(seconds: float, largest_s: float, label: str) -> Markup:
    """Draw an excess relative to the largest one; less than before is drawn in a neutral colour."""
    width = 100 * abs(seconds) / largest_s if largest_s > 0 else 0.0
    kind = "share" if seconds > 0 else "less"
    return _bar(
        label,
        element("rect", x="0", y="2", width=f"{width:.2f}%", height="10", rx="2", class_=kind),
    )


def stacked_bar(request: RequestRow, longest_s: float) -> Markup:
    """Draw a request's time by part, on the same scale as the longest request."""
    scale = 100 / longest_s if longest_s > 0 else 0.0
    marks, x = [], 0.0
    for part in request.parts:
        width = part.seconds * scale
        note = f"{part.label} {units.duration(part.seconds)}"
        marks.append(
            element(
                "rect",
                element("title", note),
                x=f"{x:.2f}%",
                y="1",
                width=f"{width:.2f}%",
                height="16",
                class_=f"part part-{part.slot}",
            )
        )
        x += width
    told = ", ".join(f"{part.label} {units.duration(part.seconds)}" for part in request.parts)
    return _bar(f"{request.duration}: {told or units.UNKNOWN}", *marks, height="18")


def swatch(part: Part) -> Markup:
    """Draw the legend's mark of a part."""
    return element(
        "svg",
        element("rect", width="10", height="10", rx="2", class_=f"part part-{part.slot}"),
        width="10",
        height="10",
        aria_hidden="true",
    )


def _bar(label: str, *marks: str, height: str = "14") -> Markup:
    return element(
        "svg",
        element("title", label),
        *marks,
        class_="bar",
        width="100%",
        height=height,
        role="img",
        aria_label=label,
    )
