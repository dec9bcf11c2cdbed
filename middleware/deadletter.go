package middleware

import "github.com/ThreeDotsLabs/watermill/message"

// DeadLetter parks the events whose errors can never go away: when classify
// knows the error, the event becomes a dead letter after this delivery, with
// the reason that classify gives ("": the error's text). All other errors are
// retried as usual.
//
// classify gets the handler's error, or a [*PanicError]. It is called from many
// goroutines and must not block. [Permanent] outranks it. A nil classify knows
// no error.
func DeadLetter(classify func(error) (reason string, ok bool)) message.HandlerMiddleware {
	return marking(nil, classify)
}
