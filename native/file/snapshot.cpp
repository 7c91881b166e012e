#include "snapshot.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "checksum.hpp"

namespace hamtarget {

SnapshotFile SnapshotFile::open(const std::filesystem::path& path, std::string_view kind, Access access, Check check) {
    SnapshotFile file(path);
    file.load(access, check);
    if (file.kind() != kind)
        file.reject("it is of kind '" + std::string(file.kind()) + "'; expected '" + std::string(kind) + "'");
    return file;
}

SnapshotFile::SnapshotFile(SnapshotFile&& other) noexcept
    : path_(std::move(other.path_)),
      memory_(std::exchange(other.memory_, nullptr)),
      n_bytes_(std::exchange(other.n_bytes_, 0)) {}

SnapshotFile& SnapshotFile::operator=(SnapshotFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(memory_, other.memory_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
}

SnapshotFile::~SnapshotFile() {
    if (memory_) ::munmap(memory_, n_bytes_);
}

void SnapshotFile::reject(const std::string& found) const { throw CorruptFile(path_.string() + ": " + found); }

const format::Section* SnapshotFile::find(std::string_view name) const {
    const auto rows = table();
    const auto before = [](const format::Section& row, std::string_view text) {
        return format::text_of(row.name) < text;
    };
    const auto row = std::lower_bound(rows.begin(), rows.end(), name, before);
    return row != rows.end() && format::text_of(row->name) == name ? &*row : nullptr;
}

void SnapshotFile::verify(std::string_view name) const {
    if (const format::Section* section = find(name)) check_content(*section);
}

void SnapshotFile::load(Access access, Check check) {
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
        if (check == Check::all) ::madvise(memory_, n_bytes_, MADV_WILLNEED);
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
    check_sections(check);
}

void SnapshotFile::take(void* memory, std::size_t n_bytes) {
    if (memory == MAP_FAILED) throw FileFailure(path_, "map", errno);
    memory_ = static_cast<std::byte*>(memory);
    n_bytes_ = n_bytes;
}

void SnapshotFile::read_all(const format::Descriptor& file, void* target, std::size_t n_bytes) const {
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

void SnapshotFile::check_header(const format::Header& header, std::uint64_t n_bytes) const {
    if (std::memcmp(header.magic, format::kMagic, sizeof header.magic) != 0)
        reject("it does not begin like a file of hamtarget");
    if (header.checksum != format::header_checksum(header)) reject("its header is damaged");
    // Nothing but magic, version and checksum has a meaning that other versions share.
    if (header.version != format::kVersion)
        throw UnsupportedFile(path_.string() + ": it has format version " + std::to_string(header.version) +
                              "; this hamtarget reads version " + std::to_string(format::kVersion) +
                              ": install the hamtarget that wrote it, or make the file again");
    if (header.n_bytes != n_bytes)
        reject("it has " + std::to_string(n_bytes) + " bytes; expected " + std::to_string(header.n_bytes));
    if (!format::is_name(header.kind) || header.reserved != 0) reject("its header makes no sense");
    if (header.n_sections > format::kMaxSections || format::table_end(header.n_sections) > n_bytes)
        reject("its table of " + std::to_string(header.n_sections) + " sections does not fit into the file");
}

void SnapshotFile::check_content(const format::Section& section) const {
    const std::span<const std::byte> bytes(memory_ + section.offset, format::padded(section.n_bytes));
    const std::string name = "section '" + std::string(format::text_of(section.name)) + "'";
    const auto gap = bytes.subspan(section.n_bytes);
    if (std::any_of(gap.begin(), gap.end(), [](std::byte byte) { return byte != std::byte{0}; }))
        reject(name + " is followed by something else than zeros");
    if (checksum(bytes.first(section.n_bytes)) != section.checksum) reject(name + " is damaged");
}

void SnapshotFile::check_sections(Check check) const {
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
        if (check == Check::all) check_content(section);
        end += format::padded(section.n_bytes);
    }
    if (end != n_bytes_)
        reject("its sections end at byte " + std::to_string(end) + "; the file has " + std::to_string(n_bytes_));
}

}  // namespace hamtarget
