package shardpub

import (
	"errors"
	"fmt"
)

// errHookLate: a hook that a bucket waits for took longer than it may.
var errHookLate = errors.New("has not returned in time; the bucket is not released before it does")

// errHookEnded: a hook ended its goroutine.
var errHookEnded = errors.New("ended its goroutine")

// hook calls what the user wrote for a bucket. A panic of it is an error.
func hook(b *bucket, name string, call func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &HookError{Subscription: b.sub.name, Bucket: b.number, Hook: name, Err: fmt.Errorf("panicked: %v", p)}
		}
	}()
	call()
	return nil
}

// observe tells of something that happened in the bucket.
func (b *bucket) observe(ev Event) {
	ev.Subscription, ev.Worker, ev.Bucket = b.sub.name, b.sub.worker, b.number
	ev.log(b.sub.node.logger)
	observe := b.sub.node.cfg.Observe
	if observe == nil {
		return
	}
	if err := hook(b, "Observe", func() { observe(ev) }); err != nil {
		b.sub.node.report(err)
	}
}
