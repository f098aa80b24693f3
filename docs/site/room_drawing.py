"""Draws the rooms as an SVG, from what docs/generators/rooms.py writes in Mermaid, so that the page needs no script.

Layered drawing (Sugiyama, Tagawa, Toda 1981): a room stands one row below the lowest room that it imports from; arrows
that pass rows get a place in each; places in a row are sorted by the mean of their neighbours. Colours are packages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

ROOM = re.compile(r"^ +(?P<key>\w+)\[(?P<label>[^\]]+)\]$")
PACKAGE = re.compile(r"^ +subgraph (?P<name>\w+)$")
ARROW = re.compile(r"^ +(?P<start>\w+) --> (?P<end>\w+)$")
ROW, CHARACTER, GAP, PASSING, HEIGHT = 58, 7.7, 18, 14, 26
"""Pixels: from row to row, of a letter, between rooms, of an arrow that passes a row, of a room."""
SWEEPS, PULL = 24, 0.8
"""How often rows are ordered, and the part of its neighbours' mean that a place is given; less is nearer to 0."""


@dataclass
class Layout:
    """Rooms and the arrows' places by their keys: row, horizontal middle, width."""

    labels: dict[str, str] = field(default_factory=dict)
    package: dict[str, str] = field(default_factory=dict)
    arrows: list[tuple[str, str]] = field(default_factory=list)
    row: dict[str, int] = field(default_factory=dict)
    middle: dict[str, float] = field(default_factory=dict)
    paths: list[list[str]] = field(default_factory=list)

    def width(self, key: str) -> float:
        """Pixels that a place takes in its row."""
        return len(self.labels[key]) * CHARACTER + GAP if key in self.labels else PASSING


def drawing(source: str) -> str:
    """The picture as an SVG with a description; colours come from the page."""
    layout = _read(source)
    _rank(layout)
    _route(layout)
    _place(layout)
    return _svg(layout)


def _read(source: str) -> Layout:
    layout, package = Layout(), ""
    for line in source.splitlines():
        if match := PACKAGE.match(line):
            package = match["name"]
        elif match := ROOM.match(line):
            layout.labels[match["key"]], layout.package[match["key"]] = match["label"], package
        elif match := ARROW.match(line):
            layout.arrows.append((match["start"], match["end"]))
    return layout


def _rank(layout: Layout) -> None:
    """Rows within packages, and packages below those that they import from."""
    names = list(dict.fromkeys(layout.package.values()))
    inner = {
        name: _depths(
            [key for key in layout.labels if layout.package[key] == name],
            [pair for pair in layout.arrows if {layout.package[key] for key in pair} == {name}],
        )
        for name in names
    }
    between = {(layout.package[start], layout.package[end]) for start, end in layout.arrows}
    bands = _depths(names, [pair for pair in between if pair[0] != pair[1]])
    height = {
        band: max(max(inner[name].values()) + 2 for name in names if bands[name] == band) for band in bands.values()
    }
    for key, name in layout.package.items():
        layout.row[key] = sum(height[band] for band in range(bands[name])) + inner[name][key]


def _depths(keys: list[str], arrows: list[tuple[str, str]]) -> dict[str, int]:
    """The longest way along arrows from each key."""
    depths: dict[str, int] = {}

    def depth(key: str) -> int:
        if key not in depths:
            depths[key] = max((depth(end) + 1 for start, end in arrows if start == key), default=0)
        return depths[key]

    return {key: depth(key) for key in keys}


def _route(layout: Layout) -> None:
    """Gives each arrow a place in every row that it passes."""
    for count, (start, end) in enumerate(layout.arrows):
        path = [start]
        for row in range(layout.row[start] - 1, layout.row[end], -1):
            path.append(f"{count}:{row}")
            layout.row[path[-1]] = row
            layout.package[path[-1]] = layout.package[start]
        layout.paths.append([*path, end])


