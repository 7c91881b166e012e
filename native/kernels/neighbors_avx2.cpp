// Reading cells by AVX2: x86 CPUs since 2013.
#include "neighbor_loops.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

namespace hamtarget {

namespace {

// Sums of 8 rows, of which a register holds four parts each.
class EightRows {
  public:
    // Add the parts of a group. The low bits of each byte count.
    HAMTARGET_INLINE void add(__m256i values, const std::uint8_t* entries, const std::uint8_t* weights) {
        std::int32_t four;
        std::memcpy(&four, weights, sizeof four);
        __m256i found = _mm256_setzero_si256();
        for (int part = 0; part < 4; ++part) {
            // A table serves one byte in four; the shuffle leaves zero where the highest bit is set.
            const __m256i others = _mm256_set1_epi32(static_cast<int>(0x80808080u & ~(0xFFu << 8 * part)));
            const __m256i table = _mm256_broadcastsi128_si256(
                _mm_loadu_si128(reinterpret_cast<const __m128i*>(entries + part * kPartEntries)));
            found = _mm256_or_si256(found, _mm256_shuffle_epi8(table, _mm256_or_si256(values, others)));
        }
        // Two products of at most 255 * kMostWeight fit 16 bits.
        const __m256i pairs = _mm256_maddubs_epi16(found, _mm256_set1_epi32(four));
        sums_ = _mm256_add_epi32(sums_, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }

    __m256i sums() const { return sums_; }

  private:
    __m256i sums_ = _mm256_setzero_si256();
};

HAMTARGET_INLINE __m256i load32(const std::uint8_t* bytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

std::size_t scan_by_avx2(const std::uint8_t* sketches, std::size_t n_rows, const SketchTables& tables,
                         std::int32_t bound, std::int32_t* sums, std::uint32_t* rows) {
    const __m256i low_bits = _mm256_set1_epi8(15);
    const __m256i bounds = _mm256_set1_epi32(bound);
    std::size_t count = 0;
    for (std::size_t first = 0; first < n_rows; first += kSketchBlockRows) {
        const std::uint8_t* block = sketches + first / kSketchBlockRows * tables.n_groups * kGroupBytes;
        EightRows halves[2];
        std::size_t group = 0;
        for (; group + 2 <= tables.n_groups; group += 2)
            for (std::size_t half = 0; half < 2; ++half) {
                const __m256i values = load32(block + group * kGroupBytes + 32 * half);
                const std::uint8_t* entries = tables.entries + group * kGroupTable;
                const std::uint8_t* weights = tables.weights + group * kGroupParts;
                halves[half].add(_mm256_and_si256(values, low_bits), entries, weights);
                halves[half].add(_mm256_and_si256(_mm256_srli_epi16(values, 4), low_bits), entries + kGroupTable,
                                 weights + kGroupParts);
            }
        if (group < tables.n_groups) {
            const __m256i values = load32(block + group * kGroupBytes);
            const std::uint8_t* entries = tables.entries + group * kGroupTable;
            const std::uint8_t* weights = tables.weights + group * kGroupParts;
            halves[0].add(_mm256_and_si256(values, low_bits), entries, weights);
            halves[1].add(_mm256_and_si256(_mm256_srli_epi16(values, 4), low_bits), entries, weights);
        }
        const std::size_t n_here = smaller(kSketchBlockRows, n_rows - first);
        unsigned mask = 0;
        for (int half = 0; half < 2; ++half) {
            const __m256i above = _mm256_cmpgt_epi32(halves[half].sums(), bounds);
            mask |= (~static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(above))) & 0xFF) << 8 * half;
        }
        mask &= (1u << n_here) - 1;
        if (!mask) continue;
        std::int32_t block_sums[16];
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(block_sums), halves[0].sums());
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(block_sums + 8), halves[1].sums());
        for (; mask; mask &= mask - 1) {
            const auto row = static_cast<unsigned>(__builtin_ctz(mask));
            sums[count] = block_sums[row];
            rows[count++] = static_cast<std::uint32_t>(first + row);
        }
    }
    return count;
}

constexpr NeighborKernel kernel() {
    NeighborKernel result = neighbor_kernel_by_loops("avx2");
    result.scan = scan_by_avx2;
    return result;
}

}  // namespace

extern const NeighborKernel kAvx2Neighbors;
constinit const NeighborKernel kAvx2Neighbors = kernel();

}  // namespace hamtarget

#endif
