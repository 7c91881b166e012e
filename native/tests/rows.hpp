// Rows for the tests of the index, and an index that is too simple to be wrong: a map that is read from end to end.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "../core/multi_index.hpp"
#include "check.hpp"

namespace hamtarget::tests {

struct Rows {
    std::size_t n_bytes = 0;
    std::size_t width = 0;  // of an embedding, in bytes
    std::vector<std::uint8_t> codes;
    std::vector<std::int64_t> ids;
    std::vector<std::uint8_t> embeddings;

    std::size_t size() const { return ids.size(); }
    RowsView view() const {
        return {{codes.data(), ids.size(), n_bytes}, ids.data(), width ? embeddings.data() : nullptr};
    }
    void push(std::int64_t id, const std::vector<std::uint8_t>& code, const std::vector<std::uint8_t>& embedding) {
        ids.push_back(id);
        codes.insert(codes.end(), code.begin(), code.end());
        embeddings.insert(embeddings.end(), embedding.begin(), embedding.end());
    }
};

struct Row {
    std::vector<std::uint8_t> code;
    std::vector<std::uint8_t> embedding;

    friend bool operator==(const Row&, const Row&) = default;
};

// What an index must hold, by id.
using Model = std::map<std::int64_t, Row>;

inline unsigned distance_of(const std::vector<std::uint8_t>& left, const std::uint8_t* right) {
    unsigned sum = 0;
    for (std::size_t i = 0; i < left.size(); ++i) sum += static_cast<unsigned>(__builtin_popcount(left[i] ^ right[i]));
    return sum;
}

// Return a code near one of a few centres, so that buckets are full and there is something to find.
inline std::vector<std::uint8_t> clustered_code(std::mt19937_64& random, std::size_t n_bytes) {
    std::mt19937_64 centre(random() % 8);
    std::vector<std::uint8_t> code(n_bytes);
    for (std::uint8_t& byte : code) byte = static_cast<std::uint8_t>(centre());
    for (std::uint64_t flips = random() % 6; flips > 0; --flips) {
        const std::uint64_t bit = random() % (8 * n_bytes);
        code[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    }
    return code;
}

}  // namespace hamtarget::tests
