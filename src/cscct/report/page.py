"""The page: plain HTML and CSS in one file, without scripts and without anything to load."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from urllib.parse import quote

from .. import __version__
from .canvas import ReportFigure

GENERATOR = '<meta name="generator" content="cscct '  # by which a report is known again

CSS = """
:root { color-scheme: light; --ink: #1c2228; --soft: #5a6570; --line: #dce1e6; --tint: #f5f7f9; --link: #005a8f; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem clamp(1rem, 4vw, 2.5rem) 4rem; max-width: 76rem; color: var(--ink);
  background: #fff; font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
p, ul { max-width: 46rem; } p { margin: .5rem 0; } a { color: var(--link); }
.sub, figcaption, footer, .means { color: var(--soft); font-size: .9rem; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: 0; margin: 1rem 0;
  max-width: none; }
.box { border-left: 4px solid var(--line); background: var(--tint); padding: .7rem 1rem; margin: 1rem 0; }
.box p:first-child { margin-top: 0; } .box ul { margin: .3rem 0; padding-left: 1.2rem; max-width: none; }
.warning { border-color: #b34000; background: #fdf1e9; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .93rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; }
td.text, th.text { text-align: left; } td.text { white-space: normal; min-width: 12rem; }
tbody th { white-space: normal; min-width: 11rem; }
tbody th { font-weight: 600; position: sticky; left: 0; background: #fff; }
.figures { display: flex; flex-wrap: wrap; gap: 1.5rem 2rem; align-items: flex-start; margin: 1rem 0; }
figure { margin: 0; max-width: 100%; }
figure img { display: block; max-width: 100%; height: auto; }
figcaption { margin-top: .4rem; } .files { white-space: nowrap; }
.means dt { font-weight: 600; color: var(--ink); float: left; clear: left; margin-right: .5rem; }
.means dd { margin: 0 0 .2rem; } .means { max-width: 50rem; }
details { border: 1px solid var(--line); border-radius: 4px; padding: .5rem 1rem; margin: .6rem 0; }
summary { cursor: pointer; font-weight: 600; }
.protocol { display: grid; grid-template-columns: 9rem 1fr; gap: .25rem 1rem; margin: .7rem 0; font-size: .93rem; }
.protocol dt { color: var(--soft); } .protocol dd { margin: 0; min-width: 0; }
mark { background: #ffe9a8; padding: 0 .2em; border-radius: 2px; }
@media (max-width: 40rem) { .protocol { grid-template-columns: 1fr; } .protocol dd { margin-bottom: .4rem; } }
@media print { nav, .files { display: none; } figure { break-inside: avoid; } }
"""


@dataclass
class Section:
    name: str  # of its anchor
    title: str
    blocks: list[str] = field(default_factory=list)  # HTML


def render(title: str, subtitle: str, top: Sequence[str], sections: Sequence[Section]) -> str:
    """The summary comes first, warnings before it, a table of contents after it."""
    contents = "".join(f'<li><a href="#{part.name}">{escape(part.title)}</a></li>' for part in sections[1:])
    first, *rest = ["\n".join(part.blocks) for part in sections]
    body = "\n".join(
        f'<section id="{part.name}">\n<h2>{escape(part.title)}</h2>\n{html}\n</section>'
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
<section id="{sections[0].name}">
{first}
</section>
<nav aria-label="Contents"><ul>{contents}</ul></nav>
{body}
</main>
<footer><p>Made by cscct {escape(__version__)} from stored results. Beside this page lie summary.csv, runs.csv and, in
figures/, every figure as PNG, SVG and CSV.</p></footer>
</body>
</html>
"""


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def box(sentence: str, items: Sequence[str] = (), *, warning: bool = False) -> str:
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    kind = 'class="box warning" role="alert"' if warning else 'class="box"'
    return f"<div {kind}><p>{escape(sentence)}</p>{f'<ul>{listed}</ul>' if listed else ''}</div>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)) -> str:
    """The first cell of a row is its heading."""

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
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def meanings(words: Mapping[str, str]) -> str:
    inside = "".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in words.items())
    return f'<dl class="means">{inside}</dl>'


def figure(picture: ReportFigure, svg: str) -> str:
    """The SVG as an image of its own: nothing in it can reach the page."""
    width, height = (round(inches * 96) for inches in picture.figure.get_size_inches())
    data = base64.b64encode(svg.encode()).decode()
    files = " ".join(
        f'<a href="figures/{quote(picture.name)}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg", "csv")
    )
    return (
        f'<figure id="{escape(picture.name)}" style="width:{width}px"><img width="{width}" '
        f'height="{height}" alt="{escape(picture.alt)}" '
        f'src="data:image/svg+xml;base64,{data}">'
        f'<figcaption>{escape(picture.caption)} <span class="files">{files}</span></figcaption></figure>'
    )


def figures(shown: Sequence[str]) -> str:
    return f'<div class="figures">{"".join(shown)}</div>'


def protocol_box(label: str, words: Mapping[str, str], marked: Sequence[str], is_open: bool) -> str:
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{f'<mark>{escape(value)}</mark>' if name in marked else escape(value)}</dd>"
        for name, value in words.items()
    )
    state = " open" if is_open else ""
    return f'<details{state}><summary>{escape(label)}</summary><dl class="protocol">{rows}</dl></details>'


def folded(title: str, html: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{html}</details>"
