/* SPDX-License-Identifier: Apache-2.0
 *
 * kvguard.h for C++17: handles that close themselves, errors as values, and builders that own what
 * a record points to. Header-only, nothing but the standard library, usable with -fno-exceptions
 * -fno-rtti. kvguard.h stays the specification: what a function judges and when it fails is said
 * there.
 *
 *     kvguard::GeometryBuilder geometry("my-engine", "1.0", 64, 8192);
 *     const uint32_t pool = geometry.AddPool(1024, 0);
 *     geometry.AddGroup(pool, 16);
 *     auto guard = kvguard::Guard::Create(geometry.Build());
 *     if (!guard) return Fail(guard.error().message);
 *
 *     kvguard::StepBuilder step(1);
 *     step.Admit(key, "request-1", 0, 5).Append(key, 0, {7}).Schedule(key, 5, 0);
 *     auto verdict = guard->Feed(step.Begin());
 *     step.Row(key, 5, 5).Slots(0, {112, 113, 114, 115, 116}).TableRow(0, {7});
 *     verdict = guard->Feed(step.Plan());
 *     verdict = guard->Feed(step.End());
 *     if (verdict && verdict->must_raise) ...
 */
#ifndef KVGUARD_KVGUARD_HPP_
#define KVGUARD_KVGUARD_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kvguard/kvguard.h"

#if defined(__cpp_exceptions)
#include <stdexcept>
#endif

namespace kvguard {

/* ---- Errors as values ---- */

/* Why a call did not do what it was asked: the status and its sentence. */
struct Error {
  kvguard_status status = KVGUARD_ERROR_INTERNAL;
  std::string message;
};

#if defined(__cpp_exceptions)
/* What OrThrow throws; nothing else in this header does. */
class Exception : public std::runtime_error {
 public:
  explicit Exception(const Error& error)
      : std::runtime_error(error.message), status_(error.status) {}
  kvguard_status status() const noexcept { return status_; }

 private:
  kvguard_status status_;
};
#endif

/* A T, or the Error that stands in its place: `if (!result) ... result.error()`. */
template <typename T = std::monostate>
class [[nodiscard]] Result {
 public:
  /* Implicit, so that a function returns either as it is. */
  // NOLINTBEGIN(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  // NOLINTEND(google-explicit-constructor)

  explicit operator bool() const { return state_.index() == 0; }

  /* Only where the result holds a value. */
  T& operator*() { return *std::get_if<0>(&state_); }
  const T& operator*() const { return *std::get_if<0>(&state_); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }

  /* Only where it does not. */
  const Error& error() const { return *std::get_if<1>(&state_); }

#if defined(__cpp_exceptions)
  /* For callers that prefer exceptions: the value, or throws Exception. */
  T OrThrow() && {
    if (!*this) throw Exception(error());
    return std::move(**this);
  }
#endif

