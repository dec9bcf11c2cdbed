-- What a role needs to read, to append and to run a subscription. It needs no
-- privilege to listen. Run it as the owner of the schema.
grant usage on schema kiroku to :role;
grant select on kiroku.streams, kiroku.events, kiroku.stream_events to :role;
grant insert, update on kiroku.streams to :role;
grant insert on kiroku.events, kiroku.stream_events to :role;
grant usage on sequence kiroku.streams_stream_id_seq to :role;
grant select, insert, update on kiroku.subscriptions to :role;
grant usage on sequence kiroku.subscriptions_subscription_id_seq to :role;
grant select, insert on kiroku.dead_letters to :role;
grant usage on sequence kiroku.dead_letters_dead_letter_id_seq to :role;
