#include "tensor/cuda/ptx/text.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

ModuleText Parse(absl::string_view text) {
  absl::StatusOr<ModuleText> module = ReadModule(text);
  RUBATO_EXPECT_OK(module);
  return module.ok() ? *module : ModuleText();
}

constexpr char kText[] = R"(
// a comment; with { what } could be code
.version 9.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 memory[];

.visible .entry first(
	.param .align 8 .b8 first_param_0[12],
	.param .u64 first_param_1,
	.param .u8 first_param_2
)
.maxntid 256, 1, 1
.minnctapersm 1
{
	.reg .pred 	%p<3>;
	.reg .f64 	%fd<2>;
	@!%p1 ld.global.v2.f32 	{%f1, %f2}, [%rd1+-8]; /* and
	more */ bar.sync 	0;
$there:
	{
	.reg .b32 %temp;
	mov.b64 {%temp, %r1}, %fd1;
	}
	.pragma "nounroll";
	{ .reg .b32 %temp; mov.b64 {%r1, %temp}, %fd1; }
	bra.uni 	$there;
}
.weak .entry second() { ret; }
)";

TEST(TextTest, TakesAModuleApart) {
  const ModuleText module = Parse(kText);
  EXPECT_THAT(module.shared, ElementsAre("memory"));
  ASSERT_EQ(module.kernels.size(), 2u);
  EXPECT_EQ(module.kernels[1].name, "second");
  EXPECT_EQ(module.kernels[1].parameter_bytes, 0);

  const KernelText& kernel = module.kernels[0];
  EXPECT_EQ(kernel.name, "first");
  EXPECT_EQ(kernel.most_threads, 256);
  // As C++ lays them out: each where its alignment lets it begin.
  ASSERT_EQ(kernel.parameters.size(), 3u);
  EXPECT_EQ(kernel.parameters[0].size, 12);
  EXPECT_EQ(kernel.parameters[1].offset, 16);
  EXPECT_EQ(kernel.parameters[2].offset, 24);
  EXPECT_EQ(kernel.parameter_bytes, 25);

  const auto& code = kernel.instructions;
  ASSERT_EQ(code.size(), 5u);
  EXPECT_EQ(code[0].guard, "!%p1");
  EXPECT_EQ(code[0].opcode, "ld.global.v2.f32");
  EXPECT_EQ(code[0].line, 18);
  EXPECT_THAT(code[0].operands, ElementsAre("{%f1,%f2}", "[%rd1+-8]"));
  EXPECT_EQ(code[1].opcode, "bar.sync");
  EXPECT_EQ(code[1].line, 19);
  EXPECT_THAT(kernel.labels, ElementsAre(Pair("$there", 2)));
  EXPECT_THAT(code[4].operands, ElementsAre("$there"));
}

// Inline assembly declares registers of its own, under the same names.
TEST(TextTest, RegistersOfInnerScopesAreTheirOwn) {
  const KernelText kernel = Parse(kText).kernels[0];
  EXPECT_THAT(kernel.registers,
              ElementsAre(Pair("%fd0", 8), Pair("%fd1", 8), Pair("%p0", 1), Pair("%p1", 1),
                          Pair("%p2", 1), Pair("%temp#1", 4), Pair("%temp#2", 4)));
  EXPECT_EQ(kernel.instructions[2].operands[0], "{%temp#1,%r1}");
  EXPECT_EQ(kernel.instructions[3].operands[0], "{%r1,%temp#2}");
}

TEST(TextTest, RefusesWhatItDoesNotKnow) {
  const auto expect = [](absl::string_view text, const char* what) {
    EXPECT_THAT(ReadModule(text), IsError(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  expect("\n.global .b8 x[4];", "PTX line 2: `.global` is not known");
  expect(".entry k() { .local .b8 x[4]; }", "`.local .b8 x[4]` is not known");
  expect(".entry k() .reqntid 1\n{ }", "`.reqntid` is not known");
  expect(".entry k() { ret;", "does not end");
  expect(".entry k() { ret }", "does not end");
  expect(".entry k(.param .texref x) { }", "a parameter's form");
  expect(".entry k() { .reg .b128 %q<4>; }", "registers of this form");
  expect(".entry k() { a: a: }", "a second label `a`");
  expect(".extern .func f;", "no shared memory");
}

}  // namespace
}  // namespace rubato::ptx
