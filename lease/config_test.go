package lease_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/lease"
)

// fields collects the fields of all ConfigErrors in err.
func fields(err error) []string {
	var out []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, fields(e)...)
		}
		return out
	}
	var bad *lease.ConfigError
	if errors.As(err, &bad) {
		out = append(out, bad.Field)
	}
	return out
}

func TestValidate(t *testing.T) { // T-01, S-03, cases 3
	t.Parallel()
	s := time.Second
	tests := []struct {
		name string
		cfg  lease.Config
		want []string
	}{
		{"the defaults pass", lease.Config{}, nil},
		{"TTL twice the interval passes", lease.Config{TTL: 20 * s, RenewInterval: 10 * s}, nil},
		{"negative TTL", lease.Config{TTL: -s}, []string{"TTL"}},
		{"negative interval", lease.Config{RenewInterval: -s}, []string{"RenewInterval"}},
		{"TTL equal to the interval", lease.Config{TTL: 10 * s, RenewInterval: 10 * s}, []string{"TTL", "Margin"}},
		{"TTL a moment above the interval", lease.Config{TTL: 10*s + time.Millisecond, RenewInterval: 10 * s, Margin: time.Microsecond}, []string{"TTL"}},
		{"TTL 1.2 times the interval", lease.Config{TTL: 12 * s, RenewInterval: 10 * s}, []string{"TTL"}},
		{"TTL below twice the interval", lease.Config{TTL: 19 * s, RenewInterval: 10 * s}, []string{"TTL"}},
		{"negative margin", lease.Config{Margin: -1}, []string{"Margin"}},
		{"a margin that distrusts every lease", lease.Config{Margin: 20 * s}, []string{"Margin"}},
		{"negative weight", lease.Config{Weight: -1}, []string{"Weight"}},
		{"too much weight", lease.Config{Weight: 1001}, []string{"Weight"}},
		{"a label that cannot be stored", lease.Config{Labels: map[string]string{"zone": "a\x00b"}}, []string{"Labels"}},
		{"all at once", lease.Config{TTL: -s, RenewInterval: -s, Margin: -s, Weight: -1}, []string{"TTL", "RenewInterval", "Margin", "Weight"}},
	}
	for _, test := range tests {
		if got := fields(test.cfg.Validate()); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSubscriptionRefusesWhatPostgresCannotStore(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"a\x00", "\xff", strings.Repeat("x", 513)} {
		s := lease.Subscription{Name: bad, Target: bad, Filter: bad, Shards: 1}
		if got := fields(s.Validate()); !slices.Equal(got, []string{"Name", "Target", "Filter"}) {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestDefaults(t *testing.T) { // S-01
	t.Parallel()
	c := lease.Config{}.WithDefaults()
	if c.TTL != 30*time.Second || c.RenewInterval != 10*time.Second || c.Margin != 2*time.Second || c.Weight != 1 {
		t.Errorf("got %+v", c)
	}
	if m := (lease.Config{TTL: 100 * time.Millisecond}).WithDefaults().Margin; m != 50*time.Millisecond {
		t.Errorf("margin %v", m)
	}
	if m := (lease.Config{TTL: 5 * time.Second}).WithDefaults().Margin; m != 500*time.Millisecond {
		t.Errorf("margin %v", m)
	}
}

func TestNewKeeperNamesEverythingThatIsWrong(t *testing.T) { // T-01
	t.Parallel()
	_, err := lease.NewKeeper(nil, nil, lease.KeeperConfig{
		Config:       lease.Config{TTL: -1, RenewInterval: -1},
		Subscription: lease.Subscription{Name: strings.Repeat("x", 513), Shards: -1},
	})
	want := []string{"TTL", "RenewInterval", "Name", "Target", "Shards", "Worker", "store", "holder"}
	if got := fields(err); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	_, err = lease.NewKeeper(&lease.Postgres{}, &holder{}, lease.KeeperConfig{
		Subscription: subscription(0), Identity: lease.Identity{Worker: uuid.New()},
	})
	if got := fields(err); !slices.Equal(got, []string{"Shards"}) {
		t.Errorf("got %v", got)
	}
}
