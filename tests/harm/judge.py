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


def blocks(summary, job):
    """Each block's version is the number of contributions on arrival and of steps in sync, each sample counted once.
    Accounts are those of the last term, with what the checkpoint holds that it began at, or what was kept."""
    views = [view for view in job.views() if view["term"] == job.term()]
    lineages = {}  # -> (is sync, the version that it began at)
    for view in views:
        lineages.setdefault(view["lineage"], (view["mode"] == "sync", view["from_step"]))
    in_order = [lineages[lineage] for lineage in sorted(lineages)]
    gaps = 0  # contributions below where the term began that no block held: those that were under way
    if job.term() > 1 and not in_order[0][0]:
        checkpoint = job.returns()[-1][0]
        # With what was left of the units given out, a later one has its name.
        since = job.coordinator().said().rpartition("went back to step")[2]
        is_replaced = checkpoint and f"checkpoint {checkpoint}\n" in since
        in_order[0] = (False, job.begun_at() if checkpoint is None or is_replaced else updates_before(checkpoint))
        if checkpoint is None:
            gaps = 2 * sum(process.name.startswith("worker") for process in job.processes)
    expect(summary["blocks"], "the summary tells of no block")
    for block in summary["blocks"]:
        ends = [begin for _, begin in in_order[1:]] + [block["updates"]]
        arrived = sum(end - begin for (sync, begin), end in zip(in_order, ends) if not sync)
        expect(arrived <= summary["contributions"]["applied"] <= arrived + gaps,
               f"block {block}: {arrived} contributions on arrival, {summary['contributions']} in all")
        expect(block["samples"] == summary["samples"], f"block {block}: expected {summary['samples']} samples")
    if all(view["mode"] == "sync" for view in job.views()):
        for block in summary["blocks"]:
            expect(block["updates"] == summary["steps"], f"block {block}: expected {summary['steps']} updates")


def manifest_of(checkpoint):
    with open(f"{checkpoint}/manifest.json") as file:
        return json.load(file)


def updates_before(checkpoint):
    """The contributions, or steps, that all blocks of the checkpoint hold."""
    if not checkpoint:
        return 0
    manifest = manifest_of(checkpoint)
    given = int(manifest["step"])
    if manifest["mode"] == "MODE_SYNC":
        return given
    def holds(block, unit):
        return unit < int(block["units_below"]) or any(
            int(run["begin"]) <= unit < int(run["end"]) for run in block.get("unit_runs", ()))
    lowest = min(int(block["units_below"]) for block in manifest["blocks"])
    return given - sum(not all(holds(block, unit) for block in manifest["blocks"]) for unit in range(lowest, given))


def terms(summary, job, loses_lines):
    """Views count from 1 in each term; a server was lost for each but the first; what was trained in vain is told to
    the step. `loses_lines`: the disk was full for a while, and what was trained then is in no line."""
    before = (0, 0)
    for view in job.views():
        now = (view["term"], view["view"])
        follows = now == (before[0], before[1] + 1) or (now[0] > before[0] and now[1] == 1)
        expect(follows, f"view {now[1]} of term {now[0]} comes after view {before[1]} of term {before[0]}")
        before = now
    expect(summary["servers_lost"] == job.term() - 1,
           f"{job.term()} terms, and servers_lost is {summary['servers_lost']}")
    # The last term may have trained nothing.
    samples = [line["samples"] for line in job.train_lines()] + [summary["samples"]]
    drops = sum(max(0, earlier - later) for earlier, later in zip(samples, samples[1:]))
    found, slack = summary["samples_rolled_back"], 512 * (job.term() - 1)  # what a line may tell of, or not yet
    most = drops + slack
    if loses_lines:  # those of the log, too
        most = sum(samples for _, samples in job.returns()) if job.tells_all_returns() else found
    expect(drops - slack <= found <= most,
           f"samples_rolled_back: {found}, by the lines of metrics.jsonl {drops} to within {slack}; "
           f"told: {job.returns()}")


def culprits(job, kinds):
    """Whoever is blamed was harmed, in a way that explains it. `kinds` are those that may cost a worker its place."""
    harmed = {process.pid: process.harmed for process in job.processes}
    blames = re.findall(
        r"warning: (worker|shard) (\d+) \(\S+ pid (\d+)\) (is gone|was not heard of|failed|is alive but|says)",
        job.coordinator().said())
    for role, number, pid, how in blames:
        expect(harmed.get(int(pid), set()) & set(kinds),
               f"{role} {number} (pid {pid}) is blamed ('{how}'), which was {harmed.get(int(pid)) or 'not harmed'}")


def nothing_left(job, tag, ports):
    """No process with the tag, nobody who listens at the ports, no temporary file in the folder that all used for
    such."""
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
    # Those of fuzzers are theirs.
    left = [name for name in os.listdir("/dev/shm") if "rubato" in name and "rubato_fuzz" not in name]
    expect(not left, f"shared memory is left: {left}")


def no_temporary_files(folder):
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            expect(not name.endswith(".tmp"), f"a temporary file is left: {parent}/{name}")


def ends_by_name(process, server):
    """The last words of a process of a job whose `server` ("server 1" or "coordinator") has ended name that."""
    words = process.last_words()
    expect(re.match(r"(error|stopped): ", words) and (server in words or server.replace("server", "shard") in words),
           f"{process} does not name {server}: {words}")


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


def samples_of(checkpoint):
    """That were done by then; "" is the beginning."""
    if not checkpoint:
        return 0
    return int(manifest_of(checkpoint)["samples"])


def same_stretch(job, begin, end, number):
    """A stretch in sync between two checkpoints is repeated by one worker to the same bits."""
    samples = samples_of(end)
    again = job.path(f"again-{number}")
    code, _, err = job.rubato("train", "--resume", begin, "--run-dir", again, "--set",
                              "cluster={servers: 1, workers: 1, address: '127.0.0.1:0'}",
                              "--set", "consistency=sync", "--set", f"train.until={{samples: {samples}}}",
                              "--set", "metrics.every={steps: 100}")
    expect(code == 0, f"repeating {begin} to {end}: exit code {code}: {err}")
    found, repeated = (digest(job, path) for path in (end, again))
    expect(found == repeated, f"from {begin} to {end}: digest {found}, repeated {repeated}")


def digest(job, path):
    code, out, err = job.rubato("inspect", path)
    expect(code == 0, f"inspect {path}: {err}")
    return re.search(r"^digest: (.*)$", out, re.MULTILINE).group(1)
