"""What scripts do with torch beside the plain loop works. Against a fake of rubato-worker."""

import ast
import unittest

from fakes import LOOP, WithFake
from skipped import run_cases, skip

try:
    import torch
except ImportError:
    skip("FeaturesTest", "Works", "python3-torch is not installed")

END = "print(model.state_dict())\n"


class FeaturesTest(WithFake):
    def same(self, text, other):
        """Both end with the same parameters."""
        self.assertEqual(self.passes(text + END), self.passes(other + END))

    def test_a_closure(self):
        self.passes(LOOP.replace("        optimizer.zero_grad()\n        compute(a, b)\n",
                                 "        optimizer.step(lambda: compute(a, b))\n"))

    def test_no_zero_grad_adds_nothing(self):
        end = "        optimizer.step()\nprint(model.weight.sum().item())\n"
        self.assertEqual(self.passes(LOOP + end), self.passes(LOOP.replace("optimizer.zero_grad()", "pass") + end))

    def test_zero_grad_forgets_what_was_not_handed_over(self):
        end = "        optimizer.step()\n"
        for how in "", "set_to_none=False", "set_to_none=True":
            loop = LOOP.replace("optimizer.zero_grad()", f"compute(a, b); optimizer.zero_grad({how})")
            self.same(loop + end, LOOP + end)

    def test_a_loop_that_is_left_early_gets_the_rest_later(self):
        output = self.passes(LOOP.replace("job.epochs()", "range(4)") + """
        optimizer.step()
        if epoch == 0: break
    print(epoch, job.epoch, job.step)
""")
        self.assertEqual(output.splitlines(), ["0 0 0", "1 1 6", "2 1 6", "3 1 6"])

    def test_a_loop_that_is_left_early_may_leave_nothing(self):
        text = LOOP + """
        optimizer.step()
        if job._engine.work.end == 20: break
    for a, b in loader:
        compute(a, b)
        optimizer.step()
print(job.step)
"""
        for begins in "", "final":
            code, output, errors = self.run_script(text, FAKE_BEGINS=begins)
            self.assertEqual((code, output), (0, "6\n"), errors)

    def test_a_loop_that_counts_its_batches_has_the_final_parameters_behind_the_last(self):
        plain = LOOP + "        optimizer.step()\n"
        counted = '''
model, optimizer, loader = job.prepare(model, optimizer, loader)
def train():
    for epoch in range(2):
        batches = iter(loader)
        for _ in range(len(loader)):
            a, b = next(batches)
            optimizer.zero_grad()
            compute(a, b)
            optimizer.step()
train()
'''
        self.same(counted, plain)
        self.assertNotIn("before the job does", self.run_script(counted)[2])
        left = plain.replace("job.epochs()", "range(2)") + "        if job._engine.work.end == 20: break\n"
        self.same(left, plain)
        # Where others compute, too, leaving a loop waits for nobody.
        code, output, errors = self.run_script(left + "print(job._engine.is_final)\nprint(job.workers)\n",
                                               FAKE_WORKERS="2")
        self.assertEqual((code, output), (0, "False\n2\n"), errors)

    def test_a_job_that_fails_when_a_loop_is_left_is_told_by_the_next_call(self):
        code, _, errors = self.run_script(LOOP + """
        optimizer.step()
        if job._engine.work.end == 20: break
""", FAKE_FAILS="no server is left")
        self.assertEqual((code, errors.strip().splitlines()[-1]), (1, "rubato.errors.Ended: no server is left"), errors)

    def test_who_loops_beyond_the_jobs_end_is_told_once(self):
        loop = LOOP.replace("job.epochs()", "range(EPOCHS)") + "        optimizer.step()\n"
        for epochs, begins, times in (2, "", 0), (4, "", 1), (2, "final", 0):
            code, _, errors = self.run_script(loop.replace("EPOCHS", str(epochs)), FAKE_BEGINS=begins)
            told = errors.count("the job has ended in epoch 1, so the loader that job.prepare returned has no more")
            self.assertEqual((code, told), (0, times), errors)

    def test_behind_the_last_epoch_the_step_is_the_number_of_steps(self):
        text = "loader = DataLoader(TensorDataset(x[:16], y[:16]), batch_size=8)\n" + LOOP + """
        optimizer.step()
    print(epoch, job.step)
print(job.step)
"""
        parts = text.replace("model, optimizer", "job = rubato.join(epochs=2, train={'micro_batches': 2})\n"
                             "model, optimizer", 1)
        for case in text, parts:
            for kept, ends in ("0", "1"), ("2", "1"), ("0", "2"), ("1", "0"):
                code, output, errors = self.run_script(case, FAKE_KEPT=kept, FAKE_ENDS=ends)
                self.assertEqual((code, output.split()), (0, "0 2 1 4 4".split()), errors)

    def test_who_comes_for_the_final_test_alone_knows_where_the_job_stands(self):
        text = LOOP + """
        optimizer.step()
    job.evaluate(lambda: print(epoch, job.epoch, job.step))
print(job.epoch, job.step)
"""
        for kept in "0", "1":
            code, output, errors = self.run_script(text, FAKE_BEGINS="final", FAKE_KEPT=kept)
            self.assertEqual((code, output.split()), (0, "1 1 6 1 6".split()), errors)

    def test_who_comes_for_the_end_alone_knows_its_rank(self):
        text = LOOP + "        optimizer.step()\nprint(job.rank, job.workers, job.mode)\n"
        code, output, errors = self.run_script(text, FAKE_BEGINS="final", FAKE_KEPT="1", FAKE_ENDS="0")
        self.assertEqual((code, output), (0, "1 2 sync\n"), errors)

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

    def test_final_parameters_may_come_untested_and_more_than_once(self):
        text = LOOP + "        optimizer.step()\n" + END
        tested = self.passes(text)
        for kept in ("1", "2"):
            code, output, errors = self.run_script(text, FAKE_KEPT=kept)
            self.assertEqual((code, output), (0, tested), errors)

    def test_gradients_are_written_where_they_leave_from(self):
        text = LOOP + "        optimizer.step()\n" + END
        expected = self.passes(text)
        for lends, in_place in ("1", 6), ("closed", 0):
            code, output, errors = self.run_script(text, FAKE_LENDS=lends)
            self.assertEqual((code, output), (0, expected), errors)
            self.assertEqual(errors.count("in place True"), in_place, errors)

    def test_tensors_are_read_at_once_as_they_are_by_samples(self):
        text = """
class Own(TensorDataset): pass
images = torch.randn(20, 2, 3, 4).contiguous(memory_format=torch.channels_last if LAST else torch.contiguous_format)
loader = DataLoader(KIND(x, y, images), batch_size=8, ORDER)
""" + LOOP.replace("for a, b in", "for a, b, image in").replace(
            "prepare(model, optimizer, loader", "prepare(model, optimizer, loader, order=FUNCTION") + """
        optimizer.step()
        print(type(image), image.stride(), a.tolist(), b.tolist(), image.tolist())
print(sys.modules["rubato.loader"]._tensors_of(loader.dataset, torch.utils.data.default_collate) is not None)
"""
        for order, function in (("shuffle=True", "None"), ("shuffle=False", "lambda epoch: range(-20, 0)")):
            for last in False, True:
                with self.subTest(order, last=last):
                    found, expected = (
                        self.passes(text.replace("KIND", kind).replace("ORDER", order).replace("FUNCTION", function)
                                    .replace("LAST", str(last))).splitlines() for kind in ("TensorDataset", "Own"))
                    self.assertEqual(found[:-1], expected[:-1])
                    self.assertEqual((found[-1], expected[-1]), (str(not last), "False"))

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

    def test_what_a_test_leaves_in_copies_is_gone(self):
        # Float32 parameters lie in the job's vector; others, and averages, are copies of it.
        output = self.passes("""
class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 2).double()
    def forward(self, x):
        return self.linear(self.norm(x).double())
model = Doubled()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + LOOP + """
        optimizer.step()
    copies = model.linear.weight, model.norm.running_mean
    def test():
        for copy in copies: copy.zero_()
    kept = []
    def see(): kept.extend(copy.clone() for copy in copies)
    job.evaluate(see)
    job.evaluate(test)
    print([bool((copy == before).all()) for copy, before in zip(copies, kept)])
""")
        self.assertEqual(output.splitlines(), ["[True, True]"] * 2)

    @unittest.skipUnless(hasattr(torch, "compile"), "this torch has no torch.compile")
    def test_compiled(self):
        prepared = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n" + LOOP + "        optimizer.step()\n"
        output = self.passes("model = torch.compile(model, backend='aot_eager')\n" + prepared + END)
        self.assertEqual(output.replace("_orig_mod.", ""), self.passes(prepared + END))

    def test_mixed_precision(self):
        self.passes(LOOP.replace("        compute(a, b)", """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(a), b)
        loss.backward()
        assert model.weight.grad.dtype == torch.float32
