#include "worker/trainer/https_post.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/http.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rubato {
namespace {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
void FreeText(char* text) { OPENSSL_free(text); }
void FreeHeaders(STACK_OF(CONF_VALUE) * headers) {
  sk_CONF_VALUE_pop_free(headers, X509V3_conf_free);
}
using Text = std::unique_ptr<char, Deleter<FreeText>>;
using Context = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Headers = std::unique_ptr<STACK_OF(CONF_VALUE), Deleter<FreeHeaders>>;

// What the library has noted on this thread, outermost last.
absl::Status Failed(const std::string& url) {
  std::vector<std::string> reasons;
  const char *data = nullptr, *reason = nullptr;
  int flags = 0;
  while (const unsigned long code =  // NOLINT(runtime/int): the library's type
         ERR_get_error_all(nullptr, nullptr, nullptr, &data, &flags)) {
    reason = ERR_reason_error_string(code);
    std::string text = reason != nullptr ? reason : absl::StrCat("error ", code);
    if ((flags & ERR_TXT_STRING) != 0 && data[0] != '\0') absl::StrAppend(&text, " (", data, ")");
    if (std::find(reasons.begin(), reasons.end(), text) == reasons.end()) reasons.push_back(text);
  }
  return absl::UnavailableError(absl::StrCat(
      url, ": ", reasons.empty() ? "no answer in time" : absl::StrJoin(reasons, "; ")));
}

struct Peer {
  SSL_CTX* context;
  const char* host;
  std::string answer;  // its beginning
};

// Called by the library for what it does with a connection: it does not tell the status itself.
long KeepAnswer(BIO* bio, int what, const char* data, size_t, int, long,  // NOLINT(runtime/int)
                int result, size_t* size) {
  constexpr size_t kLine = 80;
  std::string& answer = reinterpret_cast<Peer*>(BIO_get_callback_arg(bio))->answer;
  if (what == (BIO_CB_READ | BIO_CB_RETURN) && result > 0 && answer.size() < kLine) {
    answer.append(data, std::min(*size, kLine - answer.size()));
  }
  return result;
}

// Called by the library when it has connected, and before it disconnects.
BIO* AddTls(BIO* bio, void* argument, int connects, int /*is_good*/) {
  auto& peer = *static_cast<Peer*>(argument);
  if (connects == 0) {
    BIO* const plain = BIO_pop(bio);
    BIO_free(bio);
    return plain;
  }
  BIO* const with_tls = BIO_new_ssl(peer.context, /*client=*/1);
  SSL* tls = nullptr;
  if (with_tls == nullptr || BIO_get_ssl(with_tls, &tls) != 1) return nullptr;
  // Of an address the certificate has an address, of a name a name.
  const bool is_address = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), peer.host) == 1;
  if (!is_address &&
      (SSL_set1_host(tls, peer.host) != 1 || SSL_set_tlsext_host_name(tls, peer.host) != 1)) {
    BIO_free(with_tls);
    return nullptr;
  }
  BIO_set_callback_ex(with_tls, KeepAnswer);
  BIO_set_callback_arg(with_tls, reinterpret_cast<char*>(&peer));
  return BIO_push(with_tls, bio);
}

}  // namespace

bool IsAccepted(absl::string_view answer) {
  const absl::string_view version = answer.substr(0, 9);
  const absl::string_view status = answer.substr(version.size(), 4);
  return (version == "HTTP/1.1 " || version == "HTTP/1.0 ") &&
         (status == "200 " || status == "200\r" || status == "200");
}

absl::Status HttpsPost(const std::string& url, const std::string& ca_file, const std::string& token,
                       const std::string& body, int patience_seconds) {
  ERR_clear_error();
  char *host = nullptr, *port = nullptr, *path = nullptr;
  int is_tls = 0;
  const int parsed = OSSL_HTTP_parse_url(url.c_str(), &is_tls, /*puser=*/nullptr, &host, &port,
                                         /*pport_num=*/nullptr, &path, /*pquery=*/nullptr,
                                         /*pfrag=*/nullptr);
  const Text own_host(host), own_port(port), own_path(path);
  if (parsed != 1) return Failed(url);
  if (is_tls == 0) {
    return absl::UnavailableError(absl::StrCat(
        url, ": found http, expected https: a token is shown to who proves its name alone"));
  }
  const Context context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (SSL_CTX_load_verify_file(context.get(), ca_file.c_str()) != 1) {
    return absl::UnavailableError(
        absl::StrCat(ca_file, ": found no certificates in it, expected those of authorities"));
  }
  STACK_OF(CONF_VALUE)* headers = nullptr;
  X509V3_add_value("Authorization", absl::StrCat("Bearer ", token).c_str(), &headers);
  const Headers own_headers(headers);
  const Bio request(BIO_new_mem_buf(body.data(), static_cast<int>(body.size())));
  Peer peer{context.get(), host, /*answer=*/""};
  const Bio answer(OSSL_HTTP_transfer(
      // The environment's proxy would have to be asked for a tunnel first, and the trainer is near.
      /*prctx=*/nullptr, host, port, path, is_tls, /*proxy=*/"", /*no_proxy=*/nullptr,
      /*bio=*/nullptr, /*rbio=*/nullptr, AddTls, &peer, /*buf_size=*/0, headers, "application/json",
      request.get(), /*expected_content_type=*/nullptr, /*expect_asn1=*/0,
      /*max_resp_len=*/0, patience_seconds, /*keep_alive=*/0));
  if (answer == nullptr) return Failed(url);
  // OpenSSL 3.0 fails itself, 3.5 hands out what comes with a refusal.
  if (IsAccepted(peer.answer)) return absl::OkStatus();
  const std::string line = peer.answer.substr(0, peer.answer.find_first_of("\r\n"));
  return absl::UnavailableError(
      absl::StrCat(url, ": found \"", absl::CHexEscape(line), "\", expected HTTP's code 200"));
}

}  // namespace rubato
