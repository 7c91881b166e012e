// Sums of int8 embeddings are the same by every kernel that this CPU can run: those of a plain loop.
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "../embedding.hpp"
#include "check.hpp"

namespace {

using namespace hamtarget;

struct Sums {
    EmbeddingKernel::Sums8 dots, squares, own;
};

std::vector<Sums> supported() {
    using namespace kernels;
    std::vector<Sums> found = {{sums8<portable_dot8>, sums8<portable_square8>, sums8<portable_dot8>}};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) found.push_back({sums8<avx2_dot8>, sums8<avx2_square8>, sums8<avx2_dot8>});
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        found.push_back({sums8<avx512_dot8>, sums8<avx512_square8>, sums8<avx512_dot8>});
        if (__builtin_cpu_supports("avx512vnni"))
            found.push_back(
                {vnni_sums8<Products8, false>, vnni_sums8<Squares8, false>, vnni_sums8<Products8, true>});
    }
#endif
    return found;
}

void check(const Sums& sums, std::mt19937_64& random, std::size_t n, std::size_t n_rows, bool extreme) {
    // Each row has memory of its own: a read past its end is an error.
    const auto row = [&] {
        std::vector<std::int8_t> numbers(n);
        for (auto& number : numbers)
            number = static_cast<std::int8_t>(extreme ? (random() % 2 ? -128 : 127) : random() % 256);
        return numbers;
    };
    const std::vector<std::int8_t> query = row();
    std::vector<std::vector<std::int8_t>> rows;
    std::vector<const std::int8_t*> places;
    for (std::size_t i = 0; i < n_rows; ++i) rows.push_back(row());
    for (const auto& numbers : rows) places.push_back(numbers.data());
    std::int32_t dots[kBatchRows], squares[kBatchRows], own[kBatchRows];
    sums.dots(query.data(), places.data(), n_rows, n, dots);
    sums.squares(query.data(), places.data(), n_rows, n, squares);
    sums.own(nullptr, places.data(), n_rows, n, own);
    for (std::size_t i = 0; i < n_rows; ++i) {
        std::int32_t dot = 0, square = 0, norm = 0;
        for (std::size_t d = 0; d < n; ++d) {
            dot += query[d] * rows[i][d];
            square += (query[d] - rows[i][d]) * (query[d] - rows[i][d]);
            norm += rows[i][d] * rows[i][d];
        }
        CHECK(dots[i] == dot);
        CHECK(squares[i] == square);
        CHECK(own[i] == norm);
    }
}

}  // namespace

int main() {
    std::mt19937_64 random(7);
    for (const Sums& sums : supported()) {
        for (std::size_t n = 1; n <= 200; ++n) check(sums, random, n, 1 + n % kBatchRows, n % 2);
        check(sums, random, kMaxDims, 3, true);
    }
    std::puts("embedding: ok");
}
