// SPDX-License-Identifier: Apache-2.0
// Records to bytes and back: every kind, every read encoding, any values.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trace/column.h"
#include "trace/decode.h"
#include "trace/encode.h"
#include "trace/kvtrace_generated.h"
#include "trace/owned.h"
#include "trace/table.h"
#include "trace/test_stream.h"

namespace kvguard::trace {
namespace {

std::vector<uint8_t> Copy(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

TEST(Column, KeepsValuesInEveryShape) {
  std::mt19937_64 random(1);
  ColumnWriter writer;
  ColumnMemory written;
  ColumnMemory read;
  std::vector<int64_t> scratch;
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> values(random() % 100);
    const uint64_t shape = random() % 4;
    int64_t run = static_cast<int64_t>(random() % 1000);
    for (int64_t& value : values) {
      if (random() % 20 == 0) run = static_cast<int64_t>(random());
      value = shape == 0 ? static_cast<int64_t>(random()) : shape == 1 ? run : run++;
    }
    if (round % 7 == 3) values = written.values;  // the same again
    if (round % 7 == 5) {
      values = written.values;
      for (int64_t& value : values) value = WrapAdd(value, 1);
    }
    ByteBuffer bytes;
    const bool alone = round % 3 == 0;
    const auto put = writer.Put(values, alone ? nullptr : &written, &bytes);
    DecodedColumn column;
    if (put == ColumnWriter::Result::kSame) {
      ASSERT_EQ(bytes.size(), 0u);
      ASSERT_TRUE(GetSameColumn(100, read, &column));
    } else {
      ASSERT_EQ(put, ColumnWriter::Result::kPut);
      ASSERT_EQ(GetColumn(bytes.bytes(), 100, alone ? nullptr : &read, &scratch, &column),
                ColumnResult::kOk);
    }
    ASSERT_EQ(column.dtype, static_cast<uint32_t>(KVGUARD_I64));
    ASSERT_EQ(std::vector<int64_t>(column.values.begin(), column.values.end()), values);
  }
}

TEST(Column, ConsecutiveSlotsCostAFewBytes) {
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < 2048; ++i) slots.push_back(5000 + i);
  ByteBuffer bytes;
  ColumnWriter().Put(slots, nullptr, &bytes);
  EXPECT_LE(bytes.size(), 10u);
}

TEST(Column, ADecodeAdvancesByOneByteOfRuns) {
  ColumnWriter writer;
  ColumnMemory memory;
  std::vector<int64_t> lengths = {100, 7, 93, 1500, 2, 33, 401, 12};
  ByteBuffer first;
  EXPECT_EQ(writer.Put(lengths, &memory, &first), ColumnWriter::Result::kPut);
  for (int64_t& length : lengths) ++length;
  ByteBuffer second;
  EXPECT_EQ(writer.Put(lengths, &memory, &second), ColumnWriter::Result::kPut);
  EXPECT_LE(second.size(), 5u);
  ByteBuffer same;
  EXPECT_EQ(writer.Put(lengths, &memory, &same), ColumnWriter::Result::kSame);
  const std::vector<int32_t> narrow(lengths.begin(), lengths.end());
  kvguard_array array{};
  array.data = narrow.data();
  array.count = narrow.size();
  array.dtype = KVGUARD_I32;
  EXPECT_EQ(writer.Put(array, 100, &memory, &same), ColumnWriter::Result::kPut)
      << "equal values of another type";
}

TEST(Column, DamagedBytesAreRefused) {
  std::vector<int64_t> scratch;
  DecodedColumn column;
  const auto get = [&](std::vector<uint8_t> bytes, ColumnMemory* memory) {
    return GetColumn(bytes, 1000, memory, &scratch, &column);
  };
  const uint8_t literal_i64 = KVGUARD_I64 << 2;
  EXPECT_EQ(get({}, nullptr), ColumnResult::kDamaged);
  EXPECT_EQ(get({literal_i64}, nullptr), ColumnResult::kDamaged);
  EXPECT_EQ(get({literal_i64, 2, 2}, nullptr), ColumnResult::kDamaged);     // one of two elements
  EXPECT_EQ(get({literal_i64, 1, 2, 2}, nullptr), ColumnResult::kDamaged);  // something behind
  EXPECT_EQ(get({literal_i64, 2, 3, 1}, nullptr), ColumnResult::kDamaged);  // a run past the end
  EXPECT_EQ(get({literal_i64, 0xff, 0xff, 3, 3}, nullptr), ColumnResult::kTooLarge);
  EXPECT_EQ(get({static_cast<uint8_t>(literal_i64 | 1), 1, 2}, nullptr), ColumnResult::kDamaged);
  EXPECT_EQ(get({static_cast<uint8_t>(literal_i64 | 2), 0}, nullptr), ColumnResult::kDamaged);
  EXPECT_EQ(get({static_cast<uint8_t>(literal_i64 | 3), 0}, nullptr), ColumnResult::kDamaged);
  EXPECT_FALSE(GetSameColumn(100, ColumnMemory(), &column));
  EXPECT_EQ(get({KVGUARD_U8 << 2, 1, 1 << 1}, nullptr), ColumnResult::kDamaged);  // -1 as a byte
  EXPECT_EQ(get({0, 0}, nullptr), ColumnResult::kDamaged);                        // no dtype
  ColumnMemory memory{{1, 2, 3}, KVGUARD_I64};
  EXPECT_EQ(get({static_cast<uint8_t>(literal_i64 | 1), 2, 2, 2}, &memory), ColumnResult::kDamaged);
}

TEST(Runs, PiecesAreOneSequence) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> values(1 + random() % 200);
    int32_t run = 0;
    for (int32_t& value : values) {
      if (random() % 30 == 0) run = static_cast<int32_t>(random() % 100000);
      value = random() % 2 == 0 ? run : ++run;
    }
    ByteBuffer whole;
    RunWriter whole_writer(&whole);
    whole_writer.Put(values.data(), values.size());
    whole_writer.Flush();
    ByteBuffer pieces;
    RunWriter piece_writer(&pieces);
    for (size_t at = 0; at < values.size();) {
      const size_t n = std::min<size_t>(1 + random() % 40, values.size() - at);
      piece_writer.Put(values.data() + at, n);
      at += n;
    }
    piece_writer.Flush();
    ASSERT_EQ(Copy(whole.bytes()), Copy(pieces.bytes()));
    ByteReader in(whole.bytes());
    std::vector<int64_t> read(values.size());
    ASSERT_TRUE(GetRuns(&in, read));
    ASSERT_EQ(read, std::vector<int64_t>(values.begin(), values.end()));
  }
}

