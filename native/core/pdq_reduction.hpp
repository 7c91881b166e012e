// The first half of PDQ, a hash of pictures: a picture of any size becomes 64 x 64 numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hamtarget {

inline constexpr std::size_t kPdqSide = 64;

using PdqPicture = std::array<float, kPdqSide * kPdqSide>;

// Reduce `rows` x `columns` pixels of three bytes (red, green, blue) as pdqhash does, rounding as it rounds: brightness,
// two box filters along rows and columns in turn, then every pixel that is the centre of one of 64 x 64 parts. Pictures
// with fewer than 5 rows or columns become zeros: their hash is zero.
PdqPicture pdq_reduction(const std::uint8_t* pixels, std::size_t rows, std::size_t columns);

}  // namespace hamtarget
