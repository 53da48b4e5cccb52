#include "tools/bench/wire.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/flags.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/wire/channel.h"
#include "tools/bench/peer.h"
#include "tools/bench/raw_tcp.h"
#include "tools/bench/wire_load.h"
#include "tools/bench/wire_memory.h"
#include "tools/bench/wire_security.h"
#include "tools/bench/wire_shard.h"
#include "tools/bench/yardsticks.h"

namespace rubato {
namespace {

constexpr int64_t kLatencyBytes = 1 << 10;
constexpr struct {
  WireOp op;
  const char* name;
  int directions;
} kOps[] = {
    {WireOp::kPush, "push", 1}, {WireOp::kPull, "pull", 1}, {WireOp::kPushPull, "pushpull", 2}};

// Whether it differs from that of float32.
bool IsOf(WireOp op, Codec codec) {
  return op != WireOp::kPull || (codec != Codec::kInt8 && codec != Codec::kTopK);
}

// A shard in its own process, and the load on it.
struct Wire {
  static absl::StatusOr<Wire> Start(const std::string& path, int64_t bytes,
                                    const BenchSecurity& security) {
    Wire wire;
    wire.path = path;
    wire.bytes = bytes;
    RUBATO_ASSIGN_OR_RETURN(wire.shard, Peer::Start({"bench", "wire", "--serve",
                                                     absl::StrCat("shard:", bytes, ":", path)}));
    RUBATO_ASSIGN_OR_RETURN(const ConnectionOptions connection, security.OfWorker(path));
    wire.load = std::make_unique<WireLoad>(wire.shard->address(), bytes, path == "shm", connection);
    return wire;
  }