TEST(Tokens, SipHashIsSipHash) {
  // The reference vector of SipHash-2-4: key 00..0f, message 00..07.
  EXPECT_EQ(SipHash(0x0706050403020100u, 0x0f0e0d0c0b0a0908u, 0x0706050403020100u),
            0x93f5f5799a932462u);
}

TEST(Tokens, EqualIdsAreEqualValuesAndNoValueIsAnId) {
  TokenMapper mapper;
  mapper.SetKeyForTest(1, 2);
  TokenColumnWriter writer;
  TokenColumnReader reader;
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> tokens(random() % 50);
    for (int64_t& token : tokens) token = static_cast<int64_t>(random() % 300) - 2;
    ByteBuffer bytes;
    writer.PutMapped(tokens, mapper, &bytes);
    std::vector<int64_t> read;
    ASSERT_TRUE(reader.Get(bytes.bytes(), 50, &read));
    ASSERT_EQ(read.size(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(read[i], mapper.Map(tokens[i]));
      if (tokens[i] < 0) {
        EXPECT_EQ(read[i], tokens[i]);
      } else {
        EXPECT_GT(read[i], int64_t{1} << 32) << "of 300 hashes of 63 bits none is that small";
      }
    }
  }
}

TEST(Tokens, WideColumnsAreMappedInPlace) {
  TokenMapper mapper;
  mapper.SetKeyForTest(5, 6);
  TokenColumnWriter writer;
  ByteBuffer bytes;
  const std::vector<int64_t> tokens = {5, 6, -1, 7, 5};
  writer.PutWide(tokens, &bytes);
  std::vector<uint8_t> copy = Copy(bytes.bytes());
  MapWideTokens(copy, mapper);
  std::vector<int64_t> read;
  ASSERT_TRUE(TokenColumnReader().Get(copy, 10, &read));
  EXPECT_EQ(read,
            (std::vector<int64_t>{mapper.Map(5), mapper.Map(6), -1, mapper.Map(7), mapper.Map(5)}));
}

OwnedRecord Mapped(OwnedRecord record, const TokenMapper& mapper) {
  for (OwnedEvent& event : record.events) {
    for (int64_t& token : event.tokens) token = mapper.Map(token);
  }
  for (OwnedOutcomeRow& row : record.rows) {
    for (int64_t& token : row.tokens) token = mapper.Map(token);
  }
  return record;
}

