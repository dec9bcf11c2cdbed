-- As after some time in service.
vacuum (analyze) kiroku.streams, kiroku.events, kiroku.stream_events