""") + "        optimizer.step()\n")

    @unittest.skipUnless(hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"),
                         "this torch has no GradScaler for the CPU")
    def test_a_grad_scaler_that_overflows(self):
        # A scale of 2^127 makes every gradient infinite until it has been halved often enough.
        for unscale in "pass", "scaler.unscale_(optimizer)":
            self.same(LOOP.replace("for epoch",
                                   "scaler = torch.amp.GradScaler('cpu', init_scale=2.0 ** 127)\nfor epoch")
                      .replace("compute(a, b)", f"""scaler.scale(100 * F.cross_entropy(model(a), b)).backward()
        {unscale}
        scaler.step(optimizer)
        scaler.update()""") + "assert scaler.get_scale() < 2.0 ** 126\n",
                      LOOP.replace("compute(a, b)", "(100 * F.cross_entropy(model(a), b)).backward()")
                      + "        optimizer.step()\n")

    @unittest.skipUnless(hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"),
                         "this torch has no GradScaler for the CPU")
    def test_a_clip_beside_a_grad_scaler(self):
        clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)"
        for between, times in (("pass", 0), ("scaler.unscale_(optimizer)", 0),
                               ("scaler.unscale_(optimizer); " + clip, 1)):
            text = LOOP.replace("for epoch", "scaler = torch.amp.GradScaler('cpu', init_scale=1024.0)\nfor epoch")
            code, _, errors = self.run_script(text.replace(
                "compute(a, b)", f"""scaler.scale(F.cross_entropy(model(a), b)).backward()
        {between}
        scaler.step(optimizer)
        scaler.update()"""))
            self.assertEqual(code, 0, errors)
            self.assertEqual(errors.count("in place of clip_grad_norm_"), times, errors)

    def test_an_overflow_has_the_micro_batch_come_again(self):
        output = self.passes(LOOP.replace("for epoch", "seen = []\nfor epoch") + """
        # As a GradScaler does, but on a GPU alone in older releases of torch.
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(1.0), torch.tensor(float(len(seen) in (2, 3)))
        seen.append((job.step, torch.rand(1).item()))
        optimizer.step()
        del optimizer.grad_scale, optimizer.found_inf
print([step for step, _ in seen], len(set(seen[2:5])))
""").splitlines()
        self.assertEqual(output, ["[0, 1, 2, 2, 2, 3, 4, 5] 1"])

    def test_a_gradient_that_is_not_finite_at_any_scale_goes_to_the_servers(self):
        output = self.passes(LOOP.replace("for epoch", "n = 0\nfor epoch") + """
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(1.0), torch.tensor(1.0 if job.step == 0 else 0.0)
        optimizer.step()
        n += 1
print(n)
""")
        self.assertEqual(output, "69\n")  # 6, and the first 64 times

    def test_a_loss_with_a_graph_is_logged_without_a_warning(self):
        self.passes("import warnings; warnings.simplefilter('error')\n" + LOOP + "        optimizer.step()\n"
                    "        job.log(loss=model(a).mean())\n")

    def test_losses_are_told_whenever_they_are_known(self):
        told = "\nimport json, pathlib; rubato.job.close_all(); print(pathlib.Path(job.run, 'done').read_text())\n"
        before = self.passes(LOOP.replace("compute(a, b)", "loss = compute(a, b); job.log(loss=loss)")
                             + "        optimizer.step()\n" + told)
        behind = self.passes(LOOP.replace("compute(a, b)", "loss = compute(a, b)")
                             + "        optimizer.step()\n        job.log(loss=loss)\n" + told)
        closure = self.passes(LOOP.replace("compute(a, b)", "optimizer.step(lambda: compute(a, b))") + told)
        self.assertEqual({before, closure}, {behind})
        self.assertNotIn("null", behind)
        self.assertIn("null", self.passes(LOOP + "        optimizer.step()\n" + told))

    def test_what_is_drawn_depends_on_the_place_alone(self):
        draws = """
        print(torch.rand(1).item(), np.random.rand(), random.random())
        optimizer.step()
"""
        beginning = "import random, numpy as np\n"
        quiet = self.passes(beginning + LOOP + draws)
        self.assertEqual(len(set(quiet.splitlines())), 6)
        self.assertEqual(quiet, self.passes(beginning + "random.seed(7); np.random.seed(7)\n" + LOOP + draws
                                            + "        torch.manual_seed(7); np.random.rand(3); random.seed(9)\n"))

    def test_samples_draw_the_same_in_whichever_process(self):
        text = """
import random, numpy as np
class Drawn(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, index): return index, torch.rand(1).item(), np.random.rand(), random.random()
loader = DataLoader(Drawn(), batch_size=8, shuffle=True, num_workers=%d)
""" + LOOP.replace("for a, b in loader", "for batch in loader").replace("compute(a, b)", "compute(x, y)") + """
        print([value.tolist() for value in batch])
        optimizer.step()
"""
        here = self.passes(text % 0)
        draws = set()
        for line in here.splitlines():
            draws.update(zip(*ast.literal_eval(line)))
        self.assertEqual(len(draws), 40)  # those of a sample differ from epoch to epoch
        for number in 1, 2, 3:
            self.assertEqual(len({draw[number] for draw in draws}), 40)
        self.assertEqual(here, self.passes(text % 1))
        self.assertEqual(here, self.passes(text % 2))

    def test_a_generator_of_the_seed_at_hand_draws_the_same_in_whichever_process(self):
        text = """
import numpy as np
class Drawn(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, index):
        return torch.tensor(np.random.default_rng(torch.initial_seed()).standard_normal()), 0
loader = DataLoader(Drawn(), batch_size=8, num_workers=%d)
""" + LOOP.replace("compute(a, b)", "print(*a.tolist(), np.random.default_rng(torch.initial_seed()).random()); "
                   "compute(x, y)") + "        optimizer.step()\n"
        here, there = (self.passes(text % processes) for processes in (0, 2))
        self.assertEqual(here, there)
        self.assertEqual(len(set(here.split())), 46)

    def test_batches_draw_the_same_in_whichever_process(self):
        text = """
def mix(samples):
    share = torch.rand(len(samples), 1)
    a, b = torch.utils.data.default_collate(samples)
    return share * a, b
