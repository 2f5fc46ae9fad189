// SPDX-License-Identifier: Apache-2.0
#include "trace/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <xxhash.h>
#include <zstd.h>

namespace kvguard::trace {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is written as it lies in memory");

using step::Sprintf;
using step::Status;

constexpr uint8_t kMagic[8] = {0x89, 'K', 'V', 'T', 0x0d, 0x0a, 0x1a, 0x0a};
constexpr uint8_t kFrameMagic[4] = {'K', 'V', 'F', '1'};
constexpr size_t kHashedHeader = 24;
constexpr int kLevel = 1;  // a step is compressed on the engine's thread
// A prefix longer than this costs more to index than it saves.
constexpr size_t kMaxPrefix = size_t{256} << 10;

template <typename T>
void Store(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}
template <typename T>
T Load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint64_t FrameHash(const uint8_t* header, std::span<const uint8_t> stored, uint64_t chain) {
  const uint64_t seed = XXH3_64bits_withSeed(header, kHashedHeader, chain);
  return XXH3_64bits_withSeed(stored.data(), stored.size(), seed);
}

Status Damaged(std::string text) { return {KVGUARD_ERROR_FORMAT, std::move(text)}; }

void KeepPrefix(std::span<const uint8_t> payload, std::vector<uint8_t>* prefix) {
  const size_t keep = std::min(payload.size(), kMaxPrefix);
  prefix->assign(payload.end() - static_cast<ptrdiff_t>(keep), payload.end());
}

}  // namespace

std::vector<uint8_t> PreludeOfVersion(uint32_t version) {
  std::vector<uint8_t> out(kPreludeBytes);
  std::memcpy(out.data(), kMagic, sizeof(kMagic));
  Store(out.data() + 8, version);
  Store(out.data() + 12, static_cast<uint32_t>(XXH3_64bits(out.data(), 12)));
  return out;
}

std::span<const uint8_t> Prelude() {
  static const std::vector<uint8_t> bytes = PreludeOfVersion(kFramingVersion);
  return bytes;
}

Status CheckPrelude(std::span<const uint8_t> bytes) {
  const size_t common = std::min(bytes.size(), sizeof(kMagic));
  if (bytes.empty()) return Damaged("it is empty");
  if (std::memcmp(bytes.data(), kMagic, common) != 0) return Damaged("it is not a kvguard trace");
  if (bytes.size() < kPreludeBytes) return Damaged("it ends inside its first bytes");
  if (Load<uint32_t>(bytes.data() + 12) != static_cast<uint32_t>(XXH3_64bits(bytes.data(), 12))) {
    return Damaged("its first bytes are damaged");
  }
  const auto version = Load<uint32_t>(bytes.data() + 8);
  if (version != kFramingVersion) {
    return {KVGUARD_ERROR_VERSION, Sprintf("it has version %u of the file format, this kvguard "
                                           "reads version %u; read it with the kvguard that "
                                           "wrote it, or a later one",
                                           version, kFramingVersion)};
  }
  return {};
}

