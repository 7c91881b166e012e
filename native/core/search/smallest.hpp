// The smallest of many numbers, without sorting them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../kernels/codes.hpp"

namespace hamtarget {

// A whole number to order by (the upper 32 bits), and the index of what it belongs to (the lower ones).
enum class Ranked : std::uint64_t {};

inline Ranked ranked_of(std::uint32_t number, std::size_t index) { return Ranked{std::uint64_t{number} << 32 | index}; }
inline std::uint32_t number_of(Ranked ranked) { return static_cast<std::uint32_t>(raw(ranked) >> 32); }
inline std::size_t index_of(Ranked ranked) { return raw(ranked) & 0xFFFFFFFF; }

// Keep the first `count` (at least 1) of the items by `less`, which orders by the number first. They are left in no
// order.
//
// A CPU guesses the result of a random comparison wrong every other time. So items are counted by their numbers, in 256
// steps from the smallest to the largest, and only items of the step in which the last one lies are compared.
template <class Less>
void keep_smallest(std::vector<Ranked>& items, std::size_t count, std::vector<Ranked>& room, Less less) {
    if (items.size() <= count) return;
    constexpr int kBinBits = 8;
    std::uint32_t low = ~0u, high = 0;
    for (const Ranked item : items) low = std::min(low, number_of(item)), high = std::max(high, number_of(item));
    const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - kBinBits);
    const auto bin_of = [&](Ranked item) { return (number_of(item) - low) >> shift; };
    std::array<std::uint32_t, std::size_t{1} << kBinBits> bins{};
    for (const Ranked item : items) ++bins[bin_of(item)];
    std::size_t last = 0, before = 0;
    while (before + bins[last] < count) before += bins[last++];

    room.resize(items.size());
    std::size_t kept = 0, n_last = 0;
    for (const Ranked item : items) {
        const std::uint32_t bin = bin_of(item);
        room[n_last] = item;
        n_last += bin == last;
        items[kept] = item;
        kept += bin < last;
    }
    const auto end = room.begin() + static_cast<std::ptrdiff_t>(n_last);
    const auto wanted = static_cast<std::ptrdiff_t>(count - before);
    if (count - before < n_last) std::nth_element(room.begin(), room.begin() + wanted, end, less);
    std::copy(room.begin(), room.begin() + wanted, items.begin() + static_cast<std::ptrdiff_t>(kept));
    items.resize(count);
}

}  // namespace hamtarget
