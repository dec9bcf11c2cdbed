package middleware_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

func TestPanicIsNotedAndGoesOn(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{"text": "no such account", "error": errInvalid, "permanent": middleware.Permanent(errInvalid)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg, slot := delivery(t, nil)
			h := chain(func(*message.Message) ([]*message.Message, error) { panic(value) }, middleware.Mark(), middleware.Mark())
			recovered := func() (v any) {
				defer func() { v = recover() }()
				_, _ = h(msg)
				return nil
			}()
			if recovered != value {
				t.Errorf("recovered %v, want the value itself", recovered)
			}
			got := slot.Freeze()
			var panicked *middleware.PanicError
			if !errors.As(got.Err, &panicked) || panicked.Value != value || len(panicked.Stack) == 0 {
				t.Fatalf("noted %v", got.Err)
			}
			if want := fmt.Sprintf("panic: %v", value); got.Err.Error() != want {
				t.Errorf("text %q, want %q", got.Err, want)
			}
			if _, isErr := value.(error); errors.Is(got.Err, errInvalid) != isErr {
				t.Errorf("errors.Is does not see the value of %v", got.Err)
			}
			if got.Permanent != (name == "permanent") {
				t.Errorf("permanent: %v", got.Permanent)
			}
		})
	}
}

func TestRecovererSeesThePanic(t *testing.T) {
	t.Parallel()
	msg, slot := delivery(t, nil)
	_, err := chain(func(*message.Message) ([]*message.Message, error) { panic("gone") }, wm.Recoverer, middleware.Mark())(msg)
	var recovered wm.RecoveredPanicError
	if !errors.As(err, &recovered) || recovered.V != "gone" {
		t.Errorf("error %v", err)
	}
	if got := slot.Freeze(); got.Err == nil || got.Err.Error() != "panic: gone" {
		t.Errorf("noted %v", got.Err)
	}
}

func TestErrorsKeepWhatTheyWrap(t *testing.T) {
	t.Parallel()
	inner := &shardpub.ConfigError{Field: "x"}
	for _, err := range []error{middleware.Permanent(inner), middleware.RetryAfter(inner, time.Second)} {
		var found *shardpub.ConfigError
		if !errors.As(err, &found) || found != inner || !errors.Is(err, inner) || err.Error() != inner.Error() {
			t.Errorf("%#v hides what it wraps", err)
		}
	}
	if middleware.Permanent(nil) != nil || middleware.RetryAfter(nil, time.Second) != nil {
		t.Error("a wrapped nil is not nil")
	}
}

func TestRetryRefusesAPolicyThatASubscriberRefuses(t *testing.T) {
	t.Parallel()
	defer func() {
		err, _ := recover().(error)
		var bad *shardpub.ConfigError
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), "middleware.Retry: ") {
			t.Errorf("panicked with %v, want a *shardpub.ConfigError of middleware.Retry", err)
		}
	}()
	middleware.Retry(shardpub.RetryPolicy{MaxDeliveries: -7})
}
