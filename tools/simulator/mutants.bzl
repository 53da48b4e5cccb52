"""Cores with a bug on purpose, each of which an invariant of the drawn cases must name."""

load("//tools/bazel:cc.bzl", "cc_test")
load("//tools/bazel:mutant.bzl", "MUTANT_COPTS", "mutate")

# By name: the source file, the invariant that is to catch it (docs/simulator.md), and the texts
# that are replaced.
MUTANTS = {
    "no_deduplication_on_arrival": ("//common/consistency:arrivals.cc", "exactly once", [
        "return contribution.clock == expected;",
        "return true;",
        "  if (ledger->units.Contains(contribution.unit)) pending.counted_before = true;\n",
        "",
    ]),
    "no_deduplication_of_steps": ("//common/consistency:steps.cc", "payloads", [
        "return contribution.clock == ledger.version && !Overlaps(ledger.nodes, contribution.node);",
        "return contribution.clock == ledger.version;",
    ]),
    "units_counted_twice": ("//common/consistency:arrivals.cc", "exactly once", [
        "if (ledger->units.Contains(contribution.unit))",
        "if (false)",
    ]),
    "key_without_incarnation": ("//server/shard:shard.cc", "members", [
        "IsMember(contribution)",
        "IsMember(contribution.worker)",
        "IsMember(pending.contribution)",
        "IsMember(pending.contribution.worker)",
    ]),
    "sync_keyed_by_sender": ("//common/consistency:steps.cc", "finishes", [
        "ledger->nodes.emplace(contribution.node.begin,",
        "ledger->nodes.emplace(contribution.worker,",
    ]),
    "older_view_applied": ("//server/shard:shard.cc", "members", [
        "MayCount(contribution, IsMember(contribution))",
        "MayCount(contribution, true)",
    ]),
    "previous_version_freed_early": ("//common/consistency:steps.cc", "finishes", [
        "ledger->has_previous = true;",
        "ledger->has_previous = false;",
    ]),
    "acknowledged_before_applied": ("//common/consistency:arrivals.cc", "conservation", [
        "ledger.clocks[worker].applied >= clock",
        "ledger.clocks[worker].accepted >= clock",
    ]),
    "ssp_off_by_one": ("//common/consistency:arrivals.cc", "staleness bound", [
        "ledger.slowest >= clock - mode().staleness()",
        "ledger.slowest >= clock - mode().staleness() - 1",
    ]),
    "dead_worker_in_min_clock": ("//server/shard:shard.cc", "finishes", [
        "if (!IsMember(rank)) ledger.clocks[rank].waited_for = false;",
        "",
    ]),
    "unweighted_short_batch": ("//server/shard:shard.cc", "reference", [
        "both.samples += added.samples;",
        "both.samples *= 2;",
    ]),
    "optimizer_forgets_at_a_switch": ("//server/shard:shard.cc", "reference", [
        "apply.updates_before = ledger.version - ledger.skipped;",
        "apply.updates_before = ledger.version - ledger.skipped - (lineage_ > 1 ? 1 : 0);",
    ]),
    "open_before_all_have_closed": ("//server/coordinator:view_change.cc", "exactly once", [
        "  return call_.complete();",
        "  return true;",
    ]),
    "shards_answer_counted_twice": ("//server/coordinator:roll_call.cc", "account", [
        "bool RollCall::OnAnswer(const ShardId& shard) { return missing_.erase(shard) > 0; }",
        "bool RollCall::OnAnswer(const ShardId&) {\n" +
        "  if (missing_.empty()) return false;\n" +
        "  missing_.erase(missing_.begin());\n" +
        "  return true;\n" +
        "}",
    ]),
    "stopped_pause_waits_for_nobody": ("//server/coordinator:coordinator_views.cc", "exactly once", [
        "const int min = ending_.stopping() ? 1 : ",
        "const int min = ",
    ]),
    "step_applied_against_the_decision": ("//server/shard:shard.cc", "reference", [
        "if (change.kind == NextChange::Kind::kSkip) {",
        "if (false) {",
    ]),
    "steps_left_out_counted_as_updates": ("//server/shard:shard.cc", "reference", [
        "apply.updates_before = ledger.version - ledger.skipped;",
        "apply.updates_before = ledger.version;",
    ]),
    "applied_after_the_close": ("//common/consistency:arrivals.cc", "staleness bound", [
        "if (ledger->queue.empty() || terms.closed) return {};",
        "if (ledger->queue.empty()) return {};",
    ]),
    "snapshot_shows_what_is_now": ("//server/shard:shard_protocol.cc", "checkpoint", [
        "for (const Payload& values : copy.values) {",
        "for (const Payload& values : values_->Copy(block)) {",
    ]),
    "dropped_payload_is_kept": ("//server/shard:shard_protocol.cc", "payloads", [
        "(const shard_action::Drop& drop) { values_->Release(drop.payload); }",
        "(const shard_action::Drop&) {}",
    ]),
    "restore_skips_a_block": ("//server/shard:shard_protocol.cc", "checkpoint", [
        "for (const proto::BlockState& block : restore.blocks()) {",
        "for (const proto::BlockState& block : restore.blocks()) {\n" +
        "    if (block.block() == core_->blocks().begin) continue;",
    ]),
    "closed_for_the_view_before": ("//server/shard:shard_protocol.cc", "finishes", [
        "*message.mutable_shard_closed() = ClosedMessage(*core_);",
        "*message.mutable_shard_closed() = ClosedMessage(*core_);\n" +
        "  message.mutable_shard_closed()->set_view(core_->view() - 1);",
    ]),
    "squares_counted_twice": ("//server/shard:shard_protocol.cc", "reference", [
        "out->set_sum(node.sum);",
        "out->set_sum(2 * node.sum);",
    ]),
    "decision_without_its_factor": ("//server/shard:shard.cc", "reference", [
        "apply.factor = change.factor;",
        "apply.factor = 1;",
    ]),
    "broken_stream_endured": ("//worker/session:worker_session.cc", "broken stream", [
        "WaitNoLongerThan(kHeartbeatAnswers);",
        "",
    ]),
    "gone_taken_for_strangers": ("//server/coordinator:coordinator_peers.cc", "refused", [
        "registry_.HasGone(id) ? Speaker::kGone : Speaker::kStranger",
        "Speaker::kStranger",
    ]),
    "late_is_refused": ("//server/shard:shard.cc", "refused", [
        "if (pull.view < view_) return Sender::kEarlier;",
        "",
    ]),
    "late_progress_refused": ("//server/coordinator:work.cc", "refused", [
        "if (owner == worker || owner.rank < 0) continue;",
        "if (owner == worker) continue;",
    ]),
    "shards_hear_of_another_attempt": ("//server/coordinator:registry.cc", "refused", [
        "member.set_attempt(peer.registration.attempt());",
        "member.set_attempt(peer.registration.attempt() + 1);",
    ]),
    "pulls_name_an_incarnation": ("//server/shard:stream_names.cc", "refused", [
        "(name.incarnation == 0 || name.incarnation == own.incarnation)",
        "name.incarnation == own.incarnation",
    ]),
    "grants_of_the_first_division": ("//server/shard:grants.cc", "refused", [
        "if (candidate.from_step <= step) division = &candidate;",
        "if (division == nullptr) division = &candidate;",
    ]),
    "pushes_tell_of_no_samples": ("//worker/session:worker_session.cc", "refused", [
        "static_cast<uint32_t>(schedule().Samples(compute.unit, node));",
        "0;",
    ]),
    "never_joins_anew": ("//worker/session:worker_session.cc", "patience", [
        "if (!may_join_anew || ",
        "if (!may_join_anew || true || ",
    ]),
    "answers_of_an_earlier_pull_counted": ("//worker/session:pulled_blocks.cc", "reads", [
        "frame.unit != pull_.number) return false;",
        "false) return false;",
    ]),
    # The coordinator's parts.
    "grants_of_the_lost_kept": ("//server/coordinator:assignments.cc", "waits", [
        "    if (is_member(grant.worker)) {\n      after.push_back(grant);",
        "    if (true) {\n      after.push_back(grant);",
    ]),
    "checkpoint_of_the_step_after": ("//server/coordinator:checkpoints.cc", "checkpoint", [
        "? snapshots_.step() :",
        "? snapshots_.step() + 1 :",
    ]),
    "written_when_one_shard_has_copied": ("//server/coordinator:snapshots.cc", "checkpoint", [
        "  if (!call_.complete()) return false;\n",
        "",
    ]),
    "failed_part_taken_for_written": ("//server/coordinator:snapshots.cc", "checkpoint", [
        "    failure_.Update(absl::UnavailableError(",
        "    absl::Status().Update(absl::UnavailableError(",
    ]),
    "silent_part_waited_for": ("//server/coordinator:snapshots.cc", "finishes", [
        "now - last_part_ < kPartSilence",
        "now - last_part_ < 1000 * kPartSilence",
    ]),
    "silent_reader_waited_for": ("//server/coordinator:starting.cc", "finishes", [
        "if (waited_ <= patience_) return",
        "if (waited_ <= 1000 * patience_) return",
    ]),
    "joiner_not_taken_in": ("//server/coordinator:coordinator_views.cc", "finishes", [
        "if (!is_new) return;",
        "return;",
    ]),
    "status_names_nobody": ("//server/coordinator:coordinator_status.cc", "waits", [
        "add(work_->WaitText(peer, idle(peer)));",
        "break;",
    ]),
    "decision_without_all_shards": ("//server/coordinator:decisions.cc", "reference", [
        "if (question == asked.end()) return std::nullopt;",
        "if (question == asked.end()) continue;",
    ]),
    "reports_of_the_first_shard_alone": ("//server/coordinator:ending.cc", "account", [
        "  if (!reports_.complete()) return;\n",
        "",
    ]),
    "stage_ends_late": ("//server/coordinator:lineage.cc", "modes", [
        "until_ = schedule_->UnitsFor(StageAt(samples).until_samples);",
        "until_ = schedule_->UnitsFor(StageAt(samples).until_samples) + 1;",
    ]),
    "incarnation_not_counted": ("//server/coordinator:registry.cc", "exactly once", [
        "peer.worker = {rank, ++worker_incarnations_[rank]};",
        "peer.worker = {rank, worker_incarnations_[rank] = 1};",
    ]),
    "all_blocks_go_on_as_the_first": ("//server/coordinator:starting.cc", "checkpoint", [
        "*state = before == states.end() ? resume_->blocks(0) : *before->second;",
        "*state = resume_->blocks(0);",
    ]),
    "stop_does_not_cut": ("//server/coordinator:work.cc", "stop", [
        "if (stopping || lineage_.asked().has_value()) CutAt(from_step);",
        "if (lineage_.asked().has_value()) CutAt(from_step);",
    ]),
    "lost_work_not_given_again": ("//server/coordinator:work_ledger.cc", "exactly once", [
        "      redo_[unit] = lease.computed_before || lease.clock >= 0;\n",
        "",
    ]),
    # Terms.
    "mode_forgotten_when_going_back": ("//server/coordinator:coordinator.cc", "asked", [
        "*lasting_.mutable_mode() = event.mode;",
        "",
    ]),
    "stop_forgotten_when_going_back": ("//server/coordinator:coordinator_views.cc", "stop", [
        "if (!lasting_.stop().empty()) {",
        "if (false) {",
    ]),
    "signal_outlives_the_job": ("//server/coordinator:coordinator.cc", "versions", [
        "if (end.ok() && (event.lasts || is_back)) keep();",
        "if (event.lasts || is_back) keep();",
    ]),
    "view_of_the_first_term": ("//server/coordinator:coordinator_views.cc", "terms", [
        "view_.set_term(before_.term());",
        "view_.set_term(1);",
    ]),
    "begins_at_the_beginning": ("//server/coordinator:work.cc", "terms", [
        "wanted, resume->step(), position);",
        "wanted, 0, 0);",
    ]),
    "first_values_forgotten_when_going_back": ("//server/coordinator:starting.cc", "reference", [
        "initial_(initial),",
        "initial_(initial && before.term() <= 1),",
    ]),
    "goes_back_in_vain_for_ever": ("//server/coordinator:coordinator.cc", "in vain", [
        "before_.terms_in_vain() < restarts)",
        "before_.terms_in_vain() <= restarts)",
    ]),
    "training_counts_for_nothing": ("//server/coordinator:coordinator.cc", "survives", [
        "(has_trained() || before_",
        "(before_",
    ]),
    # Values that the shards have kept.
    "kept_at_the_highest_version": ("//server/coordinator:kept_values.cc", "kept", [
        "manifest->set_step(on_arrival ? highest : lowest);",
        "manifest->set_step(highest);",
    ]),
    "kept_without_the_version_before": ("//server/shard:shard_protocol.cc", "finishes", [
        "if (kept_->has_previous[i]) core_->RestorePrevious(block.block());",
        "",
    ]),
    "kept_without_what_was_left_out": ("//server/shard:shard_protocol.cc", "checkpoint", [
        "core_->Restore(block.block(), block.version(), block.samples(), block.skipped(),\n" +
        "                   UnitsOf(block));\n    if (kept_",
        "core_->Restore(block.block(), block.version(), block.samples(), 0,\n" +
        "                   UnitsOf(block));\n    if (kept_",
    ]),
    "kept_in_one_lineage_alone": ("//server/coordinator:kept_values.cc", "kept", [
        "if (blocks[block.block()].skipped() >= block.skipped()) continue;",
        "if (its.view().lineage() == view.lineage()) continue;",
    ]),
    "kept_of_a_term_that_has_begun_alone": ("//server/coordinator:kept_values.cc", "kept", [
        "if (view.term() != term && !(view.has_kept_term() && view.kept_term() == term)) {",
        "if (view.term() != term) {",
    ]),
    "kept_verdict_forgotten": ("//server/coordinator:coordinator_views.cc", "finishes", [
        "      decisions_->Keep(decision);\n",
        "",
    ]),
    "kept_split_ends_in_another_mode": ("//server/coordinator:work.cc", "versions", [
        "const bool holds_back = is_split && OnArrival(wanted);",
        "const bool holds_back = false;",
    ]),
    # What shards answer.
    "checkpoint_forgets_what_was_left_out": ("//server/shard:shard_answers.cc", "checkpoint", [
        "  state.set_skipped(ledger.skipped);\n",
        "",
    ]),
    "unit_of_one_block_is_whole": ("//server/shard:shard_state.cc", "exactly once", [
        "units.push_back(&ledger.units);",
        "if (units.empty()) units.push_back(&ledger.units);",
    ]),
    "unit_behind_a_run_is_held": ("//common/consistency:unit_set.cc", "exactly once", [
        "unit < std::prev(after)->second",
        "unit <= std::prev(after)->second",
    ]),
    "run_told_by_its_first_unit": ("//common/consistency:block_units.cc", "checkpoint", [
        "run->set_end(end);",
        "run->set_end(begin + 1);",
    ]),
    "pulls_answered_early": ("//server/shard:waiting_pulls.cc", "reads", [
        "if (!may_answer(pull)) return false;",
        "",
    ]),
    "slowest_moves_with_the_first": ("//common/consistency:ledger.cc", "staleness bound", [
        "if (was_slowest && --at_slowest == 0) FindSlowest();",
        "if (was_slowest) ++slowest;",
    ]),
    # The worker's loop, and its end of a stream.
    "idle_with_work_in_hand": ("//common/consistency:arrivals.cc", "waits", [
        "const bool is_done = ledger.no_more && ledger.given.empty();",
        "const bool is_done = ledger.no_more;",
    ]),
    "asks_without_counting_what_it_has": ("//common/consistency:arrivals.cc", "ahead", [
        "? ledger.ahead - given : 0",
        "? ledger.ahead : 0",
    ]),
    "first_of_several_alone": ("//worker/session:worker_loop.cc", "waits", [
        "  for (const proto::Work& next : work.then()) take(next);\n",
        "",
    ]),
    "start_clock_ignored": ("//worker/session:worker_loop.cc", "exactly once", [
        "if (me().has_start_clock()) {",
        "if (false) {",
    ]),
    "reads_while_answers_wait": ("//common/wire:stream_core.cc", "back-pressure", [
        "if (!reading_ && (!handling_ || reads_ahead_) && outbox_.bytes() <= max_waiting_) {",
        "if (!reading_ && (!handling_ || reads_ahead_)) {",
    ]),
    "end_that_the_peer_ends_stays": ("//common/wire:stream_core.cc", "stream end", [
        "if (finished_ && !reading_ && !handling_ && !gone_) {",
        "if (finished_ && !reading_ && !handling_ && !gone_ && by_this_) {",
    ]),
    "highest_block_first": ("//common/wire:outbox.cc", "stream order", [
        "is_pull ? 0 : frame.block",
        "is_pull ? 0 : ~frame.block",
    ]),
    "frames_pass_a_pull": ("//common/wire:outbox.cc", "stream order", [
        "if (is_pull) ++group_;",
        "",
    ]),
    # Each invariant that no bug above breaks.
    "view_number_left_out": ("//server/coordinator:coordinator_views.cc", "views", [
        "view_.set_number(view_.number() + 1);",
        "view_.set_number(view_.number() + 2);",
    ]),
    "number_given_twice": ("//server/coordinator:work.cc", "lineages", [
        "from_step = divides() ? change.highest() : ledger_.next();",
        "from_step = divides() ? change.highest() : ledger_.next() - 1;",
    ]),
    "update_of_the_version_after": ("//server/shard:shard.cc", "versions", [
        "apply.version = ledger.version + 1;",
        "apply.version = ledger.version + 2;",
    ]),
    "staleness_of_the_version_after": ("//common/consistency:arrivals.cc", "totals", [
        "= ledger->version - applied.read_version;",
        "= ledger->version - applied.read_version + 1;",
    ]),
    "counted_as_the_stalest_so_far": ("//common/consistency:arrivals.cc", "staleness counts", [
        "++counts[counted];",
        "++counts.back();",
    ]),
    "staleness_of_the_last_shard_alone": ("//server/coordinator:ending.cc", "staleness counts", [
        "counts[i] = Sum(counts[i], report.staleness_counts(i));",
        "counts[i] = report.staleness_counts(i);",
    ]),
    "loss_without_a_view": ("//server/coordinator:coordinator_views.cc", "lease", [
        "    ChangeView(reason);\n  } else if (is_training()) {",
        "  } else if (is_training()) {",
    ]),
    "stall_endured": ("//server/coordinator:leases.cc", "stall timeout", [
        "if (peer.busy_seconds <= absl::ToDoubleSeconds(stall_timeout_)) continue;",
        "if (peer.busy_seconds <= absl::ToDoubleSeconds(2 * stall_timeout_)) continue;",
    ]),
    "slow_taken_for_stalled": ("//server/coordinator:leases.cc", "blame", [
        "if (peer.busy_seconds <= absl::ToDoubleSeconds(stall_timeout_)) continue;",
        "if (peer.busy_seconds <= 0) continue;",
    ]),
    "end_without_a_name": ("//server/coordinator:coordinator.cc", "named end", [
        "std::string reason = absl::StrCat(Describe(*registry_.Find(shard)), \" \", why);\n" +
        "  if (const absl::Duration pause",
        "std::string reason = absl::StrCat(\"a server \", why);\n" +
        "  if (const absl::Duration pause",
    ]),
    "death_of_a_shard_ignored": ("//server/coordinator:coordinator.cc", "finishes", [
        "  registry_.Remove(shard);\n  if (MayGoBack() && ending_.state()",
        "  if (is_training()) return;\n  if (MayGoBack() && ending_.state()",
    ]),
    "other_data_taken": ("//server/coordinator:registry.cc", "misfits refused", [
        "if (worker.data_digest() != model_.data_digest()) {",
        "if (false) {",
    ]),
    "stop_without_a_checkpoint": ("//server/coordinator:coordinator_views.cc", "stopped resumable", [
        "} else if (ending_.WantsCheckpoint()) {",
        "} else if (!ending_.stopping() && ending_.WantsCheckpoint()) {",
    ]),
    "end_not_told": ("//server/coordinator:coordinator_peers.cc", "told", [
        "if (has_ended_well_) TellOfEnd(event);",
        "",
    ]),
    "latecomer_not_told": ("//server/coordinator:latecomers.cc", "told", [
        "out->push_back(coordinator::SendStop(id, stop));",
        "(void)id, (void)out;",
    ]),
    "never_gives_up": ("//worker/session:worker_session.cc", "all end", [
        "  EndWith(is_alone && ",
        "  if (is_alone && has_taken_part_) {\n" +
        "    state_ = State::kCutOff;\n" +
        "    deadline_ = now_ + kBetweenTries;\n" +
        "    return;\n" +
        "  }\n" +
        "  EndWith(is_alone && ",
    ]),
    "time_counts_too_much": ("//server/coordinator:coordinator.cc", "until", [
        "work_->metrics().Seconds(now_) >= until.time()",
        "1.25 * work_->metrics().Seconds(now_) >= until.time()",
    ]),
    "any_test_meets_the_target": ("//server/coordinator:evaluations.cc", "versions", [
        "if (!is_met) return std::nullopt;",
        "",
    ]),
    "divergence_loses_a_worker": ("//server/coordinator:coordinator_peers.cc", "diverged", [
        "if (failure.non_finite() && job_",
        "if (false && job_",
    ]),
    "weights_of_sums_forgotten": ("//server/shard:shard.cc", "reference", [
        "both.weight += added.weight;",
        "",
    ]),
    "values_of_scripts_not_restored": ("//server/coordinator:coordinator_views.cc", "reference", [
        "  starting_.OnInitialValues();\n",
        "",
    ]),
    "values_of_another_worker_go_on": ("//server/coordinator:first_values.cc", "given", [
        "  begin_ = 0;\n",
        "",
    ]),
    "values_of_another_script_go_on": ("//server/coordinator:first_values.cc", "given", [
        "is_complete_ && LayoutDifference(layout_, registry.model().layout()).empty()",
        "is_complete_",
    ]),
    "residuals_of_other_terms_are_forgotten": ("//server/coordinator:coordinator.cc", "account", [
        "lasting_.has_residuals_lost()",
        "false",
    ]),
    "every_second_test_is_left_out": ("//server/coordinator:evaluations.cc", "due", [
        "if (!is_new && asked_.count(unit) == 0) return false;",
        "if (!is_new || unit % 2 == 1) return false;",
    ]),
    "end_is_not_waited_for": ("//server/run:kept_checkpoints.cc", "best", [
        "const int64_t due = entry.awaited();\n  if",
        "const int64_t due = entry.due;\n  if",
    ]),
    "best_is_not_kept": ("//server/run:kept_checkpoints.cc", "best", [
        "if (best.has_value()) candidates.insert(best->path);\n",
        "",
    ]),
    "end_of_a_test_told_again": ("//server/coordinator:coordinator_peers.cc", "due", [
        "evaluations_->IsTold(evaluation.unit());",
        "false;",
    ]),
    "death_of_a_worker_ends_the_job": ("//server/coordinator:coordinator.cc", "survives", [
        "if (peer->is_worker) {\n    Lose(id, why);",
        "if (peer->is_worker && !peer->is_member) {\n    Lose(id, why);",
    ]),
}

