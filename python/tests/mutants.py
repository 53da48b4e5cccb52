#!/usr/bin/python3 -B
"""The package with a bug on purpose, many times: a test that is named for each must fail.

Usage: mutants.py [RUBATO] [--only TEXT]     (the binary; without it those of endings_test and parity_test are left out)
       mutants.py --check                    whether each bug still finds its place, which takes no time

Prints a line for each; ends with 1 if one lives.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIMIT = 120  # seconds; who waits for ever is caught, too

# What is wrong; file of the package; the text that is there; what stands in its place; the case that must fail.
MUTANTS = [
    ("nothing is seeded before a micro-batch", "engine.py", "        seeds.seed_all(self.key)\n", "",
     "features_test FeaturesTest.test_what_is_drawn_depends_on_the_place_alone"),
    ("NumPy is not seeded", "seeds.py", "numpy.random.seed(number & 0xFFFFFFFF)", "pass",
     "features_test FeaturesTest.test_what_is_drawn_depends_on_the_place_alone"),
    ("all leaves of a step draw the same", "engine.py", "seeds.MICRO_BATCH, self.work.unit", "seeds.MICRO_BATCH, 0",
     "features_test FeaturesTest.test_what_is_drawn_depends_on_the_place_alone"),
    ("samples draw what their process draws", "loader.py",
     "            seeds.seed_sample(self.seed, request.place[0], index)\n", "",
     "features_test FeaturesTest.test_samples_draw_the_same_in_whichever_process"),
    ("samples draw the same in every epoch", "loader.py", "seed_sample(self.seed, request.place[0], index)",
     "seed_sample(self.seed, 0, index)",
     "features_test FeaturesTest.test_samples_draw_the_same_in_whichever_process"),
    ("a test's draws show in the training", "job.py", "with seeds.kept(), torch.no_grad():", "with torch.no_grad():",
     "features_test FeaturesTest.test_a_test_leaves_no_trace"),
    ("other memory in place of a parameter's stays behind a test", "layout.py",
     "                entry.tensor.data = view\n", "                pass\n",
     "features_test FeaturesTest.test_a_test_may_put_other_memory_in_place_of_parameters"),
    ("parameters may get other memory", "layout.py", "        if moved:\n", "        if False:\n",
     "refusals_test RefusalsTest.test_other_memory_for_parameters"),
    ("writes to .data pass for nothing", "prepare.py", "    engine.on_asking = layout.end_watch\n", "",
     "features_test FeaturesTest.test_a_change_of_data_between_steps_is_told_to_be_lost"),
    ("an accuracy in percent goes to the servers", "figures.py", "not -_ROUNDING <= accuracy <= 1 + _ROUNDING", "False",
     "refusals_test RefusalsTest.test_figures_of_a_test_that_are_none"),
    ("a loss may be no number", "figures.py", "if number is None and value is not None:", "if False:",
     "refusals_test RefusalsTest.test_figures_of_a_test_that_are_none"),
    ("a test's figure takes a name of the metrics'", "figures.py", " and name not in _FIELDS", "",
     "features_test FeaturesTest.test_other_figures_of_a_test_are_the_jobs_by_their_names"),
    ("a test has figures without end", "figures.py", "if value is not None), _MOST)", "if value is not None), None)",
     "features_test FeaturesTest.test_other_figures_of_a_test_are_the_jobs_by_their_names"),
    ("a test's parameters stay", "job.py", "        engine.reload()\n", "",
     "features_test FeaturesTest.test_what_a_test_leaves_in_copies_is_gone"),
    (".grad is left for the next micro-batch", "layout.py", "        self.forget_gradients()\n", "",
     "features_test FeaturesTest.test_no_zero_grad_adds_nothing"),
    ("batch norm keeps its momentum", "layout.py", "module.momentum = 1.0", "pass",
     "features_test FeaturesTest.test_batch_norm_is_averaged_as_torch_does"),
    ("batch norm's momentum does not come back", "layout.py", "module.momentum = momentum", "pass",
     "features_test FeaturesTest.test_batch_norm_has_its_momentum_again_behind_each_step"),
    ("a micro-batch's statistics stay in place of the averages", "layout.py", "        self.load(False)\n", "",
     "features_test FeaturesTest.test_between_steps_batch_norm_has_the_averages"),
    ("batch norm may run twice in a micro-batch", "layout.py", "            self._warn_of_several_runs()\n", "",
     "features_test FeaturesTest.test_batch_norm_that_runs_twice_in_a_micro_batch_is_warned_of"),
    ("a decoupled weight decay is forgotten", "optimizers.py", 'name = "adamw"', "pass",
     "features_test FeaturesTest.test_adam_with_decoupled_weight_decay_is_adamw"),
    ("a scheduler of the script changes nothing", "optimizers.py",
     '        _check_unchanged(self._given, self._given_settings, "the optimizer that job.prepare was given")\n', "",
     "refusals_test RefusalsTest.test_a_scheduler_that_is_not_given"),
    ("statistics are not weighted by samples", "layout.py",
     "scale = work.end - work.begin if entry.average > 0 else factor", "scale = factor if entry.average == 0 else 1",
     "features_test FeaturesTest.test_batch_norm_is_averaged_as_torch_does"),
    ("a half float is multiplied as one", "layout.py", "view.copy_(value).mul_(scale)", "view.copy_(value * scale)",
     "features_test FeaturesTest.test_sums_of_half_floats_are_of_float32"),
    ("a short step has parts of full size", "loader.py", "min(parts, rest)", "-(-rest // self._micro)",
     "features_test FeaturesTest.test_a_loaders_length_is_what_it_gives"),
    ("what a script prints is kept back", "job.py", "            _print_by_lines()\n", "",
     "endings_test EndingsTest.test_what_the_first_script_prints_is_seen_though_it_is_killed"),
    ("a loader's length is that of the job's first mode", "engine.py", "int(self.known.leaves or self.worker.leaves)",
     "int(self.worker.leaves)",
     "endings_test EndingsTest.test_a_loaders_length_is_that_of_the_mode_in_which_the_script_begins"),
    ("batches draw what their process draws", "loader.py",
     "            seeds.seed_batch(self.seed, *place[:2])\n", "            pass\n",
     "features_test FeaturesTest.test_batches_draw_the_same_in_whichever_process"),
    ("a batch that could not be read is waited for", "loader.py",
     "                self._plan.note_fetched(next(iter(self._plan.asked), None))\n", "",
     "features_test FeaturesTest.test_batches_are_those_of_their_places_behind_an_error"),
    ("the loop sees placeholders", "loader.py", "            if of == place:",
     "            if of == place or of is None:",
     "features_test FeaturesTest.test_samples_draw_the_same_in_whichever_process"),
    ("the loop gets the next batch that was read, whichever it is", "loader.py", "            if of == place:",
     "            if of is not None:", "features_test FeaturesTest.test_a_loop_that_goes_back_reads_again"),
    ("the loader's sampler waits", "loader.py", "        while self._announced:\n",
     "        while not self._announced: pass\n        while self._announced:\n",
     "features_test FeaturesTest.test_samples_draw_the_same_in_whichever_process"),
    ("a micro-batch is given twice", "engine.py", "        self.worker.give(self.work, loss, self._weight)\n",
     "        self.worker.give(self.work, loss, self._weight)\n" * 2, "features_test FeaturesTest.test_a_closure"),
    ("a micro-batch that is left does not come again", "engine.py",
     "        if self._state is _State.BEGUN:\n            self._state = _State.FRESH",
     "        if self._state is _State.BEGUN:\n            self._state = _State.FILLED",
     "features_test FeaturesTest.test_a_batch_that_is_left_comes_again"),
    ("an epoch's loop takes the next epoch's batches", "loader.py", "work.epoch > limit", "work.epoch > limit + 1",
     "features_test FeaturesTest.test_rates_by_epoch_and_by_step"),
    ("shuffle=False is shuffled", "loader.py", '            order = "sequential"\n', "            pass\n",
     "features_test FeaturesTest.test_orders"),
    ("`order` is passed over", "loader.py", "        self._order = order\n", "        self._order = None\n",
     "features_test FeaturesTest.test_orders"),
    ("weights are not regarded", "prepare.py", "scale * (counts if engine.is_mean else 1)",
     "scale * (samples if engine.is_mean else 1)",
     "parity_test ParityTest.test_micro_batches_that_count_by_their_tokens"),
    ("what was lent before is written when the worker has joined anew", "core.py", "        if arena != self._arena:",
     "        if False:", "features_test FeaturesTest.test_gradients_are_written_where_they_leave_from"),
    ("gradients take the way by the script's memory", "core.py", '"lent", None) if self._may_borrow else None',
     '"lent", None) if False else None', "features_test FeaturesTest.test_gradients_are_written_where_they_leave_from"),
    ("what cannot be opened ends the script", "core.py",
     "            except OSError:\n                self._may_borrow = False",
     "            except OSError:\n                raise",
     "features_test FeaturesTest.test_gradients_are_written_where_they_leave_from"),
    ("a GPU writes to memory that is not pinned", "layout.py",
     "        self._may_pin_lent = pin.holds\n        return pin.holds", "        return True",
     "staging_test StagingTest.test_a_gradient_is_written_to_what_is_pinned"),
    ("a GPU's gradients take the way by the script's memory", "layout.py",
     "        if not self._staging:\n            return True", "        if self._staging:\n            return False",
     "staging_test StagingTest.test_a_gradient_is_written_to_what_is_pinned"),
    ("what was lent before stays pinned when the worker has joined anew", "core.py",
     "            self.on_taken_back()\n", "", "staging_test StagingTest.test_a_gradient_is_written_to_what_is_pinned"),
    ("pinned memory grows without end", "layout.py", " or len(self._lent_pins) == _MOST_PINNED", "",
     "staging_test StagingTest.test_no_more_than_some_pieces_that_are_lent_are_pinned"),
    ("tensors are read in another order", "loader.py", "torch.tensor(indices)", "torch.tensor(sorted(indices))",
     "features_test FeaturesTest.test_tensors_are_read_at_once_as_they_are_by_samples"),
    ("only who tests has the final parameters", "core.py",
     "self._memory.move(0, self._regions[0].offset, 4 * self._values)", "pass",
     "parity_test ParityTest.test_bits_do_not_depend_on_the_cluster"),
    ("a sum counts as a mean", "prepare.py", "scale * (counts if engine.is_mean else 1)", "scale * counts",
     "features_test FeaturesTest.test_a_sum_for_a_loss"),
    ("a scheduler by epochs goes by steps", "prepare.py", 'if scheduler_per == "epoch" else 1', "if False else 1",
     "features_test FeaturesTest.test_rates_by_epoch_and_by_step"),
    ("the servers get no rates", "prepare.py", '        settings["schedule"] =', "        unused =",
     "features_test FeaturesTest.test_rates_by_epoch_and_by_step"),
    ("the rate that is shown is the step's before", "prepare.py", "lambda: engine.next_step", "lambda: engine.step",
     "features_test FeaturesTest.test_rates_by_epoch_and_by_step"),
    ("the length of a file's job is known at prepare alone", "job.py",
     "        if self._file is not None:\n            self._start_worker(self._file)\n", "",
     "features_test FeaturesTest.test_the_jobs_length_is_told_as_soon_as_it_is_known"),
    ("an epoch's last step counts as a whole one", "length.py", "divmod(total, samples)", "divmod(total, batch)",
     "features_test FeaturesTest.test_the_jobs_length_is_told_as_soon_as_it_is_known"),
    ("any cosine is right", "hints.py", "if abs(half - steps) <=", "if True or abs(half - steps) <=",
     "features_test FeaturesTest.test_a_cosine_of_another_length_is_warned_of"),
    ("a clip passes for nothing", "hints.py", "if changed and not by_scaler:", "if False:",
     "features_test FeaturesTest.test_gradients_that_the_script_changes_are_warned_of_once"),
    ("a GradScaler passes for a clip", "hints.py", "if changed and not by_scaler:", "if changed:",
     "features_test FeaturesTest.test_gradients_that_the_script_changes_are_warned_of_once"),
    ("a scheduler of epochs may be taken for one of steps", "optimizers.py",
     'if self._per == "step" and loop', "if False and loop",
     "refusals_test RefusalsTest.test_a_scheduler_that_is_stepped_for_something_else"),
    ("a scheduler of steps may be taken for one of epochs", "optimizers.py",
     'if self._per == "epoch" and loop', "if False and loop",
     "refusals_test RefusalsTest.test_a_scheduler_that_is_stepped_for_something_else"),
    ("a loop over the loader never ends", "loader.py", "                self.loop = None\n", "                pass\n",
     "refusals_test RefusalsTest.test_a_scheduler_that_is_stepped_for_something_else"),
    ("zero_grad keeps what was not handed over", "optimizers.py",
     "            super().zero_grad(*arguments, **named)\n", "            pass\n",
     "features_test FeaturesTest.test_zero_grad_forgets_what_was_not_handed_over"),
    ("what has no gradient is not told", "prepare.py", "missing.note(engine.work)", "pass",
     "features_test FeaturesTest.test_a_parameter_without_a_gradient_is_warned_of_once"),
    ("the last step is not counted", "engine.py", "        if self.tests_final:\n            self._end_at(",
     "        if False:\n            self._end_at(",
     "features_test FeaturesTest.test_who_comes_for_the_final_test_alone_knows_where_the_job_stands"),
    ("the last step is not counted where another tests", "engine.py",
     "            self._end_at(frame)\n            self.worker.take", "            self.worker.take",
     "features_test FeaturesTest.test_behind_the_last_epoch_the_step_is_the_number_of_steps"),
    ("the last epoch's number is the first's", "engine.py", "max(0, samples - 1) // self.samples", "self.work.epoch",
     "features_test FeaturesTest.test_who_comes_for_the_final_test_alone_knows_where_the_job_stands"),
    ("a step without a backward is not told", "hints.py",
     "        if self._entries and all(entry.tensor.grad is None for entry in self._entries):", "        if False:",
     "features_test FeaturesTest.test_steps_without_a_backward_are_warned_of_once"),
    ("the mean over nothing lacks a backward", "prepare.py", "if counts > 0 and engine.work.rank == 0:",
     "if engine.work.rank == 0:", "features_test FeaturesTest.test_steps_without_a_backward_are_warned_of_once"),
    ("each micro-batch is a step", "hints.py", "        if work.unit != self._unit:\n", "        if True:\n",
     "features_test FeaturesTest.test_a_parameter_without_a_gradient_is_warned_of_once"),
    ("torch's own zeros are warned of", "optimizers.py", "            if is_kind and not any(", "            if any(",
     "features_test FeaturesTest.test_a_parameter_without_a_gradient_is_warned_of_once"),
    ("a closure's loss is lost", "optimizers.py", "            self._note_loss(loss)\n", "",
     "features_test FeaturesTest.test_losses_are_told_whenever_they_are_known"),
    ("what has no loss is never given", "engine.py",
     "        if self._state is _State.FILLED:\n            self._give()\n"
     "        if self._state is _State.NOTHING:\n            self.on_asking()",
     "        if self._state is _State.NOTHING:\n            self.on_asking()",
     "features_test FeaturesTest.test_orders"),
    ("a GradScaler's scale stays in the gradient", "optimizers.py", "1.0 if scale is None else 1.0 / float(scale)",
     "1.0", "features_test FeaturesTest.test_a_grad_scaler_is_divided_by"),
    ("an overflow goes to the servers", "optimizers.py", "            self._put_back()\n            return loss\n",
     "            pass\n", "features_test FeaturesTest.test_an_overflow_has_the_micro_batch_come_again"),
    ("overflows without an end", "optimizers.py", "0 < self._overflows < _OVERFLOWS", "0 < self._overflows",
     "features_test FeaturesTest.test_a_gradient_that_is_not_finite_at_any_scale_goes_to_the_servers"),
    ("a saved file has all of the flat vector", "job.py", "value.detach().clone()", "value.detach()",
     "features_test FeaturesTest.test_a_saved_file_has_the_values_alone"),
    ("a gradient leaves before it is whole", "overlap.py", "entries[self._next].begin + entries[self._next].size",
     "entries[self._next].begin",
     "overlap_test OverlapTest.test_shared_unused_and_frozen_parameters"),
    ("gradients of the first micro-batch leave early", "overlap.py", "        self._may_leave = False",
     "        self._may_leave = True",
     "overlap_test OverlapTest.test_blocks_leave_from_the_end_but_not_of_the_first_micro_batch"),
    ("nothing leaves early", "overlap.py", "        if begin < self._left:\n", "        if False:\n",
     "overlap_test OverlapTest.test_blocks_leave_from_the_end_but_not_of_the_first_micro_batch"),
    ("what has left of a batch that comes again leaves again", "overlap.py",
     "        if self._id != self._engine.work.id:\n", "        if True:\n",
     "overlap_test OverlapTest.test_an_exception_within_backward"),
    ("a batch that comes again adds to what was left in .grad", "loader.py", "                self._put_back()\n",
     "                engine.put_back()\n", "overlap_test OverlapTest.test_an_exception_within_backward"),
    ("a gradient may be changed when it has left", "overlap.py",
     "if entry.tensor.grad is not gradient or gradient._version != version:", "if False:",
     "overlap_test OverlapTest.test_what_would_be_too_late_is_refused"),
    ("two backwards for one micro-batch", "overlap.py", "        if self._refused is not None:\n            raise",
     "        if False:\n            raise", "overlap_test OverlapTest.test_a_backward_of_something_else"),
    ("a final test that fails counts as run", "job.py", "if self._file is None or not has_failed:", "if True:",
     "endings_test EndingsTest.test_a_final_test_that_fails_is_another_workers"),
    ("where nothing is left to train nothing is tested", "job.py",
     "elif self._epoch is None and engine.is_final:", "elif False:",
     "endings_test EndingsTest.test_where_nothing_is_left_the_last_epoch_comes_for_its_test"),
    ("epochs without a batch never end", "job.py", "if idle == 2:", "if False:",
     "refusals_test RefusalsTest.test_epochs_without_a_batch"),
    ("who skips some epochs is refused", "job.py", "idle = 0 if engine.begun > begun else idle + 1", "idle += 1",
     "refusals_test RefusalsTest.test_epochs_without_a_batch"),
    ("a script does not end its job", "job.py", "            self._stop(reason)\n",
     "            pass\n", "endings_test EndingsTest.test_a_script_ends_its_job_for_all_workers"),
    ("a job that is over is asked to stop", "job.py", "if not (engine.is_final or engine.is_over):", "if True:",
     "endings_test EndingsTest.test_a_script_ends_its_job_for_all_workers"),
    ("a refusal ends like any exception", "errors.py", "USAGE if isinstance(error, Error) else 0", "0",
     "endings_test EndingsTest.test_what_is_wrong_with_a_script_ends_its_job"),
    ("a lost worker process is the script's fault", "errors.py",
     "_TRY_AGAIN if error.exit_code == 1 else error.exit_code", "error.exit_code",
     "endings_test EndingsTest.test_who_has_lost_its_worker_process_is_started_again"),
    ("a GPU's gradient is given before it is written", "layout.py",
     "            if not work.keeps:\n                way.wait()\n", "",
     "staging_test StagingTest.test_a_gradient_is_given_when_it_has_been_written"),
    ("a GPU's gradient is copied before it is computed", "staging.py",
     "        self._stream.wait_stream(CUDA.current_stream(self._device))\n", "",
     "staging_test StagingTest.test_a_copy_waits_for_what_computes_its_source"),
    ("a GPU's statistics are not weighted by samples", "staging.py", "(self._sum.averages, samples)",
     "(self._sum.averages, 1)", "staging_test StagingTest.test_the_bits_are_the_same"),
    ("a GPU's layers keep a micro-batch's statistics", "staging.py",
     "        _copy([(entry.tensor, view) for entry, view in zip(self._averaged, self._averages.views)])\n",
     "        pass\n", "staging_test StagingTest.test_the_bits_are_the_same"),
    ("a GPU adds in another order", "staging.py", "adds:][::-1]", "adds:]",
     "parity_test ParityTest.test_bits_do_not_depend_on_who_adds"),
    ("a GPU adds what another node has left", "staging.py",
     "        self._forget(len(self._kept) - kept)\n", "",
     "staging_test StagingTest.test_sums_that_are_out_of_date_are_used_again"),
    ("a GPU computes before it has the parameters", "staging.py",
     "        CUDA.current_stream(self._device).wait_stream(self._stream)\n", "",
     "staging_test StagingTest.test_forward_waits_for_the_parameters"),
    ("a GPU's gradient leaves early before it is written", "overlap.py", "event is None or event.query()", "True",
     "staging_test StagingTest.test_what_leaves_early_has_been_written"),
    ("the job's order is computed again", "sampler.py", "            self._told[epoch, begin, end] = indices\n",
     "            pass\n", "features_test FeaturesTest.test_what_is_told_of_the_jobs_order_is_not_computed_again"),
    ("an order of fewer samples is taken for that of all", "loader.py",
     "        if self.samples == len(self.dataset):", "        if True:",
     "features_test FeaturesTest.test_what_is_told_of_the_jobs_order_is_not_computed_again"),
    ("a saved file has the names of what torch.compile returns", "job.py",
     'getattr(self._model, "_orig_mod", self._model)', "self._model",
     "features_test FeaturesTest.test_a_saved_file_has_the_names_of_the_model_that_is_compiled"),
    ("an ended job stays until the script's end", "prepare.py", "    engine.on_over = on_over\n", "",
     "features_test FeaturesTest.test_nothing_of_a_job_that_has_ended_stays"),
    ("WORLD_SIZE is set", "job.py", "        self.run = self._servers.path\n",
     "        self.run = self._servers.path\n        os.environ['WORLD_SIZE'] = '1'\n",
     "features_test FeaturesTest.test_the_environment_starts_nothing_of_others"),
    ("parameters may be edited", "layout.py", "if name is not None:\n            raise", "if False:\n            raise",
     "refusals_test RefusalsTest.test_edits_of_parameters"),
    ("what the job does not have is tested and saved", "job.py", "            self._layout.check_untouched()\n", "",
     "refusals_test RefusalsTest.test_what_the_job_does_not_have_is_neither_tested_nor_saved"),
    ("averages of the script's own batches are tested", "job.py", "            self._layout.load(False)", "",
     "features_test FeaturesTest.test_tests_and_files_have_the_averages_whatever_ran_before"),
    ("who was frozen may train", "prepare.py",
     "            if entry.tensor.requires_grad or entry.tensor.grad is not None:", "            if False:",
     "refusals_test RefusalsTest.test_a_parameter_that_is_unfrozen"),
    ("a name that no job has is taken", "job.py", "if name not in _KEYS:", "if False:",
     "refusals_test RefusalsTest.test_arguments_that_no_job_has_are_refused_at_the_call"),
    ("torchrun's processes train alone, each", "job.py", "            _check_is_alone(os.environ)\n", "",
     "refusals_test RefusalsTest.test_a_script_of_torchrun"),
    ("a single process of a launcher is refused", "job.py", "int(world) > 1", "int(world) > 0",
     "refusals_test RefusalsTest.test_a_script_of_torchrun"),
    ("a key's section is not named", "job.py", "if section is not None:", "if False:",
     "refusals_test RefusalsTest.test_arguments_that_no_job_has_are_refused_at_the_call"),
    ("a key is of another section", "job.py", "(\"keep_last\", \"keep_best\",", "(\"keep_last\", \"every\",",
     "refusals_test RefusalsTest.test_keys_of_a_job_are_those_of_the_reference"),
    ("a clip to infinity goes to the servers", "prepare.py",
     "not _is_positive(clip_grad_norm)", "False",
     "refusals_test RefusalsTest.test_arguments_of_prepare"),
    ("rates may be set by hand", "optimizers.py", "if found is not value and not", "if False and not",
     "refusals_test RefusalsTest.test_a_rate_set_by_hand"),
    ("gradients may be accumulated", "engine.py",
     "        if self._state is _State.BEGUN:\n            raise Refused",
     "        if False:\n            raise Refused", "refusals_test RefusalsTest.test_own_accumulation"),
    ("any optimizer will do", "optimizers.py", "    if kind not in _RULES:",
     "    if kind is torch.optim.Optimizer:",
     "refusals_test RefusalsTest.test_another_optimizer"),
    ("a rank's part begins where the one before did", "sampler.py",
     "return position + self.rank * n", "return position + max(0, self.rank - 1) * n",
     "sampler_test SamplerTest.test_ranks_share_the_same_global_batches"),
    ("a sampler forgets its place", "sampler.py", "self.position + self.batch_size)\n",
     "self.position + 2 * self.batch_size)\n",
     "sampler_test SamplerTest.test_goes_on_in_the_midst_of_an_epoch_with_other_ranks"),
    ("what is read ahead counts as trained", "sampler.py", "        if batches is None:\n", "        if True:\n",
     "sampler_test SamplerTest.test_goes_on_where_the_script_is_and_not_the_readers_ahead_of_it"),
    ("a sampler goes on in the midst of other batches", "sampler.py", "        if others:\n", "        if False:\n",
     "sampler_test SamplerTest.test_a_state_of_other_batches_is_refused"),
    ("an order draws what its process draws", "sampler.py",
     "        seeds.seed_all(seeds.key(seed & _MASK, seeds.ORDER, epoch, 0))\n", "",
     "sampler_test SamplerTest.test_an_order_that_draws_is_the_same_in_each_process"),
    ("the order is not the servers'", "sampler.py", 'b"order"', 'b"orders"',
     "sampler_test SamplerTest.test_the_order_is_the_servers"),
    ("torchrun's rank is not read", "sampler.py", '("RUBATO_RANK", "RANK")', '("RUBATO_RANK",)',
     "sampler_test SamplerTest.test_the_rank_is_whoever_started_its"),
    ("forked processes keep the socket", "core.py", "        worker._socket.close()\n    for", "        pass\n    for",
     "endings_test EndingsTest.test_killed"),
    ("servers outlive the script", "server.py", "    _libc.prctl(", "    bool(",
     "endings_test EndingsTest.test_killed"),
    ("SIGTERM ends at once", "engine.py", "self._own_handler = self._on_signal", "self._own_handler = signal.SIG_DFL",
     "endings_test EndingsTest.test_told_to_leave"),
    ("a closed terminal ends loader processes", "loader.py", "signal.signal(signal.SIGHUP, signal.SIG_IGN)", "pass",
     "endings_test EndingsTest.test_a_terminal_is_closed"),
    ("the script's worker_init_fn is not called", "loader.py", "            self.begin(number)\n", "            pass\n",
     "endings_test EndingsTest.test_loader_processes_begin_with_the_scripts_worker_init_fn"),
    ("what the script has forked dies with the terminal", "engine.py", "elif number != signal.SIGHUP:", "else:",
     "endings_test EndingsTest.test_signals_of_a_process_that_the_script_forks"),
    ("a notebook's workers outlive it", "launch.py", "    server.die_with_parent()\n", "",
     "endings_test EndingsTest.test_a_notebook_that_is_gone_leaves_no_workers"),
    ("a notebook waits for a worker that has failed", "launch.py", "                    self._end(alive)\n",
     "                    pass\n",
     "endings_test EndingsTest.test_a_notebooks_worker_that_cannot_begin_ends_its_job"),
    ("rubato train does not see warnings", "errors.py", "Z worker warning: ", "Z worker ",
     "endings_test EndingsTest.test_what_a_script_is_warned_of_is_repeated"),
    ("a notebook's threads are waited for in its forks", "launch.py", "        torch.set_num_threads(1)\n",
     "        pass\n", "endings_test EndingsTest.test_a_notebook"),
    ("NumPy's gradients are not summed", "worker.py", "numpy.float32(counts), casting", "numpy.float32(1), casting",
     "endings_test EndingsTest.test_arrays_without_torch"),
    ("a worker's part of a step is taken for the step", "hints.py", "if self._samples == work.unit_samples:",
     "if True:", "features_test FeaturesTest.test_a_parameter_without_a_gradient_is_warned_of_once"),
    ("parameters without gradients are not noticed by epochs", "hints.py", "        self._warn(self._of_epoch,",
     "        self._warn((),", "features_test FeaturesTest.test_a_parameter_without_a_gradient_is_warned_of_once"),
    ("the last epoch's parameters without gradients are not noticed", "prepare.py", "            missing.end()\n",
     "            pass\n", "features_test FeaturesTest.test_a_parameter_without_a_gradient_is_warned_of_once"),
    ("what the processes of a script alone warn of is not told", "server.py", " warning: (.*)$", " worry: (.*)$",
     "endings_test EndingsTest.test_what_the_servers_of_a_script_alone_warn_of_is_told"),
    ("a warning of a process is told again and again", "server.py", "            self._read[log] = begin + whole\n", "",
     "endings_test EndingsTest.test_what_the_servers_of_a_script_alone_warn_of_is_told"),
    ("what a notebook's workers are warned of is not told", "server.py", "|worker(?: \\d+)?", "",
     "endings_test EndingsTest.test_what_a_notebooks_workers_are_warned_of_is_told"),
    ("lists of names are not compared", "digest.py", " if any(parts) else b\"\"", " if False else b\"\"",
     "data_and_threads_test DataAndThreadsTest.test_lists_of_names_and_labels_show"),
    ("hosts that have files elsewhere are refused", "digest.py", ".rsplit(\"/\", 1)[-1]", "",
     "data_and_threads_test DataAndThreadsTest.test_lists_of_names_and_labels_show"),
    ("what a data set calls by a name is compared", "digest.py", "_of(value, room, False, depth + 1)",
     "_of(value, room, True, depth + 1)",
     "data_and_threads_test DataAndThreadsTest.test_what_may_differ_from_process_to_process_does_not_show"),
    ("the order of a set is compared", "digest.py", "parts = sorted(_of(", "parts = list(_of(",
     "data_and_threads_test DataAndThreadsTest.test_what_may_differ_from_process_to_process_does_not_show"),
    ("bytes between fields are compared", "digest.py", "array.dtype.names is not None", "False",
     "data_and_threads_test DataAndThreadsTest.test_what_may_differ_from_process_to_process_does_not_show"),
    ("a table is not compared", "digest.py", "value.iloc[::step].to_numpy()]", "0]",
     "data_and_threads_test DataAndThreadsTest.test_what_tables_of_pandas_hold_shows"),
    ("a script that is imported anew joins once more", "errors.py", '"_inheriting", False)', '"_other", False)',
     "refusals_test RefusalsTest.test_a_script_that_loader_processes_import_anew"),
    ("a forked process writes to the script's parameters", "core.py", "mmap.MAP_PRIVATE |", "mmap.MAP_SHARED |",
     "features_test FeaturesTest.test_what_a_forked_process_writes_to_the_model_stays_with_it"),
    ("a rate of nothing is not told", "hints.py", "        begin -= 1\n", "        break\n",
     "features_test FeaturesTest.test_a_schedule_that_comes_to_nothing_is_warned_of"),
    ("a rate of nothing at the end is told", "hints.py", "steps - begin > 1 + _TOLERANCE * steps", "True",
     "features_test FeaturesTest.test_a_schedule_that_comes_to_nothing_is_warned_of"),
    ("a buffer that is written to is not told", "hints.py", " or not _are_equal(now[name], values)]", "]",
     "features_test FeaturesTest.test_buffers_that_training_changes_are_warned_of_once"),
    ("a NaN that was there is told as a change", "hints.py", " | a.ne(a) & b.ne(b)", "",
     "features_test FeaturesTest.test_buffers_that_training_changes_are_warned_of_once"),
    ("what is made once is told", "hints.py", "if self._begun == 2:", "if self._begun == 1:",
     "features_test FeaturesTest.test_buffers_that_training_changes_are_warned_of_once"),
    ("a script may change its arrays", "worker.py", "if engine.begun == 1:", "if False:",
     "refusals_test RefusalsTest.test_arrays_that_the_script_changes"),
    ("a tensor is printed whole", "errors.py", "    if not is_one(value):", "    if False:",
     "refusals_test RefusalsTest.test_what_is_no_number_is_not_printed_whole"),
    ("a long text is printed whole", "errors.py", "text if len(text) <= _MOST_TEXT else", "text if True else",
     "refusals_test RefusalsTest.test_what_is_no_number_is_not_printed_whole"),
    ("keys of the job in the environment are the worker's alone", "server.py", "    if found:\n", "    if False:\n",
     "refusals_test RefusalsTest.test_keys_of_the_job_in_the_environment"),
    ("a launcher's address is that of a script's own job", "server.py", "for key, value in self.settings().items()",
     "for key, value in ()",
     "endings_test EndingsTest.test_what_a_launcher_sets_is_not_of_a_scripts_own_job"),
    ("a launcher's workers are those of a notebook's job", "launch.py", "for key, value in servers.settings().items()",
     "for key, value in [('cluster.address', servers.address)]",
     "endings_test EndingsTest.test_what_a_launcher_sets_is_not_of_a_scripts_own_job"),
    ("of large sets what they hold is compared", "digest.py", "    if len(values) > max(_WIDE, room // _ITEM):\n",
     "    if False:\n",
     "data_and_threads_test DataAndThreadsTest.test_of_large_sets_the_length_shows_alone"),
    ("torch takes all threads", "threads.py", "        torch.set_num_threads(threads)\n", "        pass\n",
     "features_test FeaturesTest.test_torch_computes_with_the_threads_of_the_job"),
    ("the job's threads are passed over", "job.py", '"device", {}).get("threads", 1)', '"device", {}).get("thread", 1)',
     "features_test FeaturesTest.test_torch_computes_with_the_threads_of_the_job"),
    ("all may look into a run", "server.py", "_MODES.get(readers, 0o700)", "0o777",
     "features_test FeaturesTest.test_a_run_folder_is_for_whom_the_job_says"),
    ("who may look into a run is not regarded", "server.py", "_MODES.get(readers, 0o700)", "0o700",
     "features_test FeaturesTest.test_a_run_folder_is_for_whom_the_job_says"),
    ("a worker does not leave", "job.py", "        self._prepared().leave()\n", "        pass\n",
     "features_test FeaturesTest.test_a_worker_that_leaves_ends_its_script"),
    ("what NumPy's mean over nothing is counts", "worker.py", "                    view[...] = 0\n",
     "                    pass\n", "features_test FeaturesTest.test_what_a_worker_of_arrays_gets_and_leaves_out"),
    ("NumPy's generators get one seed", "worker.py", "engine.key, work.epoch)", "0, work.epoch)",
     "features_test FeaturesTest.test_what_a_worker_of_arrays_gets_and_leaves_out"),
    ("`order` of arrays is passed over", "worker.py", '.get("seed", 0)), order)', '.get("seed", 0)), None)',
     "features_test FeaturesTest.test_what_a_worker_of_arrays_gets_and_leaves_out"),
    ("programs are not looked for on PATH", "core.py", "found = shutil.which(name)", "found = None",
     "refusals_test RefusalsTest.test_no_programs"),
    ("a notebook's bound is not passed on", "server.py", 'f"{mode},staleness={staleness}"', "mode",
     "endings_test EndingsTest.test_a_notebook_gives_commands"),
    ("a notebook waits for longer than it is told", "launch.py", "                return False\n        self",
     "                deadline = None\n        self", "endings_test EndingsTest.test_a_notebook_gives_commands"),
    ("a checkpoint's path is not told", "server.py", 'return command("checkpoint", self.run).strip()', 'return ""',
     "endings_test EndingsTest.test_a_notebook_gives_commands"),
    ("a notebook's workers share a GPU", "launch.py", '"LOCAL_RANK": str(rank), ', '"LOCAL_RANK": "0", ',
     "endings_test EndingsTest.test_a_notebooks_worker_that_cannot_begin_ends_its_job"),
    ("bits depend on loader processes", "loader.py",
     "            seeds.seed_sample(self.seed, request.place[0], index)\n", "            seeds.seed_all(index)\n"
     "            random_state = __import__('os').getpid()\n            seeds.seed_all(random_state)\n",
     "parity_test ParityTest.test_bits_do_not_depend_on_the_cluster"),
]


def broken(name, text, instead):
    path = HERE.parent / "rubato" / name
    source = path.read_text()
    if source.count(text) != 1:
        sys.exit(f"{path}: found {source.count(text)} times {text!r}, expected it once: "
                 "mutants.py is of another release")
    source = source.replace(text, instead)
    compile(source, name, "exec")
    return source


def outcome(mutant, rubato):
    """How its test ends."""
    _, name, text, instead, case = mutant
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        shutil.copytree(HERE.parent, root / "python")
        (root / "tests").mkdir()
        shutil.copy(ROOT / "tests" / "skipped.py", root / "tests")
        (root / "python" / "rubato" / name).write_text(broken(name, text, instead))
        test, case = case.split()
        command = [sys.executable, "-B", str(root / "python" / "tests" / f"{test}.py")]
        command += [rubato] if needs_programs(mutant) else []
        process = subprocess.Popen([*command, case], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, start_new_session=True)
        try:
            output = process.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            end(process)
            return "waits for ever"
        end(process)
        if process.returncode == 0:
            return "LIVES"
        return "caught" if "FAILED" in output else "LIVES: " + output.strip().splitlines()[-1]


def end(process):
    """Ends what it has started and what is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def needs_programs(mutant):
    return mutant[4].startswith(("endings_test", "parity_test"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rubato", nargs="?")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    for _, name, text, instead, case in MUTANTS:
        broken(name, text, instead)
        test, case = case.split()
        if f"def {case.split('.')[1]}(" not in (HERE / f"{test}.py").read_text():
            sys.exit(f"{test}.py: found no {case}")
    if arguments.check:
        return
    lives = 0
    for mutant in MUTANTS:
        if arguments.only in mutant[0] and (arguments.rubato or not needs_programs(mutant)):
            how = outcome(mutant, arguments.rubato and str(pathlib.Path(arguments.rubato).absolute()))
            lives += how.startswith("LIVES")
            print(f"{how:15} {mutant[0]} ({mutant[4].split()[0]})", flush=True)
    sys.exit(1 if lives else 0)


if __name__ == "__main__":
    main()
