"""What passes between a GPU and the shared memory waits for what it must.

No GPU: a fake of torch.cuda records the calls, and the tensors are the CPU's. Against a fake of rubato-worker.
"""

import re
import unittest

from fakes import WithFake
from skipped import run_cases, skip

try:
    import torch  # noqa: F401
except ImportError:
    skip("StagingTest", "Waits", "python3-torch is not installed")

CUDA = """
import contextlib
from rubato import core, staging
log = []
pinned = {}  # bytes, by address
def is_pinned(values):
    begin, end = values.data_ptr(), values.data_ptr() + 4 * values.numel()
    return any(address <= begin and end <= address + size for address, size in pinned.items())
def written_to_pinned(name, place):
    call = getattr(staging.Staging, name)
    def checked(self, *what):
        assert CODE != 0 or is_pinned(what[place]), name
        return call(self, *what)
    setattr(staging.Staging, name, checked)
class Event:
    def __init__(self, number): self.number, self.asked = number, 0
    def query(self):
        self.asked += 1
        log.append(("query", self.number, self.asked > DELAY))
        return self.asked > DELAY
class Stream:
    def __init__(self, name): self.name = name
    def wait_stream(self, other): log.append((self.name, "waits for", other.name))
    def synchronize(self): log.append((self.name, "synchronize"))
    def record_event(self):
        log.append((self.name, "event", sum("event" in line for line in log)))
        return Event(log[-1][2])
class Cuda:
    current = Stream("current")
    def Stream(self, device): return Stream("copies")
    def current_stream(self, device): return self.current
    def cudart(self): return self
    def device(self, device): return contextlib.nullcontext()
    def cudaHostRegister(self, address, size, flags):
        code = LENT_CODE if any(line[0] == "register" for line in log) else CODE
        log.append(("register", size))
        if code == 0:
            pinned[address] = size
        return code
    def cudaHostUnregister(self, address):
        log.append(("unregister",))
        del pinned[address]
    @contextlib.contextmanager
    def stream(self, stream):
        log.append((stream.name, "begins"))
        yield
        log.append((stream.name, "ends"))
def told(name):
    call = getattr(core.Worker, name)
    def noted(self, work, *what):
        log.append((name, work.id, *(what[:1] if name == "ready" else ())))
        call(self, work, *what)
    setattr(core.Worker, name, noted)
"""
FAKE = CUDA + """
if STAGED:
    staging.is_staged, staging.CUDA = lambda tensor: True, Cuda()
    told("give"); told("ready")
    written_to_pinned("write", 0); written_to_pinned("write_entry", 1)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 2))
job = rubato.join(epochs=2, name="case", wire={"chunk": 64})
model, optimizer, loader = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, overlap=OVERLAP)
memory = len(job._worker._memory)
for epoch in job.epochs():
    for a, b in loader:
        log.append(("forward",))
        optimizer.zero_grad()
        compute(a, b)
        log.append(("step",))
        optimizer.step()
        print("average", [x.hex() for x in model[1].running_var.tolist()])
for name, value in model.state_dict().items():
    print(name, [x.hex() for x in value.double().flatten().tolist()])
rubato.job.close_all()
if STAGED:
    assert log[0] == ("register", memory)
    assert not pinned, pinned
    assert log[-1] == ("unregister",) if CODE == 0 else log[-1] != ("unregister",)
for line in log: print("log", line)
"""
ENTRIES = 8 + 2  # parameters, and averages


