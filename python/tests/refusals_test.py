"""What a script may not do is refused with a sentence. Against a fake of rubato-worker."""

import ast
import re
import signal

from fakes import HERE, LOOP, WithFake
from skipped import run_cases, skip

try:
    import torch  # noqa: F401
except ImportError:
    skip("RefusalsTest", "Refuses", "python3-torch is not installed")


class RefusalsTest(WithFake):
    def test_own_accumulation(self):
        self.refuses("set train.micro_batches", LOOP + "        if epoch == 1: optimizer.step()\n")

    def test_what_is_no_number_is_not_printed_whole(self):
        big = "a Tensor of shape (20, 4) and type torch.float32"
        step = "        optimizer.step()\n"
        self.refuses(f"found loss={big}, expected a number or a tensor of one, such as loss.mean()",
                     LOOP + step + "        job.log(loss=x)\n")
        self.refuses("found loss='1', expected a number", LOOP + step + "        job.log(loss='1')\n")
        self.refuses("found loss=[1], expected a number", LOOP + step + "        job.log(loss=[1])\n")
        self.refuses(f"found weight={big}, expected a whole number", LOOP + "        optimizer.step(weight=x)\n")
        self.refuses(f"returned loss={big}, expected a real number",
                     LOOP + step + "    job.evaluate(lambda: {'loss': x})\n")
        self.refuses("returned accuracy=[0, 1, 2, 3, ", LOOP + step + "    job.evaluate(lambda: "
                     "{'accuracy': list(range(1000))})\n")
        self.refuses(f"rubato.join was given seed={big}, expected", "rubato.join(epochs=1, seed=x)\n")
        self.refuses("rubato.join was given x='" + 199 * "1" + "..., expected", "rubato.join(epochs=1, x=300 * '1')\n")

    def test_keys_of_the_job_in_the_environment(self):
        launch = "rubato.launch(print, {'train': {'until': {'epochs': 1}}})\n"
        for text in "", "import os; os.environ['RUBATO__SEED'] = '7'\n" + launch:
            code, _, errors = self.run_script(text, **({} if text else {"RUBATO__SEED": "7"}))
            self.assertEqual(code, 1, errors)
            self.assertIn("rubato.errors.Refused: found RUBATO__SEED=7 in the environment, which sets nothing in a job "
                          "that a script starts for itself", errors)

    def test_the_optimizer_that_was_given(self):
        self.refuses("of the optimizer that job.prepare returned",
                     LOOP.replace("model, optimizer, loader =", "model, _, loader =") + "        optimizer.step()\n")

    def test_two_steps_for_one_micro_batch(self):
        self.refuses("called twice for one micro-batch, expected once; for two losses, such as a GAN's: "
                     "docs/pytorch.md, Two optimizers", LOOP + "        optimizer.step()\n        optimizer.step()\n")

    def test_epochs_without_a_batch(self):
        sentence = ("no batch was taken in epoch %d, twice in a row, expected to iterate over the loader that "
                    "job.prepare returned")
        bounded = LOOP.replace("job.epochs()", "(e for _, e in zip(range(9), job.epochs()))")
        # Of the script's own loader, and of an iterator that is used up in the first epoch.
        self.refuses(sentence % 0, bounded.replace("model, optimizer, loader =", "model, optimizer, _ =")
                     .replace("        compute(a, b)\n", ""))
        used_up = bounded.replace("for epoch", "import itertools\nloader = itertools.islice(loader, 3)\nfor epoch", 1)
        self.refuses(sentence % 1, used_up + "        optimizer.step()\n")
        # One may be skipped, again and again.
        self.passes(bounded.replace("    for a, b in loader", """\
    skips = not globals().get("skips", False)
    for a, b in [] if skips else [next(batches := iter(loader))]""") + "        optimizer.step()\n")

    def test_a_step_without_a_micro_batch(self):
        for first in "next(iter(loader))\n", "":
            self.refuses("no micro-batch at hand, expected one from the loader that job.prepare returned",
                         LOOP.split("for epoch")[0] + first + "optimizer.step()\n")

    def test_a_test_and_a_file_before_a_batch_has_been_stepped(self):
        for call, name in ("job.evaluate(lambda: {})", "job.evaluate"), ("job.save('x.pt')", "job.save"):
            self.refuses(f"{name} was called between a batch and its optimizer.step(), expected before the next",
                         LOOP + f"        {call}\n        optimizer.step()\n")
            self.passes(LOOP + f"        optimizer.step()\n        {call}\n")

    def test_a_micro_batch_that_is_left_out(self):
        skips = LOOP.replace("        compute(a, b)\n", "        if job.step == 2: SKIP\n        compute(a, b)\n")
        step = "        optimizer.step()\n"
        self.refuses("optimizer.step() was not called for the micro-batch before, expected once for each, of the "
                     "optimizer that job.prepare returned: to add gradients of several, set train.micro_batches; to "
                     "leave one out, call it with weight=0", skips.replace("SKIP", "continue") + step)
        self.passes(skips.replace("SKIP", "optimizer.step(weight=0); continue") + step)

    def test_answers_of_a_worker(self):
        text = """
import numpy
g = {"w": numpy.ones(3, numpy.float32)}
worker = rubato.Worker(job, dict(g), samples=8, batch_size=4, optimizer={"name": "sgd", "learning_rate": 0.1})
"""
        push = "worker.push(g)\n"
        self.refuses("worker.push was called with no micro-batch at hand, expected one from the loop over", text + push)
        self.refuses("worker.push was not called for the micro-batch before, expected once for each, of the "
                     "rubato.Worker:", text + "for work in worker: pass\n")
        self.refuses("worker.push was called twice for one micro-batch, expected once",
                     text + f"for work in worker:\n    {push}    {push}")

    def test_arrays_that_the_script_changes(self):
        text = """
import numpy
p = {"w": numpy.ones(3, numpy.float32)}
worker = rubato.Worker(job, p, samples=8, batch_size=4, optimizer={"name": "sgd", "learning_rate": 0.1})
for work in worker:
    BEFORE
    worker.push({"w": numpy.ones(3)})
    AFTER
"""
        self.passes(text.replace("BEFORE", "pass").replace("AFTER", "pass"))
        for places in ("BEFORE", "AFTER"), ("AFTER", "BEFORE"):
            self.refuses("w was changed by the script, expected only the servers to change the parameters",
                         text.replace(places[0], "p['w'] -= 0.1").replace(places[1], "pass"))

    def test_a_model_whose_gradients_others_add_up(self):
        self.refuses("the model is wrapped in DistributedDataParallel, expected the module in it", """
distributed = torch.distributed
distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
job.prepare(nn.parallel.DistributedDataParallel(model), optimizer, loader)
""")

    def test_a_test_and_a_file_of_arrays(self):
        for call in "evaluate(dict)", "save('x.pt')":
            self.refuses("expected a model that job.prepare was given", f"""
import numpy
worker = rubato.Worker(job, {{"w": numpy.ones(3, numpy.float32)}}, samples=8, batch_size=4,
                       optimizer={{"name": "sgd", "learning_rate": 0.1}})
next(iter(worker))
job.{call}
""")

    def test_edits_of_parameters(self):
        self.refuses("weight was changed in place", LOOP + """
        with torch.no_grad(): model.weight.clamp_(-1, 1)
        optimizer.step()
""")

    def test_edits_that_torch_does_not_count(self):
        for edit in ("weight.data.clamp_(-0.01, 0.01)", "weight.data.mul_(float('nan'))"):
            self.refuses("weight was changed in place", LOOP + f"        model.{edit}\n        optimizer.step()\n")

    def test_what_the_job_does_not_have_is_neither_tested_nor_saved(self):
        text = LOOP + """        optimizer.step()
    if epoch == 1:  # the last: no step follows
        model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
"""
        for call in ("evaluate(dict)", "save('x.pt')"):
            code, _, errors = self.run_script(text + f"        job.{call}\n")
            self.assertEqual(code, 1, errors)
            self.assertIn("rubato.errors.Refused: weight was changed in place", errors)
        # Behind the job's end the model is the script's.
        output = self.passes(text + "job.save('x.pt')\nprint(torch.load('x.pt')['weight'].abs().sum().item())\n")
        self.assertEqual(output, "0.0\n")
        output = self.passes(text.replace("in job.epochs()", "in range(2)") + """job.save('x.pt')
print(torch.load('x.pt')['weight'].abs().sum().item())
""")
        self.assertEqual(output, "0.0\n")

    def test_other_memory_for_parameters(self):
        assign = "model.weight.data = model.weight.data.clamp(-0.1, 0.1)\n"
        for text in (LOOP.replace("for epoch", "model.double(); x = x.double()\nfor epoch", 1) +
                     "        optimizer.step()\n",
                     LOOP.replace("for epoch", "model.weight.data = model.weight.data.clone()\nfor epoch", 1) +
                     "        optimizer.step()\n",
                     LOOP + "        if job.step == 2: " + assign + "        optimizer.step()\n",
                     LOOP + "        optimizer.step()\n        if job.step == 2: " + assign):
            self.refuses("weight was replaced after job.prepare", text)
        self.refuses("0.weight was replaced after job.prepare", """
model = nn.Sequential(nn.Conv2d(3, 2, 2))
model, optimizer, loader = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
model.to(memory_format=torch.channels_last)
next(iter(loader))
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
        self.refuses("(ReduceLROnPlateau, which decides by what is measured, can be neither)", """
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
""" + LOOP.replace("loader)\n", "loader)\nscheduler.optimizer = optimizer\n", 1)
                     + "        optimizer.step()\n        scheduler.step(1)\n")

    def test_a_scheduler_that_is_not_given(self):
        scheduler = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
        self.refuses("has a scheduler that job.prepare was not given",
                     scheduler + "model, optimizer, loader = job.prepare(model, optimizer, loader)")
        # The script's own, in place of the one that is returned.
        self.refuses("lr of the optimizer that job.prepare was given was changed from 0.1 to 0.01", scheduler + """
model, optimizer, loader, _ = job.prepare(model, optimizer, loader, scheduler)
for a, b in loader:
    optimizer.zero_grad()
    compute(a, b)
    optimizer.step()
    scheduler.step()
""")

    def test_two_optimizers(self):
        self.refuses("learning rates of their own (docs/pytorch.md, Two optimizers)",
                     "job.prepare(model, [optimizer, optimizer], loader)")

    def test_prepare_twice(self):
        self.refuses("called twice", "job.prepare(model, optimizer, loader)\njob.prepare(model, optimizer, loader)")

    def test_another_optimizer(self):
        output = self.passes("""
for name in ("Adadelta", "Adamax", "ASGD", "LBFGS", "NAdam", "RAdam", "Rprop"):
    try:
        job.prepare(model, getattr(torch.optim, name)(model.parameters(), lr=0.1), loader)
    except rubato.Refused as error:
        print(str(error).startswith(f"found {name}, expected one of SGD, Adam"))
""")
        self.assertEqual(output.split(), ["True"] * 7)

    def test_a_second_optimizer_that_is_not_prepared(self):
        sentence = "the step of another %s was called, which has weight of the model, expected none but of"
        for kind, text in (("Adam", "        other.step()\n        optimizer.step()\n"),
                           ("SGD", "        optimizer.step()\n        other.step()\n")):
            self.refuses(sentence % kind, f"other = torch.optim.{kind}([model.weight], lr=0.1)\n" + LOOP + text)
        # Which the optimizer does not have, and which has no gradient any more.
        given = "given, optimizer = optimizer, torch.optim.SGD([model.bias], lr=0.1)\n"
        self.refuses(sentence % "SGD", given + LOOP + """
        optimizer.step()
        given.step()
""")

    def test_hooks_of_an_optimizer(self):
        for when in "pre", "post":
            self.refuses("the SGD has hooks of its step(), expected none", f"""
if hasattr(optimizer, "register_step_{when}_hook"):
    optimizer.register_step_{when}_hook(lambda *_: None)
else:  # before torch 2
    optimizer._optimizer_step_{when}_hooks = {{1: lambda *_: None}}
job.prepare(model, optimizer, loader)
""")

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
groups = [{"params": [model.weight]}, {"params": [model.bias], "momentum": 0.5}]
job.prepare(model, torch.optim.SGD(groups, lr=0.1), loader)
""")

    def test_a_group_added_later(self):
        self.refuses("added after job.prepare", """
model, optimizer, loader = job.prepare(model, optimizer, loader)
optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
""")

    def test_parameters_of_another_model(self):
        self.refuses("none of the model's",
                     "job.prepare(model, torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), loader)")

    def test_nothing_to_train(self):
        self.refuses("no parameter of the optimizer's has requires_grad", """
model.requires_grad_(False)
job.prepare(model, optimizer, loader)
""")

    def test_the_optimizers_state(self):
        self.refuses("is the servers'", "torch.save(job.prepare(model, optimizer, loader)[1].state_dict(), 'state.pt')")
        self.refuses("is the servers'", """
before = optimizer.state_dict()
job.prepare(model, optimizer, loader)[1].load_state_dict(before)
""")
        # As accelerate does to move it to a device.
        self.passes(LOOP + """
        state = optimizer.state_dict()
        assert state["param_groups"][0]["lr"] == 0.1
        optimizer.load_state_dict(type(state)({name: value for name, value in state.items()}))
        optimizer.step()
""")

    def test_parameters_that_are_changed_between_prepare_and_the_first_batch(self):
        load = "model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})\n"
        self.refuses("weight was changed in place after job.prepare, expected it before",
                     LOOP.replace("for epoch", load + "for epoch") + "        optimizer.step()\n")
        self.passes(load + LOOP + "        optimizer.step()\n")

    def test_a_scheduler_that_is_none_of_torchs(self):
        self.refuses("found a Other of __main__ for a scheduler, expected one of torch.optim.lr_scheduler", """
class Other:
    def step(self, epoch): pass
job.prepare(model, optimizer, loader, Other())
""")

    def test_reduce_on_plateau(self):
        self.refuses("ReduceLROnPlateau", """
job.prepare(model, optimizer, loader, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))
""")

    def test_a_scheduler_that_is_stepped_otherwise(self):
        loop = """
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)
model, optimizer, loader, scheduler = job.prepare(model, optimizer, loader, scheduler, scheduler_per=%r)
for epoch in job.epochs():
    for a, b in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(a), b).backward()
        optimizer.step()
"""
        step, epoch = loop % "step", loop % "epoch"
        within, behind = "        scheduler.step()\n", "    scheduler.step()\n"
        expected = ("expected scheduler.step() once behind %s, as the servers have the rates of the whole job; where "
                    "the scheduler goes by %ss: job.prepare(..., scheduler_per=\"%s\")")
        by_step = expected % ("each optimizer.step()", "epoch", "epoch")
        by_epoch = expected % ("the batches of each epoch", "step", "step")
        first = ("scheduler.step() was called before the first optimizer.step(), where PyTorch skips the first "
                 "learning rate")
        cases = [
            # Never, once an epoch, for every second step, too late.
            *((f"scheduler.step() was not called for step 0 of the job, {by_step}", text) for text in
              (step, step + behind, step + "        if job.step % 2: scheduler.step()\n")),
            (f"scheduler.step() was not called for step 1 of the job, {by_step}",
             step + "        if job.step != 1: scheduler.step()\n"),
            (f"scheduler.step() was not called for epoch 0 of the job, {by_epoch}", epoch),
            # Twice.
            (f"scheduler.step() was called twice for one step, {by_step}", step + 2 * within),
            (f"scheduler.step() was called twice for one step, {by_step}", step + within + behind),
            *((f"scheduler.step() was called twice for one epoch, {by_epoch}", text) for text in
              (epoch + within, epoch + 2 * behind,
               epoch + "        if job.step == 1: scheduler.step()\n" + behind)),
            # Before the optimizer's.
            (f"{first}, {by_step}", step.replace("        optimizer.step", within + "        optimizer.step")),
            (f"{first}, {by_epoch}", epoch.replace("    for a", behind + "    for a")),
            (f"{first}, {by_step}", step.replace("for epoch", "scheduler.step()\nfor epoch")),
            # To another place than the one that follows.
            (f"scheduler.step(0.5) was called before step 1 of the job, {by_step}",
             step + within.replace("()", "(0.5)")),
            (f"scheduler.step(0) was called before epoch 1 of the job, {by_epoch}",
             epoch + behind.replace("()", "(0)")),
            *(("", text) for text in (
                step + within, epoch + behind, step + within.replace("()", "(scheduler.last_epoch)"),
                step + within.replace("()", "(job.step + 1)"), epoch + behind.replace("()", "(epoch + 1)"),
                epoch.replace("    for a", "    scheduler.step(epoch)\n    for a"),
                # Within the last batch; one batch an epoch; behind epochs without any.
                epoch + "        if job.step % 3 == 2: scheduler.step()\n",
                step.replace("for a, b in loader", "for a, b in [next(batches := iter(loader))]") + behind,
                epoch.replace("job.epochs()", "range(9)") + behind,
                # For the step that is left out, and for the last one, no rate follows.
                step.replace("        optimizer.step()", "        optimizer.step(weight=int(job.step != 2))")
                + "        if job.step not in (2, 5): scheduler.step()\n")),
            # Of several micro-batches of a step, all or those that others leave.
            *(("", parts + text) for parts in ("parts = 4", "parts = 4; os.environ['FAKE_WORKERS'] = '2'")
              for text in (step + within, epoch + behind)),
            (f"scheduler.step() was not called for step 0 of the job, {by_step}",
             "parts = 2" + step + "        if job._engine.work.leaf == 1: scheduler.step()\n"),
        ]
        output = self.passes(f"cases = {[text for _, text in cases]!r}\n" + """
import os
all_samples = loader
for text in cases:
    os.environ["FAKE_WORKERS"], parts = "1", 1
    setting, line, rest = text.partition("\\n")
    exec(setting)
    loader, model = all_samples, nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = rubato.join(epochs=2, name="case", train={"micro_batches": parts})
    try:
        exec(rest)
        print()
    except rubato.Refused as error:
        print(error)
    rubato.job.close_all()
""")
        for (sentence, text), found in zip(cases, output.split("\n")):
            self.assertEqual(found, sentence, text)

    def test_a_scheduler_shows_where_it_is(self):
        output = self.passes("""
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
model, optimizer, loader, scheduler = job.prepare(model, optimizer, loader, scheduler, scheduler_per="epoch")
for epoch in job.epochs():
    for a, b in loader:
        compute(a, b)
        optimizer.step()
    scheduler.step()
    print(scheduler.last_epoch, scheduler.base_lrs)
""")
        self.assertEqual(output, "1 [0.1]\n2 [0.1]\n")

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
        output = self.passes("""
for parts in 1, 2:
    job = rubato.join(epochs=2, name="case", train={"batch_size": 20, "micro_batches": parts})
    try:
        job.prepare(model, optimizer, loader)
    except rubato.Refused as error:
        print(error)
""")
        self.assertEqual(output.splitlines(), [
            "the DataLoader has batch_size=8, expected 20, which is the job's train.batch_size",
            "the DataLoader has batch_size=8, expected 20, which is the job's train.batch_size, or 10, which is one of "
            "its micro-batches"])

    def refuses_each(self, calls, beginning=""):
        """`calls`: what is called, and the sentence by which it is refused; all in one process."""
        output = self.passes(beginning + f"""
for call in {[call for call, _ in calls]!r}:
    try:
        eval(call)
        print("is taken")
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}")
""").splitlines()
        self.assertEqual(len(output), len(calls), output)
        for (call, sentence), found in zip(calls, output):
            with self.subTest(call):
                self.assertRegex(found, "^(Refused|ValueError): ")
                self.assertIn(sentence, found)

    def test_arguments_that_no_job_has_are_refused_at_the_call(self):
        self.refuses_each((
            ("rubato.join()", "was given nothing, expected the end of the training: rubato.join(epochs=10)"),
            ("rubato.join(seed=1)", "was given seed=1, expected the end of the training"),
            ("rubato.join(epoch=8)", "was given epoch=8, expected epochs or a key of a job file: version, "),
            ("rubato.join(epochs=2, mode='async')", "was given mode='async', expected epochs or a key"),
            ("rubato.join(epochs=2, batch_size=32)", "was given batch_size=32, expected train={'batch_size': 32}"),
            ("rubato.join({'train': {'until': {'steps': 1}}, 'lr': 0.1})", "was given lr=0.1, expected"),
            ("rubato.join(5)", "found job=5, expected a dictionary with the keys of a job file"),
            ("rubato.join('job.yaml')", "found job='job.yaml', expected a dictionary"),
            ("rubato.join(epochs=-1)", "found epochs=-1, expected a number above 0"),
            ("rubato.join(epochs=float('nan'))", "found epochs=nan, expected a number above 0"),
            ("rubato.join(epochs='5')", "found epochs='5', expected a number above 0"),
            ("rubato.join(epochs=True)", "found epochs=True, expected a number above 0"),
            ("rubato.join(epochs=2, train=5)", "train: found 5, expected a dictionary"),
            ("rubato.join(epochs=2, seed=torch.tensor(1))",
             "was given seed=tensor(1), expected what a job file can say"),
            ("rubato.launch(5, {})", "found a int for the function, expected one that the workers call"),
            ("rubato.launch(print, 5)", "found job=5, expected a dictionary with the keys of a job file"),
            ("rubato.launch(print, {}, method='frok')", "cannot find context for 'frok'")))

    def test_a_script_of_torchrun(self):
        code, _, errors = self.run_script("", RANK="0", WORLD_SIZE="2", MASTER_PORT="29611")
        self.assertEqual(code, 1)
        self.assertIn("found WORLD_SIZE=2 and no RUBATO_JOB in the environment, as torchrun sets it, expected `rubato "
                      "train job.yaml`", errors)
        self.assertIn("script: [python3, script.py] and cluster: {workers: 2}", errors)
        for variables in ({"RANK": "1", "WORLD_SIZE": "2", "RUBATO_JOB": "job.yaml"}, {"WORLD_SIZE": "2"},
                          {"RANK": "0", "WORLD_SIZE": "1"}):
            code, _, errors = self.run_script("", **variables)
            self.assertEqual(code, 0, errors)

    def test_a_mistaken_argument_is_refused_in_a_job_of_rubato_train_too(self):
        code, _, errors = self.run_script("rubato.join(epoch=8)", RUBATO_JOB="job.yaml")
        self.assertIn("was given epoch=8, expected epochs or a key", errors)
        self.assertEqual(code, 2)  # starting it again cannot help

    def test_what_arguments_say_is_ignored_in_a_job_of_rubato_train(self):
        code, _, errors = self.run_script("rubato.join(seed=object(), epochs=0)", RUBATO_JOB="job.yaml")
        self.assertEqual(code, 0, errors)

    def test_keys_of_a_job_are_those_of_the_reference(self):
        page = (HERE.parent.parent / "docs" / "reference" / "keys.md").read_text()
        keys = {name: re.findall(r"^\| `(\w+)`", page.split(f"\n## {name}\n")[1].split("\n## ")[0], re.MULTILINE)
                for name in re.findall("^## (.*)", page, re.MULTILINE)}
        told, sections = map(ast.literal_eval, self.passes(
            "from rubato import job as module\nprint(module._KEYS)\nprint(module._SECTIONS)").splitlines())
        self.assertEqual(list(told), keys["Job"])
        for section, names in sections.items():
            for name in names:
                self.assertEqual([key for key in keys["Job"] if name in keys.get(key, [])], [section], name)

    def test_numbers_of_numpy(self):
        self.passes("import numpy\nassert rubato.join(epochs=numpy.int64(2)).total_epochs == 2")
        self.passes("""
            import numpy, pathlib
            job = rubato.join(epochs=2, seed=numpy.int64(5), train={"micro_batches": numpy.int32(2)},
                              checkpoint={"every": {"time": numpy.float32(0.5)}}, data={"path": pathlib.Path("x")})
            assert job._given == {"seed": 5, "train": {"micro_batches": 2, "until": {"epochs": 2}},
                                  "checkpoint": {"every": {"time": 0.5}}, "data": {"path": "x"}}, job._given
        """)

    def test_arguments_of_prepare(self):
        order = "expected None, 'sequential' or a function of the epoch"
        self.refuses_each([(f"job.prepare(model, optimizer, loader, {argument})", sentence) for argument, sentence in (
            ("0.1", "found a float for a scheduler, expected one of torch.optim.lr_scheduler"),
            ("overlap='no'", "found overlap='no', expected True or False"),
            ("order=5", "found order=5, " + order), ("order=[3, 1]", "found order=[3, 1], " + order),
            *((f"clip_grad_norm={norm}", f"found clip_grad_norm={norm}, expected a finite number above 0")
              for norm in ("-1", "0", "'1'", "True", "[1]")),
            *((f"clip_grad_norm=float('{norm}')", f"found clip_grad_norm={norm}, expected a finite number above 0")
              for norm in ("inf", "nan")))])

    def test_a_test_that_is_no_function(self):
        self.refuses("job.evaluate was given a dict, expected a function that tests the model",
                     LOOP + "        optimizer.step()\n    job.evaluate({'accuracy': 1.0})\n")

    def test_arguments_of_a_worker(self):
        self.refuses_each((
            ("rubato.Worker(job, [1], 8, sgd)", "found a list for the arrays, expected a dictionary of arrays by name"),
            ("rubato.Worker(job, w, 8.5, sgd)", "found samples=8.5, expected a whole number above 0"),
            ("rubato.Worker(job, w, -1, sgd)", "found samples=-1, expected a whole number above 0"),
            ("rubato.Worker(job, w, 8, 'sgd')", "found optimizer='sgd', expected a dictionary, such as")),
            """
import numpy
w, sgd = {"w": numpy.ones(3, numpy.float32)}, {"name": "sgd", "learning_rate": 0.1}
""")
        self.refuses("found gradients of v, expected one of w, too", """
import numpy
w = {"w": numpy.ones(3, numpy.float32)}
worker = rubato.Worker(job, w, numpy.int64(8), {"name": "sgd", "learning_rate": 0.1}, batch_size=4)
next(iter(worker))
worker.push({"v": numpy.ones(3)})
""")

    def test_two_parameters_of_one_memory(self):
        text = """
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
TIES
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + LOOP + "        optimizer.step()\n"
        for one, other, ties in (
                ("0.weight", "1.weight", "model[1].weight.data = model[0].weight.data"),
                ("0.weight", "1.weight",
                 "model[1].weight = nn.Parameter(model[0].weight.data, requires_grad=False)"),
                ("0.weight", "1.bias", "model[1].bias.data = model[0].weight.data[2]"),
                ("0.weight", "table", "model.register_buffer('table', model[0].weight.detach())")):
            self.refuses(f"{one} and {other} lie in one memory, expected memory of its own for a parameter that is "
                         "trained, or one parameter in both places", text.replace("TIES", ties))
        self.passes(text.replace("TIES", "model[1].weight = model[0].weight"))
        # Of what is not trained, that is the script's choice.
        self.passes(text.replace("TIES", "model[1].requires_grad_(False)\n"
                                         "model[1].register_buffer('table', model[1].weight.detach()[1:])"))

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

    def test_an_embedding_with_a_bound(self):
        self.refuses("0 has max_norm=0.5, by which forward changes its weight, expected None", """
