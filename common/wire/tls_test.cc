// Certificates over the listener and the channels that a job's processes use.
#include "common/wire/tls.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_matchers.h"
#include "common/wire/certificates.h"
#include "common/wire/channel.h"
#include "common/wire/connection_options.h"
#include "common/wire/control_client.h"
#include "common/wire/credentials.h"
#include "common/wire/data_service.h"
#include "common/wire/listener.h"
#include "common/wire/reach.h"
#include "common/wire/stream_opening.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/authentication.grpc.pb.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

constexpr absl::StatusCode kUnauthenticated = absl::StatusCode::kUnauthenticated;
constexpr absl::Duration kPatience = absl::Seconds(60);

// Tells its callers who they are: their role, and their address.
class Mirror : public proto::Authentication::Service {
 public:
  explicit Mirror(Credentials credentials) : credentials_(std::move(credentials)) {}

  grpc::Status Hello(grpc::ServerContext* context, const proto::HelloRequest*,
                     proto::HelloReply* reply) override {
    const absl::StatusOr<Role> role = credentials_.CheckCaller(*context, "the method");
    if (role.ok()) reply->set_welcome(absl::StrCat(RoleName(*role), " ", context->peer()));
    return ToGrpc(role.status());
  }

 private:
  const Credentials credentials_;
};

// A mirror behind a listener, as any server of a job.
class Server {
 public:
  explicit Server(const Credentials& credentials) : mirror_(credentials) {
    ConnectionOptions connection;
    connection.credentials = credentials;
    absl::StatusOr<Listener> listener = Listener::Listen(
        "127.0.0.1:0", connection, [this](const std::string& text) { warnings_ += text; },
        [this](grpc::ServerBuilder* builder) { builder->RegisterService(&mirror_); });
    RUBATO_EXPECT_OK(listener);
    listener_ = *std::move(listener);
  }
  ~Server() { listener_->Shutdown(); }

  const std::string& address() const { return listener_->address(); }
  std::shared_ptr<grpc::Channel> OwnChannel() const { return listener_->OwnChannel(); }
  const std::string& warnings() const { return warnings_; }

 private:
  Mirror mirror_;
  std::string warnings_;
  std::optional<Listener> listener_;
};

ConnectionOptions By(const Credentials& credentials) {
  ConnectionOptions connection;
  connection.credentials = credentials;
  return connection;
}

// What the mirror says, or why it does not.
absl::StatusOr<std::string> Ask(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  proto::HelloReply reply;
  const grpc::Status status =
      proto::Authentication::NewStub(channel)->Hello(&context, proto::HelloRequest(), &reply);
  if (!status.ok()) return FromGrpc(status);
  return reply.welcome();
}

absl::StatusOr<std::string> Ask(const Server& server, const Credentials& as) {
  return Ask(MakeChannel(server.address(), By(as)));
}

// How a process of the job that wants to take part fares.
absl::Status Join(const Server& server, const Credentials& as, absl::Duration timeout = kPatience) {
  return ControlClient::Connect(
             server.address(), timeout, proto::Registration(), [] { return false; }, By(as))
      .status();
}

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    SilenceGrpc();
    fs::create_directory(folder_);
  }
  ~TlsTest() override { fs::remove_all(folder_); }

  static Validity Now() { return {absl::Now() - absl::Hours(2), absl::Now() + absl::Hours(1)}; }
  static Validity Past() { return {absl::Now() - absl::Hours(2), absl::Now() - absl::Hours(1)}; }

  // A file appears whole.
  void Write(const std::string& path, const std::string& text) {
    std::ofstream(path + ".tmp") << text;
    chmod((path + ".tmp").c_str(), 0600);
    fs::rename(path + ".tmp", path);
  }
  std::string WriteFolder(const std::string& name, const std::string& trusted,
                          const CertificateAndKey& own) {
    const std::string folder = absl::StrCat(folder_, "/", name);
    fs::create_directory(folder);
    Write(absl::StrCat(folder, "/ca.crt"), trusted);
    Write(absl::StrCat(folder, "/tls.key"), own.key);
    Write(absl::StrCat(folder, "/tls.crt"), own.certificate);
    return folder;
  }
  std::string WriteFolder(const CertificateAndKey& authority, Role role, const Validity& validity) {
    return WriteFolder(absl::StrCat("folder-", ++folders_), authority.certificate,
                       *IssueCertificate(authority, role, validity));
  }
  // Without a look at them first, as somebody does who means harm; looks for new ones each second.
  static Credentials Unchecked(const std::string& folder) {
    return Credentials(std::make_shared<const Tls>(folder, Role::kObserver, 1));
  }
  Credentials Of(Role role) {
    const absl::StatusOr<Credentials> credentials =
        Credentials::FromCertificates(WriteFolder(authority_, role, Now()), role);
    RUBATO_EXPECT_OK(credentials);
    return *credentials;
  }

  const std::string folder_ = absl::StrCat(::testing::TempDir(), "/tls");
  const Validity always_ = {absl::Now() - absl::Hours(3), absl::Now() + absl::Hours(3)};
  const CertificateAndKey authority_ = MakeAuthority(always_);
  const CertificateAndKey other_authority_ = MakeAuthority(always_);
  int folders_ = 0;
};

