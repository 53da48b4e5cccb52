#include "tools/simulator/event_queue.h"

#include <algorithm>

namespace rubato {

void EventQueue::Schedule(SimTime time, Handler* handler, uint64_t argument, Kind kind) {
  const bool background = kind == Kind::kBackground;
  const Event event{std::max(time, now_), 2 * scheduled_++ + (background ? 1 : 0), handler,
                    argument};
  if (!background) ++work_;
  if (root_is_free_) {
    root_is_free_ = false;
    SiftDown(event);
    return;
  }
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

void EventQueue::SiftDown(const Event& event) {
  const size_t size = heap_.size();
  size_t place = 0;
  while (true) {
    const size_t first = 4 * place + 1;
    if (first >= size) break;
    const Event* const children = &heap_[first];
    const Event* least = children;
    if (first + 4 <= size) {
      const Event* const left = children + (children[1].Before(children[0]) ? 1 : 0);
      const Event* const right = children + (children[3].Before(children[2]) ? 3 : 2);
      least = right->Before(*left) ? right : left;
    } else {
      for (const Event* child = children + 1; child < &heap_[0] + size; ++child) {
        if (child->Before(*least)) least = child;
      }
    }
    if (!least->Before(event)) break;
    heap_[place] = *least;
    place = first + static_cast<size_t>(least - children);
  }
  heap_[place] = event;
}

bool EventQueue::RunNext() {
  if (heap_.empty()) return false;
  const Event event = heap_.front();
  now_ = event.time;
  if (event.order % 2 == 0) --work_;
  ++happened_;
  root_is_free_ = true;
  event.handler->OnEvent(event.argument);
  if (root_is_free_) {
    root_is_free_ = false;
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) SiftDown(last);
  }
  return true;
}

}  // namespace rubato