model = nn.Sequential(nn.Embedding(3, 4, max_norm=0.5), nn.Linear(4, 2))
job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
""")
        self.passes("""
model = nn.Sequential(nn.Embedding(3, 4, max_norm=0.5), nn.Linear(4, 2))
model[0].requires_grad_(False)
job.prepare(model, torch.optim.SGD(model[1].parameters(), lr=0.1), loader)
""")

    def test_a_momentum_of_batch_norm_that_is_changed(self):
        text = """
model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""" + LOOP + "        optimizer.step()\n    model[1].momentum = %s\n"
        self.refuses("1: momentum was changed from 0.1 to 0.5 after job.prepare, expected it as it was", text % "0.5")
        self.passes(text % "0.1")

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

    def test_the_trainings_loader_once_more(self):
        instead = "a DataLoader of your own over the same data: DataLoader(loader.dataset, batch_size=...)"
        for behind, where in (("    right = sum(int((model(a).argmax(1) == b).sum()) for a, b in loader)\n",
                               "once more in epoch 0"),
                              ("torch.optim.swa_utils.update_bn(loader, model)\n", "behind job.epochs()")):
            self.refuses(f"the loader that job.prepare returned was looped over {where}, expected one loop in an "
                         f"epoch, which trains: to measure, or to update averages of batch norm, {instead}",
                         "import torch.optim.swa_utils\nmodel = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))\n"
                         "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n" + LOOP +
                         "        optimizer.step()\n" + behind)

    def test_what_the_loader_has_is_the_jobs(self):
        names = ["dataset", "batch_size", "collate_fn", "num_workers", "drop_last"]
        output = self.passes(f"""