loader = DataLoader(KIND, batch_size=8, shuffle=True, num_workers=%d, collate_fn=mix)
""" + LOOP.replace("compute(a, b)", "print(a.tolist()); compute(a, b)") + "        optimizer.step()\n"
        for kind in "TensorDataset(x, y)", "torch.utils.data.Subset(TensorDataset(x, y), range(20))":
            here = self.passes(text.replace("KIND", kind) % 0)
            self.assertEqual(len(set(here.splitlines())), 6)
            for processes in 1, 2:
                self.assertEqual(self.passes(text.replace("KIND", kind) % processes), here)

    def test_a_data_set_that_changes_between_epochs_is_read_as_torch_reads_it(self):
        text = """
class Own(torch.utils.data.Dataset):
    def __init__(self): self.tensors = torch.zeros(1),
    def __len__(self): return 20
    def __getitem__(self, index): return 100 * self.tensors[0][0] + index, 0
dataset = KIND
settings = dict(batch_size=8, SETTINGS)
def change(epoch): dataset.tensors[0].copy_(dataset.tensors[0] + epoch)
loader = DataLoader(dataset, **settings)
for epoch in range(2):
    change(epoch)
    for a, b in loader: print(*a.flatten().tolist())
change(-1)
loader = DataLoader(dataset, **settings)
""" + LOOP.replace("    for a, b", "    change(epoch)\n    for a, b").replace(
            "compute(a, b)", "print(*a.flatten().tolist()); compute(x, y)") + "        optimizer.step()\n"
        for kind, settings in (("TensorDataset(torch.arange(20.0), y)", ""), ("Own()", "num_workers=0"),
                               ("Own()", "num_workers=2"), ("Own()", "num_workers=2, persistent_workers=True")):
            with self.subTest(kind, settings=settings):
                lines = self.passes(text.replace("KIND", kind).replace("SETTINGS", settings)).splitlines()
                self.assertEqual(lines[6:], lines[:6])
                self.assertEqual(lines[:3] == lines[3:6], "persistent" in settings)

    def test_other_tensors_of_a_data_set_are_read(self):
        output = self.passes("""
dataset = TensorDataset(torch.arange(20.0), y)
loader = DataLoader(dataset, batch_size=20)
""" + LOOP.replace("    for a, b", "    dataset.tensors = 100.0 * epoch + torch.arange(20.0), y\n    for a, b")
                             .replace("compute(a, b)", "print(a.sum().item()); compute(x, y)")
                             + "        optimizer.step()\n")
        self.assertEqual(output.split(), ["190.0", "2190.0"])

    def test_a_data_set_that_reads_batches_does_where_torch_asks_it(self):
        text = """
import random, rubato.loader
class Own(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, index): return index, random.random()
    def __getitems__(self, indices):
        share = random.random()
        return [(100 + index, share) for index in indices]
plain = next(iter(DataLoader(Own(), batch_size=20)))[0]
loader = DataLoader(Own(), batch_size=8, num_workers=PROCESSES)
SET
""" + LOOP.replace("compute(a, b)", "print(a.tolist(), b.tolist()); compute(x, y)") + """
        optimizer.step()
print(plain.tolist() == [*range(20)])
"""
        # As this torch does, and as one that asks.
        for said in "", "rubato.loader._GETS_ITEMS = True":
            found = [self.passes(text.replace("PROCESSES", processes).replace("SET", said)) for processes in "02"]
            *lines, by_sample = found[0].splitlines()
            by_sample = by_sample == "True" and not said
            self.assertEqual(lines[0].split()[0], "[0," if by_sample else "[100,")
            draws = [float(number) for line in lines for number in line.split("] [")[1].strip("]").split(",")]
            self.assertEqual(len(set(draws)), 40 if by_sample else 6)
            self.assertEqual(*found)

    def test_nothing_of_an_epoch_is_read_before_its_loop(self):
        output = self.passes("""
class Own(TensorDataset):
    def __getitem__(self, index):
        read.append(index)
        return super().__getitem__(index)
read = []
loader = DataLoader(Own(x, y), batch_size=8)
""" + LOOP + """
        optimizer.step()
    print(len(read))
""")
        self.assertEqual(output.split(), ["20", "40"])

    def test_what_is_left_of_an_epoch_is_read_as_it_is_when_the_next_loop_begins(self):
        text = """
class Own(torch.utils.data.Dataset):
    change = 0
    def __len__(self): return 20
    def __getitem__(self, index): return self.change + index, 0
dataset = Own()
loader = DataLoader(dataset, batch_size=4, num_workers=%d)
""" + LOOP.split("    for a, b")[0] + """
    for dataset.change in 0, 100:
        for a, b in loader:
            print(*a.tolist())
            compute(x, y)
            optimizer.step()
            if a[0] == 4: break
"""
        lines = [" ".join(str(begin + change + i) for i in range(4))
                 for begin, change in ((0, 0), (4, 0), (8, 100), (12, 100), (16, 100))]
        for processes in 0, 2:
            self.assertEqual(self.passes(text % processes).splitlines(), 2 * lines)

    def test_batches_are_those_of_their_places_behind_an_error(self):
        text = """
import os
class Flaky(torch.utils.data.Dataset):
    def __len__(self): return 40
    def __getitem__(self, index):
        if index in (5, 21) and not os.path.exists(str(index)):
            os.mkdir(str(index))
            raise OSError("cannot read it")
        return index, 0
loader = DataLoader(Flaky(), batch_size=4, SETTINGS)
""" + LOOP.split("for epoch")[0] + """
for epoch in job.epochs():
    while True:
        try:
            for a, _ in loader:
                assert a.tolist() == list(range(job._engine.work.begin, job._engine.work.end)), a
                print(*a.tolist())
                compute(x, y)
                optimizer.step()
            break
        except OSError:
            print("again")
"""
        in_turn = [" ".join(map(str, range(begin, begin + 4))) for begin in range(0, 40, 4)]
        for settings in ("num_workers=0", "num_workers=1", "num_workers=2", "num_workers=1, persistent_workers=True",
                         "num_workers=2, persistent_workers=True"):
            lines = self.passes(text.replace("SETTINGS", settings)).splitlines()
            self.assertEqual(lines.count("again"), 2)
            self.assertEqual([line for line in lines if line != "again"], 2 * in_turn)

    def test_a_loaders_length_is_what_it_gives(self):
        # 20 samples in steps of 8, in 1, 2, 4 and 8 parts each; the last step has 4, or 2 of 18.
        text = """
for size in 20, 18:
    for parts in 1, 2, 4, 8:
        model = nn.Linear(4, 2)
        loader = DataLoader(TensorDataset(x[:size], y[:size]), batch_size=8)
        job = rubato.join(epochs=1, name="case", train={"micro_batches": parts})
        model, optimizer, loader = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
        found = 0
        for a, b in loader:
            compute(a, b)
            optimizer.step()
            found += 1
        assert len(loader) == found, (size, parts, len(loader), found)
"""
        self.passes(text)

    def test_a_loop_that_goes_back_reads_again(self):
        text = """
loader = DataLoader(TensorDataset(torch.arange(20), y), batch_size=8, num_workers=2, persistent_workers=%s)
""" + LOOP.split("for epoch")[0] + """
for epoch in job.epochs():
    for a, b in loader:
        break  # while the loader processes have read the next
    for a, b in loader:
        print(*a.tolist())
        compute(x, y)
        optimizer.step()