def _place(layout: Layout) -> None:
    """Orders rows by the means of their neighbours, and moves places towards these means."""
    near: dict[str, list[str]] = {key: [] for key in layout.row}
    for path in layout.paths:
        for one, other in pairwise(path):
            near[one].append(other)
            near[other].append(one)
    rows: dict[int, list[str]] = {}
    for key, row in layout.row.items():
        rows.setdefault(row, []).append(key)
    for keys in rows.values():
        _line_up(layout, keys, dict.fromkeys(keys, 0.0))
    for sweep in range(SWEEPS):
        for row in sorted(rows, reverse=bool(sweep % 2)):
            keys = rows[row]
            wish = {
                key: PULL * sum(layout.middle[other] for other in near[key]) / len(near[key]) if near[key] else 0.0
                for key in keys
            }
            keys.sort(key=wish.__getitem__)
            _line_up(layout, keys, wish)


def _line_up(layout: Layout, keys: list[str], wish: dict[str, float]) -> None:
    """Places near their wishes, in this order and without overlap (pools of adjacent places)."""
    pools: list[tuple[float, list[str], float]] = []
    for key in keys:
        pool = ([key], layout.width(key), wish[key])
        members, width, mean = pool
        while pools and pools[-1][0] + pools[-1][2] / 2 > mean - width / 2:
            before, others, space = pools.pop()
            count = len(others) + len(members)
            mean = (before * len(others) + mean * len(members)) / count
            members, width = others + members, space + width
        pools.append((mean, members, width))
    for mean, members, width in pools:
        edge = mean - width / 2
        for key in members:
            layout.middle[key] = edge + layout.width(key) / 2
            edge += layout.width(key)


def _svg(layout: Layout) -> str:
    left = min(layout.middle[key] - layout.width(key) / 2 for key in layout.row) - GAP
    right = max(layout.middle[key] + layout.width(key) / 2 for key in layout.row) + GAP
    bottom = (max(layout.row.values()) + 1) * ROW
    width, height = f"{right - left:.0f}", f"{bottom + 2 * GAP}"
    size = f'width="{width}" height="{height}" viewBox="{left:.0f} -{2 * GAP} {width} {height}"'
    title = "Rooms by package; a line leads from a room up to one that it imports from."
    parts = (*_legend(layout, left), *_lines(layout), *_rooms(layout))
    return f'<div class="rooms" tabindex="0"><svg role="img" aria-label="{title}" {size}>{"".join(parts)}</svg></div>'


def _top(layout: Layout, key: str) -> float:
    return layout.row[key] * ROW + 12


def _legend(layout: Layout, left: float) -> list[str]:
    """The packages in their colours, above the picture."""
    names, parts = list(dict.fromkeys(layout.package.values())), []
    for place, name in enumerate(names):
        x = left + GAP + sum(len(before) * CHARACTER + 2 * GAP for before in names[:place])
        parts.append(f'<rect class="room package-{place}" x="{x:.0f}" y="-24" width="12" height="12" rx="3"/>')
        parts.append(f'<text x="{x + 17:.0f}" y="-14">{escape(name)}</text>')
    return parts


def _lines(layout: Layout) -> list[str]:
    lines = []
    for path in layout.paths:
        points = [(layout.middle[key], _top(layout, key)) for key in path]
        words = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
        for (x, y), (x2, y2) in pairwise(points):
            bend = (y + y2 + HEIGHT) / 2
            words.append(f"L{x:.0f} {y:.0f}C{x:.0f} {bend:.0f} {x2:.0f} {bend:.0f} {x2:.0f} {y2 + HEIGHT:.0f}")
        lines.append(f'<path d="{"".join(words)}"/>')
    return lines


def _rooms(layout: Layout) -> list[str]:
    rooms, names = [], list(dict.fromkeys(layout.package.values()))
    for key, label in layout.labels.items():
        x, y, width = layout.middle[key], _top(layout, key), layout.width(key) - 8
        shape = f'x="{x - width / 2:.0f}" y="{y:.0f}" width="{width:.0f}" height="{HEIGHT}" rx="4"'
        rooms.append(f'<rect class="room package-{names.index(layout.package[key])}" {shape}/>')
        rooms.append(f'<text class="room" x="{x:.0f}" y="{y + 17:.0f}">{escape(label)}</text>')
    return rooms
