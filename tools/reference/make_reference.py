"""The pages of docs/reference, made from declarations.

    make_reference.py PROGRAMS SCHEMA TARGET

PROGRAMS is the folder with the built programs, SCHEMA the file that print_schema reads. Every page
is written into the folder TARGET. `bazel run //tools/reference:write` does it for docs/reference.
"""

import pathlib
import re
import subprocess
import sys

MADE = ("<!-- Made by `bazel run //tools/reference:write` from\n"
        "     {source}. Edit that, not this page. -->\n")

KEYS = """# Keys of a job

{made}
Every key of a job's YAML file: what it takes, its default, and what it means. `rubato train
job.yaml --dry-run` prints your job with all defaults filled in, and reports every mistake at once.

* A key of a section is written with dots in `--set` and in messages: `train.batch_size`.
* Durations are written `200ms`, `5s`, `10m`, `1.5h`; a plain number means seconds. Sizes are
  written `256KiB`, `1MiB`; a plain number means bytes.
* Where a section says that a plain value sets a key, `device: cpu` means `device: {{type: cpu}}`.
* The processes of one job must agree on every key but those that are called *local*.

What layers and losses compute is in [models.md](../models.md), what optimizers compute in
[optimizers.md](../optimizers.md), and data formats are in [data.md](../data.md).
{body}"""

COMMANDS = """# Commands and flags

{made}
What each program prints for `--help`.
{body}"""

METRICS = """# Metrics

{made}
`metrics.jsonl` in a run's folder holds a JSON object a line. `kind` says what a line is about:
`train` (means over the training samples since the last line, all in the mode that `mode` names, as
`bounded, staleness 3`), `eval` (of the split that `split` names, while the job trains and at its
end), `test` (the final parameters on the test split) or `back` (the job has gone back to where so
many `updates` were done, and lines before it of later ones are of training in vain). The training
goes on while a test runs, so the line of a test stands behind lines of later steps: its `step` is
that of the parameters that were tested. In the log lines that `rubato train` prints it is
`eval_step`, or `test_step`, beside `step`, which tells how far the training is.

An *axis* tells where in the run a line is. A *curve* is drawn by `rubato plot` and TensorBoard. A
*record* is in the file alone. What stands under *lines* says which kinds of line have the figure.
Lines of a script's tests have its other figures, too, by their own names, as curves
([pytorch.md](../pytorch.md#other-figures-of-a-test)).
{body}"""

MESSAGES = """# Messages and files

{made}
The protocol buffers that the processes of a job send each other, and those in checkpoints and
recordings. Gradients and parameters travel as frames ([wire.md](../wire.md)). All of this may change
with every version ([what a version promises](../versions.md)).
{body}"""

RUN = """# The run folder and exit codes

{made}
## Files of a run

`rubato train` makes a folder `runs/NAME-TIME-XXXX`, or takes that of `--run-dir`. An existing run is
never overwritten. `runs/latest` links to the newest run under `runs/` that has begun to train, not
to one with `--run-dir` and not to a simulated one. [runs.md](../runs.md) tells more.

| file | what it holds |
|---|---|
{files}

## Exit codes

Of `rubato`, `rubato-server` and `rubato-worker`. `rubato train` exits with the code of the process
whose failure ended the run, and prints its reason.

| code | meaning |
|---|---|
{codes}
"""


def ask(*command):
    """What a program prints."""
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def commands(programs):
    """The help of each program, of each verb, and of what a verb can be told to do."""
    tool = str(programs / "tools/rubato")
    asked = [["rubato"]]
    for verb in re.findall(r"^  (\w+)", listed(ask(tool, "--help"), "Verbs"), re.MULTILINE):
        asked.append(["rubato", verb])
        if verb == "bench":
            asked += [["rubato", verb, what] for what in
                      re.findall(r"^  (\w+)  ", ask(tool, verb, "--help").split("\n\n")[1],
                                 re.MULTILINE)]
    text = ""
    for words in asked + [["rubato-server"], ["rubato-worker"]]:
        folder = {"rubato": "tools", "rubato-server": "server", "rubato-worker": "worker"}[words[0]]
        said = ask(str(programs / folder / words[0]), *words[1:], "--help")
        text += f"\n## {' '.join(words)}\n\n```\n{said.rstrip()}\n```\n"
    return text


def listed(text, title):
    """The lines under a title, up to an empty one."""
    return text.split(f"{title}:\n", 1)[1].split("\n\n", 1)[0]


def rows(path, first):
    """A table in a comment: a name, two spaces or more, and a text that may go on below it."""
    table, after = [], False
    for line in pathlib.Path(path).read_text().splitlines():
        after = after or first in line
        if not after:
            continue
        match = re.match(r"// {3,5}(\S.*?)  +(\S.*)$", line)
        more = re.match(r"// {8,}(\S.*)$", line)
        if more and table:
            table[-1][1] += " " + more.group(1)
        elif match:
            table.append([match.group(1), match.group(2)])
        elif table:
            break
    return "\n".join(f"| `{name}` | {text} |" for name, text in table)


def pages(programs, schema):
    """Name and text of each page."""

    def printed(what):
        return ask(str(programs / "tools/reference/print_schema"), what, schema)

    def page(form, source, **parts):
        return form.format(made=MADE.format(source=source), **parts)

    run_folder, exit_code = "common/files/run_folder.h", "common/base/exit_code.cc"
    return {
        "keys.md": page(KEYS, "proto/job.proto", body=printed("keys")),
        "commands.md": page(COMMANDS, "the programs' flags", body=commands(programs)),
        "metrics.md": page(METRICS, "server/run/figures.cc", body=printed("metrics")),
        "messages.md": page(MESSAGES, "proto/", body=printed("messages")),
        "run_folder.md": page(RUN, f"{run_folder} and {exit_code}",
                              files=rows(run_folder, "runs/quickstart"),
                              codes=rows(exit_code, "Exit codes")),
    }


def main():
    programs, schema, target = sys.argv[1:]
    for name, text in pages(pathlib.Path(programs), schema).items():
        (pathlib.Path(target) / name).write_text(text)


if __name__ == "__main__":
    main()
