"""Workers tell a trainer how far the training is, as Kubeflow's trainer wants to hear it, and are
not disturbed by one that does not listen. The trainer here is a server of this file, with a
certificate by an authority of its own."""

import datetime
import http.server
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import script_worker
from skipped import run_cases, skip

WORKER, SERVER = (os.path.abspath(sys.argv.pop()) for _ in range(2))
PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/t/status"
WORDS = "cannot tell the trainer"
JOB = """version: 1
name: told
seed: 3
cluster: {servers: 1, workers: 2, address: "127.0.0.1:0"}
security: {mode: none}
data: {format: glyphs, train_size: 640, test_size: 64}
model: {layers: [flatten, linear: {out_features: 10}]}
loss: cross_entropy
optimizer: {name: sgd, learning_rate: 0.05}
consistency: {mode: sync}
train: {batch_size: 64, micro_batches: 2, until: {steps: %d}}
"""
SCRIPT_JOB = """version: 1
name: script
cluster: {servers: 1, workers: 1, address: "127.0.0.1:0"}
security: {mode: none}
model: script
train: {batch_size: 8, micro_batches: 4, until: {epochs: 3}}
metrics: {every: {steps: 1}}
"""


def make_authority(folder):
    """authority.pem, and by it server.pem, with its key, for localhost."""
    folder.mkdir()

    def openssl(line):
        subprocess.run(["openssl", *line.split()], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    new = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    openssl(f"{new} -x509 -days 2 -subj /CN=authority -keyout authority.key -out authority.pem")
    openssl(f"{new} -subj /CN=trainer -keyout server.key -out server.csr")
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    openssl("x509 -req -days 2 -in server.csr -CA authority.pem -CAkey authority.key "
            "-CAcreateserial -extfile names -out server.pem")


class Trainer(http.server.ThreadingHTTPServer):
    """Keeps what it is told; `code` is its answer. With the first request the token is another."""

    daemon_threads = True

    def __init__(self, folder, token_file, code=200):
        super().__init__(("localhost", 0), Handler)
        self.code, self.token_file, self.told = code, token_file, []
        token_file.write_text("first\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        self.socket = context.wrap_socket(self.socket, server_side=True,
                                          do_handshake_on_connect=False)
        self.url = f"https://localhost:{self.server_port}{PATH}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # who does not trust it goes away


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.told.append((self.path, self.headers["Authorization"],
                                 self.headers["Content-Type"], body["trainerStatus"]))
        self.server.token_file.write_text("second\n")
        self.send_response(self.server.code)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class TrainerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        make_authority(cls.folder / "ours")
        make_authority(cls.folder / "others")

    def train(self, name, url=None, authority="ours", steps=30, script=None):
        """By a server and two workers, or one that is a script's: the digest, what the workers
        said, and for how many seconds it lasted."""
        run = self.folder / name
        shutil.rmtree(run, ignore_errors=True)
        job = self.folder / "job.yaml"
        job.write_text(SCRIPT_JOB if script else JOB % steps)
        environment = dict(os.environ, RUBATO_TEST_COMPUTE_MS="20", RUBATO_WORKER=WORKER,
                           RUBATO_JOB=str(job), RUBATO_RANK="0", **(script or {}))
        if url is not None:
            environment.update(
                KUBEFLOW_TRAINER_SERVER_URL=url,
                https_proxy="http://localhost:1",  # of a company: not for what is in the cluster
                KUBEFLOW_TRAINER_SERVER_CA_CERT=str(self.folder / authority / "authority.pem"),
                KUBEFLOW_TRAINER_SERVER_TOKEN=str(self.folder / "token"))
        begun = time.monotonic()
        processes = []

        def start(*command):
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT, text=True))
            self.addCleanup(processes[-1].kill)

        start(SERVER, "--config", str(job), "--shard", "0", "--run-dir", str(run))
        while not (run / "address").exists():
            self.assertIsNone(processes[0].poll(), "the server has ended")
            time.sleep(0.01)
        address = (run / "address").read_text().strip()
        if script:
            environment["RUBATO__CLUSTER__ADDRESS"] = address
            start(sys.executable, script_worker.__file__)
        for rank in () if script else ("0", "1"):
            start(WORKER, "--config", str(job), "--rank", rank,
                  "--set", f"cluster.address={address}")
        said = [process.communicate(timeout=120)[0] for process in processes]
        self.assertEqual({process.returncode for process in processes}, {0}, said)
        summary = json.loads((run / "summary.json").read_text())
        return summary["digest"], "".join(said[1:]), time.monotonic() - begun

    def trainer(self, code=200):
        made = Trainer(self.folder / "ours", self.folder / "token", code)
        self.addCleanup(made.shutdown)
        return made

    def test_one_worker_tells_it(self):
        trainer = self.trainer()
        _, said, seconds = self.train("told", trainer.url, steps=350)
        # Two that told it would be twice as many.
        self.assertGreaterEqual(len(trainer.told), 3)
        self.assertLessEqual(len(trainer.told), 2 + seconds / 5)
        paths, tokens, types, statuses = zip(*trainer.told)
        self.assertEqual(set(paths), {PATH})
        self.assertEqual(set(types), {"application/json"})
        self.assertEqual(tokens, ("Bearer first",) + ("Bearer second",) * (len(tokens) - 1))
        percents = [status["progressPercentage"] for status in statuses]
        self.assertEqual(percents, sorted(percents))
        self.assertLess(percents[0], 50)
        self.assertEqual(percents[-1], 100)
        self.assertGreater(statuses[1]["estimatedRemainingSeconds"], 0)
        for status in statuses:
            datetime.datetime.fromisoformat(status["lastUpdatedTime"])
            metrics = {metric["name"]: float(metric["value"]) for metric in status["metrics"]}
            self.assertEqual(set(metrics), {"epoch", "step", "workers", "loss"})
            self.assertEqual(metrics["workers"], 2)
        self.assertNotIn(WORDS, said)

    def test_of_a_script_it_hears_the_loss_that_the_run_has(self):
        trainer = self.trainer()
        self.train("weights", trainer.url, script={"SCRIPT_WEIGHTS": "1"})
        lines = map(json.loads, (self.folder / "weights/metrics.jsonl").read_text().splitlines())
        losses = [line["loss"] for line in lines if line["kind"] == "train"]
        metrics = {metric["name"]: metric["value"] for metric in trainer.told[0][3]["metrics"]}
        self.assertEqual(metrics["loss"], f"{losses[int(metrics['step'])]:.6g}")

    def disturbed(self, name, url, authority="ours"):
        """Trains as if there were no trainer, and says once of one worker why."""
        digest, said, _ = self.train(name, url, authority)
        self.assertEqual(digest, self.train("alone")[0])
        self.assertEqual(said.count(WORDS), 1, said)
        return said

    def test_of_another_authority_it_hears_nothing(self):
        trainer = self.trainer()
        self.assertIn("certificate verify failed", self.disturbed("other", trainer.url, "others"))
        self.assertEqual(trainer.told, [])

    def test_by_another_name_it_hears_nothing(self):
        trainer = self.trainer()
        url = trainer.url.replace("localhost", "127.0.0.1")
        self.assertIn("certificate verify failed", self.disturbed("name", url))
        self.assertEqual(trainer.told, [])

    def test_without_tls_it_hears_nothing(self):
        self.assertIn("expected https", self.disturbed("plain", "http://localhost:1/"))

    def test_refusals_disturb_nothing(self):
        trainer = self.trainer(code=403)
        self.assertIn("403", self.disturbed("refused", trainer.url))
        self.assertGreaterEqual(len(trainer.told), 1)

    def test_silence_disturbs_nothing(self):
        with socket.create_server(("localhost", 0)) as silent:
            self.disturbed("silent", f"https://localhost:{silent.getsockname()[1]}/")

    def test_files_that_are_missing_disturb_nothing(self):
        trainer = self.trainer()
        (self.folder / "token").unlink()
        self.assertIn("expected the token", self.disturbed("tokenless", trainer.url))


if shutil.which("openssl") is None:
    skip("TrainerTest", "Trainer", "openssl, which makes certificates, is not installed")
run_cases()