  std::string path;
  int64_t bytes = 0;
  std::unique_ptr<Peer> shard;
  std::unique_ptr<WireLoad> load;
};

struct Samples {
  std::vector<double> gbps, cpu_s_per_gb;
};

struct Latencies {
  std::vector<double> p50, p99;  // microseconds, by round
  void Add(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    p50.push_back(seconds[seconds.size() / 2] * 1e6);
    p99.push_back(seconds[seconds.size() * 99 / 100] * 1e6);
  }
};

struct Measured {
  std::map<int64_t, std::vector<double>> raw_push, raw_pull;
  std::vector<double> copy, triad;
  std::map<std::tuple<size_t, Codec, size_t>, Samples> samples;  // by wire and operation
  std::map<std::string, Latencies> latencies;                    // by path
  std::map<std::string, double> memory;                          // of the server, by path
};

absl::Status MeasureRound(const WireBench& bench, RawTcp* raw, const std::vector<Wire>& wires,
                          const std::vector<Wire>& latency_wires, Measured* measured) {
  for (const int64_t bytes : bench.sizes) {
    const int64_t count = std::max<int64_t>(4, bench.sample_bytes / bytes);
    // Each begins with what it works on in the caches and its peer awake, as in a long run.
    const int64_t first = std::min<int64_t>(count, 8);
    RUBATO_RETURN_IF_ERROR(raw->Push(bytes, first).status());
    RUBATO_RETURN_IF_ERROR(raw->Pull(bytes, first).status());
    RUBATO_ASSIGN_OR_RETURN(const double push, raw->Push(bytes, count));
    RUBATO_ASSIGN_OR_RETURN(const double pull, raw->Pull(bytes, count));
    const double gigabytes = static_cast<double>(bytes * count) * 1e-9;
    measured->raw_push[bytes].push_back(gigabytes / push);
    measured->raw_pull[bytes].push_back(gigabytes / pull);
    for (size_t i = 0; i < wires.size(); ++i) {
      if (wires[i].bytes != bytes) continue;
      for (const Codec codec : bench.codecs) {
        for (const WireOp op : {WireOp::kPush, WireOp::kPushPull}) {
          RUBATO_RETURN_IF_ERROR(wires[i].load->Run(op, codec, first, *wires[i].shard).status());
        }
        for (size_t k = 0; k < std::size(kOps); ++k) {
          if (!IsOf(kOps[k].op, codec)) continue;
          RUBATO_ASSIGN_OR_RETURN(const WireLoad::Took took,
                                  wires[i].load->Run(kOps[k].op, codec, count, *wires[i].shard));
          Samples& samples = measured->samples[{i, codec, k}];
          samples.gbps.push_back(gigabytes * kOps[k].directions / took.seconds);
          samples.cpu_s_per_gb.push_back(took.cpu_seconds / (gigabytes * kOps[k].directions));
        }
      }
    }
  }
  RUBATO_ASSIGN_OR_RETURN(const std::vector<double> raw_trips,
                          raw->RoundTrips(kLatencyBytes, bench.round_trips));
  measured->latencies["raw"].Add(raw_trips);
  for (const Wire& wire : latency_wires) {
    RUBATO_ASSIGN_OR_RETURN(const std::vector<double> trips,
                            wire.load->RoundTrips(bench.round_trips));
    measured->latencies[wire.path].Add(trips);
  }
  return absl::OkStatus();
}

std::string SizeText(int64_t bytes) {
  return bytes < 1 << 20 ? absl::StrCat(bytes >> 10, " KiB") : absl::StrCat(bytes >> 20, " MiB");
}

std::string Json(const WireBench& bench, const std::vector<Wire>& wires, Measured& measured) {
  nlohmann::ordered_json object;
  nlohmann::ordered_json& yardsticks = object["yardsticks"];
  for (const int64_t bytes : bench.sizes) {
    yardsticks["tcp_sink_gbps"][absl::StrCat(bytes)] = Median(measured.raw_push[bytes]);
  }
  yardsticks["memcpy_gbps"] = Median(measured.copy);
  yardsticks["triad_gbps"] = Median(measured.triad);
  for (const auto& [key, samples] : measured.samples) {
    const auto& [wire, codec, op] = key;
    object["results"].push_back({{"path", wires[wire].path},
                                 {"op", kOps[op].name},
                                 {"codec", std::string(CodecName(codec))},
                                 {"bytes", wires[wire].bytes},
                                 {"gbps", Median(samples.gbps)},
                                 {"cpu_s_per_gb", Median(samples.cpu_s_per_gb)}});
  }
  for (const auto& [path, latencies] : measured.latencies) {
    object["latency_us"][path] = {{"p50", Median(latencies.p50)}, {"p99", Median(latencies.p99)}};
  }
  for (const auto& [path, ratio] : measured.memory) object["server_memory"][path] = ratio;
  return JsonText(object) + "\n";
}

// The row of a codec between one worker and its server.
std::string Row(const std::vector<Wire>& wires, size_t index, Codec codec, Measured& measured) {
  const Wire& wire = wires[index];
  std::string row =
      absl::StrFormat("%-5s%8s  %-8s", wire.path, SizeText(wire.bytes), CodecName(codec));
  for (size_t k = 0; k < std::size(kOps); ++k) {
    std::string cell = "as float32";
    if (IsOf(kOps[k].op, codec)) {
      const Samples& samples = measured.samples[{index, codec, k}];
      cell = absl::StrFormat("%.2f (%.2f)", Median(samples.gbps), Median(samples.cpu_s_per_gb));
    }
    absl::StrAppendFormat(&row, "%20s", cell);
  }
  absl::StrAppendFormat(&row, "%14.0f\n", static_cast<double>(wire.shard->ResidentBytes()) * 1e-6);
  return row;
}

std::string Text(const WireBench& bench, const std::vector<Wire>& wires, Measured& measured) {
  std::string text = absl::StrFormat(
      "medians of %d rounds; GB/s of float32 payload (both: in both directions), in brackets\n"
      "processor seconds per GB, of worker and server together\n\n"
      "memcpy %.1f GB/s, triad %.1f GB/s\n\n"
      "%-5s%8s  %-8s%20s%20s%20s%14s\n",
      bench.rounds, Median(measured.copy), Median(measured.triad), "path", "size", "codec", "push",
      "pull", "both", "server's MB");
  for (const int64_t bytes : bench.sizes) {
    absl::StrAppendFormat(&text, "%-5s%8s  %-8s%20.2f%20.2f\n", "raw", SizeText(bytes), "",
                          Median(measured.raw_push[bytes]), Median(measured.raw_pull[bytes]));
    for (size_t i = 0; i < wires.size(); ++i) {
      if (wires[i].bytes != bytes) continue;
      for (const Codec codec : bench.codecs) text += Row(wires, i, codec, measured);
    }
  }
  text += "\nround trip of 1 KiB\n";
  for (const auto& [path, latencies] : measured.latencies) {
    absl::StrAppendFormat(&text, "%-5s p50 %.1f us, p99 %.1f us\n", path, Median(latencies.p50),
                          Median(latencies.p99));
  }
  absl::StrAppend(&text, "\nserver's memory over parameters, slots and one gradient (",
                  SizeText(bench.memory_bytes), " each): SGD with momentum, two workers, sync\n");
  for (const auto& [path, ratio] : measured.memory) {
    absl::StrAppendFormat(&text, "%-5s %.2f\n", path, ratio);
  }
  return text;
}

// What was typed after --sizes, --path and --codec, if anything.
absl::Status SetSizes(const std::string& sizes, WireBench* bench) {
  if (!sizes.empty()) bench->sizes.clear();
  for (absl::string_view size : absl::StrSplit(sizes, ',', absl::SkipEmpty())) {
    int64_t bytes = 0;
    if (!absl::SimpleAtoi(size, &bytes) || bytes < 64 || bytes % 64 != 0 || bytes > 1 << 30 ||
        (bytes > 256 << 10 && bytes % (256 << 10) != 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found --sizes ", sizes,
          ", expected numbers of bytes: multiples of 64, above 262144 of that, up to 1073741824"));
    }
    bench->sizes.push_back(bytes);
  }
  return absl::OkStatus();
}

absl::Status SetPath(const std::string& path, WireBench* bench) {
  if (path.empty()) return absl::OkStatus();
  bench->paths = absl::StrSplit(path, ',');
  for (const std::string& one : bench->paths) {
    if (one != "tcp" && one != "shm" && one != "token" && one != "mtls") {
      return absl::InvalidArgumentError(
          absl::StrCat("found --path ", path, ", expected some of tcp, shm, token and mtls"));
    }
  }
  return absl::OkStatus();
}

absl::Status SetCodecs(const std::string& codecs, WireBench* bench) {
  if (codecs.empty()) return absl::OkStatus();
  std::vector<Codec> chosen;
  for (absl::string_view name : absl::StrSplit(codecs, ',')) {
    const auto codec = std::find_if(bench->codecs.begin(), bench->codecs.end(),
                                    [&](Codec known) { return CodecName(known) == name; });
    if (codec == bench->codecs.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found --codec ", codecs, ", expected some of float32, bf16, fp16, int8 and topk"));
    }
    chosen.push_back(*codec);
  }
  bench->codecs = chosen;
  return absl::OkStatus();
}

absl::StatusOr<std::string> RunBench(WireBench bench, const std::string& sizes,
                                     const std::string& path, const std::string& codecs, bool quick,
                                     bool json) {
  RUBATO_RETURN_IF_ERROR(SetSizes(sizes, &bench));
  RUBATO_RETURN_IF_ERROR(SetPath(path, &bench));
  RUBATO_RETURN_IF_ERROR(SetCodecs(codecs, &bench));
  if (bench.rounds < 1 || bench.rounds > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("found --rounds ", bench.rounds, ", expected 1 to 1000"));
  }
  if (quick) {
    bench.rounds = 1;
    bench.sample_bytes = 1 << 20;
    bench.round_trips = 100;
    bench.memory_bytes = 4 << 20;
  }
  return BenchWire(bench, json);
}

}  // namespace