"""
        in_turn = [" ".join(map(str, range(begin, min(begin + 8, 20)))) for begin in (0, 8, 16)]
        for persistent in False, True:
            self.assertEqual(self.passes(text % persistent).splitlines(), 2 * in_turn)

    def test_other_types_and_strides(self):
        text = """
torch.manual_seed(2)
model = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(3, 2))%s
x = x.to(next(model.parameters()).dtype)
loader = DataLoader(TensorDataset(x, y), batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + LOOP + """        optimizer.step()
print([[round(value, 3) for value in p.flatten().tolist()] for p in model.parameters()])
"""
        single = self.passes(text % "")
        self.assertEqual(self.passes(text % ".double()"), single)
        self.assertEqual(self.passes(text % ".to(memory_format=torch.channels_last)"), single)
        for numbers, wanted in zip(ast.literal_eval(self.passes(text % ".bfloat16()")), ast.literal_eval(single)):
            for number, want in zip(numbers, wanted):
                self.assertAlmostEqual(number, want, delta=0.02)

    def test_sums_of_half_floats_are_of_float32(self):
        # The gradient of the mean times 8 samples: 8 x 20000 is beyond float16, and 7 x 1.0078125 between bfloat16's.
        text = """
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2, dtype=KIND))
    def forward(self, a):
        return (self.w * GRADIENT).sum()
model = Own()
loader = DataLoader(TensorDataset(x[:SAMPLES]), batch_size=SAMPLES)
optimizer = torch.optim.SGD(model.parameters(), lr=2.0 ** -20)
job = rubato.join(epochs=1, name="case")
model, optimizer, loader = job.prepare(model, optimizer, loader)
for (a,) in loader:
    model(a).backward()
    assert model.w.grad.tolist() == [GRADIENT] * 2
    optimizer.step()
print(job._layout._parameters.all.tolist() == [-2.0 ** -20 * GRADIENT] * 2)
"""
        for kind, gradient, samples in ("float16", 20000.0, 8), ("bfloat16", 1.0078125, 7), ("float32", 1.25, 8):
            output = self.passes(text.replace("KIND", f"torch.{kind}").replace("GRADIENT", str(gradient))
                                 .replace("SAMPLES", str(samples)))
            self.assertEqual(output, "True\n", kind)

    def test_orders(self):
        text = LOOP.replace("compute(a, b)", "print(*a.tolist()); compute(x, y)") + "        optimizer.step()\n"
        numbers = "loader = DataLoader(TensorDataset(torch.arange(20), y), batch_size=8, shuffle=%s)\n"
        in_turn = [" ".join(map(str, range(begin, min(begin + 8, 20)))) for begin in (0, 8, 16)]
        self.assertEqual(self.passes(numbers % False + text).splitlines(), 2 * in_turn)
        drawn = self.passes(numbers % True + text).splitlines()
        for epoch in drawn[:3], drawn[3:]:
            self.assertEqual(sorted(map(int, " ".join(epoch).split())), list(range(20)))
        self.assertNotEqual(drawn[:3], drawn[3:])
        given = text.replace("optimizer, loader)",
                             "optimizer, loader, order=lambda epoch: range(epoch, epoch + 20))", 1)
        given = given.replace("range(epoch, epoch + 20)", "[(i + epoch) % 20 for i in range(20)]")
        shifted = self.passes(numbers % True + given).splitlines()
        self.assertEqual(shifted[:3], in_turn)
        self.assertEqual(shifted[3], "1 2 3 4 5 6 7 8")

    def test_what_is_told_of_the_jobs_order_is_not_computed_again(self):
        def lines(settings):
            loop = LOOP.replace("compute(a, b)", "print(*a.tolist()); compute(x, y)") + "        optimizer.step()\n"
            text = f"loader = DataLoader(TensorDataset(torch.arange(20), y), batch_size=8, {settings})\n" + loop
            code, output, errors = self.run_script(text, FAKE_SAMPLES="1")
            self.assertEqual(code, 0, errors)
            return output.splitlines()

        backwards = [" ".join(map(str, range(min(begin + 8, 20) - 1, begin - 1, -1))) for begin in (0, 8, 16)]
        self.assertEqual(lines("shuffle=True"), 2 * backwards)
        # What the job orders is not what this orders.
        self.assertEqual(lines("shuffle=False")[0], "0 1 2 3 4 5 6 7")
        self.assertNotIn(backwards[0], lines("shuffle=True, drop_last=True"))

    def test_rates_by_epoch_and_by_step(self):
        text = """
def schedule(optimizer): return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
plain = torch.optim.SGD(model.parameters(), lr=0.1)
reference, rates = schedule(plain), []
for epoch in range(2):
    for step in range(3):
        rates.append(plain.param_groups[0]["lr"])
        plain.step()
        if by_step: reference.step()
    if not by_step: reference.step()
model, optimizer, loader, scheduler = job.prepare(model, optimizer, loader, schedule(optimizer),
                                                  scheduler_per="step" if by_step else "epoch")
# Lightning looks at its type.
assert isinstance(scheduler, getattr(torch.optim.lr_scheduler, "LRScheduler", torch.optim.lr_scheduler._LRScheduler))
for epoch in job.epochs():
    for a, b in loader:
        assert optimizer.param_groups[0]["lr"] == scheduler.get_last_lr()[0] == rates.pop(0)
        before = model.weight.clone()
        optimizer.zero_grad()
        compute(a, b)
        gradient = model.weight.grad.clone()
        expected = before - optimizer.param_groups[0]["lr"] * gradient
        optimizer.step()
        if by_step: scheduler.step()
        job._engine.advance()
        assert torch.allclose(model.weight, expected, rtol=0, atol=1e-6)
    if not by_step: scheduler.step()
"""
        self.passes("by_step = True" + text)
        self.passes("by_step = False" + text)

    def test_the_jobs_length_is_told_as_soon_as_it_is_known(self):
        text = """
import json, os
for until in {"epochs": 3}, {"epochs": 2.5}, {"steps": 7}, {"samples": 48}, {"time": 60}:
    if by_file:
        with open("job.json", "w") as file:
            json.dump({"train": {"batch_size": 8, "until": until}}, file)
        os.environ["RUBATO_JOB"] = "job.json"
    job = rubato.join(name="case", **({} if by_file else {"train": {"until": until}}))
    print(job.total_epochs, job.total_steps, end=" ")
    model = nn.Linear(4, 2)
    job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    print(job.total_epochs, job.total_steps)
    rubato.job.close_all()
"""
        expected = ["3 None 3 9", "2.5 None 2.5 8", "None 7 2.4 7", "None None 2.4 7", "None None None None"]
        for by_file in False, True:
            self.assertEqual(self.passes(f"by_file = {by_file}" + text).splitlines(), expected)

    def test_the_jobs_seed_is_told_before_prepare(self):
        text = """
import json, os
for seed in {}, {"seed": 7}:
    if by_file:
        with open("job.json", "w") as file:
            json.dump({**seed, "train": {"batch_size": 8, "until": {"epochs": 1}}}, file)
        os.environ["RUBATO_JOB"] = "job.json"
    job = rubato.join(epochs=1, name="case", **({} if by_file else seed))
    print(job.seed, end=" ")
    model = nn.Linear(4, 2)
    job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    print(job.seed)
    rubato.job.close_all()
"""
        for by_file in False, True:
            self.assertEqual(self.passes(f"by_file = {by_file}" + text).splitlines(), ["0 0", "7 7"])

    def test_torch_computes_with_the_threads_of_the_job(self):
        self.passes("""
import json, os
for device, threads in ({}, 1), ({"threads": 3}, 3):
    with open("job.json", "w") as file:
        json.dump({"device": device, "train": {"batch_size": 8, "until": {"epochs": 1}}}, file)
    os.environ["RUBATO_JOB"] = "job.json"
    torch.set_num_threads(2)
    job = rubato.join()
    model = nn.Linear(4, 2)
    job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    assert torch.get_num_threads() == threads, torch.get_num_threads()
    rubato.job.close_all()
""")

    def test_a_run_folder_is_for_whom_the_job_says(self):
        self.passes("""
import os
os.umask(0o022)
for readers, mode in (None, 0o700), ("owner", 0o700), ("group", 0o750), ("all", 0o755):
    job = rubato.join(epochs=1, name="case", security={"readers": readers} if readers else {})
    model = nn.Linear(4, 2)
    job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    assert os.stat(job.run).st_mode & 0o777 == mode, readers
    rubato.job.close_all()
""")

    def test_a_worker_that_leaves_ends_its_script(self):
        code, _, errors = self.run_script(LOOP + """
        optimizer.step()
        job.log(loss=1.0)
        job.leave()
""")
        self.assertEqual(code, 143, errors)

    def test_what_a_worker_of_arrays_gets_and_leaves_out(self):
        text = """
import numpy
p = {"w": numpy.zeros(2, numpy.float32)}
worker = rubato.Worker(rubato.join(epochs=2, name="case", seed=3), p, samples=8, batch_size=4, order=ORDER,
                       optimizer={"name": "sgd", "learning_rate": 1.0})
for step, work in enumerate(worker):
    print(work.seed, *work.indices)
    skips = step == 2  # when the memory of its gradient holds that of step 0
    worker.push({"w": numpy.full(2, numpy.nan if skips else 1)}, weight=0 if skips else None)
print(p["w"].tolist())
"""
        seeds = []
        for order, last in ("'sequential'", "0 1 2 3|4 5 6 7"), ("lambda e: range(7, -1, -1) if e else range(8)",
                                                                 "7 6 5 4|3 2 1 0"):
            *steps, end = self.passes(text.replace("ORDER", order)).splitlines()
            drawn, places = zip(*(line.split(maxsplit=1) for line in steps))
            self.assertEqual("|".join(places), "0 1 2 3|4 5 6 7|" + last)
            self.assertEqual(end, "[-3.0, -3.0]")
            seeds += set(drawn)
        self.assertEqual(len(seeds), 8)
        self.assertEqual(len(set(seeds)), 4)  # functions of the job's seed and the place

    def test_a_cosine_of_another_length_is_warned_of(self):
        text = """
import warnings
schedulers = torch.optim.lr_scheduler
def said(make, per="step"):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rubato.join(epochs=20, name="case").prepare(model, optimizer, loader, make(optimizer), scheduler_per=per)
    return [str(w.message) for w in caught if "rubato" in str(w.message)]
cosine = lambda half: lambda optimizer: schedulers.CosineAnnealingLR(optimizer, half)
for half, per in (20, "step"), (80, "step"), (60, "epoch"):
    print(*said(cosine(half), per))
for half, per in (60, "step"), (59, "step"), (62, "step"), (20, "epoch"), (19, "epoch"):
    assert not said(cosine(half), per), half
for make in (lambda o: schedulers.CosineAnnealingWarmRestarts(o, 20),
             lambda o: schedulers.CyclicLR(o, 0.01, 0.1, 10, cycle_momentum=False),
             lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=90, cycle_momentum=False),
             lambda o: schedulers.StepLR(o, 5), lambda o: schedulers.ConstantLR(o),
             lambda o: schedulers.SequentialLR(o, [schedulers.LinearLR(o, total_iters=5), cosine(55)(o)], [5])):
    assert not said(make)
"""
        lines = self.passes(text).splitlines()
        self.assertEqual(len(lines), 3, lines)
        self.assertIn("T_max=20, and the job 60 steps: the learning rate rises again", lines[0])
        self.assertIn("T_max=80, and the job 60 steps: the learning rate does not come to its end", lines[1])
        self.assertIn("T_max=60, and the job 20 epochs: the learning rate does not come to its end", lines[2])

    def test_a_schedule_that_comes_to_nothing_is_warned_of(self):
        text = """
def said(schedule, per="step"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
        rubato.join(epochs=20, name="case").prepare(model, optimizer, loader, scheduler, scheduler_per=per)
    return [str(w.message) for w in caught if "rubato" in str(w.message)]
import warnings
linear = lambda length: lambda step: max(0.0, 1 - step / length)
for length, per in (15, "step"), (10, "epoch"):
    print(*said(linear(length), per))
for length in 56, 60, 100:  # of 60 steps
    assert not said(linear(length)), length
assert not said(lambda step: float(step % 2)), "it rises again"
"""
        lines = self.passes(text).splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("learning rate is 0 from step 15 on, and the job has 60 steps: nothing is trained then. "
                      "job.total_steps is the job's length", lines[0])
        self.assertIn("learning rate is 0 from epoch 10 on, and the job has 20 epochs", lines[1])

    def test_buffers_that_training_changes_are_warned_of_once(self):
        text = """
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
        self.register_buffer("table", torch.ones(2))
        self.register_buffer("cache", torch.ones(2), persistent=False)
        self.register_buffer("once", torch.ones(2))
        self.register_buffer("mask", torch.tensor([1.0, float("nan")]))
        self.register_buffer("phase", torch.tensor([1j, complex(float("nan"), 1)]))
        self.register_buffer("count", torch.zeros(1, dtype=torch.long))
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("graph", torch.eye(2).to_sparse())
    def forward(self, a):
        self.count += 1
        if self.once.sum() > 0:
            with torch.inference_mode(): self.once = torch.zeros(2)  # as a cache
        self.cache = torch.zeros(2)
        CHANGE
        return self.inner(a)
model = Own()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + LOOP + "        optimizer.step()\n"
        for change, name in (("pass", ""), ("self.table.fill_(1.0)", ""), ("self.table.mul_(0.9)", "table"),
                             ("self.table = self.table * 0.9", "table"),
                             ("self.table = torch.ones(len(self.table) + 1)", "table"),
                             ("self.table[0] = float('nan')", ""), ("self.mask[0] += 1", "mask"),
                             ("self.phase[0] *= 1j", "phase")):
            code, _, errors = self.run_script(text.replace("CHANGE", change))
            self.assertEqual(code, 0, errors)
            said = errors.count(f"the training changes the buffer {name}, which the servers do not have")
            times = 1 if name else 0
            self.assertEqual((said, errors.count("the training changes")), (times, times), errors)

    def test_gradients_that_the_script_changes_are_warned_of_once(self):
        clip = "        torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)\n"
        step = "        optimizer.step()\n"
        scaler = """
def compute(a, b):
    loss = F.cross_entropy(model(a), b)
    (loss * 1024).backward()
"""
        unscale = """
        for p in model.parameters(): p.grad.data.div_(1024.0)
        optimizer.found_inf = torch.tensor(0.0)
"""
        twice = "        compute(a, b)\n"
        data = "        for p in model.parameters(): p.grad.data.mul_(0.5)\n"  # of which torch counts no version
        for text, times in ((LOOP + clip + step, 1), (LOOP + data + step, 1), (LOOP + step, 0),
                            (scaler + LOOP + unscale + step, 0), (scaler + LOOP + unscale + clip + step, 1),
                            (LOOP + twice + step, 0), (LOOP.replace("loader)", "loader, overlap=True)", 1) + step, 0)):
            code, _, errors = self.run_script(text)
            self.assertEqual(code, 0, errors)
            self.assertEqual(errors.count("in place of clip_grad_norm_"), times, errors)

    def test_another_optimizer_that_makes_steps_is_warned_of_once(self):
        own = """
other = nn.Linear(2, 2)
local = torch.optim.Adam(other.parameters())
def step():
    local.zero_grad()
    other(torch.ones(1, 2)).sum().backward()
    local.step()
step()
"""
        for text, times in (("        optimizer.step()\n        step()\n", 1),
                            ("        optimizer.step()\n    job.evaluate(torch.enable_grad()(step))\nstep()\n", 0)):
            code, _, errors = self.run_script(own + LOOP + text)
            self.assertEqual(code, 0, errors)
            self.assertEqual(errors.count("the step of another Adam than job.prepare was given is called: each worker "
                                          "trains its parameters by itself"), times, errors)

    def test_who_looks_for_torchruns_group_is_told_why(self):
        # As accelerate does where it finds LOCAL_RANK.
        code, _, errors = self.run_script("""
import torch.distributed
torch.distributed.init_process_group("gloo", init_method="env://", rank=0, world_size=1)
""", RUBATO_JOB="job.yaml", LOCAL_RANK="0")
        self.assertEqual(code, 1)
        self.assertIn("MASTER_ADDR expected", errors)
        self.assertRegex(errors, r"worker warning: something takes LOCAL_RANK, .* for torchrun's\. .*"
                                 r'os\.environ\["CUDA_VISIBLE_DEVICES"\] = os\.environ\.pop\("LOCAL_RANK"\), before')

    def test_what_is_not_trained_stays_with_the_worker(self):
        # One is frozen, of one the optimizer does not know, and one is of a type that the servers do not have.
        text = """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen, self.other, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.frozen.requires_grad_(False)
        self.phase = nn.Parameter(torch.ones(3, dtype=torch.complex64), requires_grad=False)
    def forward(self, x):
        return self.head(self.other(self.frozen(x)))
model = Part()
optimizer = torch.optim.SGD([*model.frozen.parameters(), *model.head.parameters()], lr=0.1)
before = {name: value.clone() for name, value in model.state_dict().items()}
""" + LOOP + """
        assert model.other.weight.grad is not None
        CHANGE
        optimizer.step()
        assert model.other.weight.grad is None
layout = job._layout.to_proto()
print([parameter["name"] for parameter in layout["parameters"]], [c["name"] for c in layout["constants"]])
assert len({c["digest"] for c in layout["constants"]}) == 5
same = job._layout.to_proto() == layout
with torch.no_grad():
    model.other.bias[3] += 1
print(same, [a == b for a, b in zip(job._layout.to_proto()["constants"], layout["constants"])])
job.save("saved.pt")
saved = torch.load("saved.pt")
print([name for name, value in before.items() if not torch.equal(saved[name], value)])
"""
        code, output, errors = self.run_script(text.replace("CHANGE", "pass"))
        self.assertEqual(code, 0, errors)
        names = ["phase", "frozen.weight", "frozen.bias", "other.weight", "other.bias"]
        self.assertEqual(output.splitlines(), [f"['head.weight', 'head.bias'] {names}",
                                               "True [True, True, True, True, False]",
                                               "['other.bias', 'head.weight', 'head.bias']"])
        self.assertNotIn("warning", errors)
        code, _, errors = self.run_script(text.replace("CHANGE", "model.other.weight.data.mul_(1); "
                                                       "torch.no_grad()(model.other.bias.mul_)(0.5)"))
        self.assertEqual(code, 0, errors)
        self.assertEqual(errors.count("other.bias, which the optimizer does not train, was changed in place: each "
                                      "worker changes its own, and a checkpoint has none"), 1, errors)

    def test_what_a_test_makes_of_frozen_parameters_is_undone(self):
        text = """
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
model[0].requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = model[0].weight.clone()
def test():
    with torch.no_grad():
        before = model[0].weight.clone()
        model[0].weight.zero_()
        model[0].weight.copy_(before)
    model.double()
    return {"loss": float(model(x.double()).sum())}
""" + LOOP + """
        CHANGE
        optimizer.step()
    job.evaluate(test)
assert model[0].weight.dtype == torch.float32 and torch.equal(model[0].weight, kept)
"""
        code, _, errors = self.run_script(text.replace("CHANGE", "pass"))
        self.assertEqual(code, 0, errors)
        self.assertNotIn("changed in place", errors)
        # Also where the script itself has changed another one.
        code, _, errors = self.run_script(text.replace("CHANGE", "torch.no_grad()(model[0].bias.mul_)(0.5)"))
        self.assertEqual(code, 0, errors)
        self.assertEqual(errors.count("0.bias, which the optimizer does not train, was changed in place"), 1, errors)

    def test_the_base_of_the_learning_rates_is_of_a_group_that_is_trained(self):
        output = self.passes("""
from rubato.layout import Layout
from rubato.optimizers import to_settings
model.weight.requires_grad_(False)
groups = [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.25}]
optimizer = torch.optim.SGD(groups, lr=0.1)
found = to_settings(optimizer, Layout(model, optimizer))
print(found["learning_rate"], "groups" in found)
""")
        self.assertEqual(output, "0.25 False\n")

    def test_a_group_has_the_parameters_alone_whose_names_it_was_made_of(self):
        output = self.passes(r"""
