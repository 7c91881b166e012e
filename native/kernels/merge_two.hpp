// Merging two ascending runs.
#pragma once

#include "inline.hpp"

namespace hamtarget {

// Merges two ascending runs, left to middle and right to end, into `to`. Which run is ahead changes at random, so
// choosing without a branch is three times as fast. Both ends are merged at the same time while each run has two
// elements left, because one choice has to wait for the one before it.
template <class T, class Key>
HAMTARGET_INLINE void merge_two(const T* left, const T* middle, const T* right, const T* end, T* to, Key key) {
    T* last = to + (middle - left) + (end - right);
    const auto merge_first = [&]() __attribute__((always_inline)) {
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
    while (left < middle) *to++ = *left++;
    while (right < end) *to++ = *right++;
}

}  // namespace hamtarget
