"""A document of paragraphs, tables and figures, rendered as Markdown and as a self-contained HTML page.

The page has no scripts and loads nothing. Tables have captions and header cells; a table wider than the window scrolls,
also by keyboard. Below each figure are its numbers, unless the section shows their table anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path


@dataclass(frozen=True)
class Table:
    """A table of text cells; the first cell of each row is its heading."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """An SVG figure. name: file name without .svg; caption: also its text alternative; table: its numbers."""

    name: str
    caption: str
    svg: str
    table: Table


@dataclass(frozen=True)
class Section:
    """A heading and its paragraphs, tables and figures; paragraphs may have code in `backticks`."""

    heading: str
    parts: Sequence[str | Table | Figure]

    @property
    def anchor(self) -> str:
        return "".join(each if each.isalnum() else "-" for each in self.heading.lower())


def markdown(heading: str, opening: Sequence[str | Table | Figure], sections: Sequence[Section]) -> str:
    """Render as Markdown; figures refer to NAME.svg in the same folder, with their numbers below."""
    lines = [f"# {heading}", "", *_in_markdown(opening)]
    for section in sections:
        lines += [f"## {section.heading}", "", *_in_markdown(section.parts)]
    return "\n".join(lines).rstrip() + "\n"


def _in_markdown(parts: Sequence[str | Table | Figure]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield from (part, "")
            continue
        if isinstance(part, Figure):
            yield from (f"![{part.caption}]({part.name}.svg)", "")
        table = part.table if isinstance(part, Figure) else part
        if isinstance(part, Figure) and table in parts:
            continue  # shown separately
        if table.caption and not isinstance(part, Figure):
            yield from (f"*{table.caption}*", "")
        yield "| " + " | ".join(_plain(each) for each in table.columns) + " |"
        yield "|---" + "|--:" * (len(table.columns) - 1) + "|"
        yield from ("| " + " | ".join(_plain(each) for each in row) + " |" for row in table.rows)
        yield ""


def _plain(cell: str) -> str:
    return cell.replace("|", "\\|")


def page(heading: str, opening: Sequence[str | Table | Figure], sections: Sequence[Section]) -> str:
    """Render as an HTML page with a list of its sections."""
    content = "".join(f'<li><a href="#{each.anchor}">{escape(each.heading)}</a></li>' for each in sections)
    body = "\n".join(map(_section, sections))
    style = Path(__file__).with_name("document.css").read_text(encoding="utf-8")
    return (
        head(heading, style)
        + "\n".join(_in_html(opening))
        + f'\n<nav aria-label="Sections"><ul>{content}</ul></nav>\n{body}\n</main>\n</body>\n</html>\n'
    )


def _section(section: Section) -> str:
    shown = "\n".join(_in_html(section.parts))
    return f'<section><h2 id="{section.anchor}">{escape(section.heading)}</h2>\n{shown}</section>'


def _in_html(parts: Sequence[str | Table | Figure]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield f"<p>{_with_code(part)}</p>"
        elif isinstance(part, Table):
            yield _table(part)
        else:
            numbers = f"<details><summary>The numbers of this figure</summary>{_table(part.table)}</details>"
            yield (
                f'<figure><div class="chart" role="group" tabindex="0" aria-label="{escape(part.caption)}">{part.svg}'
                f"</div><figcaption>{escape(part.caption)}</figcaption>"
                f"{'' if part.table in parts else numbers}</figure>"
            )


def _table(table: Table) -> str:
    # Numbers are right-aligned so that digits line up; a column without digits is text and left-aligned.
    sides = [
        "" if any(map(str.isdigit, "".join(cells))) else ' class="words"' for cells in zip(*table.rows, strict=True)
    ]
    head = "".join(
        f'<th scope="col"{side}>{_with_code(each)}</th>' for each, side in zip(table.columns, sides, strict=True)
    )
    rows = "\n".join(
        f'<tr><th scope="row">{_with_code(row[0])}</th>'
        + "".join(f"<td{side}>{_with_code(cell)}</td>" for cell, side in zip(row[1:], sides[1:], strict=True))
        + "</tr>"
        for row in table.rows
    )
    caption = escape(table.caption)
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="Table: {caption}"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _with_code(text: str) -> str:
    """Escape text for HTML, with `backticks` as code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{each}</code>" if number % 2 else each for number, each in enumerate(pieces))


def head(heading: str, style: str, allowed: str = "") -> str:
    """An HTML page up to its first heading. allowed: what the page may load or run besides inline styles."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'{allowed}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(heading)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{escape(heading)}</h1>
"""
