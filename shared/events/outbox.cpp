#include "shared/events/outbox.h"

namespace atl::events {
namespace {

// Well below Kafka's default limit of a message, 1 MiB.
constexpr std::size_t kEventBytesMax = 512U << 10;

}  // namespace

constinit const std::string_view kTablesSql = R"sql(
-- Events that were committed but not sent yet. xid tells when a row's transaction is older than every running one, so
-- that no transaction can commit a smaller id later; rows are deleted when the broker has confirmed them.
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    topic text NOT NULL,
    key text NOT NULL,
    event jsonb NOT NULL
);
-- Events that took effect, so that a redelivery has none.
CREATE TABLE inbox (
    consumer text NOT NULL,
    event_id text NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX inbox_handled_at ON inbox (consumer, handled_at);
-- Events that their handler refused, for a person to look at.
CREATE TABLE dead_letters (
    consumer text NOT NULL,
    event_id text NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    value text NOT NULL,
    error text NOT NULL,
    failed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id)
);
)sql";

std::string outbox_channel(const std::string& schema) {
    return "atoll_outbox_" + schema;
}

Status add_to_outbox(pg::Transaction& transaction, const std::string& topic, const std::string& key, Event event) {
    complete(event);
    const json::Json value = to_json(event);
    if (value.dump(-1, ' ', false, json::Json::error_handler_t::replace).size() > kEventBytesMax)
        return Error{ErrorCode::kTooLarge, "the event " + event.type + " is larger than 512 KiB", "data"};
    ATOLL_RETURN_IF_ERROR(
        transaction.query("WITH added AS (INSERT INTO outbox (topic, key, event) VALUES ($1, $2, $3))"
                          " SELECT pg_notify($4 || current_schema(), '')",
                          {topic, key, value, outbox_channel("")}));
    return {};
}

}  // namespace atl::events
