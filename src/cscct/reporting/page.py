"""The page: HTML and CSS in one file, without scripts and without external resources."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from urllib.parse import quote

from .. import __version__
from ..analysis.differences import SettingDifference
from .canvas import ReportFigure

GENERATOR = '<meta name="generator" content="cscct '  # marks a page as a report
NARROW = "(max-width: 40rem)"  # windows with figures in column width


@dataclass
class Section:
    """A part of the page with a heading.

    Attributes:
        name: Name of its anchor.
        title: The heading.
        blocks: Its content as HTML.
    """

    name: str
    title: str
    blocks: list[str] = field(default_factory=list)


FILES_NEXT_TO_IT = (
    "The folder of this page also contains summary.csv, runs.csv and, in figures/, the files of every figure."
)


def render(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    *,
    warnings: Sequence[str] = (),
    notes: Sequence[str] = (),
    footer: str = FILES_NEXT_TO_IT,
) -> str:
    """Return the page.

    Args:
        title: Title of the page.
        subtitle: Line below the title.
        sections: The first one, the summary, has no heading and is followed by notes and a table of contents.
        warnings: HTML above the summary.
        notes: HTML below the summary.
        footer: Last sentence of the page.
    """
    summary, *rest = sections
    contents = "".join(f'<li><a href="#section-{part.name}">{escape(part.title)}</a></li>' for part in rest)
    css = (resources.files(__package__) / "page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{GENERATOR}{escape(__version__)}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{css}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="sub">{escape(subtitle)}</p>
</header>
{"".join(warnings)}
<main>
<section id="section-{summary.name}">
{"".join(summary.blocks)}
{"".join(notes)}
</section>
<nav aria-label="Contents"><ul>{contents}</ul></nav>
{"".join(map(_section, rest))}
</main>
<footer><p>Made by cscct {escape(__version__)} from stored results. {escape(footer)}</p></footer>
</body>
</html>
"""


def _section(section: Section) -> str:
    """A section. In a wide window, two sections with one figure each are side by side."""
    html = "\n".join(section.blocks)
    half = ' class="half"' if html.count("<figure ") == 1 else ""
    return f'<section id="section-{section.name}"{half}>\n<h2>{escape(section.title)}</h2>\n{html}\n</section>'


def paragraph(text: str) -> str:
    """Return a paragraph as HTML. This and the following functions escape their texts."""
    return f"<p>{escape(text)}</p>"


def box(sentence: str, items: Sequence[str] = ()) -> str:
    """Return a note with an optional list."""
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f'<div class="box"><p>{escape(sentence)}</p>{f"<ul>{listed}</ul>" if listed else ""}</div>'


def folded(title: str, html: str, *, warning: bool = False) -> str:
    """Return content that a click on its title shows."""
    kind = ' class="warning" role="alert"' if warning else ""
    return f"<details{kind}><summary>{escape(title)}</summary>{html}</details>"


def difference_list(differences: Sequence[SettingDifference]) -> str:
    """Return a list of settings, with the groups that have each value."""
    items = []
    for difference in differences:
        values = []
        for value, labels in difference.groups.items():
            names = labels if difference.listed else [f"{len(labels)} groups"]
            tags = " ".join(f'<span class="tag">{escape(name)}</span>' for name in names)
            values.append(f"<dt>{escape(value)}</dt><dd>{tags}</dd>")
        items.append(f'<li>{escape(difference.name)}<dl class="values">{"".join(values)}</dl></li>')
    return f'<ul class="differences">{"".join(items)}</ul>'


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    text_columns: Sequence[int] = (0,),
    bars: Sequence[float | None] = (),
) -> str:
    """Return a table that scrolls horizontally if it does not fit. The first cell of a row is its heading.

    Args:
        header: Column names.
        rows: Cells of each row.
        text_columns: Indices of columns with text.
        bars: Values in percent that the second column shows as bars.
    """

    def cell(tag: str, column: int, value: str, attributes: str = "") -> str:
        kind = ' class="text"' if column in text_columns else ""
        return f"<{tag}{attributes}{kind}>{escape(value)}</{tag}>"

    head = "".join(cell("th", column, name, ' scope="col"') for column, name in enumerate(header))
    body = ""
    for index, (heading, *values) in enumerate(rows):
        share = bars[index] if bars else None
        cells = [cell("td", column, value) for column, value in enumerate(values, start=1)]
        if share is not None:
            cells[0] = f'<td class="bar" style="--share:{share:.2f}%">{escape(values[0])}</td>'
        body += "<tr>" + cell("th", 0, heading, ' scope="row"') + "".join(cells) + "</tr>"
    region = f'class="scroll" role="region" tabindex="0" aria-label="Table: {escape(", ".join(header))}"'
    return f"<div {region}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def definitions(meanings: Mapping[str, str]) -> str:
    """Return a list of terms and their meanings."""
    items = "".join(
        f"<div><dt>{escape(term)}</dt><dd>{escape(meaning)}</dd></div>" for term, meaning in meanings.items()
    )
    return f'<dl class="definitions">{items}</dl>'


