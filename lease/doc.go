// Package lease decides which worker owns which bucket of a subscription.
//
// Every worker writes itself into suisha.workers and beats: one statement that
// refreshes its presence, renews its leases and reads back who lives and who owns
// what. From that a pure plan, the same in every worker, deals each an exact
// share. There is no coordinator: the row lock of a claim decides who owns a
// bucket, the plan only who tries.
//
// # Guarantees
//
//   - At any moment a row of keiro.keiro_subscription_shards names at most one
//     owner, and ownership passes only through a claim that takes the row FOR
//     UPDATE, so that a statement fenced by a lock on the row sees it (P-24).
//   - A lease is believed from before the renewing statement was sent, for the TTL
//     less a margin (P-22). Then the tenure ends with [ErrLost], whatever hangs.
//   - A planned move drains before it releases. A bucket whose handler hangs is
//     not renewed any more, and costs no other bucket anything.
//   - Expiry is judged by the database's clock alone. An expired lease of another
//     is claimed only after this worker has watched it for 1.2 intervals without
//     a failed beat, so that an outage moves nothing (P-11).
//   - Equal snapshots give plans that fit together. In a steady state nothing
//     moves; a join or a leave moves as few buckets as there are to move.
//
// # Reading order
//
// plan.go and deal.go (the decision), memory.go (what a worker remembers from beat
// to beat), pace.go (when it beats next), pass.go (one pass), handover.go (tenures,
// drains, losses), run.go (the loop, the watch, the end). The statements are in
// sql/, the behaviour as a story in testdata/scenario.
package lease
