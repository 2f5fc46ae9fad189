// SPDX-License-Identifier: Apache-2.0
// What a reader says about files that somebody or something has changed.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "kvguard/kvguard.h"
#include "trace/encode.h"
#include "trace/frame.h"
#include "trace/header.h"
#include "trace/owned.h"
#include "trace/reader.h"
#include "trace/test_files.h"
#include "trace/test_stream.h"

namespace kvguard::trace {
namespace {

class DamagedFile : public ::testing::Test, protected TraceFolder {};

TEST_F(DamagedFile, WhatIsNoTraceIsSaidInASentence) {
  const auto sentence = [&](const std::string& path) {
    TraceReader reader;
    const step::Status status = reader.Open(path);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.text().rfind(path, 0), 0u) << status.text();
    return status;
  };
  EXPECT_NE(sentence(Path("missing")).text().find("No such file"), std::string::npos);
  EXPECT_NE(sentence(folder_.string()).text().find("is a directory"), std::string::npos);
  WriteAll(Path("empty"), {});
  EXPECT_NE(sentence(Path("empty")).text().find("is empty"), std::string::npos);
  WriteAll(Path("foreign"), Bytes(5000, 'k'));
  EXPECT_NE(sentence(Path("foreign")).text().find("not a kvguard trace"), std::string::npos);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_NE(sentence(Path("pipe")).text().find("not a regular file"), std::string::npos);

