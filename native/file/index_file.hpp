// An index as a snapshot file. docs/format.md lists the sections.
#pragma once

#include <filesystem>
#include <memory>

#include "../core/multi_index.hpp"
#include "snapshot.hpp"

namespace hamtarget {

inline constexpr const char* kIndexKind = "multi-index";

// Put the index, as it is now, at `path`. Searches and changes go on meanwhile.
void save_index(const MultiIndex& index, const std::filesystem::path& path);

// Open the index in a file. With Access::map, its pages are read as they are needed and shared between processes.
//
// With Check::all, every byte is read: checksums, and every number that is used as a position. With Check::bounds, the
// lengths of all sections are checked, but the content only of the sections that describe the index and its deleted
// rows. Such an index may give wrong answers; it still reads nothing outside of its arrays (Table).
std::unique_ptr<MultiIndex> open_index(const std::filesystem::path& path, SnapshotFile::Access access,
                                       SnapshotFile::Check check, const CodeKernel& kernel);

}  // namespace hamtarget
