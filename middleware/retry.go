package middleware

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/internal/outcome"
	"github.com/suisha-go/suisha/shardpub"
)

// Retry has the handler's deliveries follow p instead of SubscriberConfig.Retry.
// It never loops and never sleeps: a failed message is nacked at once, and the
// Subscriber delivers it again after p's delay, until p's deliveries are used up.
// Meanwhile the event holds its place: see SubscriberConfig.Concurrency. Of
// several in one chain the innermost wins.
//
// It panics, with an error that wraps *shardpub.ConfigErrors, if p is one that a
// SubscriberConfig could not have.
func Retry(p shardpub.RetryPolicy) message.HandlerMiddleware {
	// The rules of a policy are the Subscriber's: what is wrong here is wrong there.
	if err := (shardpub.SubscriberConfig{ConsumerGroup: "retry", Shards: 1, Retry: p}).Validate(); err != nil {
		panic(fmt.Errorf("middleware.Retry: %w", err))
	}
	return marking(func(o *outcome.Outcome) { o.Policy = &p }, nil)
}