void RoundTrip(bool mapped, uint64_t seed) {
  constexpr uint32_t kGroups = 3;
  TokenMapper mapper;
  mapper.SetKeyForTest(seed, 7);
  RandomRecords records(kGroups, seed);
  StepEncoder encoder(kGroups, mapped ? &mapper : nullptr);
  StepDecoder decoder(kGroups);
  RecordView view;
  std::mt19937_64 random(seed);
  for (int payload = 0; payload < 150; ++payload) {
    if (random() % 20 == 0) encoder.Forget();
    std::vector<OwnedRecord> put(random() % 5);
    for (OwnedRecord& record : put) {
      record = records.Next();
      ASSERT_TRUE(encoder.Add(view.Of(record), JudgedColumns()));
    }
    ASSERT_EQ(encoder.num_records(), put.size());
    const std::vector<uint8_t> bytes = Copy(encoder.Finish());
    const step::Status opened = decoder.Open(bytes);
    ASSERT_TRUE(opened.ok()) << opened.text();
    ASSERT_EQ(decoder.left(), put.size());
    for (const OwnedRecord& record : put) {
      const kvguard_record* read = nullptr;
      const step::Status status = decoder.Next(&read);
      ASSERT_TRUE(status.ok()) << status.text();
      ASSERT_EQ(OwnedRecord::Of(*read), mapped ? Mapped(record, mapper) : record)
          << "kind " << record.kind;
    }
  }
}

TEST(Codec, RandomRecordsComeBack) {
  for (uint64_t seed = 0; seed < 20; ++seed) RoundTrip(false, seed);
}

TEST(Codec, RandomRecordsComeBackWithMappedTokens) {
  for (uint64_t seed = 100; seed < 110; ++seed) RoundTrip(true, seed);
}

TEST(Codec, WhatNoRuleReadsIsNotKept) {
  ToyShape shape;
  shape.pad_rows = false;
  ToyEngine engine(shape, 1);
  StepEncoder encoder(1, nullptr);
  StepDecoder decoder(1);
  RecordView view;
  JudgedColumns two;
  two.columns = [](const void*, const kvguard_plan&, const kvguard_group_plan&, uint64_t row) {
    return row == 0 ? uint64_t{2} : uint64_t{0};
  };
  for (int step = 0; step < 20; ++step) {
    for (OwnedRecord record : engine.Step()) {
      if (record.kind != KVGUARD_RECORD_PLAN) continue;
      OwnedTable& table = record.plan.groups[0].table;
      for (int64_t& entry : table.entries) entry += 1000;  // residue in every column
      ASSERT_TRUE(encoder.Add(view.Of(record), two));
      const std::vector<uint8_t> bytes = Copy(encoder.Finish());
      ASSERT_TRUE(decoder.Open(bytes).ok());
      const kvguard_record* read = nullptr;
      ASSERT_TRUE(decoder.Next(&read).ok());
      for (uint64_t r = 0; r < table.rows; ++r) {
        for (uint64_t c = 0; c < table.columns; ++c) {
          if (r > 0 || c > 1) table.at(r, c) = 0;
        }
      }
      ASSERT_EQ(OwnedRecord::Of(*read), record);
    }
  }
}

TEST(Codec, ATableIsNarrowAgainAfterAWideOne) {
  // The reader keeps a table's memory from plan to plan; what an earlier plan left must not show.
  StepEncoder encoder(1, nullptr);
  StepDecoder decoder(1);
  RecordView view;
  static uint64_t keep;
  JudgedColumns judged;
  judged.columns = [](const void*, const kvguard_plan&, const kvguard_group_plan&, uint64_t) {
    return keep;
  };
  for (const uint64_t columns : {9u, 3u, 0u, 5u, 1u, 9u}) {
    keep = columns;
    OwnedRecord record;
    record.kind = KVGUARD_RECORD_PLAN;
    record.plan.num_rows = record.plan.padded_rows = 2;
    record.plan.requests = {1, 2};
    OwnedGroupPlan group;
    group.encoding = KVGUARD_READ_TABLE;
    group.table.dtype = KVGUARD_I64;
    group.table.rows = 2;
    group.table.columns = 9;
    group.table.entries.assign(18, 77);
    record.plan.groups.push_back(group);
    ASSERT_TRUE(encoder.Add(view.Of(record), judged));
    const std::vector<uint8_t> bytes = Copy(encoder.Finish());
    ASSERT_TRUE(decoder.Open(bytes).ok());
    const kvguard_record* read = nullptr;
    ASSERT_TRUE(decoder.Next(&read).ok());
    OwnedTable& table = record.plan.groups[0].table;
    for (uint64_t r = 0; r < 2; ++r) {
      for (uint64_t c = columns; c < 9; ++c) table.at(r, c) = 0;
    }
    ASSERT_EQ(OwnedRecord::Of(*read), record);
  }
}

