// Forged files by the thousand: valid containers, correct checksums, senseless content.
//
// A fuzzer calls run_cases() with functions that open such a file and use all of it. It fails if they crash, if they
// take longer than kSecondsPerCase, or if opening allocates more than twice the file (plus kSlackBytes, for memory that
// does not depend on the file). A failure leaves the file where the first line of the output says.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "../core/buffers.hpp"
#include "allocations.hpp"
#include "check.hpp"

namespace hamtarget::tests {

inline constexpr unsigned kSecondsPerCase = 20;
inline constexpr std::size_t kSlackBytes = 64 * 1024;

using Random = std::mt19937_64;

inline std::uint64_t below(Random& random, std::uint64_t limit) { return random() % limit; }

// Numbers that are often forgotten: ends of ranges, off by one, wrapped around.
inline std::uint64_t interesting(Random& random, std::uint64_t old) {
    const std::uint64_t bit = std::uint64_t{1} << below(random, 64);
    switch (below(random, 10)) {
        case 0: return 0;
        case 1: return old + 1;
        case 2: return old - 1;
        case 3: return ~std::uint64_t{0};
        case 4: return bit;
        case 5: return bit - 1;
        case 6: return old ^ bit;
        case 7: return old * 2;
        case 8: return below(random, 1024);
        default: return random();
    }
}

// One section in memory.
struct Piece {
    format::Section row;
    Bytes bytes;
};

inline std::vector<Piece> parts_of(std::span<const std::byte> file) {
    format::Header header;
    std::memcpy(&header, file.data(), sizeof header);
    std::vector<Piece> parts(header.n_sections);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        std::memcpy(&parts[i].row, file.data() + format::table_end(i), sizeof(format::Section));
        const auto bytes = file.subspan(parts[i].row.offset, parts[i].row.n_bytes);
        parts[i].bytes.assign(bytes.begin(), bytes.end());
    }
    return parts;
}

// Make a whole file of these parts, with correct offsets, lengths and checksums.
inline Bytes file_of(std::span<const std::byte> old_file, std::vector<Piece>& parts) {
    format::Header header;
    std::memcpy(&header, old_file.data(), sizeof header);
    header.n_sections = static_cast<std::uint32_t>(parts.size());
    std::uint64_t end = format::table_end(parts.size());
    for (Piece& part : parts) {
        part.row.offset = end;
        part.row.n_bytes = part.bytes.size();
        end += format::padded(part.bytes.size());
    }
    header.n_bytes = end;
    Bytes file(end);
    std::memcpy(file.data(), &header, sizeof header);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        std::memcpy(file.data() + format::table_end(i), &parts[i].row, sizeof(format::Section));
        std::copy(parts[i].bytes.begin(), parts[i].bytes.end(), file.data() + parts[i].row.offset);
    }
    repair_checksums(file);
    return file;
}

// Put an interesting number over an element of 1, 2, 4 or 8 bytes.
inline void change_number(Random& random, std::span<std::byte> bytes, std::size_t size) {
    if (bytes.size() < size) return;
    // The first and the last element are where counts and ends of ranges lie.
    const std::size_t count = bytes.size() / size;
    const std::size_t choices[] = {0, count - 1, below(random, count), below(random, count)};
    std::byte* const at = bytes.data() + choices[below(random, 4)] * size;
    std::uint64_t number = 0;
    std::memcpy(&number, at, size);
    number = interesting(random, number);
    std::memcpy(at, &number, size);
}

