package main

import (
	"strings"
	"testing"
	"time"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/verify"
)

// good is a run in which every promise was kept.
func good() result {
	return result{
		files: verify.Comparison{Rows: 10, Events: 400}, orders: verify.Comparison{Rows: 20, Events: 100},
		calls:  verify.Calls{Repeated: 3, Explained: 3},
		killed: "worker 2", held: 4, moved: 4, failover: 3 * time.Second, worked: 2 * time.Second,
	}
}

func TestOneBrokenPromiseMakesTheVerdictBad(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*result){
		"a lost change":           func(r *result) { r.files.Lost, r.files.BrokenRows = 1, 1 },
		"a lost order line":       func(r *result) { r.orders.Lost, r.orders.BrokenRows = 1, 1 },
		"a wrong row, none lost":  func(r *result) { r.files.BrokenRows, r.files.Broken = 1, []string{"a.txt"} },
		"a wrong order":           func(r *result) { r.orders.BrokenRows, r.orders.Broken = 1, []string{"order-1"} },
		"an event out of order":   func(r *result) { r.calls.OutOfOrder = 1 },
		"many events out of them": func(r *result) { r.calls.OutOfOrder = 1000; r.files.Lost = 5 },
	} {
		r := good()
		breaks(&r)
		bad := 0
		for _, f := range r.findings() {
			if f.Bad {
				bad++
			}
		}
		if r.kept() || bad == 0 {
			t.Errorf("%s: kept %v, %d bad findings", name, r.kept(), bad)
		}
		if text := strings.Join(screen.Verdict(r.findings(), screen.Style{Width: 80}), "\n"); strings.Contains(text, "kept") {
			t.Errorf("%s: got %s", name, text)
		}
	}
}

func TestRepeatsAndAMissingKillBreakNoPromise(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]result{
		"good":                good(),
		"repeats elsewhere":   {calls: verify.Calls{Repeated: 5, Explained: 1}, killed: "worker 1"},
		"nobody was killed":   {},
		"killed without work": {killed: "worker 1", held: 2},
		"orders only":         {orders: verify.Comparison{Rows: 1, Events: 3}},
	} {
		findings := r.findings()
		for _, f := range findings {
			if f.Bad {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if !r.kept() || len(findings) != 6 {
			t.Errorf("%s: kept %v, %d findings", name, r.kept(), len(findings))
		}
	}
}

func TestVerdictNamesNoMoreBrokenRowsThanCanBeRead(t *testing.T) {
	t.Parallel()
	r := good()
	r.files.BrokenRows, r.files.Broken = 1000, strings.Split(strings.Repeat("row ", 20), " ")[:20]
	if n := len(r.lostFinding().Notes); n > 3+mostNamed {
		t.Errorf("%d notes", n)
	}
}
