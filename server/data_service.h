// The server's ends of the data streams: raw messages on one completion queue, whose thread also
// runs the shard's engine, so that a sum is made on the thread that received it and the engine
// needs no lock.
#ifndef RUBATO_SERVER_DATA_SERVICE_H_
#define RUBATO_SERVER_DATA_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/log.h"
#include "common/wire/message.h"
#include "server/shard_engine.h"

namespace rubato {

class DataService {
 public:
  // Answers only processes of the job with this digest. `log` must outlive it.
  DataService(std::string job_digest, const Log* log);
  ~DataService();

  // Before the server is built.
  void Register(grpc::ServerBuilder* builder);
  // After it is built: frames go to `engine`, which belongs to the queue's thread from here on.
  void Start(ShardEngine* engine);

  // Waits for the streams to end and the thread to stop. Call it when the server has been shut down
  // and before it is destroyed, since the queue's events refer to the server.
  void Stop();

  // Runs `task` on the queue's thread, any thread may ask; drops it after Stop.
  void Post(std::function<void()> task);

  // For the engine: sends on a stream, or drops the message if the stream is gone. Only on the
  // queue's thread.
  void Send(uint64_t stream, const Frame& frame, const Payload& payload);

 private:
  class Stream;
  struct PostedTask;
  using Tag = std::function<void(bool ok)>;

  void Accept();
  void Run();
  void Remove(uint64_t stream);

  const std::string job_digest_;
  const Log* const log_;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  ShardEngine* engine_ = nullptr;
  bool stopped_ = false;
  std::thread thread_;
  absl::Mutex post_mutex_;                            // held while a task is posted
  bool closed_ ABSL_GUARDED_BY(post_mutex_) = false;  // the queue takes no more

  // Of the queue's thread.
  absl::flat_hash_map<uint64_t, std::unique_ptr<Stream>> streams_;
  std::unique_ptr<Stream> removed_;  // whose last operation is just being handled
  uint64_t last_stream_ = 0;
  absl::Notification* when_empty_ = nullptr;  // closing: told when the last stream is gone
};

}  // namespace rubato

#endif  // RUBATO_SERVER_DATA_SERVICE_H_
