// Every kernel that this CPU can run gives the sums of int8 embeddings that a plain loop gives.
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "../core/embedding.hpp"
#include "check.hpp"

namespace {

using namespace hamtarget;

void check(const EmbeddingKernel& kernel, std::mt19937_64& random, std::size_t n, std::size_t n_rows, bool extreme) {
    // Each row has memory of its own, so that a read past its end is an error.
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
    kernel.dots8(query.data(), places.data(), n_rows, n, dots);
    kernel.squares8(query.data(), places.data(), n_rows, n, squares);
    kernel.own8(nullptr, places.data(), n_rows, n, own);
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
    for (const EmbeddingKernel* kernel : supported_embedding_kernels()) {
        for (std::size_t n = 1; n <= 200; ++n) check(*kernel, random, n, 1 + n % kBatchRows, n % 2);
        check(*kernel, random, kMaxDims, 3, true);
    }
    std::puts("embedding: ok");
}