from rubato.layout import Layout
from rubato.optimizers import to_settings
names = "user*", "b?", r"a\b", "[c]"
parameters = nn.ParameterDict({name: nn.Parameter(torch.ones(1)) for name in ("first", *names)})
optimizer = torch.optim.SGD([{"params": [parameters["first"]]},
                             {"params": [parameters[name] for name in names], "lr": 0.01}], lr=0.1)
for group in to_settings(optimizer, Layout(parameters, optimizer))["groups"]:
    print(group["match"])
""")
        self.assertEqual(sorted(output.split()), sorted([r"user\*", r"b\?", r"a\\b", "[c]"]))

    def test_a_parameter_without_a_gradient_is_warned_of_once(self):
        def said(text, where="a step", workers=1):
            code, _, errors = self.run_script(text, FAKE_WORKERS=str(workers))
            self.assertEqual(code, 0, errors)
            return errors.count(f"weight had no gradient in {where}. In a step that counts as one of zero")

        step = "        optimizer.step()\n"
        adam = "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
        freeze = "model.weight.requires_grad_(False)\n"
        late = LOOP.replace("for epoch", freeze + "for epoch") + step
        # Only of the last epoch's steps; in one of a step's two micro-batches alone, as in a mixture of experts.
        later = LOOP.replace("    for a", "    model.weight.requires_grad_(epoch == 0)\n    for a") + step
        parts = "job = rubato.join(epochs=2, train={'micro_batches': 2})\n"
        experts = parts + LOOP.replace("compute(", "model.weight.requires_grad_(job._engine.work.leaf == 1)\n"
                                                   "        compute(") + step
        for text, times in ((late, 1), (later, 1), (parts + late, 1), (experts, 0), (freeze + LOOP + step, 0),
                            (LOOP + step, 0), (late.replace("loader)", "loader, overlap=True)", 1), 1)):
            self.assertEqual(said(adam + text), times, text)
        self.assertEqual(said(adam + late.replace("for epoch", "assert job.total_steps == 1\nfor epoch", 1).replace(
            "model, opt", "job = rubato.join(train={'until': {'steps': 1}})\nmodel, opt", 1)), 1)
        # Of two workers, of which the other has each step's second micro-batch: who has none in its part of a step
        # does not know of the other's.
        once = parts + LOOP.replace("compute(", "model.weight.requires_grad_(job.step != 1)\n        compute(") + step
        for text, times in (parts + late, 1), (parts + later, 1), (once, 0), (experts, 1):
            self.assertEqual(said(adam + text, "a step", workers=2), 0, text)
            self.assertEqual(said(adam + text, "this worker's micro-batches of an epoch", workers=2), times, text)
        # Where torch does the same.
        for optimizer, times in (("SGD(model.parameters(), lr=0.1)", 0), ("Adagrad(model.parameters())", 0),
                                 ("SGD(model.parameters(), lr=0.1, momentum=0.9)", 1),
                                 ("SGD([{'params': [model.weight], 'weight_decay': 0.1}, {'params': model.bias}], 0.1)",
                                  1)):
            self.assertEqual(said(f"optimizer = torch.optim.{optimizer}\n" + late), times, optimizer)

    def test_steps_without_a_backward_are_warned_of_once(self):
        loop = LOOP.replace("        compute(a, b)\n", "")
        for step, times in ("optimizer.step()", 1), ("optimizer.step(weight=0)", 0):  # the mean over nothing
            code, _, errors = self.run_script(loop + f"        {step}\n")
            self.assertEqual(code, 0, errors)
            self.assertEqual(errors.count("expected loss.backward() before it"), times, errors)
            self.assertNotIn("had no gradient in", errors)

    def test_a_sum_for_a_loss(self):
        text = """
