#include "worker/trainer/https_post.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

// What newer versions of OpenSSL hand out with a refusal, too.
TEST(HttpsPostTest, OnlyStatus200IsAccepted) {
  for (const char* accepted :
       {"HTTP/1.1 200 OK\r\n", "HTTP/1.0 200 OK\r\nServer: x", "HTTP/1.1 200\r\n"}) {
    EXPECT_TRUE(IsAccepted(accepted)) << accepted;
  }
  for (const char* refused : {"HTTP/1.1 403 Forbidden\r\n", "HTTP/1.1 2000 ?", "HTTP/1.1 500 200 ",
                              "HTTP/1.1 20", "200 OK", ""}) {
    EXPECT_FALSE(IsAccepted(refused)) << refused;
  }
}

}  // namespace
}  // namespace rubato
