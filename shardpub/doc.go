// Package shardpub is the Watermill Pub/Sub over the event store: a
// [Subscriber] whose copies in all processes share the events of a category,
// and a [Publisher] that appends.
//
// A subscription is cut into buckets. Each Subscriber owns some of them by
// leases, reads the log once for all of them, and sends their events to one
// channel: in order per stream, the next of a stream after the Ack of the one
// before.
//
// # What Ack, Nack and Close mean
//
//   - Ack settles the event. Its bucket's checkpoint is written within
//     CheckpointInterval, together with those of all other buckets.
//   - Nack hands the event out again, here, after the retry delay. Deliveries
//     are counted by the Subscriber; when the budget is used up, the event
//     becomes a row in kiroku.dead_letters in one statement with its checkpoint.
//   - Close, the end of the Subscribe context, and a bucket that moves to
//     another worker all drain: no new hand-out, running handlers finish, the
//     checkpoint and the release are one transaction. What happens after our
//     own cancellation is no attempt.
//   - A lease that was lost, or cannot be believed any more, ends the contexts
//     of its messages with the cause lease.ErrLost. Acks are dropped from then
//     on, and nothing is written: every write locks its lease row.
//
// # Guarantees
//
// At least once, in order per stream. A planned move repeats nothing for
// handlers that return within DrainTimeout. A crash repeats what was in flight
// and what was acked since the last checkpoint.
//
// # Where to read on
//
// lanes.go, acks.go, page.go and verdict.go are the decisions, without database,
// clock or goroutine. subscription.go and holder.go are one membership, bucket.go and
// deliver.go one bucket, feed.go reads the log, settle.go and sql/ write.
package shardpub