class StagingTest(WithFake):
    def train(self, staged, overlap=False, delay=0, code=0, lent_code=0, **variables):
        """(the parameters in the end, the calls)."""
        text = FAKE
        for name, value in (("STAGED", staged), ("OVERLAP", overlap), ("DELAY", delay), ("LENT_CODE", lent_code),
                            ("CODE", code)):
            text = text.replace(name, str(value))
        ended, output, self.errors = self.run_script(text, **variables)
        self.assertEqual(ended, 0, self.errors)
        log = [eval(line[4:]) for line in output.splitlines() if line.startswith("log ")]
        return re.sub("^log.*$", "", output, flags=re.M).strip(), log

    def test_the_bits_are_the_same(self):
        expected, _ = self.train(False)
        for what in dict(), dict(overlap=True), dict(overlap=True, delay=2), dict(code=1):
            self.assertEqual(self.train(True, **what)[0], expected, what)

    def test_a_gradient_is_given_when_it_has_been_written(self):
        for overlap in False, True:
            _, log = self.train(True, overlap)
            gives = [i for i, line in enumerate(log) if line[0] == "give"]
            self.assertEqual(len(gives), 6)
            begin = 0
            for end in gives:
                part = log[begin:end]
                step = part.index(("step",))
                writes = [i for i, line in enumerate(part) if line == ("copies", "ends")
                          and (overlap or i > step)]
                self.assertEqual(len(writes), ENTRIES + 1 if overlap else 1)  # with overlap the parameters' as well
                last = writes[-1]
                self.assertIn(("copies", "synchronize"), part[last:])
                begin = end

    def test_a_gradient_is_written_to_what_is_pinned(self):
        expected, _ = self.train(False)
        for overlap in False, True:
            for staged, lent_code, in_place, registered in ((True, 0, 6, 1 + 6), (True, 1, 0, 1 + 1), (False, 0, 6, 0)):
                bits, log = self.train(staged, overlap, lent_code=lent_code, FAKE_LENDS="1")
                self.assertEqual(bits, expected)
                self.assertEqual(self.errors.count("in place True"), in_place, self.errors)
                # What is lent: three pieces, and three others when rubato-worker has joined anew.
                self.assertEqual(sum(line[0] == "register" for line in log), registered, log)
                self.assertEqual(self.errors.count("each gradient is copied once more"), lent_code, self.errors)
                if registered == 7:
                    marks = [line[0] for line in log if line[0] in ("register", "unregister")]
                    self.assertEqual(marks, ["register"] * 4 + ["unregister"] * 3 + ["register"] * 3
                                     + ["unregister"] * 4)

    def test_no_more_than_some_pieces_that_are_lent_are_pinned(self):
        output = self.passes(CUDA.replace("LENT_CODE", "0").replace("CODE", "0").replace("DELAY", "0") + """
import mmap
from rubato import layout
staging.is_staged, staging.CUDA = lambda tensor: True, Cuda()
of = layout.Layout(model, optimizer)
memory = mmap.mmap(-1, 4096)
of.move_to(memory)
pieces = [mmap.mmap(-1, 4096) for _ in range(9)]
print([of.pin_lent(piece) for piece in pieces].count(True), len(pinned))
of.unpin_lent()
print(of.pin_lent(pieces[8]), len(pinned))
of.give_back()
print(len(pinned))
""")
        self.assertEqual(output.split(), ["8", "9", "True", "2", "0"])

    def test_sums_that_are_out_of_date_are_used_again(self):
        # Four micro-batches of a node that came to nothing, and the first of another.
        output = self.passes(CUDA.replace("LENT_CODE", "0").replace("CODE", "0").replace("DELAY", "0") + """
from rubato import layout
staging.CUDA = Cuda()
entry = layout.Entry("w", torch.zeros(3), 0, 0, 3)
way = staging.Staging(torch.device("cpu"), [entry])
sums = set()
for node in range(2):
    for kept, adds in (0, 0), (1, 1), (1, 0), (2, 1):
        way.begin(kept)
        way.sum_up([torch.ones(3)], 1, 1, adds)
        sums.add(way._sum.all.data_ptr())
        print(way._sum.all.tolist()[0])
        way.end(adds, True)
print(len(sums))
""")
        self.assertEqual(output.split(), ["1.0", "2.0", "1.0", "2.0"] * 2 + ["3"])

    def test_a_copy_waits_for_what_computes_its_source(self):
        _, log = self.train(True)
        for i, line in enumerate(log):
            if line == ("copies", "begins"):
                self.assertEqual(log[i - 1], ("copies", "waits for", "current"))

    def test_forward_waits_for_the_parameters(self):
        _, log = self.train(True)
        for i, line in enumerate(log):
            if line == ("forward",):
                self.assertEqual(log[i - 2:i], [("current", "waits for", "copies"), ("copies", "synchronize")])

    def test_what_leaves_early_has_been_written(self):
        _, log = self.train(True, overlap=True, delay=1)
        written, number = set(), 0
        ready = [line for line in log if line[0] == "ready"]
        self.assertTrue(ready)
        # Entries in the order of the vector: their first value.
        begins = [0, 32, 40, 48, 56, 120, 128, 144, 146, 154]
        for line in log:
            if "event" in line:
                number += 1
            elif line[0] == "query" and line[2]:
                written.add(line[1])
            elif line[0] == "ready":
                # Of this micro-batch so many entries have been written as end behind what is told.
                least = sum(begin >= line[2] for begin in begins)
                self.assertGreaterEqual(len([event for event in written if event // ENTRIES == line[1]]), least, line)


run_cases()
