// Package kiroku reads and writes a kiroku event store in PostgreSQL: streams of
// events, the log of all of them, the checkpoints of subscriptions and the
// events that they gave up. It shares the schema with kiroku's own programs.
//
// It consists of functions on a [DB] (a pool, a connection or a transaction)
// and keeps nothing in memory; an [Appender] only what is under way. Every statement is schema-qualified and needs no
// session, so a transaction pooler may stand between, except for [Listener].
//
// # What holds
//
//   - An append is atomic over all its streams, and conditional on all its
//     expectations ([Append]), also when it shares a commit ([Appender]).
//   - Positions in [AllStreams] are given out under one lock that is held to the
//     end of the transaction: they have no holes, they become visible in their
//     order, and a reader that has passed one never finds an event below it
//     later. Only the deletion of a stream for good leaves holes. Compare
//     positions; do not compute with them.
//   - An event never changes. Its number in its stream, its position and the
//     name, category and bucket of its stream do not either.
//   - A checkpoint only moves forward ([SaveCheckpoint]), except where somebody
//     resets it ([ResetCheckpoints]).
//   - A dead letter and its checkpoint are written together or not at all
//     ([RecordDeadLetter]).
//   - A schema that somebody else made is verified and never changed
//     ([Migrate], [Verify]).
//
// # Errors
//
// Errors that a program may want to act on are typed; each type says when it
// happens and whether anything was written. [ErrConflict] and [ErrInvalid] match
// whole groups. Errors of the server are told apart by SQLSTATE and constraint
// name, and stay inside as *pgconn.PgError. What is not named here comes back as
// pgx returned it.
//
// # PostgreSQL
//
// 15 to 18. kiroku's own programs want 17 or 18.
//
// # Where to read on
//
// types.go has the words. append.go and sql/append.sql are the write path,
// appender.go and appender_choice.go the one that concurrent callers share,
// keys.go and read.go the read path, checkpoint.go and deadletter.go the state of
// subscriptions. inspect.go, ledger.go, structure.go and schema.go decide whether
// a database is used as it is, installed, or refused.
package kiroku
