package shardpub

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/kiroku"
)

//go:embed sql/publish_lock_timeout.sql
var publishLockTimeoutSQL string

// Publisher appends messages to the event store; it is a [message.Publisher].
//
// The topic is the category, the key chooses the stream in it. All messages of
// one call are appended by one statement, or none is. Messages of one stream
// keep their order; between streams there is none.
//
// Over a *pgxpool.Pool it is safe for concurrent use, and calls at the same time
// share statements and commits ([kiroku.Appender]): a call that finds none under
// way goes out at once, those that come meanwhile go together when it is back.
// Each is all or nothing by itself, with its own expected versions and errors.
// PublisherConfig.DisableGroupCommit gives each a statement of its own.
//
// Over a *pgx.Conn or a pgx.Tx it is as safe as those: one call at a time.
type Publisher struct {
	db       Executor
	pooled   appender // nil: db is no pool
	cfg      PublisherConfig
	envelope envelope
	logger   watermill.LoggerAdapter
	keyless  sync.Once // says that messages have no key

	mu      sync.Mutex // guards closed, and running against a late Add
	closed  bool
	running sync.WaitGroup
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher that appends on db. It validates and touches
// nothing. What is wrong is reported at once, joined, each a [*ConfigError]. A
// nil logger logs nothing.
func NewPublisher(db Executor, cfg PublisherConfig, logger watermill.LoggerAdapter) (*Publisher, error) {
	v := validation{}
	v.check(db != nil, "db", db, "pass a pool, a connection or a transaction")
	if err := errors.Join(v.err(), cfg.Validate()); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &Publisher{
		db:       db,
		pooled:   newAppender(db, cfg),
		cfg:      cfg,
		envelope: newEnvelope(cfg.Key, cfg.Marshaler, cfg.Payload, cfg.EventID),
		logger:   logger.With(watermill.LogFields{"provider": "suisha"}),
	}, nil
}

// Publish appends the messages and returns when they are in the store; over a
// pgx.Tx, when they are part of the transaction. Every append holds the lock of
// the whole log from here to the end of its transaction, so publish last in it,
// once.
//
// The context of the first message bounds the call. When it ends, the error
// wraps its error and the server is told to cancel; over a pool it has been told
// the deadline, too. The connection is closed, also a *pgx.Conn or that of a
// pgx.Tx. As with any lost connection it is then unknown whether the server was
// faster: with [IdempotentEventID] one can simply publish again. A call that
// shares its statement returns at once, too, but the statement goes on for the
// others, bounded by the last of their deadlines, until all of them are gone.
//
// Errors, before anything is sent: [ErrPublisherClosed], [*TopicError],
// [*KeyError], [*ExpectedVersionError], [*MessageError] (wrapping
// [*MetadataError], [*PayloadTooLargeError], or what the Marshaler or EventID
// returned). From the append, those of [kiroku.Append]: a stream that is not as
// [MetadataExpectedVersion] says or is deleted ([kiroku.ErrConflict]), an event
// id that exists ([*kiroku.DuplicateEventError]), a deadlock or lock timeout
// ([*kiroku.TransientError]: publish again); [*SchemaMissingError] before Migrate,
// [*GrantError] without the privileges of [Grants]. Streams are locked in one order
// everywhere, so calls do not deadlock with each other; transactions do that
// publish to several streams by several calls, in opposite order.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if !p.enter() {
		return ErrPublisherClosed
	}
	defer p.running.Done()
	batches, err := p.envelope.batches(topic, messages)
	if err != nil {
		return err
	}
	if len(batches) == 0 {
		return nil
	}
	ctx := messages[0].Context()
	appended, err := p.append(ctx, streamAppends(batches))
	if err != nil {
		return publishError(ctx, topic, err)
	}
	p.log(topic, len(messages), batches)
	if p.cfg.OnPublished != nil {
		p.cfg.OnPublished(ctx, topic, appended)
	}
	return nil
}