model, optimizer, loader = job.prepare(model, optimizer, loader)
loader.note = 1  # of the script's own
for name in {names}:
    try:
        setattr(loader, name, loader.dataset)
    except rubato.Refused as error:
        print(error)
""")
        self.assertEqual([line.split(" of the loader that job.prepare returned was set, expected it as it was at ")[0]
                          for line in output.splitlines()], names)

    def test_a_data_set_of_another_length(self):
        for size in 40, 10:
            self.refuses(f"the data set has {size} samples now, and the job's data 20, expected as many in each epoch",
                         LOOP.replace("    for a, b", f"    loader.dataset.tensors = torch.zeros({size}, 4),\n"
                                      "    for a, b") + "        optimizer.step()\n")

    def test_an_order_that_is_none_of_the_data_set(self):
        for order, settings, found in (("range(19)", "", "order(0) has 19 indices, expected 20: in each epoch as many"),
                                       ("range(15)", "drop_last=True", "order(0) has 15 indices, expected 16 to 20")):
            self.refuses(found, f"loader = DataLoader(loader.dataset, batch_size=8, {settings})\n" + LOOP.replace(
                "optimizer, loader)", f"optimizer, loader, order=lambda epoch: {order})"))

    def test_an_order_that_one_worker_has_made(self):
        text = "seen = []\n" + LOOP.replace(
            "optimizer, loader)", "optimizer, loader, order=lambda epoch: range(ORDER, ORDER - 20, -1))").replace(
            "compute(a, b)", "seen.append(0); compute(a, b)") + "        optimizer.step()\n"
        for order, workers, is_refused in (("19 - len(seen)", "2", True), ("19 - len(seen)", "1", False)):
            code, _, errors = self.run_script(text.replace("ORDER", order), FAKE_WORKERS=workers)
            self.assertEqual((code, "order(0) has become another in the epoch, expected the same each time" in errors),
                             (int(is_refused), is_refused), errors)

    def test_the_trainings_loader_in_a_test(self):
        self.refuses("within job.evaluate", LOOP + """
        optimizer.step()
    job.evaluate(lambda: {"n": sum(1 for _ in loader)})
