#include "tools/bench/convergence/pictures.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/a study #1-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) abort();
  return folder;
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A browser that writes what it is told.
std::string NewBrowser(const std::string& folder) {
  const std::string file = folder + "/chromium";
  std::ofstream(file) << "#!/bin/sh\n"
                         "for word in \"$@\"; do\n"
                         "  case \"$word\" in --screenshot=*) to=\"${word#--screenshot=}\";; esac\n"
                         "done\n"
                         "echo \"$*\" > \"$to\"\n";
  chmod(file.c_str(), 0700);
  return file;
}

TEST(PicturesTest, ABrowserIsLookedForInThePath) {
  const std::string folder = NewFolder(), other = NewFolder();
  EXPECT_EQ(FindBrowser(absl::StrCat(other, "::", folder)), "");
  std::filesystem::create_directory(folder + "/chromium");  // is no program
  EXPECT_EQ(FindBrowser(folder), "");
  const std::string browser = NewBrowser(other);
  EXPECT_EQ(FindBrowser(absl::StrCat(folder, ":", other)), browser);
  EXPECT_EQ(FindBrowser(""), "");
}

TEST(PicturesTest, AnAddressNamesTheFileWhateverItsName) {
  EXPECT_EQ(FileAddress("/a-b/c_d.html"), "file:///a-b/c_d.html");
  EXPECT_EQ(FileAddress("/a b#c?d%e"), "file:///a%20b%23c%3Fd%25e");
  EXPECT_EQ(FileAddress("/\xc3\xa9"), "file:///%C3%A9");
}

TEST(PicturesTest, EachPartIsAskedForByItsName) {
  const std::string folder = NewFolder();
  TakePictures(NewBrowser(folder), folder, {{"one", 480}, {"two", 622}});
  EXPECT_THAT(Read(folder + "/one.png"), HasSubstr("a%20study%20%231-"));
  EXPECT_THAT(Read(folder + "/one.png"), HasSubstr("/report.html#only=one\n"));
  EXPECT_THAT(Read(folder + "/one.png"), HasSubstr("--window-size=900,480 "));
  EXPECT_THAT(Read(folder + "/two.png"), HasSubstr("/report.html#only=two\n"));
  EXPECT_THAT(Read(folder + "/two.png"), HasSubstr("--window-size=900,622 "));
}

TEST(PicturesTest, ABrowserThatDoesNotRunTakesNone) {
  const std::string folder = NewFolder();
  TakePictures(folder + "/nothing", folder, {{"one", 480}});
  EXPECT_FALSE(std::filesystem::exists(folder + "/one.png"));
}

}  // namespace
}  // namespace rubato
