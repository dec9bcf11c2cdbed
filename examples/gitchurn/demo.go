package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/history"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/projection"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/verify"
	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/shardpub"
)

// tamperer changes the database behind the demo's back.
type tamperer func(context.Context, *pgxpool.Pool) error

// demo is one run. Its fields are filled in from top to bottom.
type demo struct {
	options options
	screen  *screen.Screen
	tamper  tamperer

	began time.Time
	drawn time.Time
	repo  *history.Repository
	pool  *pgxpool.Pool
	fleet *fleet

	changes, orders, lines int // events of the history, orders, events of orders

	kill   verify.Kill // zero while nobody was killed
	worked time.Duration

	unclean error // what could not be cleaned up
}

const (
	lookInterval = 200 * time.Millisecond // between two looks at the database
	patience     = 30 * time.Second       // without progress, before the verdict comes as it is
	cleanLimit   = 15 * time.Second       // for cleaning up
	connections  = 4
)

// run does it all, and reports whether every promise was kept.
func (d *demo) run(ctx context.Context) (kept bool, err error) {
	d.began = time.Now()
	d.title()
	if d.repo, err = history.Open(ctx, d.options.repo, d.options.limit); err != nil {
		return false, err
	}
	d.sayRepository()
	d.draw(screen.View{Task: "start", Unit: "PostgreSQL"})
	server, err := pgserver.Open(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = d.clean(err, server.Stop) }()
	dsn, drop, err := d.createDatabase(ctx, server)
	if err != nil {
		return false, err
	}
	defer func() { err = d.clean(err, drop) }()
	if err := d.load(ctx); err != nil {
		return false, err
	}
	d.fleet = &fleet{config: workerConfig{Database: dsn, Buckets: d.options.buckets, Orders: d.orders > 0}}
	err = d.handle(ctx)
	if stopped := d.fleet.stop(); err == nil {
		err = stopped
	}
	if err != nil {
		return false, err
	}
	if d.tamper != nil {
		if err := d.tamper(ctx, d.pool); err != nil {
			return false, err
		}
	}
	return d.judge(ctx)
}

// clean calls f and keeps its error apart, for those who were interrupted.
func (d *demo) clean(err error, f func() error) error {
	failed := f()
	d.unclean = errors.Join(d.unclean, failed)
	return errors.Join(err, failed)
}

// createDatabase makes the demo's database with all its tables, and sets pool.
func (d *demo) createDatabase(ctx context.Context, server *pgserver.Server) (dsn string, drop func() error, err error) {
	name := "gitchurn_" + uuid.NewString()[:8]
	if dsn, err = server.CreateDatabase(ctx, name, ""); err != nil {
		return "", nil, err
	}
	drop = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
		defer cancel()
		if d.pool != nil {
			d.pool.Close()
		}
		return server.DropDatabase(ctx, name)
	}
	d.pool, err = connect(ctx, dsn, connections)
	if err == nil {
		err = shardpub.Migrate(ctx, d.pool)
	}
	if err == nil {
		err = projection.Install(ctx, d.pool)
	}
	if err != nil {
		return "", nil, errors.Join(err, drop())
	}
	where := "a PostgreSQL server of its own, gone at the end"
	if server.External() {
		where = name + " on the server that " + pgserver.EnvURL + " names, dropped at the end"
	}
	d.screen.Clear()
	d.fact("database", where)
	return dsn, drop, nil
}

// load appends all events.
func (d *demo) load(ctx context.Context) error {
	start := time.Now()
	files, err := d.loadHistory(ctx)
	if err != nil {
		return err
	}
	if err := d.loadOrders(ctx); err != nil {
		return err
	}
	d.screen.Clear()
	d.fact("history", fmt.Sprintf("%s of %s", screen.Counted(int64(d.changes), "change", "changes"), screen.Counted(int64(files), "file", "files")))
	if d.orders > 0 {
		why := "the history is tiny"
		if d.repo.Shallow {
			why = "the clone is shallow"
		}
		d.fact("", fmt.Sprintf("%s: %s with %s are added", why,
			screen.Counted(int64(d.orders), "generated order", "generated orders"), screen.Counted(int64(d.lines), "line", "lines")))
	}
	d.fact("log", fmt.Sprintf("%s, appended in %s", screen.Counted(int64(d.total()), "event", "events"), screen.Seconds(time.Since(start))))
	d.fact("workers", fmt.Sprintf("%d processes share %s of two subscriptions, with leases of %s",
		d.options.workers, screen.Counted(int64(d.options.buckets), "bucket", "buckets"), leases.TTL))
	return nil
}

func (d *demo) total() int { return d.changes + d.lines }

// handle starts the workers, kills one in the middle, starts another, and
// returns when all events are counted, or when nothing moves any more.
func (d *demo) handle(ctx context.Context) error {
	start := time.Now()
	for range d.options.workers {
		if _, err := d.fleet.start(ctx); err != nil {
			return err
		}
	}
	look, err := newObserver(ctx, d.pool, d.options.buckets)
	if err != nil {
		return err
	}
	story := plot{demo: d, moved: start}
	for {
		s, err := look.look(ctx, d.fleet.numbers())
		if err == nil {
			err = d.fleet.failed()
		}
		if err == nil {
			err = story.next(ctx, s)
		}
		if err != nil {
			return err
		}
		if d.worked = story.moved.Sub(start); story.over(s) {
			d.drawn = time.Time{}
			d.show(s, 0)
			d.screen.Keep()
			return nil
		}
		d.show(s, story.rate.add(time.Now(), s.done))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookInterval):
		}
	}
}

func (d *demo) show(s sample, perSecond float64) {
	d.draw(screen.View{
		Task: "handle", Done: s.done, Total: int64(d.total()), Unit: "events", Rate: perSecond,
		Workers: d.fleet.view(s.owned()), Maps: s.maps,
	})
}

// event says what has happened, with its time.
func (d *demo) event(format string, args ...any) {
	d.screen.Tell(fmt.Sprintf("%6.1f s  ", time.Since(d.began).Seconds()) + fmt.Sprintf(format, args...))
}

func (d *demo) fact(name, text string) { d.screen.Say(screen.Fact(name, text, d.style())) }

func (d *demo) title() {
	d.screen.Say(screen.Title("suisha", "a git history, counted by several processes, one of them killed", d.style())...)
}

func (d *demo) sayRepository() {
	dir := d.repo.Dir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	text := dir + ", no commit yet"
	if d.repo.Head != "" {
		text = fmt.Sprintf("%s, %s up to %.10s", dir, screen.Counted(int64(d.repo.Commits), "commit", "commits"), d.repo.Head)
	}
	d.fact("repository", text)
}

func (d *demo) style() screen.Style { return d.screen.Style() }
