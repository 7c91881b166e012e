// Bits of a hash depend on the last digit of sums of single precision. Therefore every sum here is taken in the order of
// the published algorithm, and this file is compiled without fused multiplications. Many sums run side by side: filters
// always run down the lines of a matrix, which is turned between them.
#include "pdq_reduction.hpp"

#include <algorithm>
#include <vector>

namespace hamtarget {
namespace {

constexpr std::size_t kLeastSide = 5;
constexpr std::size_t kTile = 16;

struct Matrix {
    std::size_t rows, columns;
    std::vector<float> cells;

    Matrix(std::size_t rows, std::size_t columns) : rows(rows), columns(columns), cells(rows * columns) {}
    float* row(std::size_t index) { return cells.data() + index * columns; }
    const float* row(std::size_t index) const { return cells.data() + index * columns; }
};

// A filter of half a part's size, applied twice, sees a whole part.
std::size_t window_of(std::size_t side) { return (side + 2 * kPdqSide - 1) / (2 * kPdqSide); }

std::size_t centre_of_part(std::size_t part, std::size_t side) {
    return static_cast<std::size_t>((static_cast<double>(part) + 0.5) * static_cast<double>(side) / kPdqSide);
}

// Brightness of all pixels, turned: a row of the result is a column of the picture.
Matrix turned_brightness(const std::uint8_t* pixels, std::size_t rows, std::size_t columns) {
    Matrix result(columns, rows);
    for (std::size_t top = 0; top < rows; top += kTile) {
        for (std::size_t x = 0; x < columns; ++x) {
            float* out = result.row(x);
            for (std::size_t y = top; y < std::min(rows, top + kTile); ++y) {
                const std::uint8_t* pixel = pixels + 3 * (y * columns + x);
                out[y] = static_cast<float>(pixel[0] * 0.299 + pixel[1] * 0.587 + pixel[2] * 0.114);
            }
        }
    }
    return result;
}

Matrix turned(const Matrix& matrix) {
    Matrix result(matrix.columns, matrix.rows);
    for (std::size_t top = 0; top < matrix.rows; top += kTile) {
        for (std::size_t x = 0; x < matrix.columns; ++x) {
            float* out = result.row(x);
            for (std::size_t y = top; y < std::min(matrix.rows, top + kTile); ++y) out[y] = matrix.row(y)[x];
        }
    }
    return result;
}

// 64 rows of a matrix as the columns of another.
Matrix turned_centres(const Matrix& matrix) {
    Matrix result(matrix.columns, kPdqSide);
    for (std::size_t part = 0; part < kPdqSide; ++part) {
        const float* line = matrix.row(centre_of_part(part, matrix.rows));
        for (std::size_t y = 0; y < result.rows; ++y) result.row(y)[part] = line[y];
    }
    return result;
}

// Running means down every column: of `window` cells, fewer near the ends.
Matrix means_down(const Matrix& matrix, std::size_t window) {
    const std::size_t half = (window + 2) / 2, columns = matrix.columns;
    Matrix result(matrix.rows, columns);
    std::vector<float> sums(columns, 0.0f);
    std::size_t entering = 0, leaving = 0, written = 0, size = 0;
    const auto enter = [&] {
        const float* line = matrix.row(entering++);
        for (std::size_t x = 0; x < columns; ++x) sums[x] += line[x];
    };
    const auto leave = [&] {
        const float* line = matrix.row(leaving++);
        for (std::size_t x = 0; x < columns; ++x) sums[x] -= line[x];
    };
    const auto write = [&] {
        float* line = result.row(written++);
        const auto divisor = static_cast<float>(size);
        for (std::size_t x = 0; x < columns; ++x) line[x] = sums[x] / divisor;
    };
    for (; size + 1 < half; ++size) enter();
    while (size < window) {
        enter();
        ++size;
        write();
    }
    while (entering < matrix.rows) {
        enter();
        leave();
        write();
    }
    while (written < matrix.rows) {
        leave();
        --size;
        write();
    }
    return result;
}

}  // namespace

PdqPicture pdq_reduction(const std::uint8_t* pixels, std::size_t rows, std::size_t columns) {
    PdqPicture result{};
    if (rows < kLeastSide || columns < kLeastSide) return result;
    Matrix matrix = turned_brightness(pixels, rows, columns);
    if (rows == kPdqSide && columns == kPdqSide) {
        std::ranges::copy(turned(matrix).cells, result.begin());
        return result;
    }
    const std::size_t along_rows = window_of(columns), along_columns = window_of(rows);
    // Never more than two matrices at a time: a large picture's has hundreds of megabytes.
    matrix = means_down(matrix, along_rows);
    matrix = turned(matrix);
    matrix = means_down(matrix, along_columns);
    matrix = turned(matrix);
    matrix = means_down(matrix, along_rows);
    // No other column is looked at from here on.
    const Matrix centres = means_down(turned_centres(matrix), along_columns);
    for (std::size_t part = 0; part < kPdqSide; ++part) {
        std::copy_n(centres.row(centre_of_part(part, rows)), kPdqSide, result.begin() + part * kPdqSide);
    }
    return result;
}

}  // namespace hamtarget
