"""What must be true of a job in the end, whatever harm it has met. Each function raises Finding."""

import json
import os
import re

from waiting import Finding


def expect(condition, sentence):
    if not condition:
        raise Finding(sentence)


def accounts(summary):
    """Of the contributions on arrival: what was given out is accounted for, one by one."""
    counts = summary["contributions"]
    given = counts["applied"] + counts["partial"] + counts["lost"] + counts["left_out"]
    expect(counts["given"] == given, f"the accounts do not balance: {counts}")


def ledger(status):
    """The same while it trains."""
    counts = status.get("ledger")
    if counts:
        rest = sum(counts[key] for key in ("applied", "partial", "lost", "left_out", "under_way"))
        expect(counts["given"] == rest, f"the accounts do not balance: {counts}")


def blocks(summary, views):
    """Each block's version is the number of contributions on arrival and of steps in sync, each sample counted once."""
    lineages = {}  # -> (is sync, the version that it began at)
    for view in views:
        lineages.setdefault(view["lineage"], (view["mode"] == "sync", view["from_step"]))
    in_order = [lineages[lineage] for lineage in sorted(lineages)]
    expect(summary["blocks"], "the summary tells of no block")
    for block in summary["blocks"]:
        ends = [begin for _, begin in in_order[1:]] + [block["updates"]]
        arrived = sum(end - begin for (sync, begin), end in zip(in_order, ends) if not sync)
        expect(arrived == summary["contributions"]["applied"],
               f"block {block}: {arrived} contributions on arrival, {summary['contributions']} in all")
        expect(block["samples"] == summary["samples"], f"block {block}: expected {summary['samples']} samples")
    if all(sync for sync, _ in in_order):
        for block in summary["blocks"]:
            expect(block["updates"] == summary["steps"], f"block {block}: expected {summary['steps']} updates")


def culprits(job, kinds):
    """Whoever is blamed was harmed, in a way that explains it. `kinds` are those that may cost a worker its place."""
    harmed = {process.pid: process.harmed for process in job.processes}
    blames = re.findall(r"warning: (worker|shard) (\d+) \(\S+ pid (\d+)\) (is gone|was not heard of|failed|is alive but|says)",
                        job.servers()[0].said())
    for role, number, pid, how in blames:
        expect(harmed.get(int(pid), set()) & set(kinds),
               f"{role} {number} (pid {pid}) is blamed ('{how}'), which was {harmed.get(int(pid)) or 'not harmed'}")


def nothing_left(job, tag, ports):
    """No process with the tag, nobody who listens at the ports, no temporary file in the folder that all used for such."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    is_ours = f"RUBATO_HARM={tag}".encode() in file.read().split(b"\0")
                with open(f"/proc/{entry}/stat") as file:
                    is_zombie = file.read().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:
                continue
            expect(not is_ours or is_zombie, f"process {entry} is left: {open(f'/proc/{entry}/cmdline').read()}")
    with open("/proc/net/tcp") as table:
        listening = {int(line.split()[1].split(":")[1], 16) for line in list(table)[1:] if line.split()[3] == "0A"}
    expect(not listening & set(ports), f"ports are left: {listening & set(ports)}")
    left = [name for name in os.listdir("/dev/shm") if "rubato" in name and "rubato_fuzz" not in name]  # those are fuzzers'
    expect(not left, f"shared memory is left: {left}")


def no_temporary_files(folder):
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            expect(not name.endswith(".tmp"), f"a temporary file is left: {parent}/{name}")


def ends_by_name(process, shard):
    """The last words of a process of a job whose server has ended name that."""
    words = process.last_words()
    expect(re.match(r"(error|stopped): ", words) and (f"shard {shard}" in words or f"server {shard}" in words),
           f"{process} does not name shard {shard}: {words}")


def same_bits(job, steps):
    """In sync: the digest of the job that nobody disturbed."""
    again = job.path("undisturbed")
    code, _, err = job.rubato("train", job.path("job.yaml"), "--run-dir", again, "--set",
                              "cluster={servers: 1, workers: 1, address: '127.0.0.1:0'}", "--set",
                              f"train.until={{steps: {steps}}}", "--set", "metrics.every={steps: 100}")
    expect(code == 0, f"the undisturbed run: exit code {code}: {err}")
    with open(f"{again}/summary.json") as file:
        undisturbed = json.load(file)
    summary = job.summary()
    for key in ("steps", "samples", "digest", "test_loss"):
        expect(summary[key] == undisturbed[key], f"{key}: found {summary[key]}, undisturbed {undisturbed[key]}")


def same_stretch(job, begin, end, number):
    """A stretch in sync between two checkpoints is repeated by one worker to the same bits."""
    with open(f"{end}/manifest.json") as file:
        samples = int(json.load(file)["samples"])
    again = job.path(f"again-{number}")
    code, _, err = job.rubato("train", "--resume", begin, "--run-dir", again, "--set",
                              "cluster={servers: 1, workers: 1, address: '127.0.0.1:0'}", "--set", "consistency=sync", "--set",
                              f"train.until={{samples: {samples}}}", "--set", "metrics.every={steps: 100}")
    expect(code == 0, f"repeating {begin} to {end}: exit code {code}: {err}")
    found, repeated = (digest(job, path) for path in (f"{end}/parameters.safetensors", again))
    expect(found == repeated, f"from {begin} to {end}: digest {found}, repeated {repeated}")


def digest(job, path):
    code, out, err = job.rubato("inspect", path)
    expect(code == 0, f"inspect {path}: {err}")
    return re.search(r"^digest: (.*)$", out, re.MULTILINE).group(1)