struct FrameWriter::Context {
  ZSTD_CCtx* zstd = ZSTD_createCCtx();
  Context() {
    if (zstd != nullptr) ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, kLevel);
  }
  ~Context() { ZSTD_freeCCtx(zstd); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

FrameWriter::FrameWriter() : context_(std::make_unique<Context>()) {}
FrameWriter::~FrameWriter() = default;

std::span<const uint8_t> FrameWriter::Next(FrameKind kind, std::span<const uint8_t> payload,
                                           uint16_t flags) {
  if (payload.size() > kMaxFrameBytes) return {};
  size_t stored = 0;
  bool compressed = false;
  const size_t bound = ZSTD_compressBound(payload.size());
  out_.resize(kFrameHeaderBytes + bound);
  if (kind != FrameKind::kHeader && context_->zstd != nullptr) {
    const bool prefixed = kind == FrameKind::kStep && !prefix_.empty();
    if (prefixed) ZSTD_CCtx_refPrefix(context_->zstd, prefix_.data(), prefix_.size());
    const size_t size = ZSTD_compress2(context_->zstd, out_.data() + kFrameHeaderBytes, bound,
                                       payload.data(), payload.size());
    if (ZSTD_isError(size) == 0 && size < payload.size()) {
      stored = size;
      compressed = true;
      flags = static_cast<uint16_t>(flags | kFrameZstd | (prefixed ? kFramePrefix : 0));
    }
  }
  if (!compressed) {
    stored = payload.size();
    if (stored > 0) std::memcpy(out_.data() + kFrameHeaderBytes, payload.data(), stored);
  }
  if (kind == FrameKind::kStep) KeepPrefix(payload, &prefix_);
  out_.resize(kFrameHeaderBytes + stored);
  uint8_t* header = out_.data();
  std::memcpy(header, kFrameMagic, sizeof(kFrameMagic));
  Store(header + 4, static_cast<uint16_t>(kind));
  Store(header + 6, flags);
  Store(header + 8, sequence_++);
  Store(header + 16, static_cast<uint32_t>(payload.size()));
  Store(header + 20, static_cast<uint32_t>(stored));
  last_chain_ = chain_;
  chain_ = FrameHash(header, std::span(out_).subspan(kFrameHeaderBytes), chain_);
  Store(header + 24, chain_);
  return out_;
}

void FrameWriter::Undo() {
  --sequence_;
  chain_ = last_chain_;
  prefix_.clear();
}

struct FrameParser::Context {
  ZSTD_DCtx* zstd = ZSTD_createDCtx();
  Context() = default;
  ~Context() { ZSTD_freeDCtx(zstd); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

FrameParser::FrameParser() : context_(std::make_unique<Context>()) {}
FrameParser::~FrameParser() = default;

Status FrameParser::ParseHeader(std::span<const uint8_t, kFrameHeaderBytes> bytes,
                                FrameHeader* header) {
  if (std::memcmp(bytes.data(), kFrameMagic, sizeof(kFrameMagic)) != 0) {
    return Damaged("no frame starts here");
  }
  header->kind = static_cast<FrameKind>(Load<uint16_t>(bytes.data() + 4));
  header->flags = Load<uint16_t>(bytes.data() + 6);
  header->sequence = Load<uint64_t>(bytes.data() + 8);
  header->raw_length = Load<uint32_t>(bytes.data() + 16);
  header->stored_length = Load<uint32_t>(bytes.data() + 20);
  header->hash = Load<uint64_t>(bytes.data() + 24);
  if (header->raw_length > kMaxFrameBytes || header->stored_length > kMaxFrameBytes) {
    return Damaged("a frame has an impossible length");
  }
  return {};
}

Status FrameParser::Unpack(std::span<const uint8_t, kFrameHeaderBytes> header_bytes,
                           const FrameHeader& header, std::span<const uint8_t> stored,
                           std::span<const uint8_t>* payload) {
  const uint64_t hash = FrameHash(header_bytes.data(), stored, chain_);
  if (hash != header.hash) return Damaged("a frame does not match its hash");
  if (header.sequence != sequence_) return Damaged("a frame is out of sequence");
  ++sequence_;
  chain_ = hash;
  if ((header.flags & ~kKnownFrameFlags) != 0) {
    return {KVGUARD_ERROR_VERSION,
            Sprintf("a frame has flags %#x, which this version does not know", header.flags)};
  }
  if ((header.flags & kFrameZstd) == 0) {
    if (header.raw_length != header.stored_length)
      return Damaged("a frame has an impossible length");
    payload_.assign(stored.begin(), stored.end());
  } else {
    if (context_->zstd == nullptr) return {KVGUARD_ERROR_MEMORY, "out of memory"};
    payload_.resize(header.raw_length);
    if ((header.flags & kFramePrefix) != 0) {
      if (prefix_.empty()) return Damaged("a frame refers to a step that is not there");
      ZSTD_DCtx_refPrefix(context_->zstd, prefix_.data(), prefix_.size());
    }
    const size_t size = ZSTD_decompressDCtx(context_->zstd, payload_.data(), payload_.size(),
                                            stored.data(), stored.size());
    if (ZSTD_isError(size) != 0 || size != payload_.size())
      return Damaged("a frame cannot be unpacked");
  }
  if (header.kind == FrameKind::kStep) KeepPrefix(payload_, &prefix_);
  *payload = payload_;
  return {};
}

}  // namespace kvguard::trace
