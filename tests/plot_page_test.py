"""A browser draws the page of `rubato plot`.

Makes two runs' metrics with a gap, lets headless Chromium open the page, and asks Chart.js in it what it has drawn,
and the canvases whether they hold the runs' colours. Skipped without Chromium.

Usage: plot_page_test.py RUBATO   (the binary).
"""

import json
import math
import os
import subprocess
import sys
import tempfile

from browser import ask, chromium

# At the end of the page: what is there, then again after some clicks.
ASK = """
const look = () => [...document.querySelectorAll('canvas')].map(canvas => {
  const chart = Chart.getChart(canvas);
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let blue = 0, orange = 0;
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i] === 0x00 && pixels[i + 1] === 0x72 && pixels[i + 2] === 0xb2 && pixels[i + 3] === 255) ++blue;
    if (pixels[i] === 0xd5 && pixels[i + 1] === 0x5e && pixels[i + 2] === 0x00 && pixels[i + 3] === 255) ++orange;
  }
  return {
    title: canvas.closest('section').querySelector('h2').firstChild.data,
    type: chart.options.scales.y.type, end: chart.options.scales.x.max, blue, orange,
    sets: chart.data.datasets.map(set => ({label: set.label, hidden: set.hidden, points: set.data.length,
        gaps: set.data.filter(point => Number.isNaN(point.y)).length})),
  };
});
const answer = {title: document.title, notes: document.getElementById('notes').textContent,
                rows: document.querySelectorAll('#runs tr').length, first: look()};
document.querySelector('#axis button[value=time]').click();
document.querySelector('section .head button').click();
document.querySelectorAll('#runs button')[1].click();
answer.second = look();
"""

# Of each run, in the first chart and in the table.
LINES = """
const lines = Chart.getChart(document.querySelector('canvas')).data.datasets.filter(set => !set.label.endsWith(')'));
const answer = {
  drawn: lines.map(set => [set.borderColor, set.borderDash.join(' ')].join()),
  swatches: [...document.querySelectorAll('.swatch')].map(swatch => swatch.style.borderTop),
};
"""

CELLS = """
const [names, values] = [...document.querySelectorAll('#runs tr')].map(row => [...row.children].map(cell =>
    cell.textContent));
const answer = {cells: Object.fromEntries(names.map((name, i) => [name, values[i]]))};
"""


def write_run(folder, staleness, scale, tells_loss=True):
    os.mkdir(folder)
    with open(f"{folder}/metrics.jsonl", "w") as file:
        for i in range(1, 101):
            line = dict(kind="train", step=10 * i, epoch=i / 10, samples=100 * i, time=0.5 * i,
                        loss=None if 40 <= i < 50 else scale * math.exp(-i / 30), accuracy=1 - math.exp(-i / 30),
                        learning_rate=0.1, samples_per_second=200, staleness=staleness)
            file.write(json.dumps(line) + "\n")
            if i % 25 == 0:
                line = dict(kind="eval" if i < 100 else "test", step=10 * i, epoch=i / 10, samples=100 * i,
                            time=0.5 * i, loss=scale * math.exp(-i / 29) if tells_loss else None, accuracy=0.5)
                file.write(json.dumps(line) + "\n")


def main():
    browser = chromium("PlotPageTest", "ABrowserDrawsIt")
    rubato = os.path.abspath(sys.argv[1])
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    write_run(f"{folder}/first", 0, 2)
    write_run(f"{folder}/second", 0, 3)
    subprocess.run([rubato, "plot", "first", "second", "--output", "page.html"], check=True, cwd=folder)
    with open(f"{folder}/page.html", encoding="utf-8") as file:
        answer = ask(browser, file.read(), ASK, folder)
    write_run(f"{folder}/accuracy", 0, 1, tells_loss=False)
    subprocess.run([rubato, "plot", "accuracy", "--output", "accuracy.html"], check=True, cwd=folder)
    with open(f"{folder}/accuracy.html", encoding="utf-8") as file:
        cells = ask(browser, file.read(), CELLS, folder)["cells"]
    assert cells["eval loss"] == cells["test loss"] == "–" and cells["test accuracy"] == "50.00 %", cells

    names = [f"run-{number}" for number in range(17)]
    for number, name in enumerate(names):
        write_run(f"{folder}/{name}", 0, 1 + number)
    subprocess.run([rubato, "plot", *names, "--output", "many.html"], check=True, cwd=folder)
    with open(f"{folder}/many.html", encoding="utf-8") as file:
        lines = ask(browser, file.read(), LINES, folder)
    assert lines["errors"] == [], lines["errors"]
    for kind in "drawn", "swatches":
        assert len(lines[kind]) == len(set(lines[kind])) == 17, lines[kind]

    assert answer["errors"] == [], answer["errors"]
    assert answer["title"] == "2 runs – Rubato", answer["title"]
    assert answer["rows"] == 3
    assert "Staleness: 0 throughout" in answer["notes"], answer["notes"]
    first, second = answer["first"], answer["second"]
    assert [chart["title"] for chart in first] == ["Loss", "Accuracy", "Learning rate", "Samples per second"]
    loss = first[0]
    assert sorted(loss["sets"], key=lambda one: one["label"]) == [
        {"label": "first", "hidden": False, "points": 100, "gaps": 10},
        {"label": "first (eval)", "hidden": False, "points": 3, "gaps": 0},
        {"label": "first (test)", "hidden": False, "points": 1, "gaps": 0},
        {"label": "second", "hidden": False, "points": 100, "gaps": 10},
        {"label": "second (eval)", "hidden": False, "points": 3, "gaps": 0},
        {"label": "second (test)", "hidden": False, "points": 1, "gaps": 0}], loss["sets"]
    assert loss["type"] == "linear" and loss["end"] == 1000
    assert loss["blue"] > 100 and loss["orange"] > 100, loss
    # Over time, the loss on a logarithmic scale, the second run hidden.
    loss = second[0]
    assert loss["type"] == "logarithmic" and second[1]["type"] == "linear" and loss["end"] == 50, second
    assert [one["hidden"] for one in loss["sets"]] == [False, False, False, True, True, True]
    assert loss["blue"] > 100 and loss["orange"] == 0, loss
    print("drawn:", [(chart["title"], chart["blue"], chart["orange"]) for chart in first])


main()
