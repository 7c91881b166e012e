// Writes a snapshot file; snapshot.hpp shows how to use it.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checksum.hpp"
#include "snapshot_format.hpp"

namespace hamtarget {

namespace format {

// A new file that takes the name `target` when it is complete, and otherwise leaves no trace.
//
// Where the system allows (Linux), it has no name until then: not even a process that is killed leaves it behind.
class PendingFile {
  public:
    enum class Until { named, nameless };

    PendingFile(const std::filesystem::path& target, Until preferred)
        : target_(target), folder_(target.has_parent_path() ? target.parent_path() : "."), file_(create(preferred)) {
        if (!file_.is_open()) throw FileFailure(target_, "write", errno);
    }
    PendingFile(const PendingFile&) = delete;
    ~PendingFile() {
        if (!temporary_.empty()) ::unlink(temporary_.c_str());
    }

    void write(std::span<const std::byte> bytes, std::uint64_t offset) {
        while (!bytes.empty()) {
            const std::size_t wanted = std::min<std::size_t>(bytes.size(), 1 << 30);
            const ssize_t count = uninterrupted(
                [&] { return ::pwrite(file_.number(), bytes.data(), wanted, static_cast<off_t>(offset)); });
            if (count < 0) throw FileFailure(target_, "write", errno);
            bytes = bytes.subspan(static_cast<std::size_t>(count));
            offset += static_cast<std::uint64_t>(count);
        }
    }

    // Content first, then the name, then the folder that holds the name: a crash at any moment, of the process or of
    // the machine, leaves the old file or the new one.
    void publish() {
        sync();
        if (temporary_.empty()) {
            const std::string link = link_of(file_.number());
            const std::string name = fresh_name();
            if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0)
                throw FileFailure(target_, "write", errno);
            temporary_ = name;
        }
        if (!file_.close()) throw FileFailure(target_, "write", errno);
        if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw FileFailure(target_, "replace", errno);
        temporary_.clear();

        const Descriptor folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        // The new file is in place and whole, also for this caller. What failed is the promise that it still is there
        // after a power failure; a file system that cannot force folders to disk (EINVAL) never made that promise.
        if (!folder.is_open() || (uninterrupted([&] { return ::fsync(folder.number()); }) != 0 && errno != EINVAL))
            throw FileFailure(target_, "force the new name to disk", errno);
    }

  private:
    int create(Until preferred) {
#ifdef O_TMPFILE
        // Only /proc can give such a file a name; in a bare chroot it may be missing.
        if (preferred == Until::nameless && ::access("/proc/self/fd", X_OK) == 0) {
            const int number = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
            if (number >= 0) return number;
        }
#endif
        temporary_ = fresh_name();
        const int number = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (number < 0) temporary_.clear();
        return number;
    }

    void sync() {
        if (uninterrupted([&] { return ::fsync(file_.number()); }) != 0) throw FileFailure(target_, "write", errno);
    }

    static std::string link_of(int number) { return "/proc/self/fd/" + std::to_string(number); }

    // A name in the same folder that nobody else uses: not another thread, process, or machine sharing the folder.
    std::string fresh_name() const {
        static std::atomic<unsigned> count = 0;
        const auto now = std::chrono::system_clock::now().time_since_epoch().count();
        std::string name(".");
        name.append(target_.filename().string()).append(".").append(std::to_string(::getpid()));
        name.append(".").append(std::to_string(now)).append(".").append(std::to_string(count++)).append(".tmp");
        return (folder_ / name).string();
    }

    std::filesystem::path target_;
    std::filesystem::path folder_;
    std::string temporary_;  // empty while there is no name to remove
    Descriptor file_;
};

}  // namespace format

// Gathers the sections of a snapshot file, and writes it.
class SnapshotWriter {
  public:
    // Elements of one section, as they come; they are used before the call returns.
    template <class T>
    using Sink = std::function<void(std::span<const T>)>;

    // Throws std::invalid_argument, like every method here, for a name that is not 1 to 16 letters, digits or "-_./".
    explicit SnapshotWriter(std::string_view kind) {
        std::copy(std::begin(format::kMagic), std::end(format::kMagic), header_.magic);
        header_.version = format::kVersion;
        format::set_name(header_.kind, kind);
    }

    // A section of numbers. They are not copied: they must not change, nor go away, until commit() returns.
    template <format::Element T>
    void add(std::string_view name, std::type_identity_t<std::span<const T>> elements) {
        add_in_pieces<T>(name, elements.size(), [elements](const Sink<T>& sink) { sink(elements); });
    }

