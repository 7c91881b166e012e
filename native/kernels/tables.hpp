// Tables: buckets of rows by the bits of one substring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codes.hpp"

namespace hamtarget {

inline constexpr std::size_t kMaxKeyBits = 28;

// Which bits of a code make the bucket numbers of one table: up to 28 bits, made of one substring.
//
// A substring longer than a bucket number is folded: bit i of it counts for bit i % length. So equal substrings have
// equal numbers, flipping a bit of one flips a bit of the other, and a search that reads every number within f flips
// misses no substring within f flips. Folding spreads skewed codes better than leaving bits out.
class KeyBits {
  public:
    KeyBits() = default;

    // Use the bits `start` to `stop - 1` of a code; of a very long substring, only the first 2 * length.
    HAMTARGET_INLINE KeyBits(std::size_t start, std::size_t stop, std::size_t length, std::size_t n_bytes)
        : start_(start),
          width_(smaller(stop - start, 2 * length)),
          length_(length),
          n_read_(smaller<std::size_t>(8, n_bytes)),
          // The 8 bytes read must not reach past the code.
          offset_(smaller(start / 8, n_bytes - n_read_)),
          shift_(start - 8 * offset_),
          mask_((std::uint64_t{1} << width_) - 1),
          bits_(mask_ << start % 64),
          bits_of_next_(start % 64 ? mask_ >> (64 - start % 64) : 0) {}

    HAMTARGET_INLINE std::uint64_t substring_of(const std::uint8_t* code) const {
        std::uint64_t word = 0;
        if (n_read_ == 8)
            std::memcpy(&word, code + offset_, 8);
        else
            std::memcpy(&word, code, n_read_);
        return word >> shift_ & mask_;
    }

    HAMTARGET_INLINE BucketNumber bucket_of(const std::uint8_t* code) const {
        const std::uint64_t substring = substring_of(code);
        const std::uint64_t folded = (substring ^ substring >> length_) & ((std::uint64_t{1} << length_) - 1);
        return static_cast<BucketNumber>(static_cast<std::uint32_t>(folded));
    }

    // The substring, as far as it counts, lies in this 64-bit word of a code and the next one, in these bits.
    HAMTARGET_INLINE std::size_t word() const { return start_ / 64; }
    HAMTARGET_INLINE std::uint64_t bits() const { return bits_; }
    HAMTARGET_INLINE std::uint64_t bits_of_next() const { return bits_of_next_; }

    HAMTARGET_INLINE std::size_t start() const { return start_; }
    HAMTARGET_INLINE std::size_t width() const { return width_; }
    // Bits of a bucket number.
    HAMTARGET_INLINE std::size_t length() const { return length_; }

  private:
    std::size_t start_ = 0, width_ = 0, length_ = 0, n_read_ = 0, offset_ = 0, shift_ = 0;
    std::uint64_t mask_ = 0, bits_ = 0, bits_of_next_ = 0;
};

// Flip bits of a bucket number.
HAMTARGET_INLINE constexpr BucketNumber flipped(BucketNumber bucket, std::uint32_t bits) {
    return BucketNumber{raw(bucket) ^ bits};
}

// Places of a table, or of rows.
struct Span {
    std::uint32_t start, stop;

    HAMTARGET_INLINE std::size_t size() const { return stop - start; }
};

// Which bytes of a code stand in a table whose entries are too many to hold whole codes: those that follow the substring,
// on from the first byte after the last. They rule most rows out, and whole codes are fetched of the others only.
struct Excerpts {
    const std::uint8_t* entries = nullptr;  // n_bytes of the code, then its place in the first table; null: none
    std::uint32_t n_bytes = 0;
    std::uint32_t first_byte = 0;
    bool is_apart = false;  // has none of the substring's bits

    HAMTARGET_INLINE std::size_t entry_bytes() const { return n_bytes + sizeof(std::uint32_t); }
    HAMTARGET_INLINE void copy(const std::uint8_t* code, std::size_t code_bytes, std::uint8_t* to) const {
        const std::size_t until_end = smaller<std::size_t>(n_bytes, code_bytes - first_byte);
        std::memcpy(to, code + first_byte, until_end);
        std::memcpy(to + until_end, code, n_bytes - until_end);
    }
};

// A table that a segment owns. Bucket b holds the places offsets[b] to offsets[b + 1] - 1.
//
// The arrays may be those of a file that was opened without verification, so their content is not to be trusted:
// bucket() brings every number that it reads into range, and so does whoever uses a row. A damaged file gives wrong
// answers, but no read outside of the arrays.
struct Table {
    KeyBits key;
    const std::uint32_t* offsets = nullptr;  // 2^key.length() + 1
    const std::uint8_t* codes = nullptr;     // by place; of the first table where this one has excerpts
    // By place: rows, or where rows share codes, numbers of codes. Those of the first table where this has excerpts.
    const RowNumber* rows = nullptr;
    std::uint32_t n_rows = 0;
    double mean_bucket = 0;  // rows in the bucket of a stored row, on average
    Excerpts excerpts{};     // by place, instead of codes and rows

