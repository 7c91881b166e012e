// The bytes of a snapshot file, the errors of its reader and its writer, and what both share.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "checksum.hpp"

namespace hamtarget {

// The file is truncated, altered, or not of this kind.
struct CorruptFile : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The file is whole, but of another version than this library reads.
struct UnsupportedFile : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The operating system refused: no such file, no permission, disk full. `code` is the errno, from which Python makes a
// FileNotFoundError, a PermissionError or another OSError.
struct FileFailure : std::runtime_error {
    FileFailure(const std::filesystem::path& path, const std::string& action, int code)
        : std::runtime_error(path.string() + ": cannot " + action + ": " + std::generic_category().message(code)),
          code(code) {}
    int code;
};

namespace format {

inline constexpr std::uint32_t kVersion = 3;
inline constexpr std::size_t kAlignment = 64;
inline constexpr std::size_t kMaxSections = 65'536;
// As in PNG, a transfer that clears the eighth bit or changes line ends breaks the first eight bytes.
inline constexpr char kMagic[8] = {'\x89', 'H', 'A', 'M', '\r', '\n', '\x1a', '\n'};

// The first 64 bytes. In every version, past and future, they have the magic, the version, and at the end the checksum
// of the 56 bytes before it. So a reader can tell a file of another version from a damaged one.
struct Header {
    char magic[8];
    std::uint32_t version;
    std::uint32_t n_sections;
    char kind[16];  // ASCII, padded with zeros
    std::uint64_t n_bytes;  // of the whole file
    std::uint64_t table_checksum;
    std::uint64_t reserved;  // 0
    std::uint64_t checksum;
};

// One row of the table, which follows the header. Rows are in the order of their names, and so are the sections:
// each begins at the first multiple of 64 after the one before it, the gap being zeros, and so is the end of the file.
struct Section {
    char name[32];  // ASCII, padded with zeros
    char element[8];  // type of the elements: u, i or f and the bytes of one of them, padded with zeros
    std::uint64_t offset;
    std::uint64_t n_bytes;
    std::uint64_t checksum;
};

static_assert(sizeof(Header) == 64 && sizeof(Section) == 64);
static_assert(std::is_trivially_copyable_v<Header> && std::is_trivially_copyable_v<Section>);

template <class T>
concept Element =
    (std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8) || std::is_same_v<T, std::byte>;

template <Element T>
std::string element_name() {
    const char letter = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
    return letter + std::to_string(sizeof(T));
}

inline std::uint64_t padded(std::uint64_t n_bytes) { return (n_bytes + kAlignment - 1) / kAlignment * kAlignment; }

inline std::size_t table_end(std::size_t n_sections) { return sizeof(Header) + n_sections * sizeof(Section); }

inline std::uint64_t header_checksum(const Header& header) {
    return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
}

template <std::size_t size>
std::string_view text_of(const char (&field)[size]) {
    return {field, static_cast<std::size_t>(std::find(field, field + size, '\0') - field)};
}

// Tell whether the field is a name as we write it: letters, digits and "-_./", at least one, then zeros.
template <std::size_t size>
bool is_name(const char (&field)[size]) {
    const std::string_view text = text_of(field);
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '-' && c <= '9') || c == '_';
    };
    return !text.empty() && std::all_of(text.begin(), text.end(), allowed) &&
           std::all_of(field + text.size(), field + size, [](char c) { return c == '\0'; });
}

template <std::size_t size>
void set_name(char (&field)[size], std::string_view text) {
    if (text.size() <= size) std::copy(text.begin(), text.end(), field);
    if (text.size() > size || !is_name(field))
        throw std::invalid_argument("'" + std::string(text) + "' is no name for a part of a file; expected 1 to " +
                                    std::to_string(size) + " of a-z, A-Z, 0-9, - _ . /");
}

// Return the bytes of one element, or 0 if the field names no type.
inline std::size_t element_size(const Section& section) {
    const std::string_view text = text_of(section.element);
    if (!is_name(section.element) || text.size() != 2 || std::string_view("uif").find(text[0]) == text.npos) return 0;
    const auto size = static_cast<std::size_t>(text[1] - '0');
    return size == 1 || size == 2 || size == 4 || size == 8 ? size : 0;
}

// An open file that is closed when this goes out of scope.
class Descriptor {
  public:
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(const Descriptor&) = delete;
    ~Descriptor() {
        if (number_ >= 0) ::close(number_);
    }

    int number() const { return number_; }
    bool is_open() const { return number_ >= 0; }
    // Close the file. Some file systems report a failed write only here.
    bool close() { return ::close(std::exchange(number_, -1)) == 0; }

  private:
    int number_;
};

// Repeat a call that a signal interrupted.
template <class Call>
auto uninterrupted(const Call& call) {
    auto result = call();
    while (result == -1 && errno == EINTR) result = call();
    return result;
}

}  // namespace format

}  // namespace hamtarget