@dataclass(frozen=True)
class SvgImage:
    """An image with its size in CSS pixels."""

    svg: str
    width: int
    height: int

    @staticmethod
    def of(picture: ReportFigure, svg: str) -> SvgImage:
        """Return the image of a figure that has been drawn as SVG."""
        width, height = (round(inches * 96) for inches in picture.figure.get_size_inches())
        return SvgImage(svg, width, height)

    def attributes(self, source: str) -> str:
        """Return HTML attributes for size and content. As an image, the SVG cannot affect the page."""
        data = base64.b64encode(self.svg.encode()).decode()
        return f'width="{self.width}" height="{self.height}" {source}="data:image/svg+xml;base64,{data}"'


@dataclass(frozen=True)
class EmbeddedFigure:
    """A figure on the page.

    Attributes:
        name: Name of its files and its anchor.
        alt: Alternative text.
        caption: Caption.
        image: The figure.
        narrow: The figure for narrow windows, if it is a different one.
        formats: Suffixes of its files.
    """

    name: str
    alt: str
    caption: str
    image: SvgImage
    narrow: SvgImage | None
    formats: tuple[str, ...]


def figures(shown: Sequence[EmbeddedFigure]) -> str:
    """Return figures side by side, as many as fit. The narrowest one defines the columns."""
    if not shown:
        return ""
    column = min(each.image.width for each in shown)
    return f'<div class="figures" style="--column:{column}px">{"".join(_figure(each, column) for each in shown)}</div>'


def _figure(shown: EmbeddedFigure, column: int) -> str:
    wide = ' class="wide"' if shown.image.width > 1.3 * column else ""
    links = " ".join(f'<a href="figures/{quote(shown.name)}.{suffix}">{suffix.upper()}</a>' for suffix in shown.formats)
    source = f'<source media="{NARROW}" {shown.narrow.attributes("srcset")}>' if shown.narrow else ""
    return (
        f'<figure id="{escape(shown.name)}"{wide} style="--width:{shown.image.width}px"><picture>{source}'
        f'<img alt="{escape(shown.alt)}" {shown.image.attributes("src")}></picture>'
        f'<figcaption>{escape(shown.caption)} <span class="files">{links}</span></figcaption></figure>'
    )


def protocols(boxes: Sequence[str]) -> str:
    """Return protocol boxes side by side, as many as fit."""
    return f'<div class="protocols">{"".join(boxes)}</div>'


def protocol_box(label: str, description: Mapping[str, str], marked: Sequence[str], is_open: bool) -> str:
    """Return the protocol of a group.

    Args:
        label: Label of the group.
        description: The protocol.
        marked: Entries that differ between groups.
        is_open: Whether the box is unfolded.
    """
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{f'<mark>{escape(value)}</mark>' if name in marked else escape(value)}</dd>"
        for name, value in description.items()
    )
    state = " open" if is_open else ""
    return f'<details{state}><summary>{escape(label)}</summary><dl class="protocol">{rows}</dl></details>'
