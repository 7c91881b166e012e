// A file that replaces another one as a whole.
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
#include <filesystem>
#include <span>
#include <string>

#include "snapshot_format.hpp"

namespace hamtarget {

namespace format {

// A new file that takes the name `target` when it is complete, and otherwise leaves no trace.
//
// If the system allows it (Linux), the file has no name until then, so that even a killed process leaves nothing
// behind.
class PendingFile {
  public:
    // Name of the file until it is complete.
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

    // Force the content to disk, then the name, then the folder that holds the name. A crash of the process or of the
    // machine at any moment leaves the old file or the new one.
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
        // The new file is in place and whole. It may only be lost in a power failure. A file system that cannot force
        // folders to disk (EINVAL) makes no promise about that anyway.
        if (!folder.is_open() || (uninterrupted([&] { return ::fsync(folder.number()); }) != 0 && errno != EINVAL))
            throw FileFailure(target_, "force the new name to disk", errno);
    }

  private:
    int create(Until preferred) {
#ifdef O_TMPFILE
        // Only /proc can give such a file a name, and a bare chroot may not have it.
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

    // Return a name in the same folder that no other thread, process or machine uses.
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

}  // namespace hamtarget
