// Package projection is the work that the demo's workers do: it counts the
// changes of each file into a table, and notes each call of a handler.
package projection

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// The categories of the demo's events, and their types.
const (
	Files  = "file"
	Orders = "order"

	FileChangedType = "FileChanged"
	LineAddedType   = "LineAdded"
)

var (
	//go:embed sql/01_schema.sql
	schemaSQL string
	//go:embed sql/02_churn.sql
	churnSQL string
	//go:embed sql/03_orders.sql
	ordersSQL string
	//go:embed sql/04_calls.sql
	callsSQL string

	//go:embed sql/file_changed.sql
	fileChangedSQL string
	//go:embed sql/order_line.sql
	orderLineSQL string
)

// FileChanged is the payload of an event of category [Files].
type FileChanged struct {
	Path    string    `json:"path"` // escaped, see history.Escape
	Commit  string    `json:"commit"`
	Author  string    `json:"author"`
	At      time.Time `json:"at,omitzero"`
	Added   int64     `json:"added"`
	Deleted int64     `json:"deleted"`
	Binary  bool      `json:"binary"`
}

// LineAdded is the payload of an event of category [Orders].
type LineAdded struct {
	Order  int   `json:"order"`
	Line   int   `json:"line"`
	Amount int64 `json:"amount"`
}

// Install makes the tables in a database that does not have them.
func Install(ctx context.Context, db kiroku.DB) error {
	for _, sql := range []string{schemaSQL, churnSQL, ordersSQL, callsSQL} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("projection: install: %w", err)
		}
	}
	return nil
}

// Projection handles events for one worker. It is safe for concurrent use.
type Projection struct {
	DB kiroku.DB
	// Worker is the name that calls are noted under.
	Worker string
}

// FileChanged counts one change of one file.
func (p Projection) FileChanged(msg *message.Message) error {
	var e FileChanged
	args, err := p.decode(msg, &e)
	if err != nil {
		return err
	}
	args["path"], args["added"], args["deleted"] = e.Path, e.Added, e.Deleted
	_, err = p.DB.Exec(msg.Context(), fileChangedSQL, args)
	return err
}

// LineAdded counts one line of one order.
func (p Projection) LineAdded(msg *message.Message) error {
	var e LineAdded
	args, err := p.decode(msg, &e)
	if err != nil {
		return err
	}
	args["amount"] = e.Amount
	_, err = p.DB.Exec(msg.Context(), orderLineSQL, args)
	return err
}

var errNoDelivery = errors.New("projection: the message is not from a shardpub.Subscriber")

// decode reads the payload and names the delivery for SQL.
func (p Projection) decode(msg *message.Message, event any) (pgx.NamedArgs, error) {
	d, ok := shardpub.DeliveryFromContext(msg.Context())
	if !ok {
		return nil, errNoDelivery
	}
	if err := json.Unmarshal(msg.Payload, event); err != nil {
		return nil, fmt.Errorf("projection: %s, version %d: %w", d.Stream, d.Version, err)
	}
	return pgx.NamedArgs{
		"worker": p.Worker, "bucket": d.Bucket, "stream": d.Stream, "version": d.Version, "position": d.Position, "attempt": d.Attempt,
	}, nil
}
