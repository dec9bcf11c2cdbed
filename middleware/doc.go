// Package middleware decides what becomes of a handler's error: another
// delivery, now or later, or a dead letter.
//
// A Pub/Sub sees Ack or Nack and never the error. So each middleware of this
// package marks the delivery that the message belongs to, and the Subscriber
// reads the mark when the message is acked or nacked. None of them loops,
// sleeps or writes: the Subscriber owns the budget, and deliveries never
// multiply. On a message that came from another Pub/Sub nothing is marked and
// the error passes unchanged.
//
//	your handler returns                    what follows
//	nil                                     the event is settled
//	an error                                delivered again after the policy's delay; a dead
//	                                        letter when the policy's deliveries are used up
//	RetryAfter(err, d)                      delivered again after d; counts like any other
//	an error that DeadLetter's classify     a dead letter at once
//	function knows
//	Permanent(err)                          a dead letter at once
//
// The lower line wins. The policy is that of [Retry] if the chain has one, else
// SubscriberConfig.Retry. A panic is an error like any other. After the
// Subscriber itself has ended the message's context (a shutdown, a bucket that
// moves or is lost) nothing counts: no attempt, no dead letter.
//
// # Order
//
// router.Worker installs [Mark] around your handler and around the whole chain.
// On a plain Watermill router add one marking middleware yourself: any of [Mark],
// [Retry], [DeadLetter]. Among themselves their order does not matter. Watermill's
// own middleware is unaware of ours, and there it does:
//
//	router.AddMiddleware(
//		wm.CorrelationID,    // first: outermost
//		poison,              // wm.PoisonQueue over shardpub.NewDeadLetterPublisher
//		retry.Middleware,    // wm.Retry: tries in place, inside one delivery
//		wm.Recoverer,        // makes errors of panics for those above
//		middleware.Mark(),   // last: innermost, sees what the handler said
//	)
//
//	message ─► CorrelationID ─► PoisonQueue ─► Retry ─► Recoverer ─► Mark ─► handler
//	Ack/Nack ◄────────────────── err→park ◄──── again ◄── panic→err ◄── note ◄── error
//
// PoisonQueue inside Retry would park an event at its first error, and nothing
// would be tried again. Watermill's Retry multiplies: with MaxRetries r and a
// budget of n deliveries the handler is called (r+1)×n times before the dead
// letter, whose attempt count is n.
//
// The name Transient is reserved for errors that are retried without being
// counted.
package middleware
