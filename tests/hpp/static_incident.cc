// SPDX-License-Identifier: Apache-2.0
// A program that links libkvguard_static.a and names nothing of the recorder gets its incident.
#include <cstdio>
#include <cstring>

#include "kvguard/kvguard.hpp"

int main() {
  kvguard_config config{};
  config.size = sizeof(config);
  size_t num_bytes = 0;
  config.incident_context = &num_bytes;
  config.incident = [](void* context, const void* bytes, size_t size) {
    if (size >= 4 && std::memcmp(bytes, "\x89KVT", 4) == 0) *static_cast<size_t*>(context) = size;
  };
  kvguard::GeometryBuilder geometry("test", "1", 8, 256);
  geometry.AddGroup(geometry.AddPool(32, 0), 16);
  kvguard::Guard guard = kvguard::Guard::Create(geometry.Build(), &config).OrThrow();
  kvguard::StepBuilder step(1);
  step.Admit(1, "a", 0, 1).Append(1, 0, {3}).Schedule(1, 1, 0);
  guard.Feed(step.Begin()).OrThrow();
  step.Row(1, 1, 1).Slots(0, {80}).TableRow(0, {3});
  guard.Feed(step.Plan()).OrThrow();
  guard.Feed(step.End()).OrThrow();
  std::printf("incident of %zu bytes\n", num_bytes);
  return num_bytes > 0 ? 0 : 1;
}
