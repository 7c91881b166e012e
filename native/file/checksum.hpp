// The checksum of our files: XXH64 with seed 0 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
//
// It runs at the speed of memory on any 64-bit CPU without special instructions, and other programs can check our files
// with any xxHash library. The odds that damage goes unseen are 1 in 2^64. It does not stop a forger: the reader of a
// file must still check every number in it that is used as a position or a length.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace hamtarget {

// Words are read as they lie in memory, here and in every section of a file.
static_assert(std::endian::native == std::endian::little, "files are little-endian, and so must be the CPU");

// Checksum of bytes that come in pieces. It does not depend on how they are cut.
class Checksum {
  public:
    void update(std::span<const std::byte> bytes) {
        n_bytes_ += bytes.size();
        if (n_waiting_ > 0) {
            const std::size_t count = std::min(kStripe - n_waiting_, bytes.size());
            if (count > 0) std::memcpy(waiting_.data() + n_waiting_, bytes.data(), count);
            n_waiting_ += count;
            bytes = bytes.subspan(count);
            if (n_waiting_ < kStripe) return;
            take_stripes(waiting_.data(), 1);
            n_waiting_ = 0;
        }
        const std::size_t n_stripes = bytes.size() / kStripe;
        take_stripes(bytes.data(), n_stripes);
        bytes = bytes.subspan(n_stripes * kStripe);
        if (!bytes.empty()) std::memcpy(waiting_.data(), bytes.data(), bytes.size());
        n_waiting_ = bytes.size();
    }

    // Return the checksum of all bytes until now. More may follow.
    std::uint64_t value() const {
        std::uint64_t hash = kPrime5;
        if (n_bytes_ >= kStripe) {
            const auto [a, b, c, d] = lanes_;
            hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
            for (const std::uint64_t lane : lanes_) hash = (hash ^ mixed(0, lane)) * kPrime1 + kPrime4;
        }
        hash += n_bytes_;
        const std::byte* at = waiting_.data();
        const std::byte* const end = at + n_waiting_;
        for (; end - at >= 8; at += 8)
            hash = std::rotl(hash ^ mixed(0, load<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
        for (; end - at >= 4; at += 4)
            hash = std::rotl(hash ^ (load<std::uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
        for (; at < end; ++at) hash = std::rotl(hash ^ (load<std::uint8_t>(at) * kPrime5), 11) * kPrime1;
        hash = (hash ^ (hash >> 33)) * kPrime2;
        hash = (hash ^ (hash >> 29)) * kPrime3;
        return hash ^ (hash >> 32);
    }

  private:
    static constexpr std::size_t kStripe = 32;  // one word for each lane
    static constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F;
    static constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63;
    static constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5;

    template <class Word>
    static std::uint64_t load(const std::byte* bytes) {
        Word word;
        std::memcpy(&word, bytes, sizeof word);
        return word;
    }

    static std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) {
        return std::rotl(lane + word * kPrime2, 31) * kPrime1;
    }

    void take_stripes(const std::byte* bytes, std::size_t count) {
        // With four variables rather than an array, the lanes stay in registers, and the CPU works on them side by
        // side.
        auto [a, b, c, d] = lanes_;
        for (; count > 0; --count, bytes += kStripe) {
            a = mixed(a, load<std::uint64_t>(bytes));
            b = mixed(b, load<std::uint64_t>(bytes + 8));
            c = mixed(c, load<std::uint64_t>(bytes + 16));
            d = mixed(d, load<std::uint64_t>(bytes + 24));
        }
        lanes_ = {a, b, c, d};
    }

    std::array<std::uint64_t, 4> lanes_ = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
    std::array<std::byte, kStripe> waiting_ = {};
    std::size_t n_waiting_ = 0;
    std::uint64_t n_bytes_ = 0;
};

inline std::uint64_t checksum(std::span<const std::byte> bytes) {
    Checksum sum;
    sum.update(bytes);
    return sum.value();
}

}  // namespace hamtarget