TEST_F(TlsTest, AServiceSeesTheRoleInTheCertificate) {
  const Server server(Of(Role::kServer));
  EXPECT_EQ(server.warnings(), "");
  for (const Role role : kRoles) {
    const absl::StatusOr<std::string> told = Ask(server, Of(role));
    RUBATO_ASSERT_OK(told);
    EXPECT_THAT(*told, ::testing::StartsWith(absl::StrCat(RoleName(role), " ipv4:127.0.0.1:")));
  }
  RUBATO_EXPECT_OK(Join(server, Of(Role::kWorker)));
}

TEST_F(TlsTest, AServerThatCallsItselfIsAServer) {
  const Server server(Of(Role::kServer));
  const absl::StatusOr<std::string> told = Ask(server.OwnChannel());
  RUBATO_ASSERT_OK(told);
  EXPECT_EQ(*told, "server unknown");
}

// A channel that encrypts and shows nothing, to whatever server.
std::shared_ptr<grpc::Channel> AnonymousChannel(const std::string& address,
                                                const std::string& authority) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(authority));
  options.watch_root_certs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::CreateCustomChannel("ipv4:" + address, grpc::experimental::TlsCredentials(options),
                                   ChannelArgumentsOf(ConnectionOptions()));
}

TEST_F(TlsTest, WhoShowsNoCertificateOfTheJobIsNotServed) {
  const Server server(Of(Role::kServer));
  const auto closed =
      IsError(absl::StatusCode::kUnavailable,
              HasSubstr("the server closes the connection as it begins: it is ending, or wants a "
                        "certificate other than"));
  EXPECT_THAT(Ask(AnonymousChannel(server.address(), authority_.certificate)), closed);
  // One of another authority, who says that it trusts this one; one whose time is over; those who
  // do not encrypt.
  const CertificateAndKey foreign = *IssueCertificate(other_authority_, Role::kServer, Now());
  for (const Credentials& stranger :
       {Unchecked(WriteFolder("foreign", authority_.certificate, foreign)),
        Unchecked(WriteFolder(authority_, Role::kServer, Past())), Credentials(),
        Credentials(JobKey::DrawSecret())}) {
    EXPECT_THAT(Ask(server, stranger), closed);
  }
  EXPECT_THAT(Ask(server, Unchecked(WriteFolder(authority_, static_cast<Role>(9), Now()))),
              IsError(kUnauthenticated, HasSubstr("does not name one role")));
}

TEST_F(TlsTest, ACallerTalksToServersOfItsJobAlone) {
  const Credentials worker = Of(Role::kWorker);
  const struct {
    const CertificateAndKey& authority;
    Role role;
    Validity validity;
    const char* says;
  } kFalse[] = {
      {authority_, Role::kWorker, Now(), "who answers has the certificate of the role worker"},
      {authority_, Role::kOperator, Now(), "who answers has the certificate of the role operator"},
      {authority_, static_cast<Role>(9), Now(), "of the server: the certificate does not name one"},
      {authority_, Role::kServer, Past(), "not of this job's authority (ca.crt), or not valid now"},
      {other_authority_, Role::kServer, Now(), "not of this job's authority (ca.crt), or not va"},
  };
  for (const auto& false_server : kFalse) {
    const Server server(
        Unchecked(WriteFolder(false_server.authority, false_server.role, false_server.validity)));
    EXPECT_THAT(Ask(server, worker), IsError(kUnauthenticated, HasSubstr(false_server.says)));
    EXPECT_THAT(Join(server, worker),
                IsError(absl::StatusCode::kFailedPrecondition, HasSubstr(false_server.says)));
  }
}

TEST_F(TlsTest, OneEndWithCertificatesAndOneWithoutTellWhy) {
  const Server open((Credentials()));
  EXPECT_THAT(Join(open, Of(Role::kWorker)),
              IsError(absl::StatusCode::kFailedPrecondition,
                      HasSubstr("the server asks for no certificate, and this process has one")));
  // A server that ends looks the same, so it is tried again for a while.
  const Server server(Of(Role::kServer));
  EXPECT_THAT(Join(server, Credentials(), absl::Milliseconds(500)),
              IsError(absl::StatusCode::kDeadlineExceeded,
                      HasSubstr("within 500ms: the server closes the connection as it begins")));
}

