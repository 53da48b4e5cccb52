#include "tools/kubernetes/yaml_text.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/kubernetes/head.h"
#include "tools/kubernetes/manifests.h"
#include "tools/kubernetes/test_models.h"
#include "yaml-cpp/yaml.h"

namespace rubato::kubernetes {
namespace {

// What yaml-cpp, a reader of YAML 1.2 that is not ours, makes of it.
void ExpectSame(const YAML::Node& node, const Json& value) {
  if (value.is_object() && !value.empty()) {
    ASSERT_TRUE(node.IsMap()) << value;
    ASSERT_EQ(node.size(), value.size());
    for (const auto& [key, item] : value.items()) ExpectSame(node[key], item);
  } else if (value.is_array() && !value.empty()) {
    ASSERT_TRUE(node.IsSequence()) << value;
    ASSERT_EQ(node.size(), value.size());
    for (size_t i = 0; i < value.size(); ++i) ExpectSame(node[i], value[i]);
  } else if (value.is_string()) {
    EXPECT_EQ(node.Scalar(), std::string(value));
    if (node.Tag() == "?") {  // plain: nothing else than text
      bool truth = false;
      double number = 0;
      EXPECT_FALSE(YAML::convert<bool>::decode(node, truth)) << value;
      EXPECT_FALSE(YAML::convert<double>::decode(node, number)) << value;
    }
  } else if (value.is_structured()) {
    EXPECT_EQ(node.size(), 0);
  } else {
    EXPECT_EQ(node.Scalar(), value.dump());
    EXPECT_EQ(node.Tag(), "?");
  }
}

TEST(YamlTextTest, IsReadBackAsItWas) {
  const Json document = {
      {"words", {"true", "No", "null", "~", "", "1", "1e3", "0x1f", "y", "a: b"}},
      {"marks", {"- a", "#x", "a #b", "'", "\"", "\\", "a\tb", "é", "*a", "!"}},
      {"lines", {{"a.b/c", "one\n  two\n\nthree\n"}, {"d", "x\ny"}, {"e", "\n"}}},
      {"nested", {{{"a", {{"b", Json::array({1, 2})}}}}, {{"c", false}}}},
      {"empty", {{"map", Json::object()}, {"list", Json::array()}}},
      {"key: odd", 1.5}};
  ExpectSame(YAML::Load(YamlText(document)), document);
  for (const Model& model : Variants()) {
    const std::vector<Json> documents = Manifests(model);
    const std::vector<YAML::Node> nodes = YAML::LoadAll(YamlText(documents));
    ASSERT_EQ(nodes.size(), documents.size());
    for (size_t i = 0; i < nodes.size(); ++i) ExpectSame(nodes[i], documents[i]);
  }
}

TEST(HeadTest, HasThePodThatTheModelIsCopiedFrom) {
  const Model model = Made(MakeJob());
  const std::string head = HeadText(model, "rubato render");
  std::string pod;
  for (size_t at = 0; at < head.size();) {
    const size_t end = head.find('\n', at);
    const std::string line = head.substr(at, end - at);
    ASSERT_EQ(line[0], '#');
    if (line.substr(0, 3) == "#| ") pod += line.substr(3) + "\n";
    at = end + 1;
  }
  ExpectSame(YAML::Load(pod), FilesPod(model));
}

}  // namespace
}  // namespace rubato::kubernetes
