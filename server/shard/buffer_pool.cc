#include "server/shard/buffer_pool.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace rubato {
namespace {

constexpr size_t kCacheLine = 64;  // bytes

}  // namespace

absl::StatusOr<std::shared_ptr<FloatBuffer>> FloatBuffer::Create(int64_t size, bool zeroed,
                                                                 SharedArena* arena) {
  const size_t bytes = (size * sizeof(float) + kCacheLine - 1) / kCacheLine * kCacheLine;
  std::shared_ptr<char> data;
  if (arena != nullptr) data = arena->Allocate(bytes);
  if (data == nullptr) {
    data.reset(static_cast<char*>(std::aligned_alloc(kCacheLine, std::max(bytes, kCacheLine))),
               std::free);
  }
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrFormat("no memory for %d bytes", bytes));
  }
  if (zeroed) std::memset(data.get(), 0, bytes);
  return std::make_shared<FloatBuffer>(std::move(data), size);
}

void BufferPool::Plan(int64_t size, int64_t count) {
  absl::MutexLock lock(&mutex_);
  if (size != size_) spare_.clear();
  size_ = size;
  planned_ = count;
  made_ = static_cast<int64_t>(spare_.size());
}

void BufferPool::Fill(absl::FunctionRef<bool()> stops) {
  while (!stops()) {
    int64_t size;
    {
      absl::MutexLock lock(&mutex_);
      if (made_ >= planned_) return;
      ++made_;
      size = size_;
    }
    absl::StatusOr<std::shared_ptr<FloatBuffer>> buffer =
        FloatBuffer::Create(size, /*zeroed=*/true, arena_.get());
    if (!buffer.ok()) return;
    absl::MutexLock lock(&mutex_);
    if (size == size_) spare_.push_back(*std::move(buffer));
  }
}

absl::StatusOr<std::shared_ptr<FloatBuffer>> BufferPool::Take(int64_t size) {
  std::shared_ptr<FloatBuffer> buffer;
  int64_t whole;
  {
    absl::MutexLock lock(&mutex_);
    whole = size_;
    RUBATO_CHECK(size <= whole);
    if (!spare_.empty()) {
      buffer = std::move(spare_.back());
      spare_.pop_back();
    } else {
      ++made_;
    }
  }
  if (buffer == nullptr) {
    RUBATO_ASSIGN_OR_RETURN(buffer, FloatBuffer::Create(whole, /*zeroed=*/false, arena_.get()));
  }
  char* const data = reinterpret_cast<char*>(buffer->values().data());
  const auto give_back = [pool = shared_from_this(), buffer](char*) { pool->GiveBack(buffer); };
  return std::make_shared<FloatBuffer>(std::shared_ptr<char>(data, give_back), size);
}

void BufferPool::GiveBack(const std::shared_ptr<FloatBuffer>& buffer) {
  absl::MutexLock lock(&mutex_);
  // Of the size before a new plan: nobody needs it.
  if (static_cast<int64_t>(buffer->values().size()) == size_) spare_.push_back(buffer);
}

size_t BufferPool::spare() const {
  absl::MutexLock lock(&mutex_);
  return spare_.size();
}

}  // namespace rubato