TEST(Codec, ElementsOfAnOlderAndALaterCallerAreRead) {
  // A caller's structs may be shorter or longer than ours: elements are strided by their own size.
  struct Long {
    kvguard_scheduled row;
    uint64_t later[3];
  };
  Long rows[2]{};
  for (size_t i = 0; i < 2; ++i) {
    rows[i].row.size = sizeof(Long);
    rows[i].row.request = 10 + i;
    rows[i].row.num_tokens = static_cast<int64_t>(1 + i);
  }
  kvguard_begin begin{};
  begin.size = sizeof(begin);
  begin.scheduled = &rows[0].row;
  begin.num_scheduled = 2;
  kvguard_record record{};
  record.size = sizeof(record);
  record.kind = KVGUARD_RECORD_BEGIN;
  record.step = 3;
  record.body.begin = &begin;
  StepEncoder encoder(1, nullptr);
  ASSERT_TRUE(encoder.Add(record, JudgedColumns()));
  const std::vector<uint8_t> bytes = Copy(encoder.Finish());
  StepDecoder decoder(1);
  ASSERT_TRUE(decoder.Open(bytes).ok());
  const kvguard_record* read = nullptr;
  ASSERT_TRUE(decoder.Next(&read).ok());
  const OwnedRecord owned = OwnedRecord::Of(*read);
  ASSERT_EQ(owned.scheduled.size(), 2u);
  EXPECT_EQ(owned.scheduled[1].request, 11u);
  EXPECT_EQ(owned.scheduled[1].num_tokens, 2);
}

// --- payloads that lie ---

TEST(Decoder, RandomBytesNeverPassAndNeverCrash) {
  std::mt19937_64 random(11);
  StepEncoder encoder(2, nullptr);
  RandomRecords records(2, 5);
  RecordView view;
  std::vector<std::vector<uint8_t>> payloads;
  for (int i = 0; i < 30; ++i) {
    for (int n = 0; n < 3; ++n) ASSERT_TRUE(encoder.Add(view.Of(records.Next()), JudgedColumns()));
    payloads.push_back(Copy(encoder.Finish()));
  }
  for (int round = 0; round < 3000; ++round) {
    StepDecoder decoder(2);
    for (const auto& original : payloads) {
      std::vector<uint8_t> bytes = original;
      if (random() % 4 == 0) {
        for (uint64_t n = 1 + random() % 8; n > 0; --n) {
          bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
        }
      }
      if (!decoder.Open(bytes).ok()) break;
      bool stop = false;
      while (!stop && decoder.left() > 0) {
        const kvguard_record* read = nullptr;
        stop = !decoder.Next(&read).ok();
        if (!stop) (void)OwnedRecord::Of(*read);  // touches every array
      }
      if (stop) break;
    }
  }
}

// A payload of one record, built field by field: right in its form, wrong in what it says.
class Liar {
 public:
  flatbuffers::FlatBufferBuilder fbb;

  flatbuffers::Offset<flatbuffers::Vector<uint8_t>> Bytes(const std::vector<uint8_t>& bytes) {
    return fbb.CreateVector(bytes);
  }
  // `count` times the difference one: as many elements as one likes, in a few bytes.
  flatbuffers::Offset<flatbuffers::Vector<uint8_t>> Many(uint64_t count, uint32_t dtype) {
    ByteBuffer out;
    out.Reserve(40);
    out.PutByte(static_cast<uint8_t>(dtype << 2));
    out.PutVarint(count);
    out.PutByte(1 | 2 << 1);
    out.PutVarint(count - 2);
    return fbb.CreateVector(out.data(), out.size());
  }
  template <typename T>
  step::Status Read(wire::Body type, flatbuffers::Offset<T> body) {
    std::vector<flatbuffers::Offset<wire::Record>> records = {
        wire::CreateRecord(fbb, 1, type, body.Union())};
    fbb.Finish(wire::CreateStep(fbb, fbb.CreateVector(records), true));
    StepDecoder decoder(2);
    const std::vector<uint8_t> payload(fbb.GetBufferPointer(),
                                       fbb.GetBufferPointer() + fbb.GetSize());
    if (step::Status s = decoder.Open(payload); !s.ok()) return s;
    const kvguard_record* record = nullptr;
    return decoder.Next(&record);
  }
};