func (p *Publisher) log(topic string, messages int, batches []batch) {
	if !listens(p.logger) {
		return
	}
	p.logger.Trace("Messages appended", watermill.LogFields{"topic": topic, "messages": messages, "streams": len(batches)})
	if p.cfg.Key == nil && slices.ContainsFunc(batches, func(b batch) bool { return b.stream == topic }) {
		p.keyless.Do(func() {
			p.logger.Info("Messages without a key are one stream, and handled one by one: set the metadata "+MetadataKey+", or PublisherConfig.Key", watermill.LogFields{"topic": topic})
		})
	}
}

// Close waits for the calls that are running and makes later ones fail with
// [ErrPublisherClosed]. It is idempotent and safe for concurrent use, and leaves
// the pool, connection or transaction alone.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.running.Wait()
	if p.pooled != nil {
		p.pooled.Wait() // statements whose callers are gone
	}
	return nil
}

func (p *Publisher) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.running.Add(1)
	}
	return !p.closed
}

// appender is how a Publisher over a pool appends.
type appender interface {
	Append(ctx context.Context, appends ...kiroku.StreamAppend) ([]kiroku.Appended, error)
	// Wait returns when nothing is under way.
	Wait()
}

func newAppender(db Executor, cfg PublisherConfig) appender {
	pool, ok := db.(*pgxpool.Pool)
	switch b := (bounded{Pool: pool, lockTimeout: cfg.LockTimeout}); {
	case !ok:
		return nil
	case cfg.DisableGroupCommit:
		return separate{db: b}
	default:
		return kiroku.NewAppender(b)
	}
}

// separate gives each append a statement of its own.
type separate struct{ db kiroku.DB }

func (s separate) Append(ctx context.Context, appends ...kiroku.StreamAppend) ([]kiroku.Appended, error) {
	return kiroku.Append(ctx, s.db, appends...)
}

func (separate) Wait() {}

func streamAppends(batches []batch) []kiroku.StreamAppend {
	appends := make([]kiroku.StreamAppend, 0, len(batches))
	for _, b := range batches {
		appends = append(appends, kiroku.StreamAppend{Stream: b.stream, Expected: b.version, Events: b.events})
	}
	return appends
}

func (p *Publisher) append(ctx context.Context, appends []kiroku.StreamAppend) (appended []kiroku.Appended, err error) {
	if p.pooled != nil {
		return p.pooled.Append(ctx, appends...)
	}
	if p.cfg.LockTimeout == 0 {
		return kiroku.Append(ctx, p.db, appends...)
	}
	// Begin of a pgx.Tx is a savepoint, of a connection a transaction.
	err = pgx.BeginFunc(ctx, p.db, func(tx pgx.Tx) error {
		before, err := setLockTimeout(ctx, tx, lockTimeoutSetting(p.cfg.LockTimeout))
		if err != nil {
			return err
		}
		if appended, err = kiroku.Append(ctx, tx, appends...); err != nil {
			return err
		}
		if _, nested := p.db.(pgx.Tx); nested {
			_, err = setLockTimeout(ctx, tx, before)
		}
		return err
	})
	return appended, err
}

func lockTimeoutSetting(d time.Duration) string {
	return strconv.FormatInt(settingMillis(d), 10) + "ms"
}

// setLockTimeout sets lock_timeout for the rest of the transaction, or until a
// savepoint is rolled back to, and returns what it was.
func setLockTimeout(ctx context.Context, tx pgx.Tx, value string) (before string, err error) {
	if err := tx.QueryRow(ctx, publishLockTimeoutSQL, value).Scan(&before, nil); err != nil {
		return "", fmt.Errorf("set lock_timeout to %s: %w", value, err)
	}
	return before, nil
}

// publishError says what failed. A connection that is configured to wait for
// the server's answer to a cancel request brings that instead of the context's
// error.
func publishError(ctx context.Context, topic string, err error) error {
	if cause := ctx.Err(); cause != nil && stateOf(err) == stateCanceled {
		return fmt.Errorf("shardpub: publish to %q: %w: %w", topic, cause, err)
	}
	return fmt.Errorf("shardpub: publish to %q: %w", topic, explain(err))
}
