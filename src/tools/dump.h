// SPDX-License-Identifier: Apache-2.0
// Records as JSON, complete enough for an auditor that shares no code with this one. Fields have
// the names of kvguard.h; an array is {"dtype", "values"} or null where it is absent; names of
// requests are percent-encoded; a table row ends behind its last entry that is not zero, and
// "columns" says how wide it is: the entries that are left out are zero.
#ifndef KVGUARD_SRC_TOOLS_DUMP_H_
#define KVGUARD_SRC_TOOLS_DUMP_H_

#include <functional>
#include <string>

#include "kvguard/kvguard.h"
#include "report/json.h"
#include "trace/reader.h"

namespace kvguard::tools {

report::Json GeometryJson(const kvguard_geometry& geometry);
report::Json RecordJson(const kvguard_record& record);

// What opening a file shows, and, after its end, what it held.
report::Json InfoJson(const trace::TraceReader& reader);

// The whole file, one object a line: geometry, a snapshot where there is one, the records, the
// findings of an incident, the end. Returns the reader's status at the end of what could be read.
step::Status DumpTrace(trace::TraceReader* reader,
                       const std::function<void(const std::string& line)>& write);

}  // namespace kvguard::tools

#endif  // KVGUARD_SRC_TOOLS_DUMP_H_