""")

    def test_a_parameter_that_is_unfrozen(self):
        self.refuses("weight was frozen at job.prepare and is not any more", "model.weight.requires_grad_(False)\n" +
                     LOOP.replace("compute(a, b)", "model.weight.requires_grad_(True)\n        compute(a, b)\n"
                                  "        model.weight.requires_grad_(False)") + "        optimizer.step()\n")
        frozen = "model.weight.requires_grad_(False)\n" + LOOP
        self.refuses("weight was frozen at job.prepare and is not any more", frozen.replace(
            "    for a", "    if epoch == 1: model.weight.requires_grad_()\n    for a") + "        optimizer.step()\n")
        # Of what the optimizer does not have torch trains nothing, either.
        self.passes(frozen.replace("model, optimizer", "model, torch.optim.SGD([model.bias], lr=0.1)", 2).replace(
            "model, torch.optim.SGD([model.bias], lr=0.1), loader =", "model, optimizer, loader =").replace(
            "    for a", "    model.weight.requires_grad_()\n    for a") + "        optimizer.step()\n")

    def test_figures_of_a_test_that_are_none(self):
        test = LOOP + "        optimizer.step()\n    job.evaluate(lambda: %s)\n"
        for figures, sentence in (("{'accuracy': 93.5}", "accuracy=93.5, expected a fraction from 0 to 1, not a perc"),
                                  ("{'accuracy': -0.5}", "accuracy=-0.5, expected a fraction"),
                                  ("{'loss': 'x'}", "returned loss='x', expected a real number"),
                                  ("{'accuracy': [1, 2]}", "returned accuracy=[1, 2], expected a real number"),
                                  ("0.5", "returned a float, expected None or a dictionary")):
            self.refuses(sentence, test % figures)

    def test_a_weight_that_is_no_whole_number(self):
        self.refuses("found weight=2.5, expected a whole number", LOOP + "        optimizer.step(weight=2.5)\n")

    def test_an_exception_in_forward_is_the_scripts(self):
        code, _, errors = self.run_script(LOOP + "        raise KeyError('mine')\n")
        self.assertEqual(code, 1)
        self.assertIn("KeyError: 'mine'", errors.splitlines()[-1])

    def test_interrupted_wherever_it_is(self):
        interrupt = "__import__('os').kill(__import__('os').getpid(), 2)"
        step = "        optimizer.step()\n"
        cases = {place: (LOOP + step, place) for place in ("job", "work", "final")}  # while it waits for an answer
        cases["forward"] = (LOOP + f"        {interrupt}\n" + step, "")
        cases["test"] = (LOOP + step + f"    job.evaluate(lambda: {interrupt})\n", "")
        cases["end"] = (LOOP + step + interrupt, "")
        for name, (text, place) in cases.items():
            with self.subTest(name):
                code, _, errors = self.run_script(text, FAKE_INTERRUPTS=place)
                self.assertEqual(code, -signal.SIGINT, errors)
                self.assertEqual(errors.splitlines()[-1], "KeyboardInterrupt")

    def test_a_lost_worker_process_is_named(self):
        self.refuses("was killed by signal 9 (SIGKILL)", LOOP + """
        import os; os.kill(job._worker._process.pid, 9)
        optimizer.step()
""")

    def test_a_script_that_loader_processes_import_anew(self):
        for method in "spawn", "forkserver":
            code, _, errors = self.run_script("loader = DataLoader(TensorDataset(x, y), 8, num_workers=2, "
                                              f"multiprocessing_context='{method}')\n" + LOOP)
            self.assertEqual(code, 1, errors)  # of the processes one or both say so, too
            self.assertEqual(errors.count("rubato.errors.Refused: a process that spawn or forkserver has started "
                                          "imports the script anew, which calls rubato.join, expected its work"), 1)

    def test_no_programs(self):
        self.refuses("found no rubato-server", """
import os
os.environ.update(RUBATO_BIN_DIR="/nowhere", PATH="/nowhere")
rubato.core.__file__ = "/no/where/at/all/rubato/core.py"  # nor beside the package
job.prepare(model, optimizer, loader)
""")
        self.passes("""
import os
os.environ["PATH"] = os.environ.pop("RUBATO_BIN_DIR")
rubato.core.__file__ = "/no/where/at/all/rubato/core.py"
""" + LOOP + "        optimizer.step()\n")


run_cases()
