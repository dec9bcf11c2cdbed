// Package router builds a Watermill router whose handlers share the events of
// their categories with every other process that runs the same program.
//
//	w, err := router.New(pool, router.Config{Shards: 16}, logger)
//	…
//	w.AddConsumerHandler("billing", "orders", handle)
//	w.AddHandler("relay", "orders", "orders-out", natsPublisher, translate)
//	err = w.Run(ctx) // until ctx ends; then drains and gives its buckets back
//
// Each handler is a subscription, named like the handler; what it has settled is
// kept under that name. Handlers of one name in several processes share the
// events of the category bucket by bucket; each event is handled at least once,
// in order per stream. Renaming a handler would begin anew: give the old name as
// [Handler].Subscription then.
//
// A [Worker] runs once. It has one shardpub.Node: at most four connections of its own,
// whatever the number of handlers.
package router