void ExpectRefused(const step::Status& status, const char* why) {
  EXPECT_EQ(status.code(), KVGUARD_ERROR_FORMAT);
  EXPECT_NE(status.text().find(why), std::string::npos) << status.text();
}

TEST(Decoder, LyingCountsAreRefusedBeforeMemoryIsTaken) {
  constexpr uint64_t kHuge = uint64_t{1} << 31;
  {
    Liar liar;
    const auto events = wire::CreateEvents(liar.fbb, 0xffffffffu);
    ExpectRefused(liar.Read(wire::Body::Begin, wire::CreateBegin(liar.fbb, events)), "256 MiB");
  }
  {
    Liar liar;
    const auto body = wire::CreateBegin(liar.fbb, 0, 0xffffffffu);
    ExpectRefused(liar.Read(wire::Body::Begin, body), "256 MiB");
  }
  {
    Liar liar;
    const auto requests = liar.Many(kHuge, KVGUARD_I64);
    wire::PlanBuilder plan(liar.fbb);
    plan.add_num_rows(kHuge);
    plan.add_requests(requests);
    ExpectRefused(liar.Read(wire::Body::Plan, plan.Finish()), "256 MiB");
  }
  {
    Liar liar;  // rows by number and rows by list
    const auto requests = liar.Many(5, KVGUARD_I64);
    wire::PlanBuilder plan(liar.fbb);
    plan.add_num_rows(6);
    plan.add_requests(requests);
    ExpectRefused(liar.Read(wire::Body::Plan, plan.Finish()), "list of requests");
  }
  const auto table = [](uint64_t rows, uint64_t columns, uint64_t judged_rows, const char* why) {
    Liar liar;
    const auto requests = liar.Many(4, KVGUARD_I64);
    const auto judged = liar.Many(judged_rows, KVGUARD_I64);
    wire::GroupPlanBuilder group(liar.fbb);
    group.add_encoding(KVGUARD_READ_TABLE);
    group.add_table_dtype(KVGUARD_I32);
    group.add_table_rows(rows);
    group.add_table_columns(columns);
    group.add_judged(judged);
    std::vector<flatbuffers::Offset<wire::GroupPlan>> groups = {group.Finish()};
    const auto group_vector = liar.fbb.CreateVector(groups);
    wire::PlanBuilder plan(liar.fbb);
    plan.add_num_rows(4);
    plan.add_requests(requests);
    plan.add_groups(group_vector);
    ExpectRefused(liar.Read(wire::Body::Plan, plan.Finish()), why);
  };
  table(kHuge, kHuge, 4, "256 MiB");
  table(uint64_t{1} << 63, 2, 4, "256 MiB");
  table(4, uint64_t{1} << 63, 4, "256 MiB");
  table(uint64_t{1} << 62, 4, 4, "256 MiB");
  table(kHuge, 0, 4, "256 MiB");
  table(2, 100, 4, "table");  // more judged rows than rows
  table(4, 3, 4, "table");    // more judged columns than columns
  table(4, 100, 4, "table");  // entries that are nowhere
  {
    Liar liar;  // a group that the geometry does not have
    const auto requests = liar.Many(2, KVGUARD_I64);
    std::vector<flatbuffers::Offset<wire::GroupPlan>> groups = {wire::CreateGroupPlan(liar.fbb, 7)};
    const auto group_vector = liar.fbb.CreateVector(groups);
    wire::PlanBuilder plan(liar.fbb);
    plan.add_num_rows(2);
    plan.add_requests(requests);
    plan.add_groups(group_vector);
    ExpectRefused(liar.Read(wire::Body::Plan, plan.Finish()), "group");
  }
  {
    Liar liar;  // the array before the first one
    wire::PlanBuilder plan(liar.fbb);
    plan.add_same(1);
    ExpectRefused(liar.Read(wire::Body::Plan, plan.Finish()), "list of requests");
  }
  {
    Liar liar;  // token counts that add up to more than there are
    const auto kind = liar.Many(3, KVGUARD_I64);
    const auto tokens = liar.Many(3, KVGUARD_I64);
    wire::EventsBuilder events(liar.fbb);
    events.add_count(3);
    events.add_kind(kind);
    events.add_num_tokens(tokens);
    const auto offset = events.Finish();
    ExpectRefused(liar.Read(wire::Body::Begin, wire::CreateBegin(liar.fbb, offset)), "tokens");
  }
}

}  // namespace
}  // namespace kvguard::trace
