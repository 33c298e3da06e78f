#include "services/store/options.h"

#include "shared/json/json.h"

namespace atl::store {

Result<Options> parse_options(const json::Json& own) {
    json::ObjectReader reader(own, "store");
    Options options;
    options.root = reader.required_string("root");
    options.accel_prefix = reader.string_or("accel_prefix", "");
    options.put_concurrency = reader.integer_or("put_concurrency", options.put_concurrency, 1, 1024);
    options.unused_blob_hours = reader.integer_or("unused_blob_hours", options.unused_blob_hours, 0, 24 * 366);
    options.topic_prefix = reader.string_or("topic_prefix", "");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (!options.root.is_absolute()) return invalid_argument("store.root", "must be an absolute path");
    if (!options.accel_prefix.empty() && !options.accel_prefix.ends_with('/'))
        return invalid_argument("store.accel_prefix", "must end with /");
    return options;
}

}  // namespace atl::store
