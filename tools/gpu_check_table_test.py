#!/usr/bin/python3 -B
"""Tests gpu_check's table with outputs as the commands print them, without a GPU."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import unittest.mock

loader = importlib.machinery.SourceFileLoader("gpu_check", "tools/gpu_check")
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)

PASSED = """[==========] 4 tests from 1 test suite ran. (812 ms total)
[  PASSED  ] 4 tests.
"""
STEP = {"model": "m", "batch": 16, "accumulate": 1,
        "device": "cuda, bf16, NVIDIA H200, cuBLAS 13.1, cuDNN 9.19",
        "samples_per_second": 800.0, "milliseconds": 20.0, "gflops": 400000.0, "parameters": 5,
        "arena_bytes": 7}
SERVED = {"model": "m", "batch": 16, "accumulate": 16, "threads": 1, "device": "cuda",
          "precision": "bf16", "servers": 1, "workers": 1, "mode": "sync",
          "samples_per_second": 600.0, "milliseconds": 20.0, "waiting_milliseconds": 1.0,
          "communication_hidden": 0.875}
PRODUCTS = {"model": "m", "batch": 16, "device": "cuda", "products": [{}, {}], "milliseconds": 2.0,
            "alone_milliseconds": 1.92, "gflop": 1000.0, "share_of_alone": 0.96,
            "min_share_of_alone": 0.9, "difference": 0.001}
PYTORCH = {"pytorch": "2.9.0", "compiled": False, "parameters": 5, "samples_per_second": 1000.0}
RECKONED = {"reckoned": True, "milliseconds": 23.7, "gpu_milliseconds": 19.8}
SUMMARY = {"digest": "same", "test_accuracy": 0.95, "skipped": 0, "samples_per_second": 1234.5}


class Recorded:
    """Runs nothing: answers as the commands would. `more` maps a word of a command to an answer;
    each takes `each` seconds of the clock."""

    def __init__(self, folder, more=(), each=0):
        self.folder = folder
        self.commands = []
        self.more = dict(more)
        self.each = each
        self.clock = 1000

    def __call__(self, command, seconds):
        self.commands.append(command)
        self.clock += min(self.each, seconds)
        if self.each > seconds:
            raise subprocess.TimeoutExpired(command, seconds)
        code, out = self.answer(command)
        return subprocess.CompletedProcess(command, code, out, "Ran 3 tests in 5.0s\n")

    def answer(self, command):
        words = " ".join(command)
        for word, answer in self.more.items():
            if word in words:
                if answer is None:
                    raise FileNotFoundError(command[0])
                return answer
        if "--gtest_filter" in words:
            return 0, PASSED
        if "tools/scripts/step_in_pytorch" in command:
            return 0, json.dumps({**PYTORCH, "samples_per_second":
                                  900.0 if "--servers" in command else 1000.0})
        if "python/tests/parity_test.py" in command:
            return 0, ""
        if "--attention products" in words or "--convolution products" in words:
            return 0, json.dumps({**STEP, "samples_per_second": 500.0})
        if "products" in command:
            return 0, json.dumps(PRODUCTS)
        if "--servers" in command:
            return 0, json.dumps(SERVED)
        if "--model-of-device" in command:
            return 0, json.dumps(RECKONED)
        if "bench" in command:
            return 0, json.dumps(STEP)
        run = pathlib.Path(command[command.index("--run-dir") + 1])
        (run / "logs").mkdir(parents=True, exist_ok=True)
        (run / "logs/worker-0.log").write_text("worker 0: its GPUs add up, by NCCL\n")
        (run / "summary.json").write_text(json.dumps(SUMMARY))
        (run / "metrics.jsonl").write_text('{"kind": "train", "loss": 2.0}\n'
                                           '{"kind": "eval", "loss": 9.0}\n'
                                           '{"kind": "train", "loss": 0.5}\n')
        return 0, ""


def take(more=(), each=0, output=None, gpus=1):
    """The finished check, with the time that it took, its rows by name, and the commands."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        recorded = Recorded(folder, more, each)
        begin = recorded.clock
        check = gpu_check.Check(recorded, now=lambda: recorded.clock, output=output)
        with contextlib.redirect_stdout(io.StringIO()):
            for step in gpu_check.steps(folder, gpus):
                check.take(step)
    check.took = recorded.clock - begin
    return check, {what: (goal, found) for what, goal, found in check.rows}, recorded.commands


