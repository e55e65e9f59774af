"""Workbooks as a spreadsheet program writes them, made by hand: no package that writes them is among those of the tests."""

import datetime
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml"
PLAIN, DATE, CLOCK = 0, 14, 21  # number formats: 14 is a day, 21 a time of day
FORMATS = (PLAIN, DATE, CLOCK)
Cell = str | float | bool | datetime.date | datetime.time | None


def write_workbook(path: Path, sheets: Mapping[str, Sequence[Sequence[Cell]]]) -> Path:
    """Write a workbook with some sheets, each given as its rows."""
    numbered = list(enumerate(sheets.items(), 1))
    names = "".join(f'<sheet name={quoteattr(name)} sheetId="{nr}" r:id="r{nr}"/>' for nr, (name, _) in numbered)
    related = "".join(f'<Relationship Id="r{nr}" Type="{OFFICE}/worksheet" Target="worksheets/{nr}.xml"/>' for nr, _ in numbered)
    styles = "".join(f'<xf numFmtId="{number}" applyNumberFormat="1"/>' for number in FORMATS)
    files = {
        "[Content_Types].xml": f'<Types xmlns="{TYPES}"><Default Extension="xml" ContentType="{SHEET}.sheet.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{RELATIONS}"><Relationship Id="r0" Type="{OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{RELATIONS}">{related}'
        f'<Relationship Id="s" Type="{OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><cellXfs count="{len(FORMATS)}">{styles}</cellXfs></styleSheet>',
        **{f"xl/worksheets/{nr}.xml": _sheet(rows) for nr, (_, rows) in numbered},
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return path


def _sheet(rows: Sequence[Sequence[Cell]]) -> str:
    lines = (
        f'<row r="{nr}">{"".join(_cell(f"{chr(65 + column)}{nr}", cell) for column, cell in enumerate(row))}</row>'
        for nr, row in enumerate(rows, 1)
    )
    return f'<worksheet xmlns="{MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'


def _cell(place: str, cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{escape(cell)}</t></is></c>'
    if isinstance(cell, bool):
        return f'<c r="{place}" t="b"><v>{int(cell)}</v></c>'
    value, style = _serial(cell)
    return f'<c r="{place}" s="{FORMATS.index(style)}"><v>{value!r}</v></c>'


def _serial(cell: float | datetime.date | datetime.time) -> tuple[float, int]:
    """Return a number, a day or a time of day as a workbook holds it, and its format."""
    if isinstance(cell, datetime.time):
        return (cell.hour * 3600 + cell.minute * 60 + cell.second) / 86400, CLOCK
    if isinstance(cell, datetime.date):
        return (cell - datetime.date(1899, 12, 30)).days, DATE
    return cell, PLAIN