import copy
loader = DataLoader(TensorDataset(x, y), batch_size=8)
def compute(a, b): F.cross_entropy(model(a), b, reduction="sum").backward()
plain = copy.deepcopy(model)
other = torch.optim.SGD(plain.parameters(), lr=0.1)
for epoch in range(2):
    for i, (a, b) in enumerate(loader):
        if i == 1: a, b = KEPT
        other.zero_grad()
        F.cross_entropy(plain(a), b, reduction="sum").backward()
        other.step()
""" + LOOP.replace("loader)", "loader, loss='sum')", 1) + """
        job.log(loss=1)
        optimizer.step(LEFT)
for one, two in zip(model.parameters(), plain.parameters()):
    assert torch.allclose(one, two, atol=1e-5), (one, two)
"""
        self.passes(text.replace("KEPT", "a, b").replace("LEFT", ""))
        # Of the second step's micro-batches one is left out, and of a short step one has all.
        parts = text.replace("model, optimizer", "job = rubato.join(epochs=2, train={'micro_batches': 2})\n"
                             "model, optimizer", 1)
        self.passes(parts.replace("KEPT", "a, b").replace("LEFT", ""))
        self.passes(parts.replace("KEPT", "a[:4], b[:4]").replace(
            "LEFT", "weight=0 if job.step % 3 == 1 and job._engine.work.leaf == 1 else None"))
        self.refuses('found weight=8 with loss="sum", expected none', text.replace("KEPT", "a, b").replace(
            "LEFT", "weight=8"))

    def test_batch_norm_is_averaged_as_torch_does(self):
        output = self.passes("""
