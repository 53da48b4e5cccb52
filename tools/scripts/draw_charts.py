#!/usr/bin/python3
"""Draws the charts of the README, for light and dark pages alike.

    draw_charts.py session RUN OUT.svg          samples/s and loss of a run, with what changed in it
    draw_charts.py speed PERFORMANCE.md OUT.svg the first table of docs/performance.md
"""

import datetime
import json
import math
import pathlib
import re
import sys

WIDTH, LEFT, RIGHT = 860, 70, 20
STYLE = """<style>
text { font: 13px Helvetica, Arial, sans-serif; fill: #24292f }
.small { font-size: 12px; fill: #57606a }
.grid { stroke: #d0d7de } .axis { stroke: #57606a }
.a { fill: #9aa4b0 } .b { fill: #3b77b5 } .c { fill: #c77a2c }
.line { fill: none; stroke: #3b77b5; stroke-width: 1.5 } .mark { stroke: #c77a2c; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9da7b3 } .grid { stroke: #30363d } .axis { stroke: #9da7b3 }
  .a { fill: #6e7681 } .b { fill: #6ca6e0 } .c { fill: #e0a060 }
  .line { stroke: #6ca6e0 } .mark { stroke: #e0a060 }
}
</style>"""


def svg(height, title, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img"><title>{title}</title>\n{STYLE}\n'
            + "\n".join(parts) + "\n</svg>\n")


def text(x, y, words, anchor="start", kind=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" class="{kind}">{words}</text>'


def line(x1, y1, x2, y2, kind):
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>'


def seconds(stamp):
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def session(run, out):
    run = pathlib.Path(run)

    def read(name):
        return [json.loads(row) for row in (run / name).read_text().splitlines()]

    rows = [row for row in read("metrics.jsonl") if row["kind"] == "train"]
    views = read("views.jsonl")
    begin, end = seconds(views[0]["time"]), rows[-1]["time"]
    marks = []
    for view, before in zip(views[1:], views):
        if view["mode"] != before["mode"]:
            marks.append((seconds(view["time"]) - begin, "switch to " + view["mode"]))
        elif "is gone" in view["reason"]:
            marks.append((seconds(view["time"]) - begin, "kill -9 worker 1"))
    # Half a second each: what its lines say, weighted by their samples.
    wide = (WIDTH - LEFT - RIGHT) / end
    parts, top = [], 50
    for at, words in marks:
        x, low = LEFT + at * wide, words.startswith("kill")
        parts += [line(x, 40 if low else 22, x, 330, "mark"),
                  text(x + 4, 36 if low else 18, words, kind="small")]
    for name, log, unit in (("samples_per_second", False, "samples/s"), ("loss", True, "loss")):
        bins = {}
        for row in rows:
            bins.setdefault(int(row["time"] / 0.5), []).append(row[name])
        points = [((half + 0.5) / 2, sum(values) / len(values)) for half, values in bins.items()
                  if (half + 1) / 2 <= end]
        values = [math.log10(y) if log else y for _, y in points]
        low, high = (math.floor(min(values)), math.ceil(max(values))) if log else (0, 50000)
        height = 120

        def place(y):
            return top + height - (y - low) / (high - low) * height

        for tick in range(low, high + 1) if log else range(0, high + 1, 25000):
            parts += [line(LEFT, place(tick), WIDTH - RIGHT, place(tick), "grid"),
                      text(LEFT - 8, place(tick) + 4, f"{10.0 ** tick:g}" if log else f"{tick:,}",
                           "end", "small")]
        path = "L".join(f"{LEFT + x * wide:.1f} {place(y):.1f}" for (x, _), y in zip(points, values))
        parts += [f'<path d="M{path}" class="line"/>', text(WIDTH - RIGHT, top - 6, unit, "end")]
        top += height + 40
    bottom = top - 40
    for tick in range(0, int(end) + 1, 5):
        x = LEFT + tick * wide
        parts += [line(x, bottom, x, bottom + 5, "axis"), text(x, bottom + 20, f"{tick} s", "middle",
                                                               "small")]
    pathlib.Path(out).write_text(svg(bottom + 32, "A run that switched its mode and lost a worker",
                                     parts))


def speed(page, out):
    table = re.search(r"\| size \|.*?\n\|[-|]+\n((?:\|.*\n)+)", pathlib.Path(page).read_text())
    rows = [[cell.strip() for cell in row.strip("|\n").split("|")]
            for row in table.group(1).splitlines()]
    series = ("raw TCP, push", "Rubato by TCP, push", "Rubato by shared memory, push")
    height, top = 170, 40
    most = 16
    parts = []
    for tick in range(0, most + 1, 4):
        y = top + height - tick / most * height
        parts += [line(LEFT, y, WIDTH - RIGHT, y, "grid"), text(LEFT - 8, y + 4, tick, "end", "small")]
    parts.append(text(LEFT - 8, top - 14, "GB/s", "end", "small"))
    for number, name in enumerate(series):
        x = LEFT + 30 + number * 240
        parts += [f'<rect x="{x}" y="12" width="13" height="13" class="{"abc"[number]}"/>',
                  text(x + 20, 23, name)]
    step = (WIDTH - LEFT - RIGHT) / len(rows)
    for place, row in enumerate(rows):
        for number in range(3):
            value = float(row[number + 1].split("/")[0])
            x, tall = LEFT + place * step + 14 + number * 34, value / most * height
            parts += [f'<rect x="{x:.0f}" y="{top + height - tall:.1f}" width="30" '
                      f'height="{tall:.1f}" class="{"abc"[number]}"/>',
                      text(x + 15, top + height - tall - 4, f"{value:.1f}", "middle", "small")]
        parts.append(text(LEFT + place * step + 63, top + height + 18, row[0], "middle"))
    parts.append(line(LEFT, top + height, WIDTH - RIGHT, top + height, "axis"))
    pathlib.Path(out).write_text(svg(top + height + 30, "How fast gradients reach a server", parts))


if __name__ == "__main__":
    {"session": session, "speed": speed}[sys.argv[1]](*sys.argv[2:])
