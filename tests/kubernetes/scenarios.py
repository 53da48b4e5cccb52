"""What is done to a job's pods, and what is to come of it. Each returns what happened, and figures."""

import signal


def _figures(trial, **more):
    digest = trial.complete()
    longest, first = trial.standstill()
    return dict(standstill=longest, first_step=first, digest=digest, **more)


def _await_reached(trial, job, peers):
    """Seconds from when the newest pod listens until all `peers` have connected to it."""
    seen = {}

    def reached():
        pod = job.running().get(0)
        if pod is None:
            return False
        now = trial.connected(pod)
        if now is None:
            return False
        seen.setdefault("listens", trial.now())
        return {p.address for p in peers} <= now

    trial.run_until(reached, "all have reached the pod that came back")
    return trial.now() - seen["listens"]


def undisturbed(trial):
    trial.await_step(100)
    code, said = trial.cluster.kubectl(trial.head(r"kubectl exec .* status .*"))
    assert code == 0 and "state       training" in said, said
    trial.run_until(lambda: trial.coordinator.pod().is_ready and trial.servers.pod().is_ready, "ready servers")
    digest = trial.complete()
    files = trial.head_pod()
    trial.cluster.apply(files)
    name = trial.base + "-files"
    pod = trial.cluster.pods[name]
    trial.run_until(pod.is_started, "the pod for copying")
    code, said = trial.cluster.kubectl(f"kubectl exec {name} -- sh -c 'cat /runs/*/summary.json'")
    assert code == 0 and digest in said, said
    code, said = trial.cluster.kubectl(f"kubectl exec {name} -- sh -c 'touch /runs/x /x; id -u; grep CapBnd /proc/self/status'")
    assert said.count("Read-only file system") == 2 and "10001" in said and "CapBnd:\t0000000000000000" in said, said
    return dict(what="trained to the end; the pod for copying reads the result", digest=digest)


def _replaced(trial, job, index, old):
    trial.run_until(lambda: old.ended is not None, f"the end of {old.name}", 150)
    trial.run_until(lambda: index in job.running(), f"another pod instead of {old.name}")
    new = job.pod(index)
    assert new.address != old.address
    return new


def worker_killed(trial):
    trial.await_step(100)
    old = trial.workers.pod(1)
    trial.harm()
    old.signal(signal.SIGKILL)
    trial.await_view("worker 1 .* is gone")
    new = _replaced(trial, trial.workers, 1, old)
    trial.await_view("worker 1 .* joins")
    return _figures(trial, what=f"exit code {old.exit_code()}; another pod, at {new.address} instead of {old.address}, joined")


def worker_cut_off(trial):
    trial.await_step(100)
    pod = trial.workers.pod(1)
    trial.harm()
    trial.network.set_link(pod.link, False)
    trial.await_view("worker 1 .* was not heard of")
    noticed = trial.now() - trial.harmed
    before = trial.steps[-1][1]
    trial.await_step(before + 20)
    trial.network.set_link(pod.link, True)
    trial.await_view("worker 1 .* joins")
    assert pod.ended is None
    return _figures(trial, noticed=noticed, what="its place was given up; healed, the same process joined anew")


def scaled(trial):
    trial.await_step(100)
    line = trial.head(r"kubectl patch .*")
    gone = [trial.workers.pod(2), trial.workers.pod(3)]
    trial.harm()
    trial.cluster.kubectl(line.replace(":4", ":2"))
    trial.run_until(lambda: all(pod.ended for pod in gone), "the end of two workers")
    trial.await_view("leaves|left", 1)
    trial.await_step(trial.steps[-1][1] + 20)
    assert sorted(trial.workers.running()) == [0, 1]
    trial.cluster.kubectl(line)
    trial.await_view("joins", 2)
    codes = ", ".join(str(pod.exit_code()) for pod in gone)
    return _figures(trial, what=f"two left (exit codes {codes}), two others joined")


def rolling_restart(trial):
    trial.await_step(60)
    trial.harm()
    codes = []
    for index in range(4):
        old = trial.workers.pod(index)
        trial.cluster.kubectl(f"kubectl delete pod {old.name}")
        _replaced(trial, trial.workers, index, old)
        codes.append(str(old.exit_code()))
        trial.await_view("joins", index + 1)
    return _figures(trial, what=f"each left (exit codes {', '.join(codes)}) and another joined")