class TimeTest(unittest.TestCase):
    def test_what_there_is_no_time_for_is_left_out_and_named(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "found.md"
            check, rows, _ = take(each=20, output=output)
            written = output.read_text()
        self.assertLessEqual(check.took, 15 * 60)
        self.assertFalse(check.failed)
        # Whatever has a goal was measured, and once more under memcheck.
        self.assertEqual([what for what, (goal, found) in rows.items()
                          if goal and found == gpu_check.LEFT_OUT], [])
        self.assertNotIn("kernels, under compute-sanitizer's memcheck", check.left_out)
        self.assertIn("kernels, under compute-sanitizer's synccheck", check.left_out)
        self.assertEqual(rows[check.left_out[0]], ("", "left out, for want of time"))
        self.assertEqual(written.splitlines()[-1],
                         f"left out, for want of time: {'; '.join(check.left_out)}.")

    def test_it_ends_in_fifteen_minutes_whatever_hangs(self):
        check, rows, _ = take(each=10 ** 6)
        self.assertLessEqual(check.took, 15 * 60)
        self.assertTrue(check.failed)
        self.assertEqual(rows["kernels"], ("", "FAILED: not done in 120 s"))
        self.assertEqual(rows["steps against PyTorch's and the CPU's"][1],
                         "FAILED: not done in 120 s")
        self.assertIn("char_gpt of 124 M parameters, bf16, batch 16, products of matrices",
                      check.left_out)
        self.assertEqual(len(rows), len(check.rows), "each has its row")

    def test_every_step_is_bounded_and_no_goal_comes_after_what_has_none(self):
        with tempfile.TemporaryDirectory() as folder:
            steps = list(gpu_check.steps(pathlib.Path(folder)))
        for step in steps:
            self.assertTrue(0 < step.seconds <= 300, step.what)
        last_goal = max(i for i, step in enumerate(steps) if step.goal)
        others = [step for step in steps[:last_goal] if not step.goal]
        self.assertEqual(len(others), 7, "the tests, and a training of each model")

    def test_what_a_command_has_started_ends_with_it(self):
        with tempfile.TemporaryDirectory() as folder:
            run = gpu_check.runner(pathlib.Path(folder))
            self.assertEqual(run(["sh", "-c", "echo out; echo err >&2"], 60).stdout, "out\n")
            self.assertEqual(run(["sh", "-c", "echo out; echo err >&2; exit 3"], 60).stdout,
                             "out\nerr\n")
            # Who waits for its end sees it when the last one that holds it has ended.
            ends, held = os.pipe()
            os.set_inheritable(held, True)
            with self.assertRaises(subprocess.TimeoutExpired):
                gpu_check.runner(pathlib.Path(folder), pass_fds=(held,))(
                    ["sh", "-c", "sleep 1000 & sleep 1000"], 0.5)
            os.close(held)
            self.assertEqual(os.read(ends, 1), b"")
            os.close(ends)


class TableTest(unittest.TestCase):

    def test_every_goal_has_its_row(self):
        check, rows, _ = take()
        self.assertFalse(check.failed)
        gpt = "char_gpt of 124 M parameters, bf16"
        self.assertEqual(rows[f"{gpt}, batch 16, local step, eager PyTorch"],
                         ("at least 1 of eager PyTorch",
                          "5 parameters, 800.0 samples/s without the update, 400.0 TFLOP/s; PyTorch: "
                          "5 parameters, 1000.0 without transfers (2.9.0), ratio 0.80: not reached"))
        for name, compiled in ((f"{gpt}, batch 16", True), (f"{gpt}, 16 times batch 16", True),
                               ("resnet18 on 32x32, bf16, batch 256", False),
                               ("resnet18 on 32x32, tf32, batch 256", False)):
            self.assertIn(f"{name}, local step, eager PyTorch", rows)
            self.assertEqual(f"{name}, local step, torch.compile" in rows, compiled)
        self.assertEqual(rows["resnet18 on 32x32, bf16, batch 256, local step, eager PyTorch"][0],
                         "at least 0.9 of eager PyTorch")
        self.assertEqual(rows[f"{gpt}, 16 times batch 16, through one server"],
                         ("at least 0.8 of the local step",
                          "600.0 samples/s, ratio 0.75; 88 % of the communication hidden: "
                          "not reached"))
        self.assertIn("resnet18 on 32x32, bf16, batch 256, through one server", rows)
        self.assertEqual(rows[f"{gpt}, batch 16, products of matrices"],
                         ("at least 0.95 of cuBLAS alone, at each shape",
                          "500.0 TFLOP/s, least ratio 0.900 of 2, 0.960 together; results 1.0e-03 "
                          "apart: not reached"))
        self.assertEqual(rows[f"{gpt}, batch 16, attention by cuDNN"],
                         ("at least 1.2 of attention as products and a softmax",
                          "800.0 samples/s in 0.00 GB, 500.0 as products in 0.00 GB, ratio 1.60: "
                          "reached"))
        self.assertEqual(rows[f"{gpt}, batch 16, local step, as reckoned"],
                         ("at least 1 of 50 ms on the GPU",
                          "20.0 ms with transfers; reckoned for an H100 23.7, and 19.8 without; "
                          "ratio 2.50: reached"))
        self.assertIn("resnet18 on 32x32, bf16, batch 256, convolutions by cuDNN", rows)
        self.assertNotIn("resnet18 on 32x32, tf32, batch 256, convolutions by cuDNN", rows)
        self.assertEqual(rows[f"{gpt}, 16 times batch 16, a PyTorch script through four servers"],
                         ("at least 0.8 of the script alone",
                          "900.0 samples/s, 1000.0 without Rubato (2.9.0), ratio 0.90: reached"))
        self.assertEqual(rows["PyTorch scripts end where they end without"],
                         ("", "passed: 3 tests."))
        self.assertEqual(rows["quickstart async"],
                         ("", "loss 2.000 to 0.500, test accuracy 0.9500, 1234 samples/s"))

    def test_a_quarter_of_a_million_tokens_a_step_cross_the_server(self):
        _, _, commands = take()
        served = next(c for c in commands if "--servers" in c)

        def value(flag):
            return int(served[served.index(flag) + 1])

        self.assertEqual(value("--batch") * value("--accumulate") * value("--shape"), 2 ** 18)

    def test_the_models_have_the_parameters_that_they_are_said_to_have(self):
        options = dict(zip(gpu_check.GPT[::2], gpu_check.GPT[1::2]))
        classes, context = int(options["--classes"]), int(options["--shape"])
        c, blocks = 768, 12
        self.assertIn("blocks: 12, heads: 12, channels: 768", options["--model"])
        block = 12 * c * c + 13 * c  # weights; biases 3, 1, 4 and 1, and two layer norms
        total = 2 * classes * c + classes + context * c + blocks * block + 2 * c
        self.assertEqual(round(total / 1e6), 124)

    def test_what_fails_is_told_and_decides_the_exit_code(self):
        for word, answer, row, told in (
                ("racecheck", (1, "ERROR SUMMARY: 2 errors\n"),
                 "kernels, under compute-sanitizer's racecheck", "FAILED: ERROR SUMMARY: 2 errors"),
                ("tensor/cuda/gpu_kernels_test", (0, "[  PASSED  ] 0 tests.\n"),
                 "kernels of many blocks, under compute-sanitizer's memcheck",
                 "FAILED: [  PASSED  ] 0 tests."),
                ("worker/model/device_step_test", (0, "[  PASSED  ] 0 tests.\n"),
                 "steps against PyTorch's and the CPU's", "FAILED: [  PASSED  ] 0 tests."),
                ("cnn-async-bf16.yaml", (2, "a\nb\nc\nerror: no\n"), "cnn async, bf16",
                 "FAILED: b | c | error: no"),
                ("products", (1, "error: lost\n"),
                 "resnet18 on 32x32, tf32, batch 256, products of matrices", "FAILED: error: lost"),
                ("products", (0, "no JSON"),
                 "resnet18 on 32x32, tf32, batch 256, products of matrices",
                 "FAILED: cannot read what it said: Expecting value: line 1 column 1 (char 0)"),
                ("tools/scripts/step_in_pytorch --model resnet18 --precision bf16",
                 (0, json.dumps({**PYTORCH, "parameters": 6})),
                 "resnet18 on 32x32, bf16, batch 256, local step, eager PyTorch",
                 "FAILED: not the same model: 5 parameters, PyTorch's 6"),
                ("--gtest_filter", (0, "[  SKIPPED ] Gpu\n[  PASSED  ] 0 tests.\n"),
                 "layers against PyTorch's numbers",
                 "FAILED: [  SKIPPED ] Gpu | [  PASSED  ] 0 tests.")):
            check, rows, _ = take({word: answer})
            self.assertEqual(rows[row][1], told)
            self.assertTrue(check.failed)

    def test_several_gpus_have_the_bits_of_one(self):
        what = "char_gpt sync, bf16, all GPUs in one worker"
        check, rows, commands = take()
        self.assertEqual(rows[what], ("", "not run: there is one GPU here"))
        self.assertFalse(any("cluster.gpus_per_worker" in " ".join(c) for c in commands))
        check, rows, commands = take(gpus=4)
        self.assertFalse(check.failed)
        self.assertEqual(rows[what], ("", "4 GPUs have the bits of one; with device.exchange auto "
                                          "they add up, by NCCL"))
        for count, exchange in ((1, "auto"), (4, "auto"), (4, "host")):
            self.assertTrue(any({f"cluster.gpus_per_worker={count}", "train.micro_batches=8",
                                 f"device.exchange={exchange}"} <= set(c) for c in commands))
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            step = gpu_check.several_gpus(folder, 2)
            for command in step.commands:
                Recorded(folder)(command, 60)
            (folder / "runs/gpus-2-host/summary.json").write_text('{"digest": "other"}')
            self.assertEqual(step.judge(),
                             ("FAILED: other bits: one GPU same, 2 GPUs same (auto), other (host); "
                              "with device.exchange auto they add up, by NCCL", False))

    def test_the_gpus_are_counted_that_programs_see(self):
        for visible, count in ((None, 3), ("0,2", 2), ("1", 1), ("0,1,2,3", 3)):
            with unittest.mock.patch.dict(os.environ):
                os.environ.pop("CUDA_VISIBLE_DEVICES", None)
                if visible is not None:
                    os.environ["CUDA_VISIBLE_DEVICES"] = visible
                self.assertEqual(gpu_check.gpu_count("a, 1; b, 2; c, 3"), count)
        self.assertEqual(gpu_check.gpu_count(""), 1)

    def test_what_is_not_there_is_no_failure(self):
        check, rows, _ = take({"compute-sanitizer": None,
                                    "step_in_pytorch": (77, "No module named 'torch'\n")})
        self.assertFalse(check.failed)
        self.assertEqual(rows["kernels, under compute-sanitizer's memcheck"][1],
                         "compute-sanitizer is not there")
        self.assertEqual(rows["resnet18 on 32x32, bf16, batch 256, local step, eager PyTorch"][1],
                         "5 parameters, 800.0 samples/s without the update, 400.0 TFLOP/s; PyTorch: "
                         "not measured: No module named 'torch'")
        check, rows, _ = take({"parity_test": (0, "SKIPPED: no PyTorch\n")})
        self.assertEqual(rows["PyTorch scripts end where they end without"][1],
                         "not run: SKIPPED: no PyTorch")

    def test_attention_that_cudnn_does_not_take_is_told(self):
        found = json.dumps({**STEP, "device": "cuda, bf16, NVIDIA H200, cuBLAS 13.1"})
        check, rows, _ = take({"bench step": (0, found)})
        self.assertEqual(rows["char_gpt of 124 M parameters, bf16, batch 16, attention by cuDNN"][1],
                         "not by cuDNN: cuda, bf16, NVIDIA H200, cuBLAS 13.1")

    def test_steps_that_overflow_are_told_and_have_no_loss(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            step = gpu_check.training(folder, "a b", ["job.yaml"])
            Recorded(folder)(step.commands[0], 60)
            (folder / "runs/a-b/summary.json").write_text(json.dumps({**SUMMARY, "skipped": 3}))
            with (folder / "runs/a-b/metrics.jsonl").open("r+") as lines:
                text = lines.read()
                lines.seek(0)
                lines.write('{"kind": "train", "loss": null}\n' + text)
            self.assertEqual(step.judge(None),
                             ("loss 2.000 to 0.500, test accuracy 0.9500, 3 steps left out, "
                              "1234 samples/s", True))

    def test_every_precision_is_trained_in(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            trained = [step.what for step in gpu_check.steps(folder)]
            for model in ("cnn", "char_gpt"):
                for precision in ("float32", "tf32", "bf16", "fp16"):
                    self.assertIn(f"{model} sync, {precision}", trained)
            self.assertIn("precision: fp16", (folder / "cnn-sync-fp16.yaml").read_text())
            self.assertIn("on_non_finite: skip", (folder / "cnn-sync-fp16.yaml").read_text())
            self.assertIn("on_non_finite: stop", (folder / "cnn-sync-tf32.yaml").read_text())

    def test_only_where_there_is_no_gpu_is_nothing_wrong(self):
        def stopped(code, out):
            return gpu_check.what_stops_it(
                lambda command, _: subprocess.CompletedProcess(command, code, out, ""))

        self.assertIsNone(stopped(0, "model ...\n"))
        self.assertEqual(stopped(2, "error: device.type: found cuda, but there is no GPU: why\n"),
                         ("nothing was checked, for there is no GPU here: error: device.type: found "
                          "cuda, but there is no GPU: why", 77))
        for code, said in ((2, "error: device.type: found cuda, but the GPUs cannot be used: why"),
                           (2, "error: device.type: found cuda, but the GPU's driver is too old: why"),
                           (2, "error: cuBLAS is needed for the GPU, but libcublasLt.so.13"),
                           (2, "error: NVIDIA V100 (GPU 0) has compute capability 7.0"),
                           (1, "error: on the GPU: a step failed")):
            self.assertEqual(stopped(code, said),
                             (f"nothing was checked, for no step runs on the GPU: {said}", 1))

    def test_the_table_is_markdown(self):
        check = gpu_check.Check(None)
        with contextlib.redirect_stdout(io.StringIO()):
            check.row("a", "", "b | c")
        self.assertEqual(check.table("2026-11-21"),
                         "# On a GPU, 2026-11-21\n\n| what | goal | found |\n|---|---|---|\n"
                         "| a |  | b / c |\n")

    # In a bundle whose programs say nothing.
    def run_all(self, folder, *arguments):
        for program in ("tools/rubato", "worker/model/conformance_test"):
            (folder / "bundle" / program).parent.mkdir(parents=True, exist_ok=True)
            (folder / "bundle" / program).write_text("#!/bin/sh\n")
            (folder / "bundle" / program).chmod(0o755)
        shutil.copy("tools/gpu_check", folder / "bundle")
        return subprocess.run(["/usr/bin/python3", "bundle/gpu_check", *arguments], cwd=folder,
                              capture_output=True, text=True)

    def test_the_table_is_written_to_a_file_that_the_last_line_names(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder).resolve()
            ended = self.run_all(folder)
            self.assertEqual(ended.returncode, 1, "programs that say nothing have failed")
            written, = folder.glob("*.md")
            self.assertRegex(written.name, r"^gpu_check_\d{4}-\d\d-\d\d_\d{6}\.md$")
            self.assertEqual(ended.stdout.splitlines()[-1], f"the file to send back: {written}")
            self.assertTrue(ended.stdout.endswith(
                f"\n\n{written.read_text()}\nthe file to send back: {written}\n"))

    def test_a_file_that_cannot_be_written_loses_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder).resolve()
            ended = self.run_all(folder, "--output", "no/table.md")
            self.assertEqual(ended.stderr, f"warning: cannot write {folder}/no/table.md: No such "
                                           "file or directory\n")
            self.assertIn("| what | goal | found |", ended.stdout)
            self.assertEqual(ended.stdout.splitlines()[-1],
                             "no file could be written: send back the table above")

    def test_the_list_needs_no_gpu(self):
        listed = subprocess.run(["/usr/bin/python3", "tools/gpu_check", "--list"], check=True,
                                capture_output=True, text=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            for step in gpu_check.steps(pathlib.Path(folder)):
                self.assertIn("\n" + step.what, "\n" + listed)
        self.assertIn("    tools/rubato bench products --json --batch 16", listed)


if __name__ == "__main__":
    unittest.main()
