"""What a script may not do is refused with a sentence; what it may is not. Against a fake of rubato-worker.

Each case is a process of its own, as a script is: job, model and loader at hand, in which something is done.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))
from skipped import run_cases, skip

try:
    import torch  # noqa: F401
except ImportError:
    skip("RefusalsTest", "Refuses", "python3-torch is not installed")

BEGINNING = """
import sys
sys.path.insert(0, {package!r})
import torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler
import rubato
torch.manual_seed(1)
torch.set_num_threads(1)
x, y = torch.randn(20, 4), torch.randint(0, 2, (20,))
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
job = rubato.join(epochs=2, name="case")
def compute(a, b):
    loss = F.cross_entropy(model(a), b)
    loss.backward()
    return loss
"""
LOOP = """
model, optimizer, loader = job.prepare(model, optimizer, loader)
for epoch in job.epochs():
    for a, b in loader:
        optimizer.zero_grad()
        compute(a, b)
"""


class RefusalsTest(unittest.TestCase):
    def run_script(self, text, name="script.py"):
        """(exit code, output, errors) of the beginning and what follows it."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.write_text(BEGINNING.format(package=str(HERE.parent)) + textwrap.dedent(text))
            environment = {k: v for k, v in os.environ.items() if not k.startswith("RUBATO_")}
            environment["RUBATO_BIN_DIR"] = str(HERE / "fake")
            done = subprocess.run(["/usr/bin/python3", str(path)], cwd=folder, env=environment, text=True,
                                  capture_output=True)
            return done.returncode, done.stdout, done.stderr

    def refuses(self, sentence, text):
        code, _, errors = self.run_script(text)
        last = errors.strip().splitlines()[-1] if errors.strip() else ""
        self.assertEqual(code, 1, errors)
        self.assertTrue(last.startswith("rubato.errors."), errors)
        self.assertIn(sentence, last)

    def passes(self, text):
        code, output, errors = self.run_script(text)
        self.assertEqual(code, 0, errors)
        return output

    def test_own_accumulation(self):
        self.refuses("set train.micro_batches", LOOP + "        if epoch == 1: optimizer.step()\n")

    def test_two_steps_for_one_micro_batch(self):
        self.refuses("called twice", LOOP + "        optimizer.step()\n        optimizer.step()\n")

    def test_a_step_without_a_micro_batch(self):
        self.refuses("no micro-batch at hand", LOOP.split("for epoch")[0] + "next(iter(loader))\noptimizer.step()\n")

    def test_edits_of_parameters(self):
        self.refuses("weight was changed in place", LOOP + """
        with torch.no_grad(): model.weight.clamp_(-1, 1)
        optimizer.step()
""")

    def test_a_rate_set_by_hand(self):
        self.refuses("lr of the optimizer was changed", LOOP + """
        optimizer.param_groups[0]["lr"] = 0.01
        optimizer.step()
""")

    def test_a_scheduler_of_the_prepared_optimizer(self):
        self.refuses("lr of the optimizer was changed", LOOP.replace("for epoch", """
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for epoch""") + "        optimizer.step()\n        scheduler.step()\n")

    def test_two_optimizers(self):
        self.refuses("found 2 optimizers", "job.prepare(model, [optimizer, optimizer], loader)")

    def test_prepare_twice(self):
        self.refuses("called twice", "job.prepare(model, optimizer, loader)\njob.prepare(model, optimizer, loader)")

    def test_another_optimizer(self):
        self.refuses("found Adamax", "job.prepare(model, torch.optim.Adamax(model.parameters()), loader)")

    def test_an_optimizer_that_has_made_steps(self):
        self.refuses("has made steps already", """
optimizer = torch.optim.Adam(model.parameters())
compute(x, y)
optimizer.step()
job.prepare(model, optimizer, loader)
""")

    def test_maximize(self):
        self.refuses("maximize=True",
                     "job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, maximize=True), loader)")

    def test_groups_with_other_momenta(self):
        self.refuses("differ in momentum", """
job.prepare(model, torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias], "momentum": 0.5}], lr=0.1), loader)
""")

    def test_a_group_added_later(self):
        self.refuses("added after job.prepare", """
model, optimizer, loader = job.prepare(model, optimizer, loader)
optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
""")

    def test_parameters_of_another_model(self):
        self.refuses("none of the model's",
                     "job.prepare(model, torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), loader)")

    def test_the_optimizers_state(self):
        self.refuses("is the servers'", "job.prepare(model, optimizer, loader)[1].state_dict()")

    def test_reduce_on_plateau(self):
        self.refuses("ReduceLROnPlateau", """
job.prepare(model, optimizer, loader, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))
""")

    def test_a_scheduler_of_momenta(self):
        self.refuses("changes momentum", """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job.prepare(model, optimizer, loader, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20))
""")

    def test_groups_with_other_schedules(self):
        self.refuses("for two groups", """
optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=0.1)
job.prepare(model, optimizer, loader, torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda s: 1, lambda s: 0.9 ** s]))
""")

    def test_an_iterable_dataset(self):
        self.refuses("IterableDataset", """
class Stream(IterableDataset):
    def __iter__(self): return iter(range(9))
job.prepare(model, optimizer, DataLoader(Stream(), batch_size=2))
""")

    def test_samplers(self):
        self.refuses("WeightedRandomSampler", """
job.prepare(model, optimizer, DataLoader(TensorDataset(x, y), 8, sampler=WeightedRandomSampler([1.0] * 20, 20)))
""")
        self.refuses("batch_sampler of its own", """
job.prepare(model, optimizer, DataLoader(TensorDataset(x, y), batch_sampler=[[1, 2]]))
""")

    def test_another_batch_size(self):
        self.refuses("found a DataLoader".replace("found a DataLoader", "batch_size=8, expected 20"), """
job = rubato.join(epochs=2, name="case", train={"batch_size": 20, "micro_batches": 2})
job.prepare(model, optimizer, loader)
""")

    def test_no_end(self):
        self.refuses("rubato.join(epochs=10)", "rubato.join().prepare(model, optimizer, loader)")

    def test_sparse_gradients(self):
        self.refuses("sparse=False", """
model = nn.Sequential(nn.Embedding(4, 2, sparse=True))
job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
""")
        self.refuses("has a sparse gradient", """
table = nn.Parameter(torch.zeros(4, 2))
model = nn.ParameterList([table])
model, optimizer, loader = job.prepare(model, torch.optim.SGD([table], lr=0.1), loader)
for a, b in loader:
    F.embedding(b, table, sparse=True).sum().backward()
    optimizer.step()
""")

    def test_complex_parameters(self):
        self.refuses("found torch.complex64", """
model = nn.ParameterList([nn.Parameter(torch.zeros(2, dtype=torch.complex64))])
job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
""")

    def test_batch_norm_without_a_momentum(self):
        self.refuses("momentum=None", """
model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, momentum=None))
job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
""")

    def test_a_shape_that_is_not_known(self):
        self.refuses("run the model once", """
model = nn.LazyLinear(2)
job.prepare(model, optimizer, loader)
""")

    def test_the_trainings_loader_in_a_test(self):
        self.refuses("within job.evaluate", LOOP + """
        optimizer.step()
    job.evaluate(lambda: {"n": sum(1 for _ in loader)})
""")

    def test_what_is_not_there_yet(self):
        self.refuses("overlap=True", "job.prepare(model, optimizer, loader, overlap=True)")
        self.refuses("found a weight", LOOP + "        optimizer.step(weight=3)\n")

    def test_a_closure(self):
        self.passes(LOOP.replace("        optimizer.zero_grad()\n        compute(a, b)\n",
                                 "        optimizer.step(lambda: compute(a, b))\n"))

    def test_no_zero_grad_adds_nothing(self):
        end = "        optimizer.step()\nprint(model.weight.sum().item())\n"
        self.assertEqual(self.passes(LOOP + end), self.passes(LOOP.replace("optimizer.zero_grad()", "pass") + end))

    def test_a_loop_that_is_left_early_gets_the_rest_later(self):
        output = self.passes(LOOP.replace("job.epochs()", "range(4)") + """
        optimizer.step()
        if epoch == 0: break
    print(epoch, job.epoch, job.step)
""")
        self.assertEqual(output.splitlines(), ["0 0 0", "1 2 6", "2 2 6", "3 2 6"])

    def test_a_batch_that_is_left_comes_again(self):
        output = self.passes(LOOP.replace("        optimizer.zero_grad()", "        break") + """
        pass
    for a, b in loader:
        compute(a, b)
        optimizer.step()
        print("step", job.step)
""")
        self.assertEqual(output.count("step 0"), 1)

    def test_a_grad_scaler_is_divided_by(self):
        output = self.passes(LOOP + """
        for p in model.parameters(): p.grad *= 1024
        optimizer.grad_scale = torch.tensor(1024.0)
        optimizer.step()
print(model.weight.sum().item())
""")
        self.assertEqual(output, self.passes(LOOP + "        optimizer.step()\nprint(model.weight.sum().item())\n"))

    def test_a_test_leaves_no_trace(self):
        output = self.passes(LOOP + """
        optimizer.step()
    before = torch.rand(1), model.training
    torch.manual_seed(5)
    def test():
        torch.rand(3)
        with torch.no_grad():  # other parameters for a while, such as averages
            model.weight.zero_(); model.weight.copy_(weight)
        return {"training": model.training}
    value = torch.random.get_rng_state()
    weight = model.weight.clone()
    print(job.evaluate(test), model.training, bool((torch.random.get_rng_state() == value).all()))
    print(bool((model.weight == weight).all()))
    job.log(loss=1)
""")
        self.assertEqual(output.splitlines(), ["{'training': False} True True", "True"] * 2)

    def test_an_exception_in_forward_is_the_scripts(self):
        code, _, errors = self.run_script(LOOP + "        raise KeyError('mine')\n")
        self.assertEqual(code, 1)
        self.assertIn("KeyError: 'mine'", errors.splitlines()[-1])

    def test_a_lost_worker_process_is_named(self):
        self.refuses("was killed by signal 9 (SIGKILL)", LOOP + """
        import os; os.kill(job._worker._process.pid, 9)
        optimizer.step()
""")

    def test_no_programs(self):
        self.refuses("found no rubato-server", """
import os
os.environ.update(RUBATO_BIN_DIR="/nowhere", PATH="/nowhere")
rubato.core.__file__ = "/no/where/at/all/rubato/core.py"  # nor beside the package
job.prepare(model, optimizer, loader)
""")


run_cases()
