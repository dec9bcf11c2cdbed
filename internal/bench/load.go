package bench

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/shardpub"
)

//go:embed sql/load_role.sql
var loadRoleSQL string

//go:embed sql/load_head.sql
var loadHeadSQL string

//go:embed sql/load_streams.sql
var loadStreamsSQL string

//go:embed sql/load_events.sql
var loadEventsSQL string

//go:embed sql/load_advance.sql
var loadAdvanceSQL string

//go:embed sql/load_notify.sql
var loadNotifySQL string

//go:embed sql/vacuum_command.sql
var vacuumCommandSQL string

//go:embed sql/warm.sql
var warmSQL string

// The categories that are loaded.
const (
	Orders = "orders"
	Rare   = "rare"
)

// PayloadSize is the size of each payload in bytes, JSON as PostgreSQL prints it.
const PayloadSize = 200

// Load is what a store holds: Events events of category orders in Streams
// streams by turns, of which one in Every is of category rare instead, in
// RareStreams streams by turns.
type Load struct {
	Events, Streams    int
	Every, RareStreams int
}

// Of is how many events and streams a category has.
func (l Load) Of(category string) (events, streams int) {
	rare := 0
	if l.Every > 0 {
		rare = l.Events / l.Every
	}
	if category == Rare {
		return rare, l.RareStreams
	}
	return l.Events - rare, l.Streams
}

// Payload is what the n-th event of a category carries, from 0. Which stream it
// is in, and at which place, follows from n.
func Payload(n int) []byte {
	b := make([]byte, 0, PayloadSize)
	b = append(b, `{"n": `...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `, "pad": "`...)
	b = append(b, bytes.Repeat([]byte{'x'}, PayloadSize-len(b)-2)...)
	return append(b, `"}`...)
}

// number reads n of a payload back, whatever the spaces.
func number(payload []byte) (int, error) {
	const head = `{"n":`
	if !bytes.HasPrefix(payload, []byte(head)) {
		return 0, fmt.Errorf("a payload that is not ours: %.40q", payload)
	}
	n, digits := 0, 0
	for _, c := range payload[len(head):] {
		switch {
		case c == ' ' && digits == 0:
		case c >= '0' && c <= '9':
			n, digits = n*10+int(c-'0'), digits+1
		case digits == 0:
			return 0, fmt.Errorf("a payload without its number: %.40q", payload)
		default:
			return n, nil
		}
	}
	return 0, fmt.Errorf("a payload that is cut off: %.40q", payload)
}

// sameID stands for the id of a message in metadataLike.
const sameID = "00000000-0000-0000-0000-000000000000"

// metadataLike is the metadata that the Publisher writes, for sameID.
func metadataLike() (string, error) {
	e, err := shardpub.DefaultMarshaler{}.Marshal(Orders, message.NewMessage(sameID, []byte("{}")))
	return string(e.Metadata), err
}

// step is how many events one statement loads.
const step = 100_000

// into loads a store that is empty, in one transaction, as if all had been
// appended one by one.
func (l Load) into(ctx context.Context, pool *pgxpool.Pool) error {
	if l.Events == 0 {
		return nil
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return l.Append(ctx, tx) })
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, vacuumCommandSQL)
	return err
}

// Append loads the events behind what is there and tells the readers. The
// streams must be new. It takes triggers and foreign keys as checked where the
// account may do that.
func (l Load) Append(ctx context.Context, tx pgx.Tx) error {
	like, err := metadataLike()
	if err != nil {
		return err
	}
	// An error would end the transaction; a savepoint keeps it.
	_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, loadRoleSQL)
		return err
	})
	var base int64
	if err := tx.QueryRow(ctx, loadHeadSQL).Scan(&base); err != nil {
		return err
	}
	for _, category := range []string{Orders, Rare} {
		events, streams := l.Of(category)
		if events == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, loadStreamsSQL, category, streams, events); err != nil {
			return err
		}
		for from := 0; from < events; from += step {
			tag, err := tx.Exec(ctx, loadEventsSQL, category, streams, from, min(from+step, events), base, l.Every,
				category == Rare, shardpub.DefaultEventType, like, PayloadSize)
			if err != nil {
				return err
			}
			if tag.RowsAffected() != int64(2*(min(from+step, events)-from)) {
				return errors.New("not all events were placed")
			}
		}
	}
	if _, err := tx.Exec(ctx, loadAdvanceSQL, l.Events); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, loadNotifySQL, Orders)
	return err
}

func warm(ctx context.Context, pool *pgxpool.Pool) error {
	var events, placed int64
	return pool.QueryRow(ctx, warmSQL).Scan(&events, &placed)
}
