#include "common/wire/reach.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/base/check.h"
#include "common/base/lease.h"
#include "common/base/monotonic.h"
#include "common/wire/look_up.h"

namespace rubato {
namespace {

// What an HTTP/2 client begins with (RFC 9113, 3.4): its preface and an empty SETTINGS frame. A
// server answers with its own.
constexpr absl::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

// What a TLS client begins with (RFC 8446, 4.1.2), for HTTP/2. Also a server that would refuse this
// one's certificate answers.
std::string ClientHello() {
  constexpr unsigned char kProtocol[] = {2, 'h', '2'};
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context.get()), SSL_free);
  RUBATO_CHECK(tls != nullptr);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(tls.get(), BIO_new(BIO_s_mem()), out);  // are its own
  SSL_set_alpn_protos(tls.get(), kProtocol, sizeof kProtocol);
  SSL_connect(tls.get());  // comes as far as its first word
  char* bytes;
  const long size = BIO_get_mem_data(out, &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

std::string BytesOf(Greeting greeting) {
  return greeting == Greeting::kTls ? ClientHello() : std::string(kPreface);
}

// One attempt to speak to a server.
class Attempt {
 public:
  Attempt(const Place& place, size_t of)
      : of_(of),
        fd_(socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (fd_ >= 0 && connect(fd_, place.socket_address(), place.size) != 0 && errno != EINPROGRESS) {
      Fail(errno);
    }
  }
  ~Attempt() {
    if (fd_ >= 0) close(fd_);
  }
  Attempt(Attempt&& other)
      : of_(other.of_), fd_(std::exchange(other.fd_, -1)), reach_(other.reach_) {}

  size_t of() const { return of_; }
  Reach reach() const { return reach_; }
  bool is_done() const { return fd_ < 0; }
  pollfd interest() const {
    return {fd_, static_cast<int16_t>(reach_ == Reach::kSilent ? POLLOUT : POLLIN), 0};
  }

  // `greeting`: what is said to a server that takes the connection.
  void OnReady(const std::string& greeting) {
    if (reach_ == Reach::kSilent) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0 && send(fd_, greeting.data(), greeting.size(), MSG_NOSIGNAL) < 0)
        error = errno;
      if (error == 0) reach_ = Reach::kMute;
      if (error != 0) Fail(error);
      return;
    }
    char byte;
    const ssize_t got = recv(fd_, &byte, 1, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    // A process that ends closes what its host had taken for it.
    Finish(got > 0 ? Reach::kAnswers : Reach::kGone);
  }

 private:
  void Fail(int error) {
    Finish(error == ECONNREFUSED || error == ECONNRESET || error == EPIPE ? Reach::kGone
                                                                          : Reach::kSilent);
  }
  void Finish(Reach reach) {
    reach_ = reach;
    close(std::exchange(fd_, -1));
  }

  size_t of_;  // the addresses
  int fd_;
  Reach reach_ = Reach::kSilent;
};

// The more it says, the more it counts.
int Rank(Reach reach) {
  switch (reach) {
    case Reach::kAnswers:
      return 3;
    case Reach::kMute:
      return 2;
    case Reach::kGone:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

std::vector<Reach> LookFor(const std::vector<std::string>& addresses, Greeting greeting,
                           absl::Duration patience) {
  const std::string said = BytesOf(greeting);
  const absl::Time deadline = MonotonicNow() + patience;
  std::vector<Reach> found(addresses.size(), Reach::kSilent);
  std::vector<Attempt> attempts;
  std::vector<HostPort> hosts;
  std::vector<size_t> of;  // which of the addresses
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto parsed = ParseAddresses(addresses[i]);
    if (!parsed.ok()) continue;
    hosts.insert(hosts.end(), parsed->begin(), parsed->end());
    of.resize(hosts.size(), i);
  }
  const std::vector<absl::StatusOr<std::vector<Place>>> places = LookUpAll(hosts);
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (absl::IsNotFound(places[i].status())) found[of[i]] = Reach::kGone;
    if (!places[i].ok()) continue;
    for (const Place& place : *places[i]) attempts.emplace_back(place, of[i]);
  }
  while (true) {
    std::vector<pollfd> fds;
    std::vector<Attempt*> asked;
    for (Attempt& attempt : attempts) {
      if (attempt.is_done()) continue;
      fds.push_back(attempt.interest());
      asked.push_back(&attempt);
    }
    // Also who got no processor until the end looks at what has come.
    const absl::Duration left = std::max(absl::ZeroDuration(), deadline - MonotonicNow());
    if (fds.empty()) break;
    const int ready =
        poll(fds.data(), fds.size(),
             static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
    for (size_t i = 0; ready > 0 && i < fds.size(); ++i) {
      if (fds[i].revents != 0) asked[i]->OnReady(said);
    }
    if (left == absl::ZeroDuration()) break;
  }
  for (const Attempt& attempt : attempts) {
    Reach& best = found[attempt.of()];
    if (Rank(attempt.reach()) > Rank(best)) best = attempt.reach();
  }
  return found;
}

absl::Status AwaitServers(const std::vector<std::string>& addresses,
                          const ConnectionOptions& connection, bool come_back,
                          absl::Duration longest_mute, absl::Duration patience,
                          const std::function<bool()>& cancelled) {
  const Greeting greeting = connection.credentials.is_tls() ? Greeting::kTls : Greeting::kPlain;
  constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
  const absl::Time deadline = MonotonicNow() + patience;
  bool was_mute = false;
  absl::Time mute_since = absl::InfiniteFuture();  // all of them
  while (true) {
    const absl::Time looked = MonotonicNow();
    const bool is_known = was_mute || longest_mute <= absl::ZeroDuration();
    const std::vector<Reach> found =
        LookFor(addresses, greeting, is_known ? kLookAgain : kLookAtServers);
    const auto count = [&found](Reach reach) {
      return static_cast<size_t>(std::count(found.begin(), found.end(), reach));
    };
    if (count(Reach::kAnswers) == found.size()) return absl::OkStatus();
    if (come_back && found.back() == Reach::kAnswers &&
        count(Reach::kAnswers) + count(Reach::kGone) == found.size()) {
      return absl::OkStatus();  // whose ends the coordinator sees, too
    }
    // Twice, since who is busy may say nothing for a while, unless it has said nothing for long.
    if (!come_back && count(Reach::kGone) > 0 && found.back() == Reach::kMute) {
      if (is_known) {
        return absl::AbortedError(absl::StrCat(connection.coordinator, " at ", addresses.back(),
                                               " takes connections and says nothing"));
      }
      was_mute = true;
      continue;
    }
    if (!come_back && count(Reach::kGone) > 0) {
      const auto gone = std::find(found.begin(), found.end(), Reach::kGone) - found.begin();
      return absl::UnavailableError(
          absl::StrCat("nobody listens at ", addresses[static_cast<size_t>(gone)], " any more"));
    }
    if (count(Reach::kSilent) > 0) {
      longest_mute = std::max(longest_mute, BorneSilence(connection.lease));
    }
    const bool all_mute = count(Reach::kMute) == found.size();
    mute_since = all_mute ? std::min(mute_since, looked) : absl::InfiniteFuture();
    if (!come_back && all_mute && looked - mute_since >= longest_mute) {
      return absl::UnavailableError(
          absl::StrCat(absl::StrJoin(addresses, " and "), " takes connections and says nothing"));
    }
    if (cancelled()) return absl::CancelledError("interrupted");
    if (MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("cannot reach ",
                                                      absl::StrJoin(addresses, " and "), " within ",
                                                      absl::FormatDuration(patience)));
    }
    absl::SleepFor(kBetweenLooks);
  }
}

}  // namespace rubato
