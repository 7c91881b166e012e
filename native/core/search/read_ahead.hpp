// Buckets that a query will read, fetched from memory in two stages before they are read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../../kernels/tables.hpp"

namespace hamtarget {

struct QueuedBucket {
    const Table* table;
    BucketNumber number;
    std::uint32_t step;
    Span span;  // known once the bucket is being fetched
};

// A bucket is pushed, and its offsets are fetched; kAhead buckets later the bucket itself is fetched; and as many later
// it is read. So the CPU waits for neither.
class ReadAhead {
  public:
    // Add a bucket. Call read(bucket) for the one whose turn it is, if there is one.
    template <class Read>
    HAMTARGET_INLINE void push(const QueuedBucket& bucket, std::size_t n_bytes, Read read) {
        __builtin_prefetch(bucket.table->offsets + raw(bucket.number));
        at(n_pushed_++) = bucket;
        n_bytes_ = n_bytes;
        if (n_pushed_ - n_fetched_ > kAhead) fetch_next();
        if (n_pushed_ - n_read_ > 2 * kAhead) read(at(n_read_++));
    }

    // Call read(bucket) for all that are left.
    template <class Read>
    void drain(Read read) {
        while (n_read_ < n_pushed_) {
            if (n_fetched_ < n_pushed_) fetch_next();
            read(at(n_read_++));
        }
    }

  private:
    static constexpr std::size_t kAhead = 12;
    static constexpr std::size_t kRoom = 32;
    static_assert(kRoom > 2 * kAhead && (kRoom & (kRoom - 1)) == 0);

    HAMTARGET_INLINE QueuedBucket& at(std::size_t count) { return buckets_[count % kRoom]; }

    HAMTARGET_INLINE void fetch_next() {
        QueuedBucket& bucket = at(n_fetched_++);
        bucket.span = bucket.table->bucket(bucket.number);
        prefetch_bucket(*bucket.table, bucket.span, n_bytes_);
    }

    std::array<QueuedBucket, kRoom> buckets_;
    std::size_t n_pushed_ = 0, n_fetched_ = 0, n_read_ = 0;
    std::size_t n_bytes_ = 0;
};

}  // namespace hamtarget
