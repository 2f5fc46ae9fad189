// SPDX-License-Identifier: Apache-2.0
// The first frame of a file: what the engine was, and what wrote the file. Also the small frames:
// snapshot, findings, footer.
#ifndef KVGUARD_SRC_TRACE_HEADER_H_
#define KVGUARD_SRC_TRACE_HEADER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvguard/kvguard.h"
#include "step/status.h"

namespace kvguard::trace {

// A geometry that owns its strings and arrays.
class OwnedGeometry {
 public:
  OwnedGeometry() = default;
  explicit OwnedGeometry(const kvguard_geometry& geometry);
  OwnedGeometry(const OwnedGeometry&) = delete;
  OwnedGeometry& operator=(const OwnedGeometry&) = delete;

  const kvguard_geometry& view() const { return view_; }

 private:
  friend class HeaderReader;
  void Link();

  kvguard_geometry view_{};
  std::string engine_;
  std::string engine_version_;
  std::vector<kvguard_pool> pools_;
  std::vector<kvguard_group> groups_;
  std::vector<std::string> gap_names_;
  std::vector<const char*> gap_pointers_;
};

struct HeaderInfo {
  std::string sentence;
  std::string kvguard_version;
  std::string config;  // JSON
  bool incident = false;
};

// The core's part of a configuration as JSON.
std::string ConfigJson(const kvguard_config& config);

// One sentence for whoever opens the file without knowing what it is.
std::string HeaderSentence(const kvguard_geometry& geometry, bool incident);

std::vector<uint8_t> EncodeHeader(const kvguard_geometry& geometry, const HeaderInfo& info,
                                  uint64_t nonce);

class HeaderReader {
 public:
  // Fills both from an untrusted payload.
  static step::Status Decode(std::span<const uint8_t> payload, OwnedGeometry* geometry,
                             HeaderInfo* info);
};

// Snapshots are cut into parts that fit into a frame.
inline constexpr size_t kSnapshotPartBytes = size_t{32} << 20;
inline constexpr uint64_t kMaxSnapshotBytes = uint64_t{256} << 20;

std::vector<uint8_t> EncodeSnapshotPart(std::span<const uint8_t> snapshot, size_t offset);
// Appends the part to what was read before it. *whole: nothing is missing any more.
step::Status DecodeSnapshotPart(std::span<const uint8_t> payload, std::vector<uint8_t>* snapshot,
                                bool* whole);

std::vector<uint8_t> EncodeFindings(const std::vector<std::string>& lines);
step::Status DecodeFindings(std::span<const uint8_t> payload, std::vector<std::string>* lines);

struct FooterInfo {
  uint64_t steps = 0;
  uint64_t records = 0;
  uint64_t lost_steps = 0;
  uint64_t lost_records = 0;
  std::string reason;

  bool Lossy() const { return lost_steps > 0 || lost_records > 0; }
};

std::vector<uint8_t> EncodeFooter(const FooterInfo& footer);
step::Status DecodeFooter(std::span<const uint8_t> payload, FooterInfo* footer);

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_HEADER_H_
