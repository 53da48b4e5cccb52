"""A browser draws the report of `rubato bench convergence`.

Makes a small study, marks one of its runs as a miss, lets headless Chromium open the page as wide as a desk and as
narrow as a telephone, and compares what Chart.js has drawn with results.jsonl. Skipped without Chromium.

Usage: convergence_page_test.py RUBATO   (the binary).
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from browser import ask, chromium
from study_job import JOB

SEEDS = 3
CHARTS = ["time-to-target", "curve-time", "curve-samples", "curve-updates", "final", "staleness", "staleness-counts",
          "workers", "rates"]

ASK = """
const look = () => Object.fromEntries([...document.querySelectorAll('#charts section')].map(section => {
  const canvas = section.querySelector('canvas'), chart = Chart.getChart(canvas);
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const drawn = [0, 0];  // pixels in the colours of the modes
  for (let i = 0; i < pixels.length; i += 4) {
    const mode = [0x0072b2, 0xd55e00].indexOf(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
    if (mode >= 0 && pixels[i + 3] === 255) ++drawn[mode];
  }
  return [section.id, {
    shown: !section.hidden, drawn, note: section.querySelector('.note').textContent,
    text: canvas.getAttribute('role') + ': ' + canvas.getAttribute('aria-label'),
    axes: [chart.options.scales.x.title.text, chart.options.scales.y.title.text],
    wide: section.getBoundingClientRect().right <= innerWidth,
    sets: chart.data.datasets.map(set => ({
        mode: set.mode, miss: !!set.isMiss, median: !!set.isMedian, line: !!set.isLine,
        dash: (set.borderDash || []).join(' '), points: set.data.map(point => [point.x, point.y]),
        visible: !set.hidden, style: set.pointStyle})),
  }];
}));
const answer = {
  title: document.title, width: innerWidth, content: document.documentElement.scrollWidth,
  verdicts: [...document.querySelectorAll('#verdicts li')].map(item => item.textContent),
  conditions: document.getElementById('conditions').textContent,
  command: document.getElementById('command').textContent,
  rows: document.querySelectorAll('#modes tr').length, runs: document.querySelectorAll('#runs tr').length,
  choices: [...document.querySelectorAll('select')].map(select => select.id), first: look(),
};
const select = document.querySelector('#choose-scale');
select.selectedIndex = 1;
select.dispatchEvent(new Event('change'));
document.querySelectorAll('#legend button')[0].click();
answer.second = look();
answer.pressed = [...document.querySelectorAll('#legend button')].map(button => button.getAttribute('aria-pressed'));
"""

ALONE = """
const root = document.documentElement;
const answer = {charts: [...document.querySelectorAll('section')].map(section => section.id),
                tables: document.querySelectorAll('table').length,
                legend: document.querySelectorAll('#legend button').length,
                cut: root.scrollHeight > innerHeight || root.scrollWidth > innerWidth,
                plot: document.querySelector('.plot').getBoundingClientRect().height};
"""

# Every seed is a dot within the axis.
NARROW = """
const chart = Chart.getChart(document.querySelector('#time-to-target canvas'));
const answer = {content: document.documentElement.scrollWidth, end: chart.scales.x.max,
                slowest: Math.max(...chart.data.datasets.flatMap(set => set.data.map(point => point.x)))};
"""


def run_study(rubato, folder, path):
    with open(f"{folder}/job.yaml", "w", encoding="utf-8") as file:
        file.write(JOB)
    subprocess.run(
        [rubato, "bench", "convergence", "job.yaml", "--mode", "sync", "--mode", "async",
         "--target", "eval/accuracy=0.3", "--seeds", str(SEEDS), "--speeds", "straggler:factor=4",
         "--compute", "10ms", "--compute-scales", "1,2", "--learning-rates", "0.05,0.1", "--out", "study"],
        cwd=folder, check=True, capture_output=True, env={**os.environ, "PATH": path})
    pictures = sorted(name[:-4] for name in os.listdir(f"{folder}/study") if name.endswith(".png"))
    assert pictures == sorted(CHARTS), pictures
    for name in pictures:
        with open(f"{folder}/study/{name}.png", "rb") as file:
            picture = file.read()
        assert picture[:8] == b"\x89PNG\r\n\x1a\n", picture[:24]
        # 900 x 480, and not empty.
        assert picture[16:24] == bytes([0, 0, 3, 132, 0, 0, 1, 224]), picture[:24]
        assert len(picture) > 8000, (name, len(picture))
    with open(f"{folder}/study/results.jsonl", encoding="utf-8") as file:
        results = [json.loads(line) for line in file]
    with open(f"{folder}/study/report.html", encoding="utf-8") as file:
        return [one for one in results if not one.get("trial")], file.read()


def with_data(page, change):
    """The same with the text of its data as `change` makes it."""
    found = re.search(r'(<script id="data" type="application/json">)(.*?)(</script>)', page, re.DOTALL)
    return page[:found.start(2)] + change(found.group(2)) + page[found.end(2):]


def with_a_miss(text):
    """Seed 1 of the second mode, which was to reach the target, as a miss."""
    data = json.loads(text)
    run = data["groups"][0]["modes"][1]["runs"][1]
    assert run["seed"] == 1 and run["reached"]
    run["reached"] = False
    return json.dumps(data)


def with_long_names(text):
    """Modes of several parts, of which two do not fit into one row of a picture; and the middle one of three runs the
    slowest by far."""
    data = json.loads(re.sub(r"\b(a?sync)\b", r"\1@12.5%+bounded,staleness=3@25%+bounded,staleness=1@25%+\1", text))
    data["groups"][0]["modes"][0]["runs"][1]["seconds"] *= 5
    return json.dumps(data)


def near(found, expected):
    return len(found) == len(expected) and all(
        abs(a - b) <= 1e-6 * abs(b) for a, b in zip(sorted(found), sorted(expected)))


def expect_times(chart, results, scale, missed=None):
    """Every seed is a dot at its time; a miss is none of the median's."""
    for mode, name in enumerate(["sync", "async"]):
        times = {one["seed"]: one["seconds"] for one in results
                 if one["mode"] == name and one.get("compute_scale", 1) == scale}
        assert len(times) == SEEDS
        misses = [time for seed, time in times.items() if (mode, seed) == missed]
        reached = [time for seed, time in times.items() if (mode, seed) != missed]
        sets = [one for one in chart["sets"] if one["mode"] == mode]
        dots, crosses, medians = (
            [point[0] for one in sets if (one["miss"], one["median"]) == kind for point in one["points"]]
            for kind in [(False, False), (True, False), (False, True)])
        assert near(dots, reached) and near(crosses, misses), (sets, times)
        assert near(medians, [statistics.median(reached)]), (medians, reached)
        assert {one["style"] for one in sets if one["miss"]} == {"crossRot"}


def expect_page(answer, results, width):
    assert answer["errors"] == [], answer["errors"]
    # Nothing but tables is wider than the window.
    assert answer["width"] == width and answer["content"] <= width, answer["content"]
    assert answer["title"] == "Which mode reaches eval/accuracy of at least 0.3 first", answer["title"]
    assert any("cannot be judged by 3 seeds" in text for text in answer["verdicts"]), answer["verdicts"]
    assert "10ms for a micro-batch" in answer["conditions"] and "100us of latency" in answer["conditions"]
    assert answer["command"].startswith("rubato bench convergence job.yaml --mode sync"), answer["command"]
    assert answer["rows"] == 1 + 4 and answer["runs"] == 1 + 2 * SEEDS
    assert answer["choices"] == ["choose-scale"]
    first, second = answer["first"], answer["second"]
    assert list(first) == CHARTS, list(first)
    for name, chart in first.items():
        assert chart["shown"] and chart["wide"] and max(chart["drawn"]) > 10, (name, chart["drawn"])
        assert chart["text"].startswith("img: ") and len(chart["text"]) > 40, chart["text"]
        assert chart["axes"][0], name
    # In sync no update is stale; on arrival all of them are counted, in percent.
    counted = first["staleness-counts"]["sets"]
    assert [one.get("mode") for one in counted] == [1, None], counted
    assert abs(sum(point[1] for point in counted[0]["points"]) - 100) < 1e-6, counted
    # Of two workers that draw exponential times half of the updates are fresh, and half of the rest is one version old.
    assert [point[1] for point in counted[1]["points"][:3]] == [50, 25, 12.5][:len(counted[1]["points"])], counted
    # The time of a run is what its workers computed, sent and waited.
    bars = first["workers"]["sets"]
    for worker, mode in enumerate(["sync", "sync", "async", "async"]):
        ends = [sum(one["workers"][worker % 2]) for one in results
                if one["mode"] == mode and one.get("compute_scale", 1) == 1]
        assert abs(sum(one["points"][worker][0] for one in bars) - statistics.mean(ends)) < 1e-5, (bars, ends)
    expect_times(first["time-to-target"], results, 1, missed=(1, 1))
    assert "a miss, drawn at the end of its run: async with seed 1." in first["time-to-target"]["note"]
    assert "sync: 3 of 3 runs reach it" in first["time-to-target"]["text"]
    for axis, end in [("curve-samples", 800), ("curve-updates", None), ("curve-time", None)]:
        lines = [one for one in first[axis]["sets"] if one["line"]]
        assert len(lines) == 2 and lines[0]["dash"] != lines[1]["dash"], lines
        assert end is None or lines[0]["points"][-1][0] == end, lines[0]["points"][-1]
    # A step of two micro-batches is one update in sync and two on arrival.
    ends = [one["points"][-1][0] for one in first["curve-updates"]["sets"] if one["line"]]
    assert ends == [40, 80], ends
    # Twice the computing time, without the first mode.
    expect_times(second["time-to-target"], results, 2)
    assert answer["pressed"] == ["false", "true"]
    assert second["time-to-target"]["drawn"][0] == 0
    assert all(one["visible"] == (one["mode"] == 1) for one in second["time-to-target"]["sets"])


def main():
    browser = chromium("ConvergencePageTest", "ABrowserDrawsIt")
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    rubato = os.path.abspath(sys.argv[1])
    results, page = run_study(rubato, folder, os.path.dirname(browser))
    assert run_study(rubato, folder, "") == (results, page)  # of the runs that are done; and the pictures stay
    for width in [1400, 360]:
        expect_page(ask(browser, with_data(page, with_a_miss), ASK, folder, width), results, width)
    alone = ask(browser, page, ALONE, folder, fragment="#only=curve-time")
    plot = alone.pop("plot")
    assert plot > 1000, plot
    assert alone == {"charts": ["curve-time"], "tables": 0, "legend": 2, "cut": False, "errors": []}, alone
    long_names = with_data(page, with_long_names)
    for name in ["workers", "rates"]:
        alone = ask(browser, long_names, ALONE, folder, 900, "#only=" + name)
        assert 900 < alone["plot"] < plot and not alone["cut"], alone
    narrow = ask(browser, long_names, NARROW, folder, 360)
    assert narrow["content"] <= 360 and narrow["end"] >= narrow["slowest"], narrow


main()
