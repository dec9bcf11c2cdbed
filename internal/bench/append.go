package bench

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/shardpub"
)

//go:embed sql/kiroku_append.sql
var kirokuAppendSQL string

//go:embed sql/appended.sql
var appendedSQL string

//go:embed sql/insert_table.sql
var insertTableSQL string

//go:embed sql/insert_rows.sql
var insertRowsSQL string

//go:embed sql/inserted.sql
var insertedSQL string

// KirokuAppend is the name of kiroku's own way to append.
const KirokuAppend = "kiroku's statement per call"

// Calls is a load of appends: so many goroutines, each of which calls again and
// again with so many events, on so many connections.
type Calls struct {
	Writers, Batch int
	Conns          int32
	For            time.Duration
}

// Target is what appends go to.
type Target struct {
	// Call writes the batch of one call of one writer; turn is unique.
	Call func(ctx context.Context, writer, turn int) error
	// Count is how many events there are.
	Count func(ctx context.Context) (int64, error)
	Close func() error
}

// Run measures calls for a while and checks that everything is there.
func (c Calls) Run(ctx context.Context, e *Env, t Target) (values Values, err error) {
	defer func() {
		if closeErr := t.Close(); err == nil {
			err = closeErr
		}
	}()
	var (
		turns  atomic.Int64
		failed atomic.Pointer[error]
		group  sync.WaitGroup
	)
	call := func(writer int) bool {
		if err := t.Call(ctx, writer, int(turns.Add(1))); err != nil {
			failed.CompareAndSwap(nil, &err)
			return false
		}
		return true
	}
	for writer := range c.Writers { // connections and plans
		group.Go(func() { call(writer) })
	}
	group.Wait()
	if e.Brief {
		c.For /= 10
	}
	before := turns.Load()
	began := time.Now()
	for writer := range c.Writers {
		group.Go(func() {
			for time.Since(began) < c.For && failed.Load() == nil && call(writer) {
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	n, err := t.Count(ctx)
	if err != nil {
		return nil, err
	}
	if want := turns.Load() * int64(c.Batch); n != want {
		return nil, fmt.Errorf("%d events are there of %d that were acknowledged", n, want)
	}
	return Values{"rate": float64((turns.Load()-before)*int64(c.Batch)) / took.Seconds()}, nil
}

// appendStreams is how many streams are appended to, by turns.
const appendStreams = 1000

// on runs calls on a fresh store.
func (c Calls) on(target func(context.Context, *pgxpool.Pool) (Target, error)) func(context.Context, *Env) (Values, error) {
	return func(ctx context.Context, e *Env) (Values, error) {
		db, err := e.Server.Loaded(ctx, Load{})
		if err != nil {
			return nil, err
		}
		defer db.Close()
		pool, err := db.Connect(ctx, c.Conns)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		t, err := target(ctx, pool)
		if err != nil {
			return nil, err
		}
		return c.Run(ctx, e, t)
	}
}

// Counting counts with a statement.
func Counting(pool *pgxpool.Pool, sql string) func(context.Context) (int64, error) {
	return func(ctx context.Context) (n int64, err error) {
		err = pool.QueryRow(ctx, sql).Scan(&n)
		return n, err
	}
}

// Messages are the batch of one call, all of one key.
func (c Calls) Messages(turn int, key string) []*message.Message {
	all := make([]*message.Message, c.Batch)
	for i := range all {
		all[i] = message.NewMessage(watermill.NewUUID(), Payload(turn*c.Batch+i))
		if key != "" {
			all[i].Metadata.Set(key, strconv.Itoa(turn%appendStreams))
		}
	}
	return all
}

// publisher is our Publisher with default options.
func (c Calls) publisher(_ context.Context, pool *pgxpool.Pool) (Target, error) {
	p, err := shardpub.NewPublisher(pool, shardpub.PublisherConfig{}, watermill.NopLogger{})
	if err != nil {
		return Target{}, err
	}
	return Target{
		Call: func(_ context.Context, _, turn int) error {
			return p.Publish(Orders, c.Messages(turn, shardpub.MetadataKey)...)
		},
		Count: Counting(pool, appendedSQL),
		Close: p.Close,
	}, nil
}

func nothing() error { return nil }

// kiroku is what kiroku does: one statement for one stream, any version.
func (c Calls) kiroku(_ context.Context, pool *pgxpool.Pool) (Target, error) {
	like, err := metadataLike()
	if err != nil {
		return Target{}, err
	}
	return Target{
		Call: func(ctx context.Context, _, turn int) error {
			var (
				ids, types, data, metadata = make([]uuid.UUID, c.Batch), make([]string, c.Batch), make([]string, c.Batch), make([]string, c.Batch)
				none                       = make([]*uuid.UUID, c.Batch)
				at                         = make([]time.Time, c.Batch)
				stream, version, position  int64
			)
			for i := range ids {
				id, err := uuid.NewV7()
				if err != nil {
					return err
				}
				ids[i] = id
				types[i], data[i], metadata[i], at[i] = shardpub.DefaultEventType, string(Payload(turn*c.Batch+i)), like, time.Now()
			}
			return pool.QueryRow(ctx, kirokuAppendSQL, ids, types, none, none, data, metadata, at, Orders+"-"+strconv.Itoa(turn%appendStreams)).
				Scan(&stream, &version, &position)
		},
		Count: Counting(pool, appendedSQL),
		Close: nothing,
	}, nil
}

// insert is the least that a database can do: rows into one table.
func (c Calls) insert(ctx context.Context, pool *pgxpool.Pool) (Target, error) {
	if _, err := pool.Exec(ctx, insertTableSQL); err != nil {
		return Target{}, err
	}
	return Target{
		Call: func(ctx context.Context, _, turn int) error {
			data := make([]string, c.Batch)
			for i := range data {
				data[i] = string(Payload(turn*c.Batch + i))
			}
			_, err := pool.Exec(ctx, insertRowsSQL, data)
			return err
		},
		Count: Counting(pool, insertedSQL),
		Close: nothing,
	}, nil
}

// The loads of the three questions.
var (
	Single   = Calls{Writers: 1, Batch: 1, Conns: 16, For: 2 * time.Second}
	Many     = Calls{Writers: 16, Batch: 1, Conns: 16, For: 2 * time.Second}
	ManyMany = Calls{Writers: 16, Batch: 100, Conns: 16, For: 2 * time.Second}
)

func (c Calls) question(id, title string, goals ...Goal) Question {
	return Question{
		ID: id, Title: title, Primary: "rate", Unit: "events/s", Goals: goals,
		Cases: []Case{
			{Name: Ours, Options: "shardpub.Publisher, default options, 16 connections, 1,000 streams", Run: c.on(c.publisher)},
			{Name: KirokuAppend, Options: "one stream and any version, 16 connections", Run: c.on(c.kiroku)},
			{Name: "limit: insert into one table", Options: "a key and the payload, 16 connections", Run: c.on(c.insert)},
		},
	}
}

func appendQuestions() []Question {
	return []Question{
		Single.question(Append1, "Single appends, one goroutine",
			Goal{Text: "suisha ÷ kiroku's statement per call, one goroutine", Figure: Ratio(Ours, KirokuAppend, "rate"), Target: 0.95}),
		Many.question(Append16, "Single appends, 16 goroutines",
			Goal{Text: "suisha ÷ kiroku's statement per call, 16 goroutines", Figure: Ratio(Ours, KirokuAppend, "rate"), Target: 10}),
		ManyMany.question(Batches, "Batches of 100, 16 goroutines",
			Goal{Text: "suisha ÷ kiroku's statement, batches of 100 from 16 goroutines", Figure: Ratio(Ours, KirokuAppend, "rate"), Target: 1.2}),
	}
}
