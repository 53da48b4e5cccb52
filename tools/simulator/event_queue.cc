#include "tools/simulator/event_queue.h"

#include <algorithm>

namespace rubato {

void EventQueue::Schedule(SimTime time, Handler* handler, uint64_t argument, Kind kind) {
  const bool background = kind == Kind::kBackground;
  const Event event{std::max(time, now_), 2 * scheduled_++ + (background ? 1 : 0), handler,
                    argument};
  if (!background) ++work_;
  size_t place = heap_.size();
  heap_.push_back(event);
  while (place > 0) {
    const size_t parent = (place - 1) / 4;
    if (!event.Before(heap_[parent])) break;
    heap_[place] = heap_[parent];
    place = parent;
  }
  heap_[place] = event;
}

bool EventQueue::RunNext() {
  if (heap_.empty()) return false;
  const Event event = heap_.front();
  const Event last = heap_.back();
  heap_.pop_back();
  const size_t size = heap_.size();
  if (size > 0) {
    size_t place = 0;
    while (true) {
      const size_t first = 4 * place + 1;
      if (first >= size) break;
      size_t least = first;
      const size_t end = std::min(first + 4, size);
      for (size_t child = first + 1; child < end; ++child) {
        if (heap_[child].Before(heap_[least])) least = child;
      }
      if (!heap_[least].Before(last)) break;
      heap_[place] = heap_[least];
      place = least;
    }
    heap_[place] = last;
  }
  now_ = event.time;
  if (event.order % 2 == 0) --work_;
  ++happened_;
  event.handler->OnEvent(event.argument);
  return true;
}

}  // namespace rubato