inline void change_part(Random& random, std::vector<Piece>& parts) {
    Piece& part = parts[below(random, parts.size())];
    Piece& other = parts[below(random, parts.size())];
    const std::size_t size = std::max<std::size_t>(1, format::element_size(part.row));
    switch (below(random, 12)) {
        case 0: part.bytes.resize(part.bytes.size() / size * below(random, 3) / 2 * size); return;
        case 1: part.bytes.resize(part.bytes.size() + size * (1 + below(random, 8))); return;
        case 2: part.bytes.resize(part.bytes.size() - std::min(part.bytes.size(), size)); return;
        case 3: std::swap(part.bytes, other.bytes); return;
        case 4: {
            if (part.bytes.empty() || other.bytes.empty()) return;
            const std::size_t to = below(random, part.bytes.size()), from = below(random, other.bytes.size());
            const std::size_t most = std::min(part.bytes.size() - to, other.bytes.size() - from);
            std::memmove(&part.bytes[to], &other.bytes[from], 1 + below(random, most));
            return;
        }
        case 5: std::swap(part.row.element, other.row.element); return;
        case 6: {
            const std::byte value = below(random, 2) ? std::byte{0xFF} : std::byte{0};
            std::fill(part.bytes.begin(), part.bytes.end(), value);
            return;
        }
        case 7: parts.erase(parts.begin() + (&part - parts.data())); return;
        default: change_number(random, part.bytes, size); return;
    }
}

inline Bytes mutated(Random& random, const Bytes& original) {
    if (below(random, 8) == 0) {
        // Header, table and content alike.
        Bytes file = original;
        for (std::uint64_t n = 1 + below(random, 3); n > 0; --n) {
            const std::span<std::byte> all(file);
            const bool front = below(random, 2);
            const std::size_t n_bytes = front ? std::min<std::size_t>(all.size(), 1024) : all.size();
            change_number(random, all.first(n_bytes), std::size_t{1} << below(random, 4));
        }
        if (below(random, 4) == 0) file.resize(below(random, file.size() + 64));
        repair_checksums(file);
        return file;
    }
    std::vector<Piece> parts = parts_of(original);
    for (std::uint64_t n = 1 + below(random, 3); n > 0 && !parts.empty(); --n) change_part(random, parts);
    return file_of(original, parts);
}

struct Tally {
    std::size_t opened = 0, refused = 0;
    double most_memory = 0;  // that opening took, in lengths of the file
};

// For `count` mutations of the file at `original`, call open(path), whose memory counts, then use(what it returned).
// Both may throw CorruptFile or UnsupportedFile. Anything else that they throw is a failure.
template <class Open, class Use>
void run_cases(const std::filesystem::path& original, std::size_t count, std::uint64_t seed, Tally& tally, Open open,
               Use use) {
    const Bytes whole = read_file(original);
    const std::filesystem::path path = original.string() + ".mutated";
    Random random(seed);
    for (std::size_t i = 0; i < count; ++i) {
        const Bytes file = mutated(random, whole);
        write_file(path, file);
        ::alarm(kSecondsPerCase);
        const std::size_t before = memory.now();
        memory.forget_most();
        const auto measure = [&] {
            const std::size_t allocated = memory.most() - before;
            CHECK(allocated <= 2 * file.size() + kSlackBytes);
            const double share = static_cast<double>(allocated) / static_cast<double>(file.size());
            if (file.size() > kSlackBytes) tally.most_memory = std::max(tally.most_memory, share);
        };
        try {
            auto opened = open(path);
            measure();
            ++tally.opened;
            use(opened, random);
        } catch (const CorruptFile&) {
            measure();
            ++tally.refused;
        } catch (const UnsupportedFile&) {
            ++tally.refused;
        }
        ::alarm(0);
        // Memory of results is kept on purpose.
        BufferPool::shared().clear();
        // A thread that has merged parts lets go of them a moment after it is done.
        for (int waits = 0; memory.now() > before + kSlackBytes && waits < 5'000; ++waits)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK(memory.now() <= before + kSlackBytes);
    }
}

// Return the number of cases for each file: FUZZ_CASES of the environment, or the usual number.
inline std::size_t n_cases(std::size_t usual) {
    const char* text = std::getenv("FUZZ_CASES");
    return text && *text ? std::strtoull(text, nullptr, 10) : usual;
}

}  // namespace hamtarget::tests