# Invariants that none of the mutants breaks, and why.
WITHOUT_MUTANT = {
    "clocks": "a worker sends no contribution before its last one is in the blocks",
    "ends soon": "from its death to the end only connections take time",
    "tests": "no core changes what a test shows",
    "stream loss": "what has been written is with the network, and not with a core",
}

INVARIANTS = sorted({
    name: None
    for name in [caught_by for _, caught_by, _ in MUTANTS.values()] + WITHOUT_MUTANT.keys()
})

def mutants_of_simulations():
    """One test for each: it passes when the invariant that names the bug is violated.

    The mutant's object comes before the library that has the sound one, so that the linker takes
    it.
    """
    for name, (source, caught_by, texts) in MUTANTS.items():
        mutate(name + "_source", source, "mutants/" + name + ".cc", texts)
        cc_test(
            name = "mutant_" + name + "_test",
            size = "medium",
            srcs = ["mutants/" + name + ".cc"],
            copts = MUTANT_COPTS,
            env = {
                "RUBATO_CAUGHT_BY": caught_by,
                "RUBATO_INVARIANTS": "|".join(INVARIANTS),
            },
            deps = [
                ":mutant",
                "//common/consistency:policy",
                "//common/wire:stream_core",
                "//server/coordinator:coordinator",
                "//server/run:kept_checkpoints",
                "//server/shard:shard_protocol",
                "//tools/bazel:gtest_main",
                "//worker/session:pulled_blocks",
                "//worker/session:worker_session",
            ],
        )
