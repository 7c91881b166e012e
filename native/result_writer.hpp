// Sorted rows of one segment become ids and distances of a result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hits.hpp"
#include "kernel.hpp"
#include "segment.hpp"

namespace hamtarget {

namespace kernels {

#if defined(__x86_64__)

// Consecutive ids, and the same distance for all; reads and writes whole registers, up to 31 elements past the last.
[[HAMTARGET_AVX512]] inline void avx512_write(std::span<const std::uint32_t> rows, std::int64_t base,
                                              Distance distance, std::int64_t* ids, Distance* distances) {
    const __m512i first = _mm512_set1_epi64(base);
    for (std::size_t i = 0; i < rows.size(); i += 8) {
        const __m256i numbers = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows.data() + i));
        _mm512_storeu_si512(ids + i, _mm512_add_epi64(_mm512_cvtepu32_epi64(numbers), first));
    }
    const __m512i same = _mm512_set1_epi16(static_cast<short>(distance));
    for (std::size_t i = 0; i < rows.size(); i += 32) _mm512_storeu_si512(distances + i, same);
}

#endif

}  // namespace kernels

// Appends rows of one query to a result, list by list.
class ResultWriter {
  public:
    // There will be at most `most` rows.
    ResultWriter(const Kernel& kernel, const IdColumn& column, Hits& hits, std::size_t most)
        : kernel_(kernel),
          column_(column),
          hits_(hits),
          count_(hits.ids.size()),
          ids_(hits.ids.extend(most + kSlack)),
          distances_(hits.distances.extend(most + kSlack)) {}

    // Rows may be read up to 7 past the last one.
    void write(std::span<const std::uint32_t> rows, Distance distance) {
        write_at(rows, distance);
        ids_ += rows.size();
        distances_ += rows.size();
        count_ += rows.size();
    }

    void finish() {
        hits_.ids.shrink(count_);
        hits_.distances.shrink(count_);
    }

  private:
    static constexpr std::size_t kSlack = 32;

    void write_at(std::span<const std::uint32_t> rows, Distance distance) const {
        const std::int64_t base = column_.base();
        if (column_.is_consecutive()) {
#if defined(__x86_64__)
            if (kernel_.is_avx512) return kernels::avx512_write(rows, base, distance, ids_, distances_);
#endif
            for (std::size_t i = 0; i < rows.size(); ++i) ids_[i] = base + rows[i];
        } else {
            for (std::size_t i = 0; i < rows.size(); ++i) ids_[i] = column_[rows[i]];
        }
        std::fill_n(distances_, rows.size(), distance);
    }

    const Kernel& kernel_;
    const IdColumn& column_;
    Hits& hits_;
    std::size_t count_;
    std::int64_t* ids_;
    Distance* distances_;
};

}  // namespace hamtarget