    // A section that is never in memory as a whole. commit() calls `produce(sink)` once, which calls `sink(span)` as
    // often as it likes, for `count` elements in all.
    template <format::Element T>
    void add_in_pieces(std::string_view name, std::size_t count, std::function<void(const Sink<T>&)> produce) {
        format::Section row = {};
        format::set_name(row.name, name);
        format::set_name(row.element, format::element_name<T>());
        row.n_bytes = count * sizeof(T);
        const auto produce_bytes = [produce = std::move(produce)](const Sink<std::byte>& sink) {
            produce([&sink](std::span<const T> elements) { sink(std::as_bytes(elements)); });
        };
        parts_.push_back({row, produce_bytes});
    }

    // Puts the file at `path`: whoever reads it finds the old file or the new one, whole, even after a crash. If this
    // throws, the old file is as it was and nothing else is left. One commit for each writer.
    // `until`: only tests need another one than the default.
    void commit(const std::filesystem::path& path,
                format::PendingFile::Until until = format::PendingFile::Until::nameless) {
        lay_out();
        format::PendingFile file(path, until);
        for (Part& part : parts_) write_part(file, part);

        // The front comes last: only now are the checksums known, and every section has been read only once.
        std::vector<format::Section> table;
        for (const Part& part : parts_) table.push_back(part.row);
        header_.table_checksum = checksum(std::as_bytes(std::span(table)));
        header_.checksum = format::header_checksum(header_);
        file.write(std::as_bytes(std::span(&header_, 1)), 0);
        file.write(std::as_bytes(std::span(table)), sizeof header_);
        file.publish();
    }

  private:
    struct Part {
        format::Section row;
        std::function<void(const Sink<std::byte>&)> produce;
    };

    // Small enough to be still in the cache when it is written, after its checksum was computed.
    static constexpr std::size_t kPieceBytes = 256 * 1024;

    void lay_out() {
        if (parts_.size() > format::kMaxSections)
            throw std::invalid_argument("there are " + std::to_string(parts_.size()) + " sections; expected at most " +
                                        std::to_string(format::kMaxSections));
        const auto name = [](const Part& part) { return format::text_of(part.row.name); };
        std::ranges::sort(parts_, {}, name);
        const auto twice = std::ranges::adjacent_find(parts_, {}, name);
        if (twice != parts_.end())
            throw std::invalid_argument("there are two sections '" + std::string(name(*twice)) + "'");

        std::uint64_t end = format::table_end(parts_.size());
        for (Part& part : parts_) {
            part.row.offset = end;
            end += format::padded(part.row.n_bytes);
        }
        header_.n_sections = static_cast<std::uint32_t>(parts_.size());
        header_.n_bytes = end;
    }

    static void write_part(format::PendingFile& file, Part& part) {
        format::Section& row = part.row;
        Checksum sum;
        std::uint64_t n_written = 0;
        // Pieces of a few bytes are gathered: a call of the system for each would take longer than all the rest.
        std::vector<std::byte> gathered;
        gathered.reserve(kPieceBytes);
        const auto write = [&](std::span<const std::byte> bytes) {
            sum.update(bytes);
            file.write(bytes, row.offset + n_written);
            n_written += bytes.size();
        };
        const auto flush = [&] {
            write(gathered);
            gathered.clear();
        };
        part.produce([&](std::span<const std::byte> bytes) {
            if (bytes.size() > row.n_bytes - n_written - gathered.size())
                throw std::logic_error("section '" + std::string(format::text_of(row.name)) +
                                       "' gets more elements than were announced");
            if (gathered.size() + bytes.size() > kPieceBytes) flush();
            while (bytes.size() >= kPieceBytes) {
                write(bytes.first(kPieceBytes));
                bytes = bytes.subspan(kPieceBytes);
            }
            gathered.insert(gathered.end(), bytes.begin(), bytes.end());
        });
        flush();
        if (n_written != row.n_bytes)
            throw std::logic_error("section '" + std::string(format::text_of(row.name)) + "' gets " +
                                   std::to_string(n_written) + " bytes; " + std::to_string(row.n_bytes) +
                                   " were announced");
        row.checksum = sum.value();
        const std::byte zeros[format::kAlignment] = {};
        file.write(std::span(zeros).first(format::padded(row.n_bytes) - row.n_bytes), row.offset + row.n_bytes);
    }

    format::Header header_ = {};
    std::vector<Part> parts_;
};

}  // namespace hamtarget
