"""The plot of build/measure/bench: small multiples of bars, as an SVG that a README can show as a picture."""

from dataclasses import dataclass
from xml.sax.saxutils import escape

# Okabe and Ito: told apart by all kinds of eyes. pintle's two are the warm ones, a peer is the last.
COLOURS = ["#D55E00", "#E69F00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#000000"]
# A picture in a page cannot know whether the page is light or dark, so it brings its own paper.
PAPER, INK, FAINT = "#f6f8fa", "#1f2328", "#59636e"
COLUMNS, PANEL, GAP, MARGIN = 3, 300, 20, 20
NAMES, NUMBERS, BAR, STEP, HEAD = 92, 46, 13, 20, 34
LONGEST_NAME = 15
# A number that meets the dashed line is read all the same.
HALO = f' stroke="{PAPER}" stroke-width="3" paint-order="stroke"'


@dataclass
class Panel:
    """One measure: what it is, a value by manager in a fixed order, what pintle promises at most."""

    title: str
    bars: list
    limit: float | None
    digits: int

    def number(self, value):
        return f"{value:,.{self.digits}f}"


def text(x, y, what, size=11, fill=INK, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}"{more}>{escape(what)}</text>'


def shortened(name):
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def panel(one, left, top):
    width = PANEL - NAMES - NUMBERS
    most = max([value for _, value in one.bars] + [one.limit or 0]) or 1
    lines = [text(left, top + 12, one.title, 13, more=' font-weight="600"')]
    numbers = []
    for i, (name, value) in enumerate(one.bars):
        y = top + HEAD + i * STEP
        length = max(value / most * width, 1)
        lines.append(text(left + NAMES - 6, y + BAR - 3, shortened(name), more=' text-anchor="end"'))
        lines.append(f'<rect x="{left + NAMES}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{COLOURS[i % len(COLOURS)]}">'
                     f"<title>{escape(name)}: {one.number(value)}</title></rect>")
        numbers.append(text(left + NAMES + length + 4, y + BAR - 3, one.number(value), more=HALO))
    if one.limit is not None:
        x = left + NAMES + one.limit / most * width
        end = top + HEAD + len(one.bars) * STEP - 4
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + HEAD - 5}" y2="{end}" stroke="{INK}" stroke-dasharray="3 3"/>')
        lines.append(text(x, top + HEAD - 8, f"promise {one.number(one.limit)}", 9, FAINT, ' text-anchor="middle"'))
    return lines + numbers


def svg(title, panels):
    """The whole picture; less is better everywhere."""
    most = max(len(one.bars) for one in panels)
    height_of_one = HEAD + most * STEP + GAP
    rows = -(-len(panels) // COLUMNS)
    width = 2 * MARGIN + COLUMNS * PANEL + (COLUMNS - 1) * GAP
    height = 2 * MARGIN + 30 + rows * height_of_one - GAP
    description = "; ".join(one.title + ": " + ", ".join(f"{name} {one.number(value)}" for name, value in one.bars) for one in panels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="title said" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="said">{escape(description)}</desc>',
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{PAPER}" stroke="#d1d9e0"/>',
        text(MARGIN, MARGIN + 10, title + ". Less is better; the dashed line is what pintle proxy promises.", 12, FAINT),
    ]
    for i, one in enumerate(panels):
        left = MARGIN + i % COLUMNS * (PANEL + GAP)
        lines += panel(one, left, MARGIN + 30 + i // COLUMNS * height_of_one)
    return "\n".join([*lines, "</svg>", ""])
