"""Write SVG. Texts and attributes are escaped, so names from files are never markup."""

from dataclasses import dataclass
from html import escape

from inspector.core.printable import one_line
from inspector.figures import labels

INK = "currentColor"  # the text color of the page, light or dark
# On dark cells, texts have the color of the page.
_STYLE = (
    "<style>.whole-model{text-rendering:geometricPrecision}"
    ".whole-model .on{fill:var(--st-background-color,var(--ground,Canvas))}</style>"
)

_BOLD = 1.08  # the width of a bold text over that of a normal one


def width_px(text: str, size: float, bold: bool = False) -> float:
    """Return the width of a text in pixels in Arial; other fonts of pages and reports are narrower."""
    return labels.arial_px(text, size) * (_BOLD if bold else 1)


def cut(text: str, room: float, size: float, bold: bool = False) -> str:
    """Cut the end of a text to this room."""
    if width_px(text, size, bold) <= room:
        return text
    while text and width_px(f"{text}…", size, bold) > room:
        text = text[:-1]
    return f"{text}…"


def wrapped(text: str, room: float, size: float, most_lines: int) -> list[str]:
    """Wrap a text at its spaces to lines that have this room; what exceeds `most_lines` is cut."""
    lines = labels.wrapped_px(text, room, size)
    kept = [cut(line, room, size) for line in lines[:most_lines]]
    if len(lines) > most_lines:
        kept[-1] = cut(f"{lines[most_lines - 1]} {lines[most_lines]}", room, size)
    return kept


def number(value: float) -> str:
    """Return a length in pixels, or an opacity, with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Svg:
    """A drawing as SVG, its size in pixels, and its main statement in words."""

    text: str
    width: float
    height: float
    alternative: str


class Canvas:
    """The elements of a drawing, in the order in which they are painted."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, name: str, content: str | None = None, **attributes: object) -> None:
        """Add an element. `_` in the name of an attribute is written as `-`; None leaves it out."""
        written = "".join(
            f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
            for key, value in attributes.items()
            if value is not None
        )
        end = "/>" if content is None else f">{content}</{name}>"
        self._parts.append(f"<{name}{written}{end}")

    def open(self, title: str | None = None, **attributes: object) -> None:
        """Begin a group, whose title is shown while the pointer is over it."""
        self.add("g", "", **attributes)
        self._parts[-1] = self._parts[-1].removesuffix("</g>")
        if title:
            self._parts.append(f"<title>{escape(one_line(title))}</title>")

    def close(self) -> None:
        """End a group."""
        self._parts.append("</g>")

    def rect(self, x: float, y: float, width: float, height: float, **attributes: object) -> None:
        """Add a rectangle."""
        self.add("rect", None, x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), **attributes)

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str, **attributes: object) -> None:
        """Add a line."""
        self.add("line", None, x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **attributes)

    def text(self, x: float, y: float, text: str, size: float = 11, **attributes: object) -> None:
        """Add a text that begins at x on the line y."""
        content = escape(one_line(text))
        self.add("text", content, x=x, y=y, font_size=size, **attributes)

    def svg(self, width: float, height: float, label: str, margin: float = 0) -> Svg:
        """Return the drawing, with a margin on the left and on the right."""
        width += 2 * margin
        wide, high = number(width), number(height)
        text = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="whole-model" role="img" '
            f'aria-label="{_value(label)}" viewBox="{number(-margin)} 0 {wide} {high}" '
            f'width="{wide}" height="{high}" '
            f'font-family="inherit" fill="{INK}">{_STYLE}{"".join(self._parts)}</svg>'
        )
        return Svg(text, width, height, label)


def _value(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return escape(one_line(str(value)), quote=True)
