// How a request is searched. This follows from the request and the manifest alone, and is the same for all queries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "../../kernels/tables.hpp"
#include "../manifest.hpp"
#include "request.hpp"

namespace hamtarget {

struct SearchPlan {
    // Which buckets of the parts with tables are read. A scan may always take the place of them, query by query.
    enum class Reach {
        own_buckets,      // the query's own: with a radius below the number of tables, they have every hit
        flipped_buckets,  // the query's own, then those whose numbers differ in one bit, in two bits, ...
        no_buckets,       // a scan of all rows is cheaper from the beginning
    };

    // How hits of the query's own buckets are collected.
    enum class Collecting {
        one_by_one,      // each is emitted
        in_lists,        // RowLists of a part, which are then emitted
        in_lists_alone,  // RowLists of the only part, which become the result unless hits are re-ranked
    };

    SearchPlan(const Layout& layout, const Manifest& manifest, const Request& request, const StepCosts& costs)
        : n_own_buckets(std::min<std::size_t>(request.radius + 1u, layout.n_tables)) {
        const bool flips = layout.n_tables && request.radius >= layout.n_tables;
        const bool has_limit = request.limit != kNoLimit;
        // Without a limit, a search within a radius cannot stop early.
        const bool scans = !has_limit && costs.steps(0, request.radius) > costs.scan();
        reach = !flips ? Reach::own_buckets : scans ? Reach::no_buckets : Reach::flipped_buckets;
        for (std::size_t p = 0; p < manifest.parts.size(); ++p) {
            const bool has_tables = !manifest.parts[p].segment->tables.empty();
            (has_tables && reach != Reach::no_buckets ? tabled : scanned).push_back(p);
        }
        collecting = flips || has_limit || request.radius >= kMostLists ? Collecting::one_by_one
                     : manifest.parts.size() == 1 && tabled.size() == 1 ? Collecting::in_lists_alone
                                                                        : Collecting::in_lists;
    }

    // Return the tables whose own buckets are read: n_own_buckets of each part in `tabled`.
    std::vector<const Table*> own_tables(const Manifest& manifest) const {
        std::vector<const Table*> tables;
        tables.reserve(tabled.size() * n_own_buckets);
        for (const std::size_t p : tabled)
            for (std::size_t j = 0; j < n_own_buckets; ++j) tables.push_back(&manifest.parts[p].segment->tables[j]);
        return tables;
    }

    Reach reach = Reach::own_buckets;
    Collecting collecting = Collecting::one_by_one;
    std::size_t n_own_buckets;         // of each part: later tables would find no more within the radius
    std::vector<std::size_t> tabled;   // parts whose buckets are read
    std::vector<std::size_t> scanned;  // parts whose rows are all read, for every query
};

}  // namespace hamtarget
