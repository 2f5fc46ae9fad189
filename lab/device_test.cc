// SPDX-License-Identifier: Apache-2.0
#include "lab/device.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace kvguard::lab {
namespace {

using Log = std::vector<uint64_t>;

void Note(void* log, uint64_t number) { static_cast<Log*>(log)->push_back(number); }

Log RunOnce(uint64_t seed, bool waits) {
  Device device(seed);
  Log log;
  for (uint64_t i = 0; i < 4; ++i) device.Launch(Stream::kUpload, Note, &log, i);
  const Event uploaded = device.Record(Stream::kUpload);
  if (waits) device.Wait(Stream::kCompute, uploaded);
  for (uint64_t i = 10; i < 14; ++i) device.Launch(Stream::kCompute, Note, &log, i);
  device.Synchronize(device.Record(Stream::kCompute));
  device.Drain();
  return log;
}

TEST(Device, RunsAStreamInOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Log upload;
    Log compute;
    for (const uint64_t number : RunOnce(seed, false)) {
      (number < 10 ? upload : compute).push_back(number);
    }
    EXPECT_EQ(upload, (Log{0, 1, 2, 3}));
    EXPECT_EQ(compute, (Log{10, 11, 12, 13}));
  }
}

TEST(Device, WhatIsNotWaitedForComesInAnyOrderAndInTheSameOneForASeed) {
  std::set<Log> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    orders.insert(RunOnce(seed, false));
    EXPECT_EQ(RunOnce(seed, false), RunOnce(seed, false));
  }
  EXPECT_GT(orders.size(), 5u);
}

TEST(Device, AnEventHoldsTheOtherStreamBack) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(RunOnce(seed, true), (Log{0, 1, 2, 3, 10, 11, 12, 13}));
  }
}

TEST(Device, AFullQueueMakesTheHostWait) {
  Device device(1);
  Log log;
  for (uint64_t i = 0; i < 1000; ++i) device.Launch(Stream::kCompute, Note, &log, i);
  device.Drain();
  EXPECT_EQ(log.size(), 1000u);
}

}  // namespace
}  // namespace kvguard::lab