  const Bytes whole = ReadAll(Record("a.kvtrace", 5, 1));
  for (size_t length = 1; length < kPreludeBytes; ++length) {
    WriteAll(Path("cut"),
             Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    EXPECT_EQ(sentence(Path("cut")).code(), KVGUARD_ERROR_FORMAT);
  }
  // A later framing is not damage: its prelude is right in itself.
  Bytes later = whole;
  later[8] = 2;
  const step::Status damaged = [&] {
    WriteAll(Path("later"), later);
    return sentence(Path("later"));
  }();
  EXPECT_EQ(damaged.code(), KVGUARD_ERROR_FORMAT) << "a flipped version is damage";
}

TEST_F(DamagedFile, EveryCutDeliversTheWholeStepsBeforeIt) {
  const Bytes whole = ReadAll(Record("a.kvtrace", 12, 2));
  uint64_t last = 0;
  for (size_t length = 0; length < whole.size(); ++length) {
    const Replayed replayed =
        ReplayBytes(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    if (!replayed.opened.ok()) continue;
    ASSERT_FALSE(replayed.ended.ok()) << length;
    ASSERT_GE(replayed.steps, last);
    ASSERT_TRUE(replayed.findings.empty());
    last = replayed.steps;
  }
  EXPECT_EQ(last, 12u);
}

// Flips, cuts, splices of two files: never clean, never violated where the original was clean,
// never a crash.
Bytes Damage(const Bytes& original, const Bytes& other, std::mt19937_64* random) {
  Bytes bytes = original;
  const auto at = [&](size_t size) { return static_cast<std::ptrdiff_t>((*random)() % size); };
  switch ((*random)() % 7) {
    case 0: {  // one bit
      bytes[static_cast<size_t>(at(bytes.size()))] ^= static_cast<uint8_t>(1u << ((*random)() % 8));
      break;
    }
    case 1: {  // several bytes
      for (uint64_t n = 1 + (*random)() % 20; n > 0; --n) {
        bytes[static_cast<size_t>(at(bytes.size()))] = static_cast<uint8_t>((*random)());
      }
      break;
    }
    case 2:
      bytes.resize(static_cast<size_t>(at(bytes.size())));
      break;
    case 3: {  // something taken out
      const auto from = at(bytes.size());
      const auto count =
          std::min<std::ptrdiff_t>(1 + at(400), static_cast<std::ptrdiff_t>(bytes.size()) - from);
      bytes.erase(bytes.begin() + from, bytes.begin() + from + count);
      break;
    }
    case 4: {  // a piece of the other file written over
      const auto from = at(other.size());
      const auto count =
          std::min<std::ptrdiff_t>(1 + at(2000), static_cast<std::ptrdiff_t>(other.size()) - from);
      const auto to = at(bytes.size());
      for (std::ptrdiff_t i = 0; i < count && to + i < static_cast<std::ptrdiff_t>(bytes.size());
           ++i) {
        bytes[static_cast<size_t>(to + i)] = other[static_cast<size_t>(from + i)];
      }
      break;
    }
    case 5: {  // its start and the other's end
      const auto cut = at(std::min(bytes.size(), other.size()));
      bytes.resize(static_cast<size_t>(cut));
      bytes.insert(bytes.end(), other.begin() + cut, other.end());
      break;
    }
    default: {  // bytes behind its end
      for (uint64_t n = 1 + (*random)() % 60; n > 0; --n)
        bytes.push_back(static_cast<uint8_t>((*random)()));
      break;
    }
  }
  return bytes;
}

TEST_F(DamagedFile, AThousandDamagesOfACleanTrace) {
  const Bytes clean = ReadAll(Record("a.kvtrace", 40, 2));
  const Bytes other = ReadAll(Record("b.kvtrace", 40, 3));
  std::mt19937_64 random(99);
  int unreadable = 0;
  int partial = 0;
  for (int i = 0; i < 1000; ++i) {
    const Bytes bytes = Damage(clean, other, &random);
    if (bytes == clean || bytes == other) continue;
    const Replayed replayed = ReplayBytes(bytes);
    if (!replayed.opened.ok()) {
      ++unreadable;
      continue;
    }
    ++partial;
    ASSERT_FALSE(replayed.ended.ok()) << "damage " << i << " was not found";
    ASSERT_TRUE(replayed.findings.empty()) << "damage " << i << " made up: " << replayed.findings;
    ASSERT_LE(replayed.steps, 40u);
  }
  EXPECT_GT(unreadable, 20);
  EXPECT_GT(partial, 500);
}

TEST_F(DamagedFile, ADamagedViolatedTraceIsViolatedExactlyWhereTheViolationPrecedesTheDamage) {
  std::string findings;
  const Bytes violated = ReadAll(Record("a.kvtrace", 40, 2, 20, &findings));
  const Bytes other = ReadAll(Record("b.kvtrace", 40, 3));
  // Where the frame with the violation ends.
  size_t violation_end = 0;
  {
    TraceReader reader;
    ASSERT_TRUE(reader.OpenMemory(violated, "x").ok());
    const Guard guard = MakeGuard(reader.geometry());
    for (;;) {
      const kvguard_record* record = nullptr;
      ASSERT_TRUE(reader.Next(&record).ok());
      ASSERT_NE(record, nullptr);
      if (Feed(guard.get(), *record).verdict == KVGUARD_VIOLATED) break;
    }
    violation_end = static_cast<size_t>(reader.bytes());
  }
  std::mt19937_64 random(17);
  int before = 0;
  int after = 0;
  for (int i = 0; i < 1000; ++i) {
    const Bytes bytes = Damage(violated, other, &random);
    if (bytes == violated) continue;
    size_t first = 0;
    while (first < bytes.size() && first < violated.size() && bytes[first] == violated[first])
      ++first;
    const Replayed replayed = ReplayBytes(bytes);
    const bool precedes = first >= violation_end;
    (precedes ? after : before) += 1;
    const bool shown = replayed.opened.ok() && replayed.verdict.verdict == KVGUARD_VIOLATED;
    ASSERT_EQ(shown, precedes) << "damage " << i << " at byte " << first << ", violation ends at "
                               << violation_end;
  }
  EXPECT_GT(before, 200);
  EXPECT_GT(after, 200);
}

// --- formats of later versions ---

// A file made of frames of our choice.
class FileMaker {
 public:
  explicit FileMaker(const kvguard_geometry& geometry) {
    bytes_.assign(Prelude().begin(), Prelude().end());
    HeaderInfo info;
    info.kvguard_version = "9.9.9";
    Add(FrameKind::kHeader, EncodeHeader(geometry, info, 1));
  }
  void Add(FrameKind kind, const Bytes& payload) {
    const auto frame = frames_.Next(kind, payload);
    bytes_.insert(bytes_.end(), frame.begin(), frame.end());
  }
  // A frame of a kind that this version does not know.
  void AddUnknown(bool skippable) {
    // The writer chains what it writes, so the kind is set through it; only the flag needs another
    // way.
    Bytes payload(40, 7);
    const auto frame =
        // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): a kind of a later version
        frames_.Next(static_cast<FrameKind>(77), payload, skippable ? kFrameSkippable : 0);
    bytes_.insert(bytes_.end(), frame.begin(), frame.end());
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  FrameWriter frames_;
  Bytes bytes_;
};

TEST_F(DamagedFile, UnknownFramesAreSkippedWhereTheySayThatTheyMay) {
  ToyEngine engine(ToyShape(), 1);
  StepEncoder encoder(1, nullptr);
  RecordView view;
  FileMaker skippable(engine.geometry());
  FileMaker needed(engine.geometry());
  for (int i = 0; i < 5; ++i) {
    for (const OwnedRecord& record : engine.Step())
      ASSERT_TRUE(encoder.Add(view.Of(record), JudgedColumns()));
    const auto payload = encoder.Finish();
    const Bytes copy(payload.begin(), payload.end());
    skippable.Add(FrameKind::kStep, copy);
    needed.Add(FrameKind::kStep, copy);
    if (i == 3) {
      skippable.AddUnknown(true);
      needed.AddUnknown(false);
    }
  }
  skippable.Add(FrameKind::kFooter, EncodeFooter(FooterInfo()));
  needed.Add(FrameKind::kFooter, EncodeFooter(FooterInfo()));
  const Replayed whole = ReplayBytes(skippable.bytes());
  EXPECT_TRUE(whole.ended.ok()) << whole.ended.text();
  EXPECT_EQ(whole.steps, 5u);
  const Replayed stopped = ReplayBytes(needed.bytes());
  EXPECT_EQ(stopped.ended.code(), KVGUARD_ERROR_VERSION);
  EXPECT_NE(stopped.ended.text().find("4 whole steps"), std::string::npos) << stopped.ended.text();
}

TEST_F(DamagedFile, ALaterFramingIsNamed) {
  // The prelude of version 2, right in itself: magic, version and check are for ever.
  Bytes prelude(Prelude().begin(), Prelude().end());
  const step::Status ours = CheckPrelude(prelude);
  EXPECT_TRUE(ours.ok());
  const Bytes later = PreludeOfVersion(2);
  const step::Status status = CheckPrelude(later);
  EXPECT_EQ(status.code(), KVGUARD_ERROR_VERSION);
  EXPECT_NE(status.text().find("version 2"), std::string::npos);
}

TEST_F(DamagedFile, GeometryComesBackWhole) {
  kvguard_pool pools[2]{};
  kvguard_group groups[2]{};
  const char* gaps[] = {"one", "two"};
  kvguard_geometry g{};
  // Every field another value, so that none can stand for another.
  uint32_t next = 1;
  for (auto& pool : pools) {
    pool = {sizeof(pool), next++, next++, next++, next++, next++,
            next++,       next++, next++, 0,      next++, next++};
  }
  for (auto& group : groups) {
    group = {sizeof(group), next++, next++, next++, next++, next++, next++, next++, next++, next++,
             next++,        next++, next++, next++, next++, next++, next++, next++, next++, next++};
  }
  g = {sizeof(g), next++, "engine", "1.2",  pools,  groups, 2,      2,      next++, next++,
       next++,    next++, next++,   next++, next++, next++, next++, next++, next++, next++,
       next++,    next++, next++,   next++, next++, next++, gaps,   2,      0};
  OwnedGeometry read;
  HeaderInfo info;
  HeaderInfo in;
  in.sentence = "what this is";
  in.config = "{}";
  in.incident = true;
  ASSERT_TRUE(HeaderReader::Decode(EncodeHeader(g, in, 5), &read, &info).ok());
  const kvguard_geometry& v = read.view();
  EXPECT_EQ(std::memcmp(v.pools, pools, sizeof(pools)), 0);
  EXPECT_EQ(std::memcmp(v.groups, groups, sizeof(groups)), 0);
  kvguard_geometry copy = v;
  EXPECT_STREQ(v.engine, g.engine);
  EXPECT_STREQ(v.engine_version, g.engine_version);
  ASSERT_EQ(v.num_standing_gaps, 2u);
  EXPECT_STREQ(v.standing_gaps[1], "two");
  copy.engine = g.engine;
  copy.engine_version = g.engine_version;
  copy.pools = g.pools;
  copy.groups = g.groups;
  copy.standing_gaps = g.standing_gaps;
  EXPECT_EQ(std::memcmp(&copy, &g, sizeof(g)), 0);
  EXPECT_EQ(info.sentence, in.sentence);
  EXPECT_EQ(info.config, in.config);
  EXPECT_TRUE(info.incident);
}

TEST_F(DamagedFile, TheFirstLineOfAFileSaysWhatItIs) {
  const Bytes bytes = ReadAll(Record("a.kvtrace", 1, 1));
  const std::string text(bytes.begin(), bytes.end());
  EXPECT_NE(text.find("This is a kvguard trace of rank 0 of toy 1"), std::string::npos);
}

}  // namespace
}  // namespace kvguard::trace
