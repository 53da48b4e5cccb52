"""What a run records can be read by others: TensorBoard's event file, the JSON log, the resolved job.

Trains a small job. Reads its event file by the published format (TFRecord framing with masked CRC-32C, Protocol
Buffers' wire format, the field numbers of TensorFlow's event.proto and summary.proto), with code that shares nothing
with Rubato's, and compares every scalar with metrics.jsonl. Where the Python module tensorboard is installed, its own
reader does the same.

Usage: tensorboard_test.py RUBATO   (the binary).
"""

import glob
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

JOB = """
version: 1
name: records
seed: 4
cluster: {servers: 2, workers: 2, address: "127.0.0.1:0"}
data: {format: glyphs, train_size: 500, test_size: 100, validation: {fraction: 0.2}}
model: {layers: [flatten, linear: {out_features: 10}]}
optimizer: {learning_rate: 0.5}
train: {batch_size: 20, micro_batches: 4, until: {epochs: 3}}
metrics: {every: {steps: 5}}
"""


def crc32c(data):
    """RFC 3720's polynomial, a bit at a time."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


assert crc32c(b"123456789") == 0xe3069283  # the customary check value


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def records(data):
    while data:
        length, length_crc = struct.unpack("<QI", data[:12])
        assert length_crc == masked(data[:8])
        payload, (payload_crc,) = data[12:12 + length], struct.unpack("<I", data[12 + length:16 + length])
        assert len(payload) == length and payload_crc == masked(payload)
        yield payload
        data = data[16 + length:]


def fields(data):
    """(number, value) of a message: integers, raw 4 or 8 bytes, or bytes."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return value, at
    at = 0
    while at < len(data):
        tag, at = varint(at)
        if tag & 7 == 0:
            value, at = varint(at)
        else:
            size = {1: 8, 5: 4}.get(tag & 7)
            if size is None:
                assert tag & 7 == 2, tag
                size, at = varint(at)
            value, at = data[at:at + size], at + size
        yield tag >> 3, value


def read_events(path):
    """{tag: [(step, value, wall time)]}"""
    with open(path, "rb") as file:
        events = [dict(fields(record)) for record in records(file.read())]
    assert events[0][3] == b"brain.Event:2"  # file_version
    scalars = {}
    for event in events[1:]:
        (wall_time,) = struct.unpack("<d", event[1])
        for number, value in fields(event[5]):  # summary
            assert number == 1
            value = dict(fields(value))
            (simple_value,) = struct.unpack("<f", value[2])
            scalars.setdefault(value[1].decode(), []).append((event.get(2, 0), simple_value, wall_time))
    return scalars


def read_with_tensorboard(folder):
    from tensorboard.backend.event_processing import event_accumulator
    accumulator = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0})
    accumulator.Reload()
    return {tag: [(e.step, e.value, e.wall_time) for e in accumulator.Scalars(tag)]
            for tag in accumulator.Tags()["scalars"]}


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def expected_scalars(run):
    scalars = {}
    with open(f"{run}/metrics.jsonl") as file:
        for line in file:
            line = json.loads(line)
            for figure in ("loss", "accuracy", "learning_rate", "samples_per_second", "staleness",
                           "communication_hidden"):
                if figure in line:
                    scalars.setdefault(f"{line['kind']}/{figure}", []).append(
                        (line["step"], float32(line[figure]), line["time"]))
    return scalars


def compare(got, expected, start, end):
    assert set(got) == set(expected), (set(got), set(expected))
    assert {"train/loss", "train/learning_rate", "eval/loss", "eval/accuracy", "test/accuracy"} <= set(got)
    for tag, points in expected.items():
        assert [point[:2] for point in got[tag]] == [point[:2] for point in points], tag
        assert all(start <= point[2] <= end for point in got[tag]), tag
        if tag != "train/communication_hidden":  # which not every window knows
            assert len(points) == {"train": 12, "eval": 3, "test": 1}[tag.split("/")[0]], tag


def check_json(path_or_text):
    lines = [json.loads(line) for line in path_or_text.splitlines()]
    assert lines
    for line in lines:
        assert list(line) == ["time", "role", "rank", "level", "message", "fields"], line
    return lines


