// Tells which queries may have hits among the rows that came last.
//
// Rows that came after the last large merge lie in small parts. Few queries have a hit there, and looking into every
// part for every query would take longer than the search of the large part. So there is a bitmap for each substring, as
// in a Bloom filter: a row within the radius equals the query in one substring (pigeonhole), whose bit is then set.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "../kernels/tables.hpp"
#include "segment.hpp"

namespace hamtarget {

// One writer adds rows while others ask. A row that is added before a manifest is published is seen by all searches of
// that manifest; a bit that came later costs a look in vain.
class YoungFilter {
  public:
    // Return a filter for about `capacity` rows and radii up to `radius`, or null if it would refuse too few queries.
    static std::shared_ptr<YoungFilter> make(std::size_t n_bytes, std::size_t radius, std::size_t capacity) {
        const std::size_t width = 8 * n_bytes / (radius + 1);
        // With as many rows as there are substrings, nearly every bit is set.
        if (radius >= kMostSubstrings || (width < 63 && (std::uint64_t{1} << width) < 4 * capacity)) return nullptr;
        return std::shared_ptr<YoungFilter>(new YoungFilter(n_bytes, radius, capacity));
    }

    void add(Codes codes) {
        for (std::size_t row = 0; row < codes.n_rows; ++row)
            for (std::size_t j = 0; j < keys_.size(); ++j) {
                const Bit bit = bit_of(codes.row(row), j);
                bit.word->store(bit.word->load(std::memory_order_relaxed) | bit.mask, std::memory_order_relaxed);
            }
        n_rows_ += codes.n_rows;
    }

    // Tell the writer whether there are more rows than the filter was made for.
    bool is_full() const { return n_rows_ > capacity_; }

    bool serves(std::size_t radius) const { return radius < keys_.size(); }

    // Write the numbers of the queries that may have a hit.
    void select(Codes queries, std::vector<std::uint32_t>& selected) const {
        selected.assign(queries.n_rows, 0);
        // One substring after another: what does not change stays in registers, and bits are fetched side by side.
        for (std::size_t j = 0; j < keys_.size(); ++j) {
            const KeyBits key = keys_[j];
            const Word* const words = words_.get() + j * words_a_substring();
            const std::size_t shift = shift_;
            for (std::size_t q = 0; q < queries.n_rows; ++q) {
                const std::uint64_t hash = hash_of(key.substring_of(queries.row(q)), shift);
                selected[q] |= words[hash / 64].load(std::memory_order_relaxed) >> hash % 64 & 1;
            }
        }
        std::size_t count = 0;
        for (std::size_t q = 0; q < queries.n_rows; ++q) {
            const std::uint32_t is_selected = selected[q];
            selected[count] = static_cast<std::uint32_t>(q);
            count += is_selected;
        }
        selected.resize(count);
    }

    std::size_t memory() const { return keys_.size() * words_a_substring() * sizeof(std::uint64_t); }

  private:
    using Word = std::atomic<std::uint64_t>;
    struct Bit {
        Word* word;
        std::uint64_t mask;
    };

    // Bits for each row: a sixteenth of the queries is looked up in vain for each substring.
    static constexpr std::size_t kBitsARow = 16;
    static constexpr std::size_t kMostSubstrings = 16;

    YoungFilter(std::size_t n_bytes, std::size_t radius, std::size_t capacity)
        : capacity_(capacity),
          shift_(64 - static_cast<std::size_t>(std::bit_width(std::max<std::size_t>(kBitsARow * capacity, 64) - 1))) {
        const std::size_t count = radius + 1, n_bits = 8 * n_bytes;
        for (std::size_t j = 0; j < count; ++j)
            keys_.emplace_back(substring_start(n_bits, count, j), substring_start(n_bits, count, j + 1), kMaxKeyBits,
                               n_bytes);
        words_ = std::make_unique<Word[]>(count * words_a_substring());
    }

    std::size_t words_a_substring() const { return std::size_t{1} << (64 - shift_ - 6); }

    // Multiplying by an odd number and taking the highest bits spreads skewed substrings.
    static std::uint64_t hash_of(std::uint64_t substring, std::size_t shift) {
        return substring * 0x9E3779B97F4A7C15u >> shift;
    }

    Bit bit_of(const std::uint8_t* code, std::size_t j) const {
        const std::uint64_t hash = hash_of(keys_[j].substring_of(code), shift_);
        return {&words_[j * words_a_substring() + hash / 64], std::uint64_t{1} << hash % 64};
    }

    std::size_t capacity_;
    std::size_t n_rows_ = 0;  // only the writer looks at it
    std::size_t shift_;
    std::vector<KeyBits> keys_;
    std::unique_ptr<Word[]> words_;
};

}  // namespace hamtarget