    HAMTARGET_INLINE bool has_excerpts() const { return excerpts.entries != nullptr; }

    std::size_t n_offsets() const { return (std::size_t{1} << key.length()) + 1; }

    HAMTARGET_INLINE Span bucket(BucketNumber number) const {
        const std::uint32_t stop = smaller(offsets[raw(number) + 1], n_rows);
        return {smaller(offsets[raw(number)], stop), stop};
    }
    // Return the place in the first table of an entry of excerpts.
    HAMTARGET_INLINE std::size_t place_at(std::size_t entry) const {
        std::uint32_t place;
        std::memcpy(&place, excerpts.entries + entry * excerpts.entry_bytes() + excerpts.n_bytes, sizeof place);
        return smaller(place, n_rows - 1);
    }
};

// The query's own bucket of one table.
struct Lookup {
    BucketNumber number;
    Span span;
};

HAMTARGET_INLINE void prefetch_bucket(const Table& table, Span span, std::size_t n_bytes) {
    if (span.start == span.stop) return;
    if (table.has_excerpts()) {
        const std::size_t size = table.excerpts.entry_bytes();
        return prefetch_bytes(table.excerpts.entries + span.start * size, span.size() * size);
    }
    prefetch_bytes(table.codes + span.start * n_bytes, span.size() * n_bytes);
    prefetch_bytes(table.rows + span.start, span.size() * sizeof *table.rows);
}

// What is fetched while the buckets of a query are read: buckets of a later query, and, for an even later one, the
// offsets that say where its buckets are. A CPU ignores requests to fetch while too many are under way, so one bucket is
// fetched before each that is read.
struct LaterBuckets {
    const std::uint8_t* query;  // whose buckets are looked up; nullptr if there is none
    Lookup* looked_up;          // one for each table
    Lookup* fetched;            // looked up before; nullptr if there are none

    HAMTARGET_INLINE void fetch(const Table& table, std::size_t i, std::size_t n_bytes) const {
        if (query) {
            looked_up[i].number = table.key.bucket_of(query);
            __builtin_prefetch(table.offsets + raw(looked_up[i].number));
        }
        if (fetched) {
            fetched[i].span = table.bucket(fetched[i].number);
            prefetch_bucket(table, fetched[i].span, n_bytes);
        }
    }
};

// The query's own buckets of the first tables of a segment.
struct OwnBuckets {
    const std::uint8_t* query;
    std::size_t n_bytes;  // of a code
    Distance radius;
    const Table* tables;
    std::size_t n_tables;
    const Lookup* lookups;  // one for each table
    LaterBuckets later;

    // Call this before bucket `table` is read.
    HAMTARGET_INLINE void fetch_later(std::size_t table) const { later.fetch(tables[table], table, n_bytes); }
    HAMTARGET_INLINE Codes codes(std::size_t table) const {
        const Span span = lookups[table].span;
        return {tables[table].codes + span.start * n_bytes, span.size(), n_bytes};
    }
    HAMTARGET_INLINE const RowNumber* rows(std::size_t table) const {
        return tables[table].rows + lookups[table].span.start;
    }
};

// Lists of rows that a kernel fills, one for each distance. Each list consists of runs, one for each bucket.
struct RowListsView {
    RowNumber* rows;
    std::size_t room;  // of a list, in rows
    std::size_t n_lists;
    std::uint32_t* ends;  // of each list in each run

    HAMTARGET_INLINE RowNumber* list(std::size_t distance) const { return rows + distance * room; }
    HAMTARGET_INLINE void end_run(std::size_t run, std::size_t distance, const RowNumber* end) const {
        ends[run * n_lists + distance] = static_cast<std::uint32_t>(end - list(distance));
    }
};

// More distances than this are not collected in lists.
inline constexpr std::size_t kMostLists = 16;

}  // namespace hamtarget