def run_rubato(arguments, environment=None):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RUBATO__")}
    return subprocess.run([sys.argv[1]] + arguments, env={**clean, **(environment or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True)


def steps_and_values(run):
    return {tag: [point[:2] for point in points] for tag, points in expected_scalars(run).items()}


def train_and_kill_a_server(job, run):
    """`run`, whose server 1 was killed on the way: its metrics go on with a step that they had before."""
    process = subprocess.Popen([sys.argv[1], "train", job, "--run-dir", run, "--set", "train.until={epochs: 200}",
                                "--set", "checkpoint.every={steps: 50}"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    while not glob.glob(f"{run}/checkpoints/step-*") and process.poll() is None:
        time.sleep(0.02)
    for command in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(command, "rb") as file:
                words = file.read().decode().split("\0")
            with open(command.replace("cmdline", "stat")) as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == process.pid and "--shard" in words and words[words.index("--shard") + 1] == "1":
            os.kill(int(command.split("/")[2]), signal.SIGKILL)
    assert process.wait() == 0
    with open(f"{run}/summary.json") as file:
        assert json.load(file)["servers_lost"] == 1
    return run


def write_xml(cases):
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        with open(path, "w") as file:
            skipped = sum(1 for reason in cases.values() if reason)
            file.write(f'<testsuites><testsuite name="RecordsTest" tests="{len(cases)}" skipped="{skipped}">')
            for name, reason in cases.items():
                file.write(f'<testcase name="{name}" classname="RecordsTest">')
                file.write(f'<skipped message="{reason}"/>' if reason else "")
                file.write("</testcase>")
            file.write("</testsuite></testsuites>")


def main():
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    job, run = f"{folder}/job.yaml", f"{folder}/run"
    with open(job, "w") as file:
        file.write(JOB)

    start = time.time()
    # The launcher's environment must reach the processes through the job alone: WORLD_SIZE would otherwise beat the
    # flag there.
    done = run_rubato(["train", job, "--run-dir", run, "--set", "log.format=json", "--set", "cluster.workers=2"],
                      {"RUBATO__OPTIMIZER__LEARNING_RATE": "0.125", "WORLD_SIZE": "3",
                       "RUBATO_PORT": "tcp://10.0.0.1:80"})
    end = time.time()
    assert done.returncode == 0, done.stderr
    (events,) = glob.glob(f"{run}/events.out.tfevents.*")
    compare(read_events(events), expected_scalars(run), start, end)
    assert read_events(events)["train/learning_rate"][0][1] == 0.125

    # Logs.
    lines = check_json(done.stderr)
    assert lines[0]["message"] == f"run: {run}" and lines[0]["role"] == "launcher", lines[0]
    logs = glob.glob(f"{run}/logs/*.log")
    assert len(logs) == 4, logs
    for log in logs:
        with open(log) as file:
            text = file.read()
        role, rank = os.path.basename(log)[:-4].split("-")
        for line in check_json(text):
            assert (line["role"], line["rank"]) == (role, int(rank)), line
    failed = run_rubato(["train", job, "--run-dir", f"{folder}/failed", "--set", "log.format=json", "--set",
                         "cluster.address=192.0.2.1:9"])
    assert failed.returncode == 1
    fatal = [line for line in check_json(failed.stderr) if line["level"] == "fatal"]
    assert len(fatal) == 1 and fatal[0]["message"].startswith("server 0: cannot listen at 192.0.2.1:9"), failed.stderr

    # The resolved job says what came from where, and gives the same bits again.
    with open(f"{run}/job.yaml") as file:
        resolved = file.read()
    assert "  learning_rate: 0.125  # from RUBATO__OPTIMIZER__LEARNING_RATE\n" in resolved, resolved
    assert "# from --set" in resolved and "WORLD_SIZE" not in resolved, resolved
    again = run_rubato(["train", f"{run}/job.yaml", "--run-dir", f"{folder}/again",
                        "--set", "metrics.tensorboard=false"])
    assert again.returncode == 0, again.stderr
    assert not glob.glob(f"{folder}/again/events*")
    digests = []
    for summary in (f"{run}/summary.json", f"{folder}/again/summary.json"):
        with open(summary) as file:
            digests.append(json.load(file)["digest"])
    assert digests[0] == digests[1]
    assert "\x1b" not in done.stderr + again.stderr + failed.stderr

    went_back = train_and_kill_a_server(job, f"{folder}/back")
    files = sorted(glob.glob(f"{went_back}/events.out.tfevents.*"))
    got = {}
    for file in files:
        for tag, points in read_events(file).items():
            got.setdefault(tag, []).extend(points)
    assert {tag: [point[:2] for point in points] for tag, points in got.items()} == steps_and_values(went_back)

    cases = {"AnIndependentReader": "", "JsonLogs": "", "ResolvedJob": "", "AJobThatWentBack": ""}
    try:
        compare(read_with_tensorboard(run), expected_scalars(run), start, end)
        with_seam = {tag: [point[:2] for point in points] for tag, points in read_with_tensorboard(went_back).items()}
        assert with_seam == steps_and_values(went_back)
        cases["TensorBoardsReader"] = ""
    except ImportError:
        cases["TensorBoardsReader"] = (
            "the Python module tensorboard is not installed; read by the published format instead")
    write_xml(cases)
    print(cases)


main()
