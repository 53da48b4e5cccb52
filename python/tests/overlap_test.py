"""Gradients that leave while backward runs are those that leave at its end.

Against a fake of rubato-worker, which keeps what has left, whatever is given in the end.
"""

import re
import unittest

from fakes import WithFake
from skipped import run_cases, skip

try:
    import torch  # noqa: F401
except ImportError:
    skip("OverlapTest", "Leaves", "python3-torch is not installed")

LOOP = """
job = rubato.join(epochs=2, name="case", wire={"chunk": 64}, train={"micro_batches": PARTS})
model, optimizer, loader = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, overlap=OVERLAP)
for epoch in job.epochs():
    for a, b in loader:
        STEP
for name, value in model.state_dict().items():
    print(name, [x.hex() for x in value.double().flatten().tolist()])
"""
STEP = "optimizer.zero_grad(); compute(a, b); optimizer.step()"
DEEP = "model = nn.Sequential(*[layer for i in range(4) for layer in (nn.Linear(4, 4), nn.Tanh())], nn.Linear(4, 2))\n"


class OverlapTest(WithFake):
    def train(self, overlap, model=DEEP, step=STEP, parts=1, beginning="", **variables):
        """(the parameters in the end, what has left early: (micro-batch, from which value on))."""
        loop = LOOP.replace("STEP", step).replace("OVERLAP", str(overlap)).replace("PARTS", str(parts))
        text = beginning + model + loop
        code, output, errors = self.run_script(text, **variables)
        self.assertEqual(code, 0, errors)
        return output, [tuple(map(int, found)) for found in re.findall(r"^ready (\d+) (\d+)$", errors, re.M)]

    def same(self, **what):
        """The same bits; returns what has left early."""
        expected, none = self.train(False, **what)
        found, left = self.train(True, **what)
        self.assertEqual(found, expected)
        self.assertEqual(none, [])
        return left

    def test_blocks_leave_from_the_end_but_not_of_the_first_micro_batch(self):
        # 4 x 20 + 10 values, in blocks of 16; the lowest of which are the first layer's.
        left = [(number, begin) for number, begin in self.same() if begin > 20]
        self.assertEqual(left, [(number, begin) for number in range(1, 6) for begin in (80, 64, 48, 32)])

    def test_from_memory_of_the_worker_process(self):
        left = self.same(FAKE_LENDS="1")
        self.assertEqual({number for number, _ in left}, set(range(1, 6)))

    def test_of_several_micro_batches_each(self):
        left = self.same(parts=2)
        self.assertEqual({number for number, _ in left}, set(range(1, 12)))

    def test_shared_unused_and_frozen_parameters(self):
        model = """
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 8), nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.third = nn.Linear(8, 8)
        self.third.weight = self.second.weight  # whose gradient is whole when both have added to it
        UNUSED
        self.head, self.frozen = nn.Linear(8, 2), nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
    def forward(self, x):
        x = self.second(torch.tanh(self.norm(self.first(x))))
        return self.head(self.frozen(torch.tanh(self.third(x))))
model = Odd()
"""
        left = self.same(model=model.replace("UNUSED", "pass"))
        self.assertLessEqual(min(begin for _, begin in left), 64)
        left = self.same(model=model.replace("UNUSED", "self.unused = nn.Linear(8, 8)"))
        # What lies before the unused ones waits for step(): 40 + 72 + 16 + 8 + 72 values.
        self.assertEqual(min(begin for _, begin in left), 208)

    def test_an_exception_within_backward(self):
        # The batch comes again, what has left of it stays, and nothing is added to what was left in .grad.
        step = """
        if FAILS and job.step == 2 and not failed:
            failed.append(1)
            model[2].weight.register_hook(fail)
        compute(a, b)
        optimizer.step()
"""
        loop = LOOP.replace("    for a, b in loader:", "    try:\n      for a, b in loader:").replace(
            "for name", """    except ZeroDivisionError:
        print("failed in", job.step)
for name""").replace("job.epochs()", "range(3)")
        beginning = """
failed = []
def fail(gradient):
    if len(failed) == 1:
        failed.append(1)
        1 / 0
""" + DEEP
        text = beginning + loop.replace("STEP", step).replace("PARTS", "1")
        outputs = {}
        for overlap in False, True:
            for fails in False, True:
                code, output, errors = self.run_script(
                    text.replace("OVERLAP", str(overlap)).replace("FAILS", str(fails)))
                self.assertEqual(code, 0, errors)
                self.assertEqual("failed in 2\n" in output, fails)
                outputs[overlap, fails] = output.replace("failed in 2\n", "")
                left = [int(begin) for begin in re.findall(r"^ready 2 (\d+)$", errors, re.M)]
                self.assertEqual([begin for begin in left if begin > 20], [80, 64, 48, 32] if overlap else [])
        self.assertEqual(len(set(outputs.values())), 1, outputs)

    def test_a_closure(self):
        self.assertTrue(self.same(step="optimizer.step(lambda: (optimizer.zero_grad(), compute(a, b))[1])"))

    def test_a_backward_of_something_else(self):
        loop = "model(x).sum().backward()\n        optimizer.zero_grad()\n        " + STEP
        self.refused("was added to again", loop)
        self.assertTrue(self.same(step=STEP + "\n        model(x).sum().backward()"))

    def refused(self, sentence, step, **what):
        self.refuses(sentence, DEEP + LOOP.replace("STEP", step).replace("OVERLAP", "True").replace("PARTS", "1"))

    def test_what_would_be_too_late_is_refused(self):
        self.refused("a GradScaler", "compute(a, b); optimizer.found_inf = torch.tensor(0.0); optimizer.step()")
        self.refused("weight=...", "compute(a, b); optimizer.step(weight=3)")
        self.refused("was changed between backward and optimizer.step()",
                     "compute(a, b); nn.utils.clip_grad_norm_(model.parameters(), 0.1); optimizer.step()")
        self.refused("was changed between backward and optimizer.step()",
                     "compute(a, b); optimizer.zero_grad(); optimizer.step()")
        # Of which torch counts no version.
        for change in "p.grad.data.mul_(0.5)", "p.grad.data.clamp_(-0.01, 0.01)":
            self.refused("was changed between backward and optimizer.step()",
                         f"compute(a, b); [{change} for p in model.parameters()]; optimizer.step()")


run_cases()
