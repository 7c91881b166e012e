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
// Reading. The file is validated as a whole before open() returns; the spans live as long as the SnapshotFile.
//
//     const SnapshotFile file = SnapshotFile::open(path, "multi-index", SnapshotFile::Access::map);
//     const std::span<const std::int64_t> ids = file.section<std::int64_t>("ids");
//     const std::span<const std::uint64_t> words = file.section<std::uint64_t>("words", ids.size());
//     if (...) file.reject("row 7 is 12; there are 9 rows");           // the reader's own checks
//
// What is promised of a file that opens: it is of this kind and version, has the length it says, every section lies
// inside it at a multiple of 64 bytes, has the checksum it says, and holds whole elements of its type. What is NOT:
// that the numbers make sense. A forged file has correct checksums, so the reader must check each number that it uses
// as a position, a count or a shift, before it allocates or indexes by it.
//
// A mapped file (Access::map) shares the pages of the file. commit() never writes into an existing file, so saving
// over a file that is open is safe. But if another program truncates the file in place, the next access to the lost
// pages ends the process (SIGBUS): that is how mmap works. Access::read keeps its own copy and has no such weakness.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "checksum.hpp"
#include "snapshot_format.hpp"
#include "snapshot_writer.hpp"

namespace hamtarget {

// A snapshot file, open for reading. Can be moved, not copied; the spans stay valid when it is moved.
class SnapshotFile {
  public:
    enum class Access {
        map,  // pages of the file itself, shared with every other process that maps it
        read,  // a copy in memory, on huge pages where there are any
    };

    // The file at `path`, which is of this `kind`. Every byte is read and checked here. Allocates no more than the
    // length of the file, and that only once the length is known to be the one in a valid header.
    static SnapshotFile open(const std::filesystem::path& path, std::string_view kind, Access access) {
        SnapshotFile file(path);
        file.load(access);
        if (file.kind() != kind)
            file.reject("it is of kind '" + std::string(file.kind()) + "'; expected '" + std::string(kind) + "'");
        return file;
    }

    SnapshotFile(SnapshotFile&& other) noexcept
        : path_(std::move(other.path_)),
          memory_(std::exchange(other.memory_, nullptr)),
          n_bytes_(std::exchange(other.n_bytes_, 0)) {}
    SnapshotFile& operator=(SnapshotFile&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(memory_, other.memory_);
        std::swap(n_bytes_, other.n_bytes_);
        return *this;
    }
    ~SnapshotFile() {
        if (memory_) ::munmap(memory_, n_bytes_);
    }

    const std::filesystem::path& path() const { return path_; }
    std::string_view kind() const { return format::text_of(header().kind); }
    std::uint32_t version() const { return header().version; }
    std::size_t n_bytes() const { return n_bytes_; }

    // Sections in the order of their names.
    std::size_t n_sections() const { return header().n_sections; }
    std::string_view section_name(std::size_t index) const { return format::text_of(table()[index].name); }
    bool has(std::string_view name) const { return find(name) != nullptr; }

    // The elements of a section, at an address that is a multiple of 64.
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

    // The same, with exactly `count` elements.
    template <format::Element T>
    std::span<const T> section(std::string_view name, std::size_t count) const {
        const std::span<const T> elements = section<T>(name);
        if (elements.size() != count)
            reject("section '" + std::string(name) + "' holds " + std::to_string(elements.size()) +
                   " elements; expected " + std::to_string(count));
        return elements;
    }

    // Throws CorruptFile: `found` says what is wrong with the content, and what was expected.
    [[noreturn]] void reject(const std::string& found) const { throw CorruptFile(path_.string() + ": " + found); }

  private:
    explicit SnapshotFile(const std::filesystem::path& path) : path_(path) {}

    const format::Header& header() const { return *reinterpret_cast<const format::Header*>(memory_); }
    std::span<const format::Section> table() const {
        return {reinterpret_cast<const format::Section*>(memory_ + sizeof(format::Header)), header().n_sections};
    }

    const format::Section* find(std::string_view name) const {
        const auto rows = table();
        const auto before = [](const format::Section& row, std::string_view text) {
            return format::text_of(row.name) < text;
        };
        const auto row = std::lower_bound(rows.begin(), rows.end(), name, before);
        return row != rows.end() && format::text_of(row->name) == name ? &*row : nullptr;
    }

