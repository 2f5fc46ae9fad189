// SPDX-License-Identifier: Apache-2.0
#include "lab/device.h"

#include <cstdlib>
#include <cstring>

namespace kvguard::lab {

void Device::Push(Stream stream, const Work& work) {
  Queue& queue = queues_[Ix(stream)];
  while (queue.pushed - queue.done == queue.work.size()) {
    // A full queue makes the host wait, as a device's does.
    if (!RunOne()) std::abort();
  }
  queue.work[queue.pushed++ & (queue.work.size() - 1)] = work;
}

bool Device::CanRun(const Queue& queue) const {
  if (queue.done == queue.pushed) return false;
  const Work& head = queue.work[queue.done & (queue.work.size() - 1)];
  return head.waits == 0 || Done(head.event);
}

void Device::RunHead(Queue* queue) {
  const Work work = queue->work[queue->done & (queue->work.size() - 1)];
  if (work.kernel != nullptr) {
    work.kernel(work.context, work.argument);
  } else if (work.from != nullptr) {
    std::memcpy(work.context, work.from, work.argument);
  }
  ++queue->done;
  ++num_run_;
}

bool Device::RunOne() {
  const uint32_t first = random_.Below(kNumStreams);
  for (uint32_t i = 0; i < kNumStreams; ++i) {
    Queue& queue = queues_[(first + i) % kNumStreams];
    if (!CanRun(queue)) continue;
    RunHead(&queue);
    return true;
  }
  return false;
}

void Device::RunSome() {
  for (uint32_t n = random_.Below(6); n > 0 && RunOne(); --n) {
  }
}

void Device::Synchronize(Event event) {
  while (!Done(event)) {
    if (!RunOne()) std::abort();  // a wait for what was never enqueued
  }
}

void Device::Drain() {
  while (RunOne()) {
  }
}

}  // namespace kvguard::lab