import copy
model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, momentum=0.3))
loader = DataLoader(TensorDataset(x, y), batch_size=10)
plain = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
other = torch.optim.SGD(plain.parameters(), lr=0.1)
for epoch in range(2):
    for a, b in loader:
        other.zero_grad()
        F.cross_entropy(plain(a), b).backward()
        other.step()
""" + LOOP + """        optimizer.step()
for one, two in zip(model.state_dict().values(), plain.state_dict().values()):
    assert torch.allclose(one, two, atol=1e-6), (one, two)
print(model[1].momentum)
""")
        self.assertEqual(output, "0.3\n")

    def test_batch_norm_has_its_momentum_again_behind_each_step(self):
        output = self.passes("""
model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, momentum=0.3))
for job in rubato.join(epochs=1, name="first"), rubato.join(epochs=1, name="second"):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, batches = job.prepare(model, optimizer, loader)
    print(*(entry.average for entry in job._layout.entries if entry.average))
    for a, b in batches:
        compute(a, b)
        if job.step == 1 and job._loops == 1: break  # the batch comes again
        optimizer.step()
        assert model[1].momentum == 0.3
    assert model[1].momentum == 0.3
    for a, b in batches:
        compute(a, b)
        optimizer.step()
""")
        self.assertEqual(output, "0.3 0.3\n0.3 0.3\n")

    def test_batch_norm_that_runs_twice_in_a_micro_batch_is_warned_of(self):
        norm = """
model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + LOOP + "        optimizer.step()\n"
        for text, times in (norm, 0), (norm.replace("compute(a, b)", "model(x); compute(a, b)"), 1):
            code, _, errors = self.run_script(text)
            self.assertEqual((code, errors.count("batch norm runs 2 times in a micro-batch")), (0, times), errors)

    def test_between_steps_batch_norm_has_the_averages(self):
        output = self.passes("""
model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, momentum=0.3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
at_hand = [torch.zeros(2)]
""" + LOOP.replace("        optimizer.zero_grad()", "        at_hand.append(model[1].running_mean.clone())") + """
        optimizer.step()
        print(torch.equal(model[1].running_mean, at_hand[-1]), torch.equal(at_hand[-2], at_hand[-1]))
""")  # two epochs of three batches; the first finds what the second has before it
        self.assertEqual(output.splitlines(), ["True True"] + ["True False"] * 5)

    def test_tests_and_files_have_the_averages_whatever_ran_before(self):
        text = """
model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, momentum=0.3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + LOOP + """        optimizer.step()
    %s
    %s