 private:
  std::variant<T, Error> state_;
};

/* Of calls that have nothing to give but their success. */
using Done = Result<>;

/* ---- Small helpers ---- */

/* A zeroed struct of kvguard.h that knows its size. */
template <typename T>
T Sized() {
  T value{};
  value.size = static_cast<uint32_t>(sizeof(T));
  return value;
}

/* Views of host memory; the memory must live until the record that uses the view was fed. */
inline kvguard_array View(const int32_t* data, size_t count) {
  return {data, count, KVGUARD_I32, 0};
}
inline kvguard_array View(const int64_t* data, size_t count) {
  return {data, count, KVGUARD_I64, 0};
}
inline kvguard_array View(const uint8_t* data, size_t count) {
  return {data, count, KVGUARD_U8, 0};
}
template <typename T>
kvguard_array View(const std::vector<T>& values) {
  return View(values.data(), values.size());
}

namespace detail {

inline Error MakeError(kvguard_status status, const kvguard_error& error) {
  return {status, error.text[0] != '\0' ? std::string(error.text)
                                        : "kvguard status " + std::to_string(status)};
}

/* Calls a function of kvguard.h: call(kvguard_error*) gives its status. */
template <typename Call>
Done Checked(Call call) {
  kvguard_error error = Sized<kvguard_error>();
  const kvguard_status status = call(&error);
  if (status != KVGUARD_OK) return MakeError(status, error);
  return std::monostate{};
}

/* Calls a function that fills a buffer and says how much it needs, with a larger one as long as it
 * asks for that. */
template <typename Call>
Result<std::string> Filled(Call call) {
  std::string buffer(512, '\0');
  for (;;) {
    size_t needed = 0;
    kvguard_error error = Sized<kvguard_error>();
    const kvguard_status status = call(&buffer[0], buffer.size(), &needed, &error);
    const bool short_of_room = status == KVGUARD_ERROR_CAPACITY && needed > buffer.size();
    if (status != KVGUARD_OK && !short_of_room) return MakeError(status, error);
    buffer.resize(needed);
    if (!short_of_room) return buffer;
  }
}

/* The same for text: without the NUL that ends it. */
template <typename Call>
Result<std::string> Text(Call call) {
  Result<std::string> text = Filled(call);
  if (text && !text->empty()) text->pop_back();
  return text;
}

/* The same for an array of structs. */
template <typename T, typename Call>
Result<std::vector<T>> List(Call call) {
  std::vector<T> list(16, Sized<T>());
  for (;;) {
    size_t count = 0;
    kvguard_error error = Sized<kvguard_error>();
    const kvguard_status status = call(list.data(), list.size(), &count, &error);
    const bool short_of_room = count > list.size();
    if (status != KVGUARD_OK && !(short_of_room && status == KVGUARD_ERROR_CAPACITY)) {
      return MakeError(status, error);
    }
    list.resize(count, Sized<T>());
    if (!short_of_room) return list;
  }
}

}  // namespace detail

/* ---- The library ---- */

inline std::string_view Version() { return kvguard_version(); }

/* The printed name of an enum's value; empty for a value that is none. Name("verdict",
 * KVGUARD_CLEAN) is "clean". */
inline std::string_view Name(std::string_view what, int64_t value) {
  const char* name = kvguard_name(std::string(what).c_str(), value);
  return name == nullptr ? std::string_view() : std::string_view(name);
}

inline Result<std::vector<kvguard_rule>> Rules() {
  return detail::List<kvguard_rule>(kvguard_rules);
}

inline Done SelfTest() { return detail::Checked(kvguard_selftest); }

/* Of libkvguard, not of kvguard_core. */
inline Result<kvguard_config> ParseConfig(std::string_view json) {
  kvguard_config config = Sized<kvguard_config>();
  Done done = detail::Checked([&](kvguard_error* error) {
    return kvguard_config_parse(json.data(), json.size(), &config, error);
  });
  if (!done) return done.error();
  return config;
}

inline Result<std::string> ConfigSchema() { return detail::Text(kvguard_schema); }

/* ---- Guard ---- */

/* Owns a kvguard_guard. Moved from or default-made, it is empty: only assignment and destruction
 * are allowed then. */
class Guard {
 public:
  Guard() = default;

  static Result<Guard> Create(const kvguard_geometry& geometry,
                              const kvguard_config* config = nullptr) {
    kvguard_guard* handle = nullptr;
    Done done = detail::Checked(
        [&](kvguard_error* error) { return kvguard_create(&geometry, config, &handle, error); });
    if (!done) return done.error();
    Guard guard;
    guard.handle_.reset(handle);
    return guard;
  }

  kvguard_guard* get() const { return handle_.get(); }

  /* The verdict so far and the answer to this record. An Error says that the record could not be
   * judged, which is itself part of the account: Verdict() then no longer says "clean". */
  Result<kvguard_verdict> Feed(const kvguard_record& record) {
    return WithVerdict([&](kvguard_verdict* verdict, kvguard_error* error) {
      return kvguard_feed(get(), &record, verdict, error);
    });
  }

  Result<kvguard_verdict> Wait(uint64_t step, uint64_t timeout_ns) {
    return WithVerdict([&](kvguard_verdict* verdict, kvguard_error* error) {
      return kvguard_wait(get(), step, timeout_ns, verdict, error);
    });
  }

  Result<kvguard_verdict> Verdict() const {
    return WithVerdict([&](kvguard_verdict* verdict, kvguard_error* error) {
      return kvguard_verdict_now(get(), verdict, error);
    });
  }

  /* Stored findings with sequence >= first, oldest first. */
  Result<std::vector<kvguard_finding>> Findings(uint64_t first = 0) const {
    return detail::List<kvguard_finding>([&](auto* list, size_t room, size_t* count, auto* error) {
      return kvguard_findings(get(), first, list, room, count, error);
    });
  }

