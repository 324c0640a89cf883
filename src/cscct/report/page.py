"""The page: HTML and CSS in one file, without scripts and without anything to load."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from urllib.parse import quote

from .. import __version__
from .canvas import ReportFigure

GENERATOR = '<meta name="generator" content="cscct '  # marks a page as a report

CSS = """
:root { color-scheme: light; --ink: #1c2228; --soft: #5a6570; --line: #dce1e6; --tint: #f5f7f9; --link: #005a8f; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem clamp(1rem, 4vw, 2.5rem) 4rem; max-width: 120rem; color: var(--ink);
  background: #fff; font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
p, ul { max-width: 46rem; } p { margin: .5rem 0; } a { color: var(--link); }
.sub, figcaption, footer, .definitions { color: var(--soft); font-size: .9rem; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: 0; margin: 1rem 0;
  max-width: none; }
.box { border-left: 4px solid var(--line); background: var(--tint); padding: .7rem 1rem; margin: 1rem 0; }
.box p:first-child { margin-top: 0; } .box ul { margin: .3rem 0; padding-left: 1.2rem; max-width: none; }
.warning { border-color: #b34000; background: #fdf1e9; }
/* A table that is wider than the window scrolls; a shadow shows on which side there is more. */
.scroll { overflow-x: auto; margin: 1rem 0; max-width: max-content; background:
  linear-gradient(to right, #fff 40%, #fff0) left / 3rem 100% local,
  linear-gradient(to left, #fff 40%, #fff0) right / 3rem 100% local,
  linear-gradient(to right, #0005, #0000) left / 1rem 100% scroll,
  linear-gradient(to left, #0005, #0000) right / 1rem 100% scroll, #fff; background-repeat: no-repeat; }
.scroll:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: .93rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; }
td.text, th.text { text-align: left; } td.text { white-space: normal; min-width: 12rem; }
tbody th { font-weight: 600; white-space: normal; min-width: 9rem; max-width: 26rem; }
tr > :first-child { position: sticky; left: 0; background: #fff; border-right: 1px solid var(--line); }
.figures { display: grid; gap: 1.5rem 2rem; align-items: start; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, .88 * var(--column)), 1fr)); }
figure { margin: 0; min-width: 0; max-width: calc(1.3 * var(--width)); }
@media (min-width: 55rem) { figure.wide { grid-column: span 2; } }
@media (min-width: 80rem) { main { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 2rem; }
  main > * { grid-column: 1 / -1; } main > .half { grid-column: auto; } }
figure img { display: block; width: 100%; height: auto; }
figcaption { margin-top: .4rem; max-width: 46rem; } .files { white-space: nowrap; }
.definitions { columns: 30rem 3; column-gap: 2.5rem; } .definitions div { break-inside: avoid; }
.definitions dt { font-weight: 600; color: var(--ink); display: inline; margin-right: .4rem; }
.definitions dd { margin: 0; display: inline; } .definitions div { margin-bottom: .3rem; }
.protocols { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); gap: 0 1.5rem;
  align-items: start; }
details { border: 1px solid var(--line); border-radius: 4px; padding: .5rem 1rem; margin: .6rem 0; }
summary { cursor: pointer; font-weight: 600; }
.protocol { display: grid; grid-template-columns: 9rem 1fr; gap: .25rem 1rem; margin: .7rem 0; font-size: .93rem; }
.protocol dt { color: var(--soft); } .protocol dd { margin: 0; min-width: 0; }
mark { background: #ffe9a8; padding: 0 .2em; border-radius: 2px; }
@media (max-width: 40rem) { tr > :first-child { min-width: 7rem; max-width: 9.5rem; }
  td.text { min-width: 7rem; } .protocol { grid-template-columns: 1fr; } .protocol dd { margin-bottom: .4rem; } }
@media print { nav, .files { display: none; } figure { break-inside: avoid; } }
"""


@dataclass
class Section:
    """A part of the page under a heading."""

    name: str  # of its anchor
    title: str
    blocks: list[str] = field(default_factory=list)  # HTML


def render(title: str, subtitle: str, top: Sequence[str], sections: Sequence[Section]) -> str:
    """The whole page. top: notes above the summary, which is the first section; a table of contents follows it."""
    contents = "".join(f'<li><a href="#section-{part.name}">{escape(part.title)}</a></li>' for part in sections[1:])
    first, *rest = ["\n".join(part.blocks) for part in sections]
    body = "\n".join(
        f'<section id="section-{part.name}"{_half(html)}>\n<h2>{escape(part.title)}</h2>\n{html}\n</section>'
        for part, html in zip(sections[1:], rest, strict=True)
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{GENERATOR}{escape(__version__)}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{CSS}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="sub">{escape(subtitle)}</p>
</header>
{"".join(top)}
<main>
<section id="section-{sections[0].name}">
{first}
</section>
<nav aria-label="Contents"><ul>{contents}</ul></nav>
{body}
</main>
<footer><p>Made by cscct {escape(__version__)} from stored results. The folder of this page also holds summary.csv,
runs.csv and, in figures/, every figure as PNG, SVG and CSV.</p></footer>
</body>
</html>
"""


def _half(html: str) -> str:
    """Two sections with one figure each stand side by side in a wide window."""
    return ' class="half"' if html.count("<figure ") == 1 else ""


def paragraph(text: str) -> str:
    """Text as HTML, escaped like all that follows."""
    return f"<p>{escape(text)}</p>"


def subheading(text: str) -> str:
    """A heading within a section."""
    return f"<h3>{escape(text)}</h3>"


def box(sentence: str, items: Sequence[str] = (), *, warning: bool = False) -> str:
    """A note or a warning, with a list."""
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    kind = 'class="box warning" role="alert"' if warning else 'class="box"'
    return f"<div {kind}><p>{escape(sentence)}</p>{f'<ul>{listed}</ul>' if listed else ''}</div>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)) -> str:
    """A table that scrolls sideways where it does not fit. The first cell of a row is its heading."""

    def cell(tag: str, place: int, value: str, scope: str = "") -> str:
        kind = ' class="text"' if place in text_columns else ""
        return f"<{tag}{scope}{kind}>{escape(value)}</{tag}>"

    head = "".join(cell("th", i, value, ' scope="col"') for i, value in enumerate(header))
    body = "".join(
        "<tr>"
        + "".join(cell("td" if i else "th", i, value, "" if i else ' scope="row"') for i, value in enumerate(row))
        + "</tr>"
        for row in rows
    )
    region = f'class="scroll" role="region" tabindex="0" aria-label="Table: {escape(", ".join(header))}"'
    return f"<div {region}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def definitions(words: Mapping[str, str]) -> str:
    """Terms and their meanings."""
    inside = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(meaning)}</dd></div>" for term, meaning in words.items())
    return f'<dl class="definitions">{inside}</dl>'


def figures(shown: Sequence[tuple[ReportFigure, str]]) -> str:
    """Figures and their SVG side by side, as many as fit. The narrowest is as wide as a column of the page's grid."""
    if not shown:
        return ""
    column = min(_pixels(picture)[0] for picture, _ in shown)
    inside = "".join(_figure(picture, svg, column) for picture, svg in shown)
    return f'<div class="figures" style="--column:{column}px">{inside}</div>'


def _pixels(picture: ReportFigure) -> tuple[int, int]:
    width, height = (round(inches * 96) for inches in picture.figure.get_size_inches())
    return width, height


def _figure(picture: ReportFigure, svg: str, column: int) -> str:
    """A figure with its caption. The SVG is embedded as an image, so that nothing in it affects the page."""
    width, height = _pixels(picture)
    wide = ' class="wide"' if width > 1.3 * column else ""
    data = base64.b64encode(svg.encode()).decode()
    files = " ".join(
        f'<a href="figures/{quote(picture.name)}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg", "csv")
    )
    return (
        f'<figure id="{escape(picture.name)}"{wide} style="--width:{width}px"><img width="{width}" '
        f'height="{height}" alt="{escape(picture.alt)}" '
        f'src="data:image/svg+xml;base64,{data}">'
        f'<figcaption>{escape(picture.caption)} <span class="files">{files}</span></figcaption></figure>'
    )


def protocols(boxes: Sequence[str]) -> str:
    """Protocol boxes side by side, as many as fit."""
    return f'<div class="protocols">{"".join(boxes)}</div>'


def protocol_box(label: str, words: Mapping[str, str], marked: Sequence[str], is_open: bool) -> str:
    """The protocol of a group. marked: entries in which groups differ."""
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{f'<mark>{escape(value)}</mark>' if name in marked else escape(value)}</dd>"
        for name, value in words.items()
    )
    state = " open" if is_open else ""
    return f'<details{state}><summary>{escape(label)}</summary><dl class="protocol">{rows}</dl></details>'


def folded(title: str, html: str) -> str:
    """Content that a click on its title shows."""
    return f"<details><summary>{escape(title)}</summary>{html}</details>"
