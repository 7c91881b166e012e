// The reduction of pictures for PDQ: the same numbers, to the last digit, as filters that go pixel by pixel.
#include <cstdio>
#include <random>
#include <vector>

#include "../core/pdq_reduction.hpp"
#include "check.hpp"

namespace {

using hamtarget::kPdqSide;
using hamtarget::pdq_reduction;
using Line = std::vector<float>;

// Running means of one line, by the published algorithm.
Line means(const Line& line, std::size_t window) {
    const std::size_t half = (window + 2) / 2;
    Line result;
    float sum = 0;
    std::size_t size = 0, entering = 0, leaving = 0;
    while (result.size() < line.size()) {
        if (entering < line.size()) {
            sum += line[entering++];
            if (size < window) {
                ++size;
            } else {
                sum -= line[leaving++];
            }
            if (entering < half) continue;
        } else {
            sum -= line[leaving++];
            --size;
        }
        result.push_back(sum / static_cast<float>(size));
    }
    return result;
}

std::vector<float> naive(const std::vector<std::uint8_t>& pixels, std::size_t rows, std::size_t columns) {
    std::vector<Line> picture(rows, Line(columns));
    for (std::size_t y = 0; y < rows; ++y) {
        for (std::size_t x = 0; x < columns; ++x) {
            const std::uint8_t* pixel = &pixels[3 * (y * columns + x)];
            picture[y][x] = static_cast<float>(pixel[0] * 0.299 + pixel[1] * 0.587 + pixel[2] * 0.114);
        }
    }
    for (int pass = 0; pass < 2 && !(rows == 64 && columns == 64); ++pass) {
        for (Line& line : picture) line = means(line, (columns + 127) / 128);
        for (std::size_t x = 0; x < columns; ++x) {
            Line down(rows);
            for (std::size_t y = 0; y < rows; ++y) down[y] = picture[y][x];
            down = means(down, (rows + 127) / 128);
            for (std::size_t y = 0; y < rows; ++y) picture[y][x] = down[y];
        }
    }
    std::vector<float> result;
    for (std::size_t y = 0; y < kPdqSide; ++y) {
        for (std::size_t x = 0; x < kPdqSide; ++x) {
            result.push_back(picture[(2 * y + 1) * rows / 128][(2 * x + 1) * columns / 128]);
        }
    }
    return result;
}

void like_the_naive_twin() {
    std::mt19937 random(0);
    const std::size_t sizes[][2] = {{5, 5},   {5, 700},  {63, 65},   {64, 64},   {64, 63},  {127, 129},
                                    {128, 6}, {200, 17}, {257, 300}, {640, 481}, {1100, 7}, {384, 1025}};
    for (const auto& [rows, columns] : sizes) {
        std::vector<std::uint8_t> pixels(3 * rows * columns);
        for (std::uint8_t& value : pixels) value = static_cast<std::uint8_t>(random());
        const auto found = pdq_reduction(pixels.data(), rows, columns);
        const auto wanted = naive(pixels, rows, columns);
        CHECK(std::equal(found.begin(), found.end(), wanted.begin(), wanted.end()));
    }
}

void small_pictures_are_zeros() {
    const std::vector<std::uint8_t> pixels(3 * 4 * 100, 200);
    for (const float value : pdq_reduction(pixels.data(), 4, 100)) CHECK(value == 0);
    for (const float value : pdq_reduction(pixels.data(), 100, 4)) CHECK(value == 0);
    for (const float value : pdq_reduction(pixels.data(), 1, 1)) CHECK(value == 0);
}

}  // namespace

int main() {
    like_the_naive_twin();
    small_pictures_are_zeros();
    std::puts("pdq_reduction: ok");
}
