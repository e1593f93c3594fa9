"""Readers of the page's HTML that return what a person sees: names and cells, not markup."""

from __future__ import annotations

import base64
import gzip
from html.parser import HTMLParser
from xml.etree.ElementTree import Element, TreeBuilder

EMPTY = {"meta", "link", "input"}
"""Tags of the page that have no end tag."""


class _Reader(HTMLParser):
    """Builds elements from HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.made = TreeBuilder()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.made.start(tag, {name: value or "" for name, value in attrs})
        if tag in EMPTY:
            self.made.end(tag)

    def handle_endtag(self, tag: str) -> None:
        # A tag such as <rect/> calls handle_starttag and handle_endtag. Tags in EMPTY were ended in handle_starttag.
        if tag not in EMPTY:
            self.made.end(tag)

    def handle_data(self, data: str) -> None:
        self.made.data(data)


def parsed(html: str) -> Element:
    """Return HTML as elements below one root, so that a part of a page can be parsed too."""
    reader = _Reader()
    reader.made.start("root", {})
    reader.feed(html)
    reader.close()
    reader.made.end("root")
    return reader.made.close()


def text_of(element: Element) -> str:
    """Return the text of an element in one line."""
    return " ".join("".join(element.itertext()).split())


class Details:
    """The details of one job, for one of the page's time ranges.

    Attributes
    ----------
    said
        What happened and what to do: the first paragraph.
    facts
        The values of the job's description list, by their names.
    tables
        The rows of each table by its caption; each row maps headings to cells.
    charts
        By chart name: the text beside it, the number at its top, and the times at its two ends.
    titles
        By chart name: the title that a screen reader reads.
    descriptions
        By chart name: the description that a screen reader reads.
    """

    def __init__(self, html: str, time_range: str = "all") -> None:
        root = parsed(html)
        for part in root.findall("./div[@data-in]"):
            if part.attrib["data-in"] != time_range:
                root.remove(part)
        self.said = _first(root, ".//p")
        self.facts = {_first(pair, "dt"): _first(pair, "dd") for pair in root.iterfind(".//dl/div")}
        self.tables = {_first(table, "caption"): rows_of(table) for table in root.iter("table")}
        self.charts = {}
        self.titles: dict[str, str] = {}
        self.descriptions: dict[str, str] = {}
        self.bars: dict[str, list[tuple[str, float, float, float, float]]] = {}
        self.lines: dict[str, list[str]] = {}
        for figure in root.iter("figure"):
            name = _first(figure, ".//strong")
            start, end = (text_of(span) for span in figure.iterfind(".//span[@class='ends']/span"))
            self.charts[name] = (
                _first(figure, ".//span[@class='soft']"),
                _first(figure, ".//span[@class='top']"),
                start,
                end,
            )
            self.titles[name] = _first(figure, ".//title")
            self.descriptions[name] = _first(figure, ".//desc")
            self.bars[name] = [_bar(rect) for rect in figure.iter("rect")]
            self.lines[name] = [line.attrib["points"] for line in figure.iter("polyline")]
            self.lines[name] += [path.attrib["d"] for path in figure.iter("path")]
        self.notes = [text_of(note) for note in root.iterfind("./p") if "hidden" not in note.attrib][1:]
        self.warned = [
            text_of(cell) for cell in root.iter("td") if {"warn", "bad"} & set(cell.attrib.get("class", "").split())
        ]


class Overview:
    """The page of all jobs: its table rows by job, and the counts on the filter buttons by filter.

    `why` maps a job to the sentence about what is wrong, `commands` to the commands that can be copied.
    """

    def __init__(self, html: str) -> None:
        self.root = parsed(html)
        (body,) = self.root.iterfind(".//tbody[@id='jobs']")
        self.jobs: dict[str, dict[str, str]] = {}
        self.data: dict[str, dict[str, str]] = {}
        self.why: dict[str, str] = {}
        self.commands: dict[str, list[str]] = {}
        for row in body:
            cells = {cell.attrib["data-label"]: text_of(cell) for cell in row if "data-label" in cell.attrib}
            cells["State"] = _first(row, "./td[@data-label='State']/span")
            self.jobs[row.attrib["data-name"]] = cells
            self.why[row.attrib["data-name"]] = _first(row, ".//span[@class='why']")
            copies = [button.attrib["data-copy"] for button in row.iter("button") if "data-copy" in button.attrib]
            self.commands[row.attrib["data-name"]] = copies
            self.data[row.attrib["data-name"]] = {
                name.removeprefix("data-"): value for name, value in row.attrib.items() if name.startswith("data-")
            }
        buttons = self.root.iterfind(".//button[@data-only]")
        self.numbers = {button.attrib["data-only"]: _first(button, "span") for button in buttons}
        self.sparks = {
            row.attrib["data-name"]: {line.attrib["data-in"]: line.attrib["d"] for line in row.iter("path")}
            for row in body
        }

    def details(self) -> dict[str, Details]:
        """Return the details of each job, unpacked."""
        packed = [
            script.text or ""
            for script in self.root.iter("script")
            if script.attrib.get("id", "").startswith("details-")
        ]
        return {
            name: Details(gzip.decompress(base64.b64decode(text)).decode())
            for name, text in zip(self.jobs, packed, strict=True)
        }


def _bar(rect: Element) -> tuple[str, float, float, float, float]:
    x, y, width, height = (float(rect.attrib[side]) for side in ("x", "y", "width", "height"))
    return rect.attrib["class"], x, y, width, height


def rows_of(table: Element) -> list[dict[str, str]]:
    """Return the rows of a table; each row maps headings to cells."""
    names = [text_of(heading) for heading in table.iterfind("./thead/tr/th")]
    return [dict(zip(names, map(text_of, row), strict=True)) for row in table.iterfind("./tbody/tr")]


def _first(element: Element, path: str) -> str:
    found = element.find(path)
    return "" if found is None else text_of(found)
