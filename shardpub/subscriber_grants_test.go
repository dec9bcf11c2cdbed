package shardpub_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

// role makes a role that may do nothing, and a pool of its connections.
func (r *rig) role() (name string, pool *pgxpool.Pool) {
	r.t.Helper()
	name = `app "x" ` + uuid.NewString()[:8]
	quoted := pgx.Identifier{name}.Sanitize()
	r.exec(`create role ` + quoted)
	r.t.Cleanup(func() {
		ctx := context.WithoutCancel(r.t.Context())
		for _, sql := range []string{`drop owned by ` + quoted, `drop role ` + quoted} {
			if _, err := r.pool.Exec(ctx, sql); err != nil {
				r.t.Error(err)
			}
		}
	})
	cfg := r.pool.Config()
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `set role `+quoted)
		return err
	}
	pool, err := pgxpool.NewWithConfig(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(pool.Close)
	return name, pool
}

// granted is a role with what shardpub.Grants gives, and what takes one of these
// privileges away or gives it back.
func (r *rig) granted() (pool *pgxpool.Pool, change func(grant string)) {
	r.t.Helper()
	name, pool := r.role()
	sql, err := shardpub.Grants(name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.exec(sql)
	quoted := pgx.Identifier{name}.Sanitize()
	return pool, func(change string) { r.t.Helper(); r.exec(strings.ReplaceAll(change, ":role", quoted)) }
}

// P-4: the statements of Grants suffice for all that a worker ever does:
// publishing, starting, sharing, handling, retrying, parking, leaving.
func TestGrantsSufficeForAWholeLife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	app, _ := r.granted()
	pub := newPublisher(t, app, shardpub.PublisherConfig{})
	first, saidFirst := r.newNode(app)
	second, saidSecond := r.newNode(app)
	boom := errors.New("boom")
	var seen diary
	handle := func(msg *message.Message) error {
		switch d := seen.note(msg); {
		case d.Version == 2 && d.Attempt == 0:
			return boom
		case d.Version == 3:
			return middleware.Permanent(boom)
		}
		return nil
	}
	publish := func() {
		for _, key := range []string{"1", "2", "3", "4", "5", "6"} {
			if err := pub.Publish(orders, keyed("", "{}", key), keyed("", "{}", key)); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish()
	a, b := r.subscriber(shards(4), on(first)), r.subscriber(shards(4), on(second))
	doneA := serve(r.subscribe(a, orders), handle)
	r.until("the first owns all", func() bool { return r.owned() == 4 })
	doneB := serve(r.subscribe(b, orders), handle)
	r.until("they share", func() bool {
		return ask[int](r, `select count(distinct owner_worker_id) from keiro.keiro_subscription_shards`) == 2
	})
	publish()
	r.until("the dead letters are there", func() bool { return len(r.letters()) == 6 })
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	r.until("the second owns all", func() bool {
		return ask[int](r, `select count(distinct owner_worker_id) from keiro.keiro_subscription_shards`) == 1 && r.owned() == 4
	})
	r.until("all are settled", func() bool { return seen.len() >= 6*5 }) // four versions each, one of them twice
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	<-doneA
	<-doneB
	for _, said := range []*sayings{saidFirst, saidSecond} {
		if errs := said.errors(); len(errs) > 0 {
			t.Errorf("reported: %v", errs)
		}
	}
	if left := ask[int](r, `select count(*) from suisha.workers`); left != 0 || r.owned() != 0 {
		t.Errorf("%d workers and %d owned buckets are left", left, r.owned())
	}
}

// P-4: a role without any of the privileges that its work will need is told so
// by Subscribe, not by an outage later, and nothing is written.
func TestMissingGrantsAreATypedErrorAtTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	refused := func(what string, pool *pgxpool.Pool) {
		t.Helper()
		node, _ := r.newNode(pool)
		before := r.world()
		_, err := r.subscriber(on(node)).Subscribe(t.Context(), orders)
		var missing *shardpub.GrantError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "shardpub.Grants") {
			t.Errorf("%s: %v", what, err)
		}
		if after := r.world(); after != before {
			t.Errorf("%s: it wrote\n%s", what, after)
		}
	}
	_, none := r.role()
	refused("no grants", none)
	app, change := r.granted()
	for _, privilege := range []string{
		"usage on schema kiroku",
		"select on kiroku.streams",
		"select on kiroku.events",
		"select on kiroku.stream_events",
		"select on kiroku.subscriptions",
		"insert on kiroku.subscriptions",
		"update on kiroku.subscriptions",
		"insert on kiroku.dead_letters",
		"usage on sequence kiroku.subscriptions_subscription_id_seq",
		"usage on sequence kiroku.dead_letters_dead_letter_id_seq",
		"usage on schema keiro",
		"select on keiro.keiro_subscription_shards",
		"insert on keiro.keiro_subscription_shards",
		"update on keiro.keiro_subscription_shards",
		"usage on schema suisha",
		"select on suisha.subscriptions",
		"insert on suisha.subscriptions",
		"select on suisha.workers",
		"insert on suisha.workers",
		"update on suisha.workers",
		"delete on suisha.workers",
		"select on suisha.ownership_log",
		"insert on suisha.ownership_log",
		"delete on suisha.ownership_log",
		"select on suisha.acks",
		"insert on suisha.acks",
		"update on suisha.acks",
		"delete on suisha.acks",
	} {
		change("revoke " + privilege + " from :role")
		refused("without "+privilege, app)
		change("grant " + privilege + " to :role")
	}
	node, _ := r.newNode(app)
	if _, err := r.subscriber(on(node)).Subscribe(t.Context(), orders); err != nil {
		t.Errorf("with all of them: %v", err)
	}
}

// Every connection of a Node is opened as the pool opens its own: the session
// that beats too, unless it has a connection string of its own.
func TestEveryConnectionOfANodeIsSetUpAsThePoolsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.pool.Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = "bare"
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `set application_name to 'set up'`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	node, _ := r.newNode(pool)
	msgs := r.subscribe(r.subscriber(on(node)), orders)
	r.appendTo("orders-1", 1)
	receive(t, msgs).Ack()
	r.reaches(1)
	count := func(name string) int {
		return ask[int](r, `select count(*) from pg_stat_activity where datname = current_database() and application_name = $1`, name)
	}
	if bare, up := count("bare"), count("set up"); bare != 0 || up < 2 {
		t.Errorf("%d connections are set up, %d are not", up, bare)
	}
}

// A publisher says what is missing, too, and what to do about it.
func TestPublishWithoutSchemaOrGrantsIsATypedErrorWithItsCure(t *testing.T) {
	t.Parallel()
	publish := func(pool *pgxpool.Pool) error {
		pub, err := shardpub.NewPublisher(pool, shardpub.PublisherConfig{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return pub.Publish(orders, newMessage("m", "{}", nil))
	}
	var missing *shardpub.SchemaMissingError
	if err := publish(pgtest.New(t, nil)); !errors.As(err, &missing) || !strings.Contains(err.Error(), "shardpub.Migrate") || strings.Contains(err.Error(), "kiroku.Migrate") {
		t.Errorf("without a schema: %v", err)
	}
	r := newRig(t)
	_, pool := r.role()
	var denied *shardpub.GrantError
	if err := publish(pool); !errors.As(err, &denied) || !strings.Contains(err.Error(), "shardpub.Grants") {
		t.Errorf("without grants: %v", err)
	}
}