absl::StatusOr<std::string> BenchWire(const WireBench& bench, bool json) {
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<Peer> raw_server,
                          Peer::Start({"bench", "wire", "--serve", "raw"}));
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<RawTcp> raw,
                          RawTcp::Connect(raw_server->address()));
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<BenchSecurity> security, BenchSecurity::Create());
  std::vector<Wire> wires, latency_wires;
  for (const std::string& path : bench.paths) {
    for (const int64_t bytes : bench.sizes) {
      RUBATO_ASSIGN_OR_RETURN(Wire wire, Wire::Start(path, bytes, *security));
      wires.push_back(std::move(wire));
    }
    RUBATO_ASSIGN_OR_RETURN(Wire wire, Wire::Start(path, kLatencyBytes, *security));
    latency_wires.push_back(std::move(wire));
  }
  WireBench warm_up = bench;
  warm_up.sample_bytes = std::min<int64_t>(bench.sample_bytes, 16 << 20);
  warm_up.round_trips = 100;
  Measured ignored, measured;
  RUBATO_RETURN_IF_ERROR(MeasureRound(warm_up, raw.get(), wires, latency_wires, &ignored));
  auto triad = std::make_unique<Triad>();
  auto copying = std::make_unique<Copying>();
  for (int round = 0; round < bench.rounds; ++round) {
    measured.copy.push_back(copying->GigabytesPerSecond());
    measured.triad.push_back(triad->GigabytesPerSecond());
    RUBATO_RETURN_IF_ERROR(MeasureRound(bench, raw.get(), wires, latency_wires, &measured));
  }

  for (const std::string& path : bench.paths) {
    if (path != "tcp" && path != "shm") continue;
    RUBATO_ASSIGN_OR_RETURN(measured.memory[path],
                            MeasureServerMemory(bench.memory_bytes, path == "shm"));
  }
  return json ? Json(bench, wires, measured) : Text(bench, wires, measured);
}