def _server(trial, job, harm):
    trial.await_step(120)
    old = job.pod()
    peers = [trial.workers.pod(i) for i in range(4)] + ([trial.servers.pod()] if job is trial.coordinator else [])
    trial.harm()
    noticed = harm(old)
    new = _replaced(trial, job, 0, old)
    reached = _await_reached(trial, job, peers)
    figures = _figures(trial, reached=reached, **noticed)
    summary = trial.summary()
    figures["what"] = (f"exit code {old.exit_code()}; came back at {new.address} instead of {old.address}; "
                       f"{summary['samples_rolled_back'] // 64} steps trained again")
    assert summary["servers_lost"] >= 1, summary["servers_lost"]
    return figures


def _killed(trial, job):
    def harm(pod):
        pod.signal(signal.SIGKILL)
        return {}
    return _server(trial, job, harm)


def _host_lost(trial, job):
    """The link goes down; when others have noticed, the pod is given up, as that of a lost node is."""
    def harm(pod):
        trial.network.set_link(pod.link, False)
        others = [p for j in (trial.coordinator, trial.servers, trial.workers) for p in j.running().values() if p is not pod]
        trial.run_until(lambda: trial.said_after(others, "warning|is gone|lost"), "word of the lost host")
        noticed, _ = trial.said_after(others, "warning|is gone|lost")
        pod.is_disrupted = True
        pod.signal(signal.SIGKILL)
        return dict(noticed=noticed)
    return _server(trial, job, harm)


def shard_1_killed(trial):
    return _killed(trial, trial.servers)


def shard_0_killed(trial):
    return _killed(trial, trial.coordinator)


def shard_0_deleted(trial):
    """The training stops with a checkpoint; its other pods, which end with an error, are replaced, too, and go on from it."""
    trial.await_step(120)
    old = [trial.coordinator.pod(), trial.servers.pod()] + [trial.workers.pod(i) for i in range(4)]
    trial.harm()
    trial.cluster.kubectl(f"kubectl delete pod {old[0].name}")
    trial.run_until(lambda: all(pod.ended for pod in old), "the end of all pods")
    figures = _figures(trial)
    codes = ", ".join(str(pod.exit_code()) for pod in old[1:])
    figures["what"] = (f"it ended with {old[0].exit_code()}, the others with {codes}; others went on, "
                       f"{trial.summary()['samples_rolled_back'] // 64} steps trained again")
    return figures


def shard_1_host_lost(trial):
    return _host_lost(trial, trial.servers)


def shard_0_host_lost(trial):
    return _host_lost(trial, trial.coordinator)


def server_wrong_argument(trial):
    trial.run_until(lambda: trial.servers.condition, "the end of the Job of the servers")
    pod = trial.servers.pods[0]
    assert (len(trial.servers.pods), pod.exit_code()) == (1, 2), pod.said()
    assert (trial.servers.condition, trial.servers.reason) == ("Failed", "PodFailurePolicy")
    return dict(what=f"exit code 2; the Job is {trial.servers.condition}, reason {trial.servers.reason}, after one pod")


def worker_wrong_argument(trial):
    trial.run_until(lambda: trial.workers.condition, "the end of the Job of the workers")
    assert [pod.exit_code() for pod in trial.workers.pods] == [2] * 4, [pod.said() for pod in trial.workers.pods]
    assert (trial.workers.condition, trial.workers.reason) == ("Failed", "FailedIndexes")
    return dict(what=f"exit code 2 of all; the Job is {trial.workers.condition}, reason {trial.workers.reason}, after one pod for each index")


ALL = {
    "undisturbed": undisturbed,
    "a worker killed": worker_killed,
    "a worker cut off, and healed": worker_cut_off,
    "two workers fewer, then two more (`kubectl patch`)": scaled,
    "all workers restarted, one after the other (`kubectl delete pod`)": rolling_restart,
    "shard 1 killed": shard_1_killed,
    "shard 0 killed": shard_0_killed,
    "shard 0 deleted (`kubectl delete pod`)": shard_0_deleted,
    "the host of shard 1 lost": shard_1_host_lost,
    "the host of shard 0 lost": shard_0_host_lost,
    "a wrong argument for the servers": server_wrong_argument,
    "a wrong argument for the workers": worker_wrong_argument,
}
SHORT = ["undisturbed", "a worker killed", "shard 0 killed", "a wrong argument for the servers",
         "a wrong argument for the workers"]
# What stands in the manifests, and what instead.
WRONG = {"server_wrong_argument": ('"--first-shard"', '"--frist-shard"'), "worker_wrong_argument": ('- "--config"', '- "--confg"')}