"""
        for call in ("job.evaluate(lambda: print(model[1].running_mean))",
                     "job.save('x.pt'); print(torch.load('x.pt')['1.running_mean'])"):
            self.assertEqual(self.passes(text % ("model(100 * x)", call)), self.passes(text % ("", call)))

    def test_a_change_between_steps_is_told_to_be_lost(self):
        change = "        with torch.no_grad(): model.weight.clamp_(-1, 1)\n"
        code, _, errors = self.run_script(LOOP + "        optimizer.step()\n" + change)
        self.assertEqual(code, 0, errors)
        self.assertEqual(errors.count("weight was changed in place after optimizer.step()"), 1, errors)
        code, _, errors = self.run_script(LOOP + "        optimizer.step()\n    def test():\n" + change +
                                          "        return {}\n    job.evaluate(test)\n")
        self.assertEqual(code, 0, errors)
        self.assertNotIn("changed in place", errors)

    def test_a_change_of_data_between_steps_is_told_to_be_lost(self):
        # Of which torch counts no version; found in the first micro-batch alone, as a script does the same for each.
        change = "        model.weight.data.clamp_(-.1, .1)\n"
        code, _, errors = self.run_script(LOOP + "        optimizer.step()\n" + change)
        self.assertEqual(code, 0, errors)
        self.assertEqual(errors.count("weight was changed in place after optimizer.step()"), 1, errors)
        code, _, errors = self.run_script(LOOP + "        optimizer.step()\n")
        self.assertEqual((code, errors.count("in place")), (0, 0), errors)

    def test_what_a_test_tells_the_job(self):
        test = LOOP + "        optimizer.step()\n    job.evaluate(lambda: %s)\n"
        for figures, told in (("{'accuracy': 1, 'loss': 2}", "2.0 1.0"),
                              ("{'accuracy': torch.tensor(0.5)}", "None 0.5"),
                              ("{'accuracy': sum(64 / 1000 for _ in range(15)) + 40 / 1000 + 4e-16}", "None 1.0"),
                              ("{'accuracy': float('nan')}", "None None"), ("None", "None None"), ("{}", "None None")):
            code, _, errors = self.run_script(test % figures)
            self.assertEqual((code, errors.splitlines()), (0, [f"tested {told}"] * 2))

    def test_other_figures_of_a_test_are_the_jobs_by_their_names(self):
        test = LOOP + "        optimizer.step()\n    job.evaluate(lambda: %s)\n"
        names = [f"n{i}" for i in range(33)]
        taken = "'n' * 65: 1, '': 1, 'a-b': 1, 'ä': 1, 7: 1, 'kind': 1, 'samples_per_second': 1, 'word': '1', "
        for figures, told, left in (
                ("{'loss': 2, 'f1': 0.5, 'AUC_2': torch.tensor(1.5), 'n' * 64: 3, 'none': None}",
                 f"2.0 None ('f1', 0.5) ('AUC_2', 1.5) ('{'n' * 64}', 3.0)", ""),
                ("{'a': float('nan'), 'b': float('inf')}", "None None ('a', 'nan') ('b', 'inf')", ""),
                ("{%s'many': torch.ones(2), 'huge': 10 ** 400, 'z': 1}" % taken, "None None ('z', 1.0)",
                 ", ".join(sorted(["7", "", "a-b", "huge", "kind", "many", "n" * 65, "samples_per_second", "word",
                                   "ä"]))),
                (f"dict.fromkeys({names}, 1)", "None None " + " ".join(f"('{name}', 1.0)" for name in names[:32]),
                 "n32")):
            code, _, errors = self.run_script(test % figures)
            lines = [line for line in errors.splitlines() if line.startswith("tested ")]
            self.assertEqual((code, lines), (0, [f"tested {told}"] * 2), errors)
            warnings = [line for line in errors.splitlines() if "the script alone keeps" in line]
            self.assertEqual(len(warnings), 1 if left else 0, errors)
            if left:
                self.assertIn(f"of a test's figures the script alone keeps {left}; the job takes real numbers, at most "
                              "32 beside loss and accuracy, by names of", warnings[0])

    def test_a_test_may_put_other_memory_in_place_of_parameters(self):
        swap = """
    def test():
        kept = {name: p.data.clone() for name, p in model.named_parameters()}
        for p in model.parameters(): p.data = torch.zeros_like(p)
        assert model(x).abs().sum() == 0
        for name, p in model.named_parameters(): p.data = kept[name]
    job.evaluate(test)
"""
        end = "        optimizer.step()\n"
        self.same(LOOP + end + swap, LOOP + end)
        self.same(LOOP.replace("    for a, b", swap + "    for a, b") + end, LOOP + end)  # before the first batch, too

    def test_a_test_may_put_other_averages_in_place(self):
        norm = """
model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, momentum=0.3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + LOOP + "        optimizer.step()\n"
        for test in "model.double(); model.float()", "model.double()":
            self.same(norm + f"    def test(): {test}\n    job.evaluate(test)\n", norm)
        code, _, errors = self.run_script(norm + "    model.double(); model.float()\n")
        self.assertEqual((code, errors.count("the memory of 0.weight was replaced")), (1, 1), errors)
        code, _, errors = self.run_script(norm + "    model[1].running_var = model[1].running_var.clone()\n")
        self.assertEqual((code, errors.count("the memory of running_var was replaced")), (1, 1), errors)

    def test_the_scripts_handler_of_signals_stays(self):
        self.passes("import signal\n" + LOOP + """        optimizer.step()
        handler = lambda *_: None
        signal.signal(signal.SIGTERM, handler)
assert signal.getsignal(signal.SIGTERM) is handler
""")

    def test_a_loop_in_another_thread(self):
        self.passes("""
import threading
def loop():
    for epoch in job.epochs():
        for a, b in loader:
            compute(a, b)
            optimizer.step()
    done.append(True)
done = []
model, optimizer, loader = job.prepare(model, optimizer, loader)
thread = threading.Thread(target=loop)
thread.start()
thread.join()
assert done
""")

    def test_adam_with_decoupled_weight_decay_is_adamw(self):
        # As newer versions of torch have AdamW; older ones keep what a group brings.
        output = self.passes("""
from rubato.layout import Layout
from rubato.optimizers import to_settings
def found(*decoupled):
    groups = [{"params": [p], "decoupled_weight_decay": d} for p, d in zip(model.parameters(), decoupled)]
    optimizer = torch.optim.Adam(groups, lr=0.1, weight_decay=0.2)
    return to_settings(optimizer, Layout(model, optimizer))
print(found(True, True)["name"], found(False, False)["name"], found(True, True)["weight_decay"])
try:
    found(True, False)
except rubato.Refused as error:
    print(error)
""")
        self.assertEqual(output, "adamw adam 0.2\ngroups of parameters differ in decoupled_weight_decay (True and "
                                 "False), expected learning rates and weight decays alone to differ\n")

    def test_a_saved_file_has_the_values_alone(self):
        self.passes(LOOP + """        optimizer.step()
assert job.save("found.pt")
assert torch.load("found.pt")._metadata == model.state_dict()._metadata
for value in torch.load("found.pt").values():
    storage = value.untyped_storage() if hasattr(value, "untyped_storage") else value.storage()
    assert storage.nbytes() == 4 * value.numel()
assert all((a == b).all() for a, b in zip(torch.load("found.pt").values(), model.state_dict().values()))
""")

    def test_a_saved_file_has_the_names_of_the_model_that_is_compiled(self):
        self.passes("""
class Compiled(nn.Module):  # as what torch.compile returns
    def __init__(self, model):
        super().__init__()
        self._orig_mod = model
    def forward(self, a): return self._orig_mod(a)
plain, model = model, Compiled(model)
""" + LOOP + """        optimizer.step()
assert job.save("found.pt")
plain.load_state_dict(torch.load("found.pt"))
""")

    def test_what_a_forked_process_writes_to_the_model_stays_with_it(self):
        child = """
def fork():
    child = os.fork()
    if child == 0:
        with torch.no_grad(): model.weight.zero_()
        os._exit(0 if (model.weight == 0).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
"""
        text = "import os" + child + LOOP + "        FORK\n        optimizer.step()\nFORK\n"  # and when the job is over
        self.same(text.replace("FORK", "fork()"), text.replace("FORK", "pass"))

    def test_nothing_of_a_job_that_has_ended_stays(self):
        text = """
import os, pathlib, signal
def held():
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    files = [os.readlink(path) for path in pathlib.Path("/proc/self/fd").iterdir() if os.path.lexists(path)]
    sockets = sum(file.startswith("socket:") for file in files)  # the memory is the model's
    return sockets, children, signal.getsignal(signal.SIGTERM)
batches, before = loader, held()
for job in rubato.join(epochs=1, name="first"), rubato.join(epochs=1, name="second"):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + LOOP.replace("optimizer, loader)", "optimizer, batches)").replace("\n", "\n    ") + """
            optimizer.step()
    assert held() == before, (held(), before)
    print(job.epoch, job.rank, job.total_steps, job.save("x.pt"))
print("trained", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("swallowed")
"""
        code, output, errors = self.run_script(text)
        self.assertEqual((code, output), (-15, "0 0 3 True\n" * 2 + "trained\n"), errors)

    def test_the_environment_starts_nothing_of_others(self):
        output = self.passes("import os; before = dict(os.environ)\n" + LOOP + """        optimizer.step()
print({name for name in os.environ if os.environ[name] != before.get(name)})
""")
        self.assertEqual(output, "set()\n")


run_cases()
