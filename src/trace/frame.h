// SPDX-License-Identifier: Apache-2.0
// The outside of a .kvtrace file: a prelude, then frames. Little-endian.
//
//     prelude   8 bytes   89 'K' 'V' 'T' 0d 0a 1a 0a    (broken by text-mode copies, as PNG's is)
//               u32       version of this framing
//               u32       low half of XXH3-64 of the 12 bytes before it
//
//     frame     u32       'K' 'V' 'F' '1'
//               u16       kind
//               u16       flags
//               u64       sequence: 0, 1, 2, ...
//               u32       raw length: of the payload
//               u32       stored length: of the bytes that follow the header
//               u64       hash: XXH3-64 of the stored bytes, seeded with
//                         XXH3-64 of the 24 bytes before it, seeded with
//                         the hash of the frame before; 0 before the first
//
// Because the hashes are chained and the first frame holds a random number, a frame that was moved,
// left out or brought from another file is found like a flipped bit, and before anything looks into
// a payload.
#ifndef KVGUARD_SRC_TRACE_FRAME_H_
#define KVGUARD_SRC_TRACE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "step/status.h"

namespace kvguard::trace {

inline constexpr size_t kPreludeBytes = 16;
inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr uint32_t kFramingVersion = 1;
inline constexpr uint32_t kMaxFrameBytes = (uint32_t{64} << 20) - 1;  // raw and stored

enum class FrameKind : uint16_t {
  kHeader = 1,
  kSnapshot = 2,
  kStep = 3,
  kFindings = 4,
  kFooter = 5,
};

enum FrameFlags : uint16_t {
  kFrameSkippable = 1u << 0,  // a reader that does not know the kind may go on behind it
  kFrameZstd = 1u << 1,       // the stored bytes are one zstd frame
  kFramePrefix = 1u << 2,     // compressed with the previous step's payload as prefix
};
inline constexpr uint16_t kKnownFrameFlags = kFrameSkippable | kFrameZstd | kFramePrefix;

struct FrameHeader {
  FrameKind kind{};
  uint16_t flags = 0;
  uint64_t sequence = 0;
  uint32_t raw_length = 0;
  uint32_t stored_length = 0;
  uint64_t hash = 0;
};

// The bytes of the prelude.
std::span<const uint8_t> Prelude();
// As a version of the framing writes it.
std::vector<uint8_t> PreludeOfVersion(uint32_t version);

// What a file that starts with these bytes is. `bytes` may be shorter than a prelude.
step::Status CheckPrelude(std::span<const uint8_t> bytes);

// Builds frames in order. One writer a file.
class FrameWriter {
 public:
  FrameWriter();
  ~FrameWriter();
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;

  // The bytes of the next frame; they live until the next call. Empty where the payload is too
  // large for a frame. The header is never compressed, so that its sentence can be read with any
  // tool.
  std::span<const uint8_t> Next(FrameKind kind, std::span<const uint8_t> payload,
                                uint16_t flags = 0);

  // The last frame is not part of the file after all.
  void Undo();

  // The next step's payload is not compressed against the last one.
  void ForgetPrefix() { prefix_.clear(); }

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::vector<uint8_t> out_;
  std::vector<uint8_t> prefix_;
  uint64_t sequence_ = 0;
  uint64_t chain_ = 0;
  uint64_t last_chain_ = 0;
};

// Checks and unpacks frames in order.
class FrameParser {
 public:
  FrameParser();
  ~FrameParser();
  FrameParser(const FrameParser&) = delete;
  FrameParser& operator=(const FrameParser&) = delete;

  // Reads a frame's header: enough to know how many bytes follow. Only lengths that are possible
  // pass.
  step::Status ParseHeader(std::span<const uint8_t, kFrameHeaderBytes> bytes, FrameHeader* header);

  // Checks the whole frame and unpacks it. The payload lives until the next call.
  step::Status Unpack(std::span<const uint8_t, kFrameHeaderBytes> header_bytes,
                      const FrameHeader& header, std::span<const uint8_t> stored,
                      std::span<const uint8_t>* payload);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::vector<uint8_t> payload_;
  std::vector<uint8_t> prefix_;
  uint64_t sequence_ = 0;
  uint64_t chain_ = 0;
};

}  // namespace kvguard::trace

#endif  // KVGUARD_SRC_TRACE_FRAME_H_
