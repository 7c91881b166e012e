// Sorting by merging: buckets give their rows in ascending order, so that a few runs are all there is to merge.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kernel.hpp"

namespace hamtarget {

// Two ascending runs, left to middle and middle to end, as one. Which run is ahead changes at random: choosing without
// a branch is three times as fast. Both ends are merged at the same time, while each run has two elements left, since
// one choice has to wait for the one before it.
template <class T, class Key>
void merge_two(const T* left, const T* middle, const T* end, T* to, Key key) {
    const T* right = middle;
    T* last = to + (end - left);
    const auto merge_first = [&] {
        const T low = *left, high = *right;
        const bool second = key(high) < key(low);
        *to++ = second ? high : low;
        right += second;
        left += !second;
    };
    while (middle - left > 1 && end - right > 1) {
        merge_first();
        const T low = middle[-1], high = end[-1];
        const bool first = key(high) < key(low);
        *--last = first ? low : high;
        middle -= first;
        end -= !first;
    }
    while (left < middle && right < end) merge_first();
    to = std::copy(left, middle, to);
    std::copy(right, end, to);
}

// Merges runs that lie one after another, two at a time; `ends` says where each one ends, and is used up. Returns which
// of the two places has the result.
template <class T, class MergeTwo>
T* merge_runs(T* from, T* to, std::vector<std::uint32_t>& ends, MergeTwo merge) {
    while (ends.size() > 1) {
        std::size_t kept = 0;
        std::uint32_t start = 0;
        for (std::size_t i = 0; i < ends.size(); i += 2) {
            const std::uint32_t middle = ends[i], end = i + 1 < ends.size() ? ends[i + 1] : middle;
            merge(from + start, from + middle, from + end, to + start);
            ends[kept++] = start = end;
        }
        ends.resize(kept);
        std::swap(from, to);
    }
    return from;
}

namespace kernels {

#if defined(__x86_64__)

// Sixteen rows in a register, sorted by networks of comparisons (Batcher 1968). Past the last row are the largest
// numbers, which no row has.
[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i avx512_load_rows(const std::uint32_t* from, const std::uint32_t* end) {
    const std::ptrdiff_t left = end - from;
    const auto there = static_cast<__mmask16>(left >= 16 ? 0xFFFF : left <= 0 ? 0 : (1u << left) - 1);
    return _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), there, from);
}

// Of each lane and its partner the smaller, or, where `larger` has a bit, the larger.
[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i avx512_exchange(__m512i rows, __m512i partners, __mmask16 larger) {
    return _mm512_mask_max_epu32(_mm512_min_epu32(rows, partners), larger, rows, partners);
}

[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i avx512_reversed(__m512i rows) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), rows);
}

