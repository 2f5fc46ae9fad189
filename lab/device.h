// SPDX-License-Identifier: Apache-2.0
// The device: streams of work that is enqueued now and runs later, and events between them. It is
// *stepped*: work runs on the engine's thread whenever somebody waits for an event or at launch, in
// an order drawn from the seed among those that streams and events allow. What an engine forgets
// to wait for is therefore really late, or really early, in some runs, and in the same ones each
// time.
#ifndef KVGUARD_LAB_DEVICE_H_
#define KVGUARD_LAB_DEVICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lab/random.h"

namespace kvguard::lab {

enum class Stream : uint8_t { kCompute, kUpload, kDownload };
inline constexpr size_t kNumStreams = 3;

// Everything that was enqueued into a stream up to a moment.
struct Event {
  Stream stream = Stream::kCompute;
  uint64_t number = 0;
};

class Device {
 public:
  using Kernel = void (*)(void* context, uint64_t argument);

  explicit Device(uint64_t seed) : random_(Mix(seed, 0x646576)) {
    for (Queue& queue : queues_) queue.work.resize(64);
  }

  // Runs kernel(context, argument) behind what is in the stream. Whatever the kernel touches must
  // live until then.
  void Launch(Stream stream, Kernel kernel, void* context, uint64_t argument) {
    Push(stream, {kernel, context, argument, nullptr, 0, {}});
    if ((random_.Next() & 7) == 0) RunSome();
  }
  // Likewise a copy of bytes.
  void Copy(Stream stream, void* to, const void* from, size_t num_bytes) {
    Push(stream, {nullptr, to, num_bytes, from, 0, {}});
  }
  Event Record(Stream stream) const { return {stream, queues_[Ix(stream)].pushed}; }
  // What is enqueued into `stream` from here on runs after the event.
  void Wait(Stream stream, Event event) { Push(stream, {nullptr, nullptr, 0, nullptr, 1, event}); }

  bool Done(Event event) const { return queues_[Ix(event.stream)].done >= event.number; }
  // Returns when the event has happened; other work may run meanwhile.
  void Synchronize(Event event);
  void Drain();

  uint64_t num_run() const { return num_run_; }

 private:
  struct Work {
    Kernel kernel = nullptr;
    void* context = nullptr;  // or where a copy goes
    uint64_t argument = 0;    // or its bytes
    const void* from = nullptr;
    uint32_t waits = 0;  // 1: only stands for `event`
    Event event;
  };
  struct Queue {
    std::vector<Work> work;  // a ring; its size is a power of two
    uint64_t pushed = 0;
    uint64_t done = 0;
  };

  void Push(Stream stream, const Work& work);
  bool CanRun(const Queue& queue) const;
  void RunHead(Queue* queue);
  bool RunOne();
  void RunSome();

  std::array<Queue, kNumStreams> queues_;
  Random random_;
  uint64_t num_run_ = 0;
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_DEVICE_H_
