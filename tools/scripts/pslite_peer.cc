// Built by tools/scripts/compare_pslite against a ps-lite that the user has: the same load as
// `rubato bench wire` puts on a server, through ps-lite. Not part of Rubato's build.
//
// Its role comes from ps-lite's environment. Each worker prints one line a measurement: OP BYTES,
// when it began and ended (seconds of the machine's clock), the GB that it moved, and the processor
// seconds of its process and of the server, whose number is in RUBATO_PSLITE_SERVER. Workers begin
// together, and do not wait for each other until they end. The server's handle is dense: one key a
// size, whose floats are added as vectors.

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "ps/ps.h"

namespace {

std::map<ps::Key, ps::SArray<float>> store;

void Handle(const ps::KVMeta& request, const ps::KVPairs<float>& data,
            ps::KVServer<float>* server) {
  ps::KVPairs<float> answer;
  ps::SArray<float>& values = store[data.keys[0]];
  if (request.push) {
    if (values.size() == 0) values.resize(data.vals.size(), 0);
    float* to = values.data();
    const float* from = data.vals.data();
    const size_t n = data.vals.size();
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) to[i] += from[i];
  }
  if (request.pull) {
    answer.keys = data.keys;
    answer.vals = values;  // by reference
    answer.lens = ps::SArray<int>(1, static_cast<int>(values.size()));
  }
  server->Response(request, answer);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor seconds of a process so far; 0: of this one.
double CpuSeconds(pid_t process) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  timespec time = {};
  if (process != 0 && clock_getcpuclockid(process, &clock) != 0) return 0;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

constexpr long kBytesUnderWay = 4 << 20;

void AwaitWorkers() { ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup); }

void Work(const std::vector<long>& sizes, long sample_bytes) {
  ps::KVWorker<float> worker(0, 0);
  for (size_t index = 0; index < sizes.size(); ++index) {
    const long bytes = sizes[index];
    const size_t n = static_cast<size_t>(bytes) / sizeof(float);
    const ps::SArray<ps::Key> keys(1, index);
    const ps::SArray<int> lens(1, static_cast<int>(n));
    ps::SArray<float> gradient(n, 0), parameters(n, 0);
    for (size_t i = 0; i < n; ++i) gradient[i] = static_cast<float>(i % 7 + 1);
    long pushes = 0;
    const auto run = [&](const std::string& op, long count) {
      const size_t window = static_cast<size_t>(std::max(2L, kBytesUnderWay / bytes));
      std::deque<int> under_way;
      for (long i = 0; i < count; ++i) {
        if (under_way.size() == window) {
          worker.Wait(under_way.front());
          under_way.pop_front();
        }
        ps::SArray<int> received = lens;
        if (op == "push") under_way.push_back(worker.ZPush(keys, gradient, lens));
        if (op == "pull") under_way.push_back(worker.ZPull(keys, &parameters, &received));
        if (op == "pushpull") {
          under_way.push_back(worker.ZPushPull(keys, gradient, &parameters, &received));
        }
        if (op != "pull") ++pushes;
      }
      for (int request : under_way) worker.Wait(request);
    };
    const long count = std::max(4L, sample_bytes / bytes);
    const char* const number = std::getenv("RUBATO_PSLITE_SERVER");
    const pid_t server = number == nullptr ? 0 : std::atoi(number);
    AwaitWorkers();
    run("push", std::min(count, 8L));
    run("pushpull", std::min(count, 8L));
    for (const char* op : {"push", "pull", "pushpull"}) {
      AwaitWorkers();
      const double own_before = CpuSeconds(0), server_before = CpuSeconds(server), begin = Now();
      run(op, count);
      const double end = Now(), own = CpuSeconds(0) - own_before;
      AwaitWorkers();
      const double servers = CpuSeconds(server) - server_before;
      const double directions = std::string(op) == "pushpull" ? 2 : 1;
      const double moved =
          directions * static_cast<double>(bytes) * static_cast<double>(count) * 1e-9;
      std::printf("%s %ld %.9f %.9f %.6f %.6f %.6f\n", op, bytes, begin, end, moved, own, servers);
    }
    run("pull", 1);
    const long all = pushes * ps::NumWorkers();
    for (size_t i = 0; i < n; ++i) {
      if (parameters[i] != gradient[i] * static_cast<float>(all)) {
        std::fprintf(stderr, "value %zu is %g after %ld pushes\n", i, parameters[i], all);
        std::_Exit(1);
      }
    }
  }
  std::fflush(stdout);
}

}  // namespace

// pslite_peer SAMPLE_BYTES SIZE...
int main(int argc, char** argv) {
  std::vector<long> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::atol(argv[i]));
  ps::Start(0);
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<float>(0);
    server->set_request_handle(Handle);
    ps::RegisterExitCallback([server] { delete server; });
  }
  if (ps::IsWorker()) Work(sizes, std::atol(argv[1]));
  ps::Finalize(0, true);
  return 0;
}
