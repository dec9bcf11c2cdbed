// CQRS: Watermill's cqrs component over suisha. Two event groups read three
// types of events; a fourth type that nobody knows passes by; a handler fails
// once and is called again. The events are written by a program that knows
// nothing of Watermill.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/examples/internal/playground"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// The events. Their names are kiroku's event types.
type (
	RoomBooked   struct{ Room, Guest string }
	BreakfastAdd struct{ Room string }
	RoomPaid     struct {
		Room  string
		Cents int
	}
)

const rooms = 10

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, closeAll, err := playground.Open(ctx)
	if err != nil {
		return err
	}
	defer closeAll()

	retry := shardpub.RetryPolicy{Delay: 10 * time.Millisecond}
	w, err := router.New(pool, router.Config{Shards: 4, Retry: retry}, nil)
	if err != nil {
		return err
	}
	hotel := newHotel()
	if err := hotel.register(w); err != nil {
		return err
	}
	if err := w.Start(ctx); err != nil {
		return err
	}
	if err := write(ctx, pool); err != nil {
		return err
	}
	for !hotel.complete() {
		if ctx.Err() != nil {
			return fmt.Errorf("not all events were handled: %s", hotel)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := w.Stop(ctx); err != nil {
		return err
	}
	if hotel.failures != 1 {
		return fmt.Errorf("the failing handler failed %d times, want once", hotel.failures)
	}
	fmt.Println(hotel)
	return nil
}

// register adds the two groups: each is a subscription of its own.
func (h *hotel) register(w *router.Worker) error {
	groups, err := cqrs.NewEventGroupProcessorWithConfig(w.Router(), cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return "hotel", nil },
		SubscriberConstructor: func(p cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return w.Subscriber(p.EventGroupName)
		},
		AckOnUnknownEvent: true, // a category is shared; what a group does not know is not its business
		Marshaler:         cqrs.JSONMarshaler{GenerateName: cqrs.StructName},
	})
	if err != nil {
		return err
	}
	return errors.Join(
		groups.AddHandlersGroup("reception",
			cqrs.NewGroupEventHandler(func(_ context.Context, e *RoomBooked) error { return h.book(e.Room) }),
			cqrs.NewGroupEventHandler(func(_ context.Context, e *RoomPaid) error { return h.pay(e.Cents) }),
		),
		groups.AddHandlersGroup("kitchen",
			cqrs.NewGroupEventHandler(func(_ context.Context, e *BreakfastAdd) error { return h.cook(e.Room) }),
		),
	)
}

// write appends events as any program would, with no message in sight.
func write(ctx context.Context, pool *pgxpool.Pool) error {
	for i := range rooms {
		room := strconv.Itoa(100 + i)
		var events []kiroku.Event
		for _, e := range []any{
			RoomBooked{room, "Ada"}, BreakfastAdd{room}, struct{ Nobody string }{"knows me"}, RoomPaid{room, 4200},
		} {
			data, err := json.Marshal(e)
			if err != nil {
				return err
			}
			events = append(events, kiroku.Event{Type: cqrs.StructName(e), Data: data})
		}
		events[2].Type = "MinibarAudited"
		if _, err := kiroku.Append(ctx, pool, kiroku.StreamAppend{Stream: "hotel-" + room, Events: events}); err != nil {
			return err
		}
	}
	return nil
}

type hotel struct {
	mu         sync.Mutex
	booked     map[string]bool
	breakfasts map[string]bool
	cents      int
	failures   int
}

func newHotel() *hotel { return &hotel{booked: map[string]bool{}, breakfasts: map[string]bool{}} }

func (h *hotel) book(room string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.booked[room] = true
	return nil
}

func (h *hotel) pay(cents int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cents += cents
	return nil
}

func (h *hotel) cook(room string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if room == "103" && h.failures == 0 {
		h.failures++
		return errors.New("the eggs are burnt")
	}
	h.breakfasts[room] = true
	return nil
}

func (h *hotel) complete() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.booked) == rooms && len(h.breakfasts) == rooms && h.cents == rooms*4200
}

func (h *hotel) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%d rooms booked, %d breakfasts cooked (%d burnt first), %d.%02d paid",
		len(h.booked), len(h.breakfasts), h.failures, h.cents/100, h.cents%100)
}
