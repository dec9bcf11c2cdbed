-- Events by id: $1 ids.
select event_id, event_type, data, metadata, causation_id, correlation_id, created_at
from kiroku.events
where event_id = any ($1::uuid[]);