  /* The machine line and the prose, each with its newline. */
  Result<std::string> Explain(const kvguard_finding& finding) const {
    return detail::Text([&](char* text, size_t room, size_t* needed, kvguard_error* error) {
      return kvguard_explain(get(), &finding, text, room, needed, error);
    });
  }

  Result<std::vector<kvguard_coverage_row>> Coverage() const {
    return detail::List<kvguard_coverage_row>(
        [&](auto* list, size_t room, size_t* count, auto* error) {
          return kvguard_coverage(get(), list, room, count, error);
        });
  }

  Result<std::vector<kvguard_gap>> Gaps() const {
    return detail::List<kvguard_gap>([&](auto* list, size_t room, size_t* count, auto* error) {
      return kvguard_gaps(get(), list, room, count, error);
    });
  }

  /* The mirror as bytes, between steps. */
  Result<std::string> Snapshot() const {
    return detail::Filled([&](char* bytes, size_t room, size_t* needed, kvguard_error* error) {
      return kvguard_snapshot(get(), bytes, room, needed, error);
    });
  }

  Done Restore(std::string_view bytes) {
    return detail::Checked([&](kvguard_error* error) {
      return kvguard_restore(get(), bytes.data(), bytes.size(), error);
    });
  }

  /* Of libkvguard, not of kvguard_core. */
  Done RecordStart(std::string_view path, uint64_t max_bytes = 0) {
    return detail::Checked([&](kvguard_error* error) {
      return kvguard_record_start(get(), std::string(path).c_str(), max_bytes, error);
    });
  }

  Done RecordStop() {
    return detail::Checked([&](kvguard_error* error) { return kvguard_record_stop(get(), error); });
  }

 private:
  template <typename Call>
  static Result<kvguard_verdict> WithVerdict(Call call) {
    kvguard_verdict verdict = Sized<kvguard_verdict>();
    Done done = detail::Checked([&](kvguard_error* error) { return call(&verdict, error); });
    if (!done) return done.error();
    return verdict;
  }

  struct Destroy {
    void operator()(kvguard_guard* guard) const { kvguard_destroy(guard); }
  };
  std::unique_ptr<kvguard_guard, Destroy> handle_;
};

/* ---- Trace ---- */

/* Owns a kvguard_trace: a recorded stream, read record by record. Of libkvguard, not of
 * kvguard_core. */
class Trace {
 public:
  Trace() = default;

  static Result<Trace> Open(std::string_view path) {
    kvguard_trace* handle = nullptr;
    Trace trace;
    Done done = detail::Checked([&](kvguard_error* error) {
      return kvguard_trace_open(std::string(path).c_str(), &handle, &trace.geometry_, error);
    });
    if (!done) return done.error();
    trace.handle_.reset(handle);
    return trace;
  }

  kvguard_trace* get() const { return handle_.get(); }
  const kvguard_geometry& geometry() const { return *geometry_; }

  /* The next record, which lives until the next call; nullptr where the trace ends undamaged. */
  Result<const kvguard_record*> Next() {
    const kvguard_record* record = nullptr;
    kvguard_error error = Sized<kvguard_error>();
    const kvguard_status status = kvguard_trace_next(get(), &record, &error);
    if (status == KVGUARD_END_OF_TRACE) return static_cast<const kvguard_record*>(nullptr);
    if (status != KVGUARD_OK) return detail::MakeError(status, error);
    return record;
  }

  /* What to restore before the first record where a file starts from the middle; empty if there is
   * nothing. */
  Result<std::string_view> Snapshot() {
    const void* bytes = nullptr;
    size_t size = 0;
    Done done = detail::Checked(
        [&](kvguard_error* error) { return kvguard_trace_snapshot(get(), &bytes, &size, error); });
    if (!done) return done.error();
    return std::string_view(static_cast<const char*>(bytes), size);
  }

 private:
  struct Close {
    void operator()(kvguard_trace* trace) const { kvguard_trace_close(trace); }
  };
  std::unique_ptr<kvguard_trace, Close> handle_;
  const kvguard_geometry* geometry_ = nullptr;
};

}  // namespace kvguard

#include "kvguard/builders.hpp"  // IWYU pragma: export

#endif  // KVGUARD_KVGUARD_HPP_
