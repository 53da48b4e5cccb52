"""The notebook among the examples runs, cell by cell, and shows what it says. Without Jupyter.

Usage: notebook_test.py RUBATO            (the binary). Needs Debian's python3-torch; skipped without it.
       notebook_test.py RUBATO --write    puts the outputs of this run into the notebook.
"""

import ast
import contextlib
import io
import itertools
import json
import os
import sys

from programs import HERE, WithPrograms, need_torch
from skipped import run_cases

need_torch("NotebookTest", "Runs")
sys.path.insert(0, str(HERE.parent))

NOTEBOOK = HERE.parent / "examples" / "live_switch.ipynb"
WRITES = "--write" in sys.argv and not sys.argv.remove("--write")


def run_cell(text, names):
    """Runs a code cell as Jupyter does; (what it prints, the value of its last line)."""
    body = ast.parse(text).body
    last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), names)
        if last is not None:
            value = eval(compile(last, NOTEBOOK.name, "eval"), names)
    return printed.getvalue(), value


def outputs_of(number, printed, value):
    """As a notebook's file has them."""
    outputs = []
    if printed:
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": [repr(value) if not hasattr(value, "_repr_svg_") else "<Drawing>"]}
        if hasattr(value, "_repr_svg_"):
            data["image/svg+xml"] = value._repr_svg_().splitlines(keepends=True)
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


class NotebookTest(WithPrograms):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        os.environ["RUBATO_BIN_DIR"] = self.environment["RUBATO_BIN_DIR"]

    def test_runs_and_switches_while_it_trains(self):
        notebook = json.loads(NOTEBOOK.read_text())
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        names = {"__name__": "__main__"}
        for number, cell in enumerate(cells, 1):
            outputs = outputs_of(number, *run_cell("".join(cell["source"]), names))
            # What stands in the notebook is of the same kinds, of another run.
            if not WRITES:
                self.assertEqual([sorted(output.get("data", "stdout")) for output in outputs],
                                 [sorted(output.get("data", "stdout")) for output in cell["outputs"]])
            cell.update(outputs=outputs, execution_count=number)
        modes = [mode for mode, _ in itertools.groupby(view["mode"] for view in names["views"])]
        self.assertEqual(modes, ["sync", "async", "sync"])
        self.assertEqual(names["lines"][-1]["samples"], 12 * 4096)
        # It has learnt, and another worker's gradient was not waited for meanwhile.
        self.assertGreater(names["accuracy"], 0.7)
        self.assertGreater(max(line["staleness"] for line in names["lines"]), 0)
        if WRITES:
            NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


run_cases()