// Lanes that are 1, 2, 4 or 8 apart are partners.
[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i avx512_exchange_1(__m512i rows) {
    return avx512_exchange(rows, _mm512_shuffle_epi32(rows, static_cast<_MM_PERM_ENUM>(0xB1)), 0xAAAA);
}
[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i avx512_exchange_2(__m512i rows) {
    return avx512_exchange(rows, _mm512_shuffle_epi32(rows, static_cast<_MM_PERM_ENUM>(0x4E)), 0xCCCC);
}
[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i avx512_exchange_4(__m512i rows) {
    return avx512_exchange(rows, _mm512_shuffle_i64x2(rows, rows, 0xB1), 0xF0F0);
}
[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i avx512_exchange_8(__m512i rows) {
    return avx512_exchange(rows, _mm512_shuffle_i64x2(rows, rows, 0x4E), 0xFF00);
}

// Rows that rise and then fall, or fall and then rise.
[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i avx512_sort_bitonic(__m512i rows) {
    return avx512_exchange_1(avx512_exchange_2(avx512_exchange_4(avx512_exchange_8(rows))));
}

[[HAMTARGET_AVX512]] HAMTARGET_INLINE __m512i avx512_sort_rows(__m512i rows) {
    rows = avx512_exchange_1(rows);
    // Sorted halves are merged by comparing the first with the last, the second with the last but one, and so on.
    rows = avx512_exchange(rows, _mm512_shuffle_epi32(rows, static_cast<_MM_PERM_ENUM>(0x1B)), 0xCCCC);
    rows = avx512_exchange_1(rows);
    const __m512i eights = _mm512_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
    rows = avx512_exchange(rows, _mm512_permutexvar_epi32(eights, rows), 0xF0F0);
    rows = avx512_exchange_1(avx512_exchange_2(rows));
    rows = avx512_exchange(rows, avx512_reversed(rows), 0xFF00);
    return avx512_exchange_1(avx512_exchange_2(avx512_exchange_4(rows)));
}

// merge_two, sixteen rows at a time; writes up to 15 more elements than there are.
[[HAMTARGET_AVX512]] inline void avx512_merge_two(const std::uint32_t* left, const std::uint32_t* middle,
                                                  const std::uint32_t* end, std::uint32_t* to) {
    const std::uint32_t* right = middle;
    if (left == middle || right == end) {
        std::copy(left, end, to);
        return;
    }
    constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
    std::uint32_t* const last = to + (end - left);
    __m512i high = avx512_load_rows(left, middle), next = avx512_load_rows(right, end);
    left += 16;
    right += 16;
    for (;; to += 16) {
        next = avx512_reversed(next);
        _mm512_storeu_si512(to, avx512_sort_bitonic(_mm512_min_epu32(high, next)));
        if (last - to <= 16) return;
        high = avx512_sort_bitonic(_mm512_max_epu32(high, next));
        // The run with the smaller head goes on: what is in the register then comes before all of the other's rest.
        const bool second = (right < end ? *right : kNone) < (left < middle ? *left : kNone);
        next = second ? avx512_load_rows(right, end) : avx512_load_rows(left, middle);
        right += second ? 16 : 0;
        left += second ? 0 : 16;
    }
}

// Of at most 32 rows in any order.
[[HAMTARGET_AVX512]] inline void avx512_sort_few(std::uint32_t* rows, std::size_t count) {
    __m512i low = avx512_sort_rows(avx512_load_rows(rows, rows + count));
    if (count > 16) {
        const __m512i high = avx512_reversed(avx512_sort_rows(avx512_load_rows(rows + 16, rows + count)));
        _mm512_storeu_si512(rows + 16, avx512_sort_bitonic(_mm512_max_epu32(low, high)));
        low = avx512_sort_bitonic(_mm512_min_epu32(low, high));
    }
    _mm512_storeu_si512(rows, low);
}

#endif

}  // namespace kernels

// So many elements past the last one may be overwritten.
inline constexpr std::size_t kSortSlack = 16;

// Sorts rows in any order where they are few enough for it to be faster than merging; else returns false.
inline bool sort_few_rows([[maybe_unused]] const Kernel& kernel, [[maybe_unused]] std::uint32_t* rows,
                          [[maybe_unused]] std::size_t count) {
#if defined(__x86_64__)
    if (kernel.is_avx512 && count <= 32) {
        kernels::avx512_sort_few(rows, count);
        return true;
    }
#endif
    return false;
}

// Merges ascending runs of row numbers, all different; `ends` says where each one ends, and is used up.
// Returns which of the two places has the result. Both have room for kSortSlack more.
inline std::uint32_t* merge_rows([[maybe_unused]] const Kernel& kernel, std::uint32_t* rows, std::uint32_t* room,
                                 std::vector<std::uint32_t>& ends) {
#if defined(__x86_64__)
    if (kernel.is_avx512) return merge_runs(rows, room, ends, kernels::avx512_merge_two);
#endif
    return merge_runs(rows, room, ends, [](const auto* left, const auto* middle, const auto* end, auto* to) {
        merge_two(left, middle, end, to, [](std::uint32_t row) { return row; });
    });
}

}  // namespace hamtarget