    void load(Access access) {
        // Opening a pipe would wait for a writer, perhaps for ever.
        const format::Descriptor file(
            format::uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
        if (!file.is_open()) throw FileFailure(path_, "open", errno);
        struct stat status;
        if (::fstat(file.number(), &status) != 0) throw FileFailure(path_, "open", errno);
        if (S_ISDIR(status.st_mode)) throw FileFailure(path_, "open", EISDIR);
        if (!S_ISREG(status.st_mode)) reject("it is a device or a pipe; expected a file");

        const auto n_bytes = static_cast<std::uint64_t>(status.st_size);
        format::Header header;
        if (n_bytes < sizeof header)
            reject("it has " + std::to_string(n_bytes) + " bytes; expected at least " + std::to_string(sizeof header));
        read_all(file, &header, sizeof header);
        check_header(header, n_bytes);

        if (access == Access::map) {
            take(::mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE, file.number(), 0), n_bytes);
            // All of it is read at once, below.
            ::madvise(memory_, n_bytes_, MADV_WILLNEED);
        } else {
            take(::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), n_bytes);
#ifdef MADV_HUGEPAGE
            ::madvise(memory_, n_bytes_, MADV_HUGEPAGE);
#endif
            if (::lseek(file.number(), 0, SEEK_SET) != 0) throw FileFailure(path_, "read", errno);
            read_all(file, memory_, n_bytes_);
            ::mprotect(memory_, n_bytes_, PROT_READ);
        }
        // The copy that was checked is not the one that is used from here on.
        if (std::memcmp(memory_, &header, sizeof header) != 0) reject("it changes while it is being read");
        check_sections();
    }

    void take(void* memory, std::size_t n_bytes) {
        if (memory == MAP_FAILED) throw FileFailure(path_, "map", errno);
        memory_ = static_cast<std::byte*>(memory);
        n_bytes_ = n_bytes;
    }

    void read_all(const format::Descriptor& file, void* target, std::size_t n_bytes) const {
        auto* at = static_cast<std::byte*>(target);
        while (n_bytes > 0) {
            const std::size_t wanted = std::min<std::size_t>(n_bytes, 1 << 30);
            const ssize_t count = format::uninterrupted([&] { return ::read(file.number(), at, wanted); });
            if (count < 0) throw FileFailure(path_, "read", errno);
            if (count == 0) reject("it shrinks while it is being read");
            at += count;
            n_bytes -= static_cast<std::size_t>(count);
        }
    }

    void check_header(const format::Header& header, std::uint64_t n_bytes) const {
        if (std::memcmp(header.magic, format::kMagic, sizeof header.magic) != 0)
            reject("it does not begin like a file of hamtarget");
        if (header.checksum != format::header_checksum(header)) reject("its header is damaged");
        // Nothing but magic, version and checksum has a meaning that later versions keep.
        if (header.version > format::kVersion)
            throw UnsupportedFile(path_.string() + ": it has format version " + std::to_string(header.version) +
                                  "; this version of hamtarget reads up to " + std::to_string(format::kVersion) +
                                  ": update hamtarget, or save the file with an older one");
        if (header.version == 0) reject("it has format version 0; the first is 1");
        if (header.n_bytes != n_bytes)
            reject("it has " + std::to_string(n_bytes) + " bytes; expected " + std::to_string(header.n_bytes));
        if (!format::is_name(header.kind) || header.reserved != 0) reject("its header makes no sense");
        if (header.n_sections > format::kMaxSections || format::table_end(header.n_sections) > n_bytes)
            reject("its table of " + std::to_string(header.n_sections) + " sections does not fit into the file");
    }

    void check_sections() const {
        if (header().table_checksum != checksum(std::as_bytes(table()))) reject("its table of sections is damaged");
        std::uint64_t end = format::table_end(header().n_sections);
        std::string_view previous;
        for (const format::Section& section : table()) {
            if (!format::is_name(section.name) || format::text_of(section.name) <= previous)
                reject("the names of its sections are not in order");
            previous = format::text_of(section.name);
            const std::string name = "section '" + std::string(previous) + "'";
            const std::size_t element_size = format::element_size(section);
            if (element_size == 0) reject(name + " holds elements of no known type");
            if (section.offset != end)
                reject(name + " is at byte " + std::to_string(section.offset) + "; expected " + std::to_string(end));
            // The file is longer than `end`, so no difference or sum of these wraps around.
            if (section.n_bytes > n_bytes_ - end || format::padded(section.n_bytes) > n_bytes_ - end)
                reject(name + " reaches past the end of the file");
            if (section.n_bytes % element_size != 0) reject(name + " ends inside an element");
            const std::span<const std::byte> bytes(memory_ + end, format::padded(section.n_bytes));
            const auto gap = bytes.subspan(section.n_bytes);
            if (std::any_of(gap.begin(), gap.end(), [](std::byte byte) { return byte != std::byte{0}; }))
                reject(name + " is followed by something else than zeros");
            if (checksum(bytes.first(section.n_bytes)) != section.checksum) reject(name + " is damaged");
            end += bytes.size();
        }
        if (end != n_bytes_)
            reject("its sections end at byte " + std::to_string(end) + "; the file has " + std::to_string(n_bytes_));
    }

    std::filesystem::path path_;
    std::byte* memory_ = nullptr;
    std::size_t n_bytes_ = 0;
};

}  // namespace hamtarget