int BenchWireMain(const std::vector<std::string>& arguments) {
  KeepFreedMemory();
  UseOneHeap();  // as a server
  SilenceGrpc();
  TuneGrpc();
  WireBench bench;
  std::string sizes, path, codecs, serve;
  bool quick = false, json = false;
  Flags flags(
      "rubato bench wire",
      "Measures how fast floats go between a worker and a server, each in its own process on "
      "this machine, beside\nraw TCP and memory. Every float is checked.",
      {"rubato bench wire --json", "rubato bench wire --sizes 1048576,4194304 --rounds 5"});
  flags.Add("sizes", &sizes, "N,N,N",
            "sizes of a request in bytes, multiples of 64; default: 4 KiB to 64 MiB");
  flags.Add("path", &path, "P,P",
            "which of tcp, shm (shared memory), token (TCP with a key) and mtls (TCP with "
            "certificates) to measure in turns; default: tcp,shm");
  flags.Add("codec", &codecs, "C,C",
            "which of float32, bf16, fp16, int8 and topk to measure; default: all. With int8 and "
            "topk, which are for gradients only, parameters are pulled in float32");
  flags.Add("rounds", &bench.rounds, "N", "how many rounds; medians are printed");
  flags.Add("quick", &quick, "", "a quick try of everything; its figures mean nothing");
  flags.Add("json", &json, "", "print one JSON object");
  flags.Add("serve", &serve, "ROLE", "used for the processes that this command starts");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  if (serve == "raw") return ServeRawTcp();
  int64_t bytes = 0;
  const std::vector<std::string> role = absl::StrSplit(serve, ':');
  if (role.size() == 3 && role[0] == "shard" && absl::SimpleAtoi(role[1], &bytes)) {
    return ServeBenchShard(bytes, role[2]);
  }
  if (role.size() == 2 && role[0] == "sync" && absl::SimpleAtoi(role[1], &bytes)) {
    return ServeBenchShard(bytes, /*path=*/"", /*sync=*/true);
  }
  return PrintResult(RunBench(std::move(bench), sizes, path, codecs, quick, json));
}

}  // namespace rubato
