package router

import (
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Watermill's middleware are methods, and known by the names of these.
const (
	stockRetry  = "watermill/message/router/middleware.Retry.Middleware-fm"
	stockPoison = "watermill/message/router/middleware.poisonQueue.Middleware-fm"
)

// wrongOrder tells whether a PoisonQueue was added behind a Retry. It knows
// Watermill's own only, unwrapped.
func wrongOrder(chain []message.HandlerMiddleware) bool {
	retry := slices.IndexFunc(chain, isFunc(stockRetry))
	return retry >= 0 && slices.ContainsFunc(chain[retry:], isFunc(stockPoison))
}

func isFunc(suffix string) func(message.HandlerMiddleware) bool {
	return func(m message.HandlerMiddleware) bool {
		f := runtime.FuncForPC(reflect.ValueOf(m).Pointer())
		return f != nil && strings.HasSuffix(f.Name(), suffix)
	}
}
