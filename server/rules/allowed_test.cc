#include "server/rules/allowed.h"

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAreArray;

// The table that begins with `head` in docs/security.md, without its rule.
std::vector<std::string> Documented(const std::string& head) {
  std::vector<std::string> lines;
  std::ifstream file("docs/security.md");
  std::string line;
  while (std::getline(file, line) && !absl::StartsWith(line, head)) continue;
  for (; file.good() && absl::StartsWith(line, "|"); std::getline(file, line)) {
    if (!absl::StartsWith(line, "|---")) lines.push_back(line);
  }
  return lines;
}

template <typename Verdicts>
std::string Line(absl::string_view name, const Verdicts& verdicts) {
  std::string line = absl::StrCat("| `", name, "` |");
  for (const Verdict verdict : verdicts) absl::StrAppend(&line, " ", VerdictName(verdict), " |");
  return line;
}

TEST(AllowedTest, EachMessageOfAPeerIsInTheTableOnce) {
  std::set<int> in_table;
  for (const MessageRule& rule : kMessageRules) {
    EXPECT_TRUE(in_table.insert(rule.kind).second) << MessageName(rule.kind);
  }
  const auto* const kinds = proto::PeerMessage::descriptor()->oneof_decl(0);
  ASSERT_EQ(kinds->name(), "kind");
  // Beside its kind it has a number, and messages that are judged like any.
  std::set<std::string> beside;
  for (int i = 0; i < proto::PeerMessage::descriptor()->field_count(); ++i) {
    const auto* const field = proto::PeerMessage::descriptor()->field(i);
    if (field->real_containing_oneof() == nullptr) beside.insert(std::string(field->name()));
  }
  EXPECT_EQ(beside, (std::set<std::string>{"held_seconds", "then"}));
  for (int i = 0; i < kinds->field_count(); ++i) {
    EXPECT_EQ(in_table.erase(kinds->field(i)->number()), 1u)
        << kinds->field(i)->name() << ": who may say it, and when? See server/rules/allowed.h";
  }
  EXPECT_TRUE(in_table.empty());
}

// A header that decodes is of a kind of the table.
TEST(AllowedTest, EachFrameIsInTheTableOnce) {
  std::set<uint8_t> in_table;
  for (const FrameRule& rule : kFrameRules) {
    EXPECT_TRUE(in_table.insert(static_cast<uint8_t>(rule.kind)).second) << FrameName(rule.kind);
  }
  for (int kind = 0; kind < 256; ++kind) {
    Frame frame;
    frame.kind = static_cast<FrameKind>(kind);
    uint8_t header[kFrameHeaderBytes] = {};
    EncodeFrame(frame, header);
    EXPECT_EQ(DecodeFrame(header).ok(), in_table.count(static_cast<uint8_t>(kind)) == 1) << kind;
  }
}

TEST(AllowedTest, WhatNobodyKnowsIsRefused) {
  EXPECT_EQ(MaySay(proto::PeerMessage::KIND_NOT_SET, Speaker::kMember), Verdict::kRefused);
  EXPECT_EQ(MaySay(proto::PeerMessage::KIND_NOT_SET, Speaker::kGone), Verdict::kDropped);
  EXPECT_EQ(MaySend(static_cast<FrameKind>(99), Sender::kMember), Verdict::kRefused);
}

TEST(AllowedTest, MessagesAreThoseOfTheDocumentsTable) {
  std::string head = "| message |";
  for (size_t i = 0; i < kSpeakers; ++i) {
    absl::StrAppend(&head, " ", SpeakerName(static_cast<Speaker>(i)), " |");
  }
  std::vector<std::string> declared = {head};
  for (const MessageRule& rule : kMessageRules) {
    declared.push_back(Line(MessageName(rule.kind), rule.of));
  }
  EXPECT_THAT(Documented("| message |"), ElementsAreArray(declared));
}

TEST(AllowedTest, FramesAreThoseOfTheDocumentsTable) {
  std::string head = "| frame |";
  for (size_t i = 0; i < kSenders; ++i) {
    absl::StrAppend(&head, " ", SenderName(static_cast<Sender>(i)), " |");
  }
  std::vector<std::string> declared = {head};
  for (const FrameRule& rule : kFrameRules) declared.push_back(Line(FrameName(rule.kind), rule.of));
  EXPECT_THAT(Documented("| frame |"), ElementsAreArray(declared));
}

}  // namespace
}  // namespace rubato
