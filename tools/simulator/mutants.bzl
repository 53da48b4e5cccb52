"""Cores with a bug on purpose, each of which the property tests must catch."""

# By name: the source file, and the texts that are replaced in it.
MUTANTS = {
    "no_deduplication_on_arrival": ("//common/consistency:arrivals.cc", [
        "return contribution.clock == expected;",
        "return true;",
    ]),
    "no_deduplication_of_steps": ("//common/consistency:steps.cc", [
        "return contribution.clock == ledger.version && !Overlaps(ledger.nodes, contribution.node);",
        "return contribution.clock == ledger.version || Overlaps(ledger.nodes, contribution.node);",
    ]),
    "units_counted_twice": ("//common/consistency:arrivals.cc", [
        "if (ledger->units.Contains(contribution.unit))",
        "if (false)",
    ]),
    "key_without_incarnation": ("//server/shard:shard.cc", [
        "IsMember(contribution)",
        "IsMember(contribution.worker)",
        "IsMember(pending.contribution)",
        "IsMember(pending.contribution.worker)",
    ]),
    "sync_keyed_by_sender": ("//common/consistency:steps.cc", [
        "  return contribution.clock == ledger.version && !Overlaps",
        "  for (const auto& [leaf, pending] : ledger.nodes) {\n" +
        "    if (pending.contribution.worker == contribution.worker) return false;\n" +
        "  }\n" +
        "  return contribution.clock == ledger.version && !Overlaps",
    ]),
    "older_view_applied": ("//server/shard:shard.cc", [
        "MayCount(contribution, IsMember(contribution))",
        "MayCount(contribution, true)",
    ]),
    "previous_version_freed_early": ("//common/consistency:steps.cc", [
        "ledger->has_previous = true;",
        "ledger->has_previous = false;",
    ]),
    "acknowledged_before_applied": ("//common/consistency:arrivals.cc", [
        "ledger.clocks[worker].applied >= clock",
        "ledger.clocks[worker].accepted >= clock",
    ]),
    "ssp_off_by_one": ("//common/consistency:arrivals.cc", [
        "ledger.slowest >= clock - mode().staleness()",
        "ledger.slowest >= clock - mode().staleness() - 1",
    ]),
    "dead_worker_in_min_clock": ("//server/shard:shard.cc", [
        "if (!IsMember(rank)) ledger.clocks[rank].waited_for = false;",
        "",
    ]),
    "unweighted_short_batch": ("//server/shard:shard.cc", [
        "both.samples += added.samples;",
        "both.samples *= 2;",
    ]),
    "optimizer_forgets_at_a_switch": ("//server/shard:shard.cc", [
        "  ledger.has_previous = false;\n  ledger.measured = false;\n",
        "  ledger.has_previous = false;\n  ledger.measured = false;\n  ledger.skipped = ledger.version;\n",
    ]),
    "open_before_all_have_closed": ("//server/coordinator:view_change.cc", [
        "  return call_.complete();",
        "  return true;",
    ]),
    "shards_answer_counted_twice": ("//server/coordinator:roll_call.cc", [
        "bool RollCall::OnAnswer(const ShardId& shard) { return missing_.erase(shard) > 0; }",
        "bool RollCall::OnAnswer(const ShardId&) {\n" +
        "  if (missing_.empty()) return false;\n" +
        "  missing_.erase(missing_.begin());\n" +
        "  return true;\n" +
        "}",
    ]),
    "late_tick_judges_at_once": ("//server/coordinator:leases.cc", [
        "*until = now + more;",
        "*until = before;",
    ]),
    "stopped_pause_waits_for_nobody": ("//server/coordinator:coordinator_views.cc", [
        "const int min = ending_.stopping() ? 1 : ",
        "const int min = ",
    ]),
    "step_applied_against_the_decision": ("//server/shard:shard.cc", [
        "if (change.kind == NextChange::Kind::kSkip) {",
        "if (false) {",
    ]),
    "steps_left_out_counted_as_updates": ("//server/shard:shard.cc", [
        "apply.updates_before = ledger.version - ledger.skipped;",
        "apply.updates_before = ledger.version;",
    ]),
    "closed_while_applying": ("//server/shard:shard.cc", [
        "if (IsApplying()) {",
        "if (false) {",
    ]),
    "snapshot_shows_what_is_now": ("//server/shard:shard_protocol.cc", [
        "for (const Payload& values : copy.values) {",
        "for (const Payload& values : values_->Copy(block)) {",
    ]),
    "dropped_payload_is_kept": ("//server/shard:shard_protocol.cc", [
        "(const shard_action::Drop& drop) { values_->Release(drop.payload); }",
        "(const shard_action::Drop&) {}",
    ]),
    "restore_skips_a_block": ("//server/shard:shard_protocol.cc", [
        "for (const proto::BlockState& block : restore.blocks()) {",
        "for (const proto::BlockState& block : restore.blocks()) {\n" +
        "    if (block.block() == core_->blocks().begin) continue;",
    ]),
    "closed_for_the_view_before": ("//server/shard:shard_protocol.cc", [
        "*message.mutable_shard_closed() = ClosedMessage(*core_);",
        "*message.mutable_shard_closed() = ClosedMessage(*core_);\n" +
        "  message.mutable_shard_closed()->set_view(core_->view() - 1);",
    ]),
    "squares_of_the_step_before": ("//server/shard:shard_protocol.cc", [
        "squares_->Clear();",
        "",
    ]),
    "decision_without_its_factor": ("//server/shard:shard.cc", [
        "apply.factor = change.factor;",
        "apply.factor = 1;",
    ]),
    "broken_stream_endured": ("//worker/session:worker_session.cc", [
        "WaitNoLongerThan(kStreamFailureGrace);",
        "",
    ]),
    "never_joins_anew": ("//worker/session:worker_session.cc", [
        "if (!may_join_anew || ",
        "if (!may_join_anew || true || ",
    ]),
    "answers_of_an_earlier_pull_counted": ("//worker/session:pulled_blocks.cc", [
        "frame.unit != pull_.number) return false;",
        "false) return false;",
    ]),
}

def mutant_tests():
    """One test for each: it passes when a seed fails.

    The mutant's object comes before the library that has the sound one, so that the linker takes it.
    """
    for name, (source, texts) in MUTANTS.items():
        native.genrule(
            name = name + "_source",
            testonly = True,
            srcs = [source],
            outs = ["mutants/" + name + ".cc"],
            cmd = "python3 $(location mutate.py) $< $@ " + " ".join([
                "'" + text.replace("$", "$$").replace("'", "'\\''") + "'"
                for text in texts
            ]),
            tools = ["mutate.py"],
        )
        native.cc_test(
            name = "mutant_" + name + "_test",
            size = "medium",
            srcs = ["mutants/" + name + ".cc"],
            env = {"RUBATO_MUTANT": "1"},
            linkstatic = True,
            deps = [
                ":property",
                "//common/consistency:policy",
                "//server/coordinator:coordinator",
                "//server/coordinator:leases",
                "//server/coordinator:roll_call",
                "//server/coordinator:view_change",
                "//server/shard:shard",
                "//server/shard:shard_protocol",
                "//tools/bazel:gtest_main",
                "//worker/session:worker_session",
                "//worker/session:pulled_blocks",
            ],
        )