TEST_F(TlsTest, WhoseOwnCertificateHasEndedSaysSo) {
  const Server server(Of(Role::kServer));
  const std::string folder = WriteFolder(authority_, Role::kWorker, Past());
  const auto ended = IsError(absl::StatusCode::kFailedPrecondition,
                             HasSubstr(folder + "/tls.crt: the certificate was valid until "));
  EXPECT_THAT(Credentials::FromCertificates(folder, Role::kWorker), ended);
  EXPECT_THAT(Join(server, Unchecked(folder)), ended);  // while the process ran
}

TEST_F(TlsTest, NewCertificatesAreTakenUpAndConnectionsStay) {
  const std::string folder = WriteFolder(authority_, Role::kServer, Now());
  const Server server(Unchecked(folder));
  const auto old_channel = MakeChannel(server.address(), By(Of(Role::kWorker)));
  const absl::StatusOr<std::string> before = Ask(old_channel);
  RUBATO_ASSERT_OK(before);
  // From another authority, so that the new ones are told from the old.
  const Credentials next = Unchecked(WriteFolder(other_authority_, Role::kWorker, Now()));
  EXPECT_THAT(Ask(server, next), IsError(kUnauthenticated, HasSubstr("authority")));
  WriteFolder(fs::path(folder).filename(), other_authority_.certificate,
              *IssueCertificate(other_authority_, Role::kServer, Now()));
  const auto new_channel = MakeChannel(server.address(), By(next));
  ASSERT_TRUE(new_channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience)));
  RUBATO_EXPECT_OK(Ask(new_channel));
  const absl::StatusOr<std::string> after = Ask(old_channel);
  RUBATO_ASSERT_OK(after);
  EXPECT_EQ(*after, *before) << "the old connection was broken";
  EXPECT_THAT(Ask(server, Of(Role::kWorker)), IsError(kUnauthenticated, HasSubstr("authority")));
}

TEST_F(TlsTest, ACallerTakesUpNewCertificatesToo) {
  const std::string folder = WriteFolder(authority_, Role::kWorker, Past());
  const Credentials worker = Unchecked(folder);
  const Server server(Of(Role::kServer));
  const auto channel = MakeChannel(server.address(), By(worker));
  EXPECT_FALSE(Ask(channel).ok());
  WriteFolder(fs::path(folder).filename(), authority_.certificate,
              *IssueCertificate(authority_, Role::kWorker, Now()));
  ASSERT_TRUE(channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience)));
  RUBATO_EXPECT_OK(Ask(channel));
}

// Of a data stream that begins and tells of no job.
absl::Status OpenStream(const std::string& address, const Credentials& as) {
  grpc::GenericStub stub(MakeChannel(address, By(as)));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  grpc::CompletionQueue queue;
  const grpc::ByteBuffer nothing(nullptr, 0);
  const auto call = stub.PrepareUnaryCall(&context, kDataMethod, nothing, &queue);
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  return FromGrpc(status);
}

TEST_F(TlsTest, ARoleOpensTheStreamsThatAKeyOfItOpens) {
  const Log log("server", 0, LogLevel::kError, LogFormat::kText);
  const ConnectionOptions connection = By(Of(Role::kServer));
  DataService service("digest", /*share_memory=*/true, &log, nullptr, connection);
  absl::StatusOr<Listener> listener = Listener::Listen(
      "127.0.0.1:0", connection, [](const std::string&) {},
      [&](grpc::ServerBuilder* builder) { service.Register(builder); });
  RUBATO_ASSERT_OK(listener);
  service.Start({});
  for (const Role role : {Role::kObserver, Role::kOperator}) {
    EXPECT_THAT(OpenStream(listener->address(), Of(role)),
                IsError(absl::StatusCode::kPermissionDenied,
                        absl::StrCat("the caller is the job's ", RoleName(role),
                                     ": it opens no stream of data")));
  }
  for (const Role role : {Role::kWorker, Role::kServer}) {
    EXPECT_THAT(OpenStream(listener->address(), Of(role)),
                IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("digest")));
  }
  listener->Shutdown();
  service.Stop();
}

// A worker that was cut off looks before it has anything to show (reach.h).
TEST_F(TlsTest, WhoLooksWhetherAServerIsThereIsAnswered) {
  const Server server(Of(Role::kServer));
  EXPECT_THAT(LookFor({server.address()}, Greeting::kTls, kPatience),
              testing::ElementsAre(Reach::kAnswers));
  EXPECT_THAT(LookFor({server.address()}, Greeting::kPlain, kPatience),
              testing::ElementsAre(Reach::kGone));
}

}  // namespace
}  // namespace rubato
