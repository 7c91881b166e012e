// What the tests of the core share: checks that name the line, temporary folders, whole files as bytes.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../file/checksum.hpp"
#include "../file/snapshot.hpp"
#include "../file/snapshot_writer.hpp"

// Not assert(): it is gone in a release build.
#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);       \
            std::exit(1);                                                                      \
        }                                                                                      \
    } while (false)

#define CHECK_THROWS(Error, ...)                                                               \
    do {                                                                                       \
        bool thrown = false;                                                                   \
        try {                                                                                  \
            (void)(__VA_ARGS__);                                                               \
        } catch (const Error&) {                                                               \
            thrown = true;                                                                     \
        }                                                                                      \
        if (!thrown) {                                                                         \
            std::fprintf(stderr, "%s:%d: expected " #Error "\n", __FILE__, __LINE__);          \
            std::exit(1);                                                                      \
        }                                                                                      \
    } while (false)

namespace hamtarget::tests {

using Bytes = std::vector<std::byte>;

// A temporary folder that is removed at the end.
class Folder {
  public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "hamtarget-XXXXXX").string();
        CHECK(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    Folder(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path_); }

    std::filesystem::path operator/(const char* name) const { return path_ / name; }
    std::size_t n_files() const {
        return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
    }

  private:
    std::filesystem::path path_;
};

inline Bytes read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return Bytes(begin, begin + text.size());
}

inline void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    CHECK(file.good());
}

// Make every checksum right again, as a forger does, as far as header and table still say where the sections lie.
inline void repair_checksums(std::span<std::byte> bytes) {
    format::Header header;
    if (bytes.size() < sizeof header) return;
    std::memcpy(&header, bytes.data(), sizeof header);
    const std::size_t n_sections =
        std::min<std::size_t>(header.n_sections, (bytes.size() - sizeof header) / sizeof(format::Section));
    for (std::size_t i = 0; i < n_sections; ++i) {
        std::byte* const at = bytes.data() + format::table_end(i);
        format::Section section;
        std::memcpy(&section, at, sizeof section);
        if (section.offset > bytes.size() || section.n_bytes > bytes.size() - section.offset) continue;
        section.checksum = checksum(bytes.subspan(section.offset, section.n_bytes));
        std::memcpy(at, &section, sizeof section);
    }
    header.table_checksum = checksum(bytes.subspan(sizeof header, n_sections * sizeof(format::Section)));
    header.checksum = format::header_checksum(header);
    std::memcpy(bytes.data(), &header, sizeof header);
}

}  // namespace hamtarget::tests
