// Snapshot files: named arrays in one checksummed file that is replaced as a whole. docs/format.md has every byte.
//
// Writing. Arrays are not copied: they must stay as they are until commit() returns.
//
//     SnapshotWriter writer("multi-index");
//     writer.add<std::int64_t>("ids", ids);                            // any std::span of numbers
//     writer.add_in_pieces<std::uint64_t>("words", n_words, [&](auto& piece) {   // never in memory as one array
//         for (const Segment& segment : segments) piece(std::span(segment.words));
//     });
//     writer.commit(path);     // FileFailure: the old file at `path` is as it was, nothing is left behind
//
// Reading. The spans live as long as the SnapshotFile.
//
//     const SnapshotFile file = SnapshotFile::open(path, "multi-index", SnapshotFile::Access::map);
//     const std::span<const std::int64_t> ids = file.section<std::int64_t>("ids");
//     const std::span<const std::uint64_t> words = file.section<std::uint64_t>("words", ids.size());
//     if (...) file.reject("row 7 is 12; there are 9 rows");           // the reader's own checks
//
// What a file that opens is known to be: it is of this kind and version, it has the length it says, and every section
// lies inside it at a multiple of 64 bytes and holds whole elements of its type. With Check::all, every section also
// has the checksum it says. What is NOT known is that the numbers make sense. A forged file has correct checksums, so
// the reader must check each number that it uses as a position, a count or a shift, before it allocates or indexes by
// it.
//
// A mapped file (Access::map) shares the pages of the file. commit() never writes into an existing file, so saving
// over a file that is open is safe. But if another program truncates the file in place, the next access to the lost
// pages ends the process (SIGBUS): that is how mmap works. If it writes into the file, every number may change at any
// time, also after it was verified; Segment::is_verified says what follows. Access::read keeps its own copy and has no such weakness.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "snapshot_format.hpp"

namespace hamtarget {

// A snapshot file, open for reading. Can be moved, not copied; the spans stay valid when it is moved.
class SnapshotFile {
  public:
    enum class Access {
        map,   // pages of the file itself, shared with every other process that maps it
        read,  // a copy in memory, on huge pages if there are any
    };
    enum class Check {
        all,     // header, table, and the checksum of every section: every byte is read
        bounds,  // header and table, which say where the sections are: no section is read
    };

    // Open the file at `path`, which is of this `kind`. Allocates no more than the length of the file, and that only
    // once the length is known to be the one in a valid header.
    static SnapshotFile open(const std::filesystem::path& path, std::string_view kind, Access access,
                             Check check = Check::all);

    SnapshotFile(SnapshotFile&& other) noexcept;
    SnapshotFile& operator=(SnapshotFile&& other) noexcept;
    ~SnapshotFile();

    const std::filesystem::path& path() const { return path_; }
    std::string_view kind() const { return format::text_of(header().kind); }
    std::size_t n_bytes() const { return n_bytes_; }

    // Sections are in the order of their names.
    std::size_t n_sections() const { return header().n_sections; }
    std::string_view section_name(std::size_t index) const { return format::text_of(table()[index].name); }
    bool has(std::string_view name) const { return find(name) != nullptr; }

    // Return the elements of a section, at an address that is a multiple of 64.
    template <format::Element T>
    std::span<const T> section(std::string_view name) const {
        const format::Section* found = find(name);
        if (!found) reject("it has no section '" + std::string(name) + "'");
        const std::string_view element = format::text_of(found->element);
        if (element != format::element_name<T>())
            reject("section '" + std::string(name) + "' holds " + std::string(element) + "; expected " +
                   format::element_name<T>());
        return {reinterpret_cast<const T*>(memory_ + found->offset), found->n_bytes / sizeof(T)};
    }

    // Return the elements of a section that must have exactly `count` elements.
    template <format::Element T>
    std::span<const T> section(std::string_view name, std::size_t count) const {
        const std::span<const T> elements = section<T>(name);
        if (elements.size() != count)
            reject("section '" + std::string(name) + "' holds " + std::to_string(elements.size()) +
                   " elements; expected " + std::to_string(count));
        return elements;
    }

    // Check the content of one section, if there is such a section. Check::all has done this for all of them.
    void verify(std::string_view name) const;

    // Throw CorruptFile. `found` says what is wrong with the content, and what was expected.
    [[noreturn]] void reject(const std::string& found) const;

  private:
    explicit SnapshotFile(const std::filesystem::path& path) : path_(path) {}

    const format::Header& header() const { return *reinterpret_cast<const format::Header*>(memory_); }
    std::span<const format::Section> table() const {
        return {reinterpret_cast<const format::Section*>(memory_ + sizeof(format::Header)), header().n_sections};
    }

    const format::Section* find(std::string_view name) const;
    void load(Access access, Check check);
    void take(void* memory, std::size_t n_bytes);
    void read_all(const format::Descriptor& file, void* target, std::size_t n_bytes) const;
    void check_header(const format::Header& header, std::uint64_t n_bytes) const;
    void check_sections(Check check) const;
    void check_content(const format::Section& section) const;

    std::filesystem::path path_;
    std::byte* memory_ = nullptr;
    std::size_t n_bytes_ = 0;
};

}  // namespace hamtarget
