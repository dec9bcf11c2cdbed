package main

import (
	"os"
	"testing"

	"github.com/suisha-go/suisha/internal/bench"
)

func TestMain(m *testing.M) {
	bench.Child()
	os.Exit(m.Run())
}

// Every case runs once over little: it fails if it loses, repeats or reorders
// an event. What takes its time is left out.
func TestCasesComplete(t *testing.T) {
	t.Parallel()
	slow := map[string]bool{bench.Idle: true, bench.Latency: true, bench.Scale: true, bench.Footprint: true}
	server, err := bench.StartServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	r := bench.Runner{Env: &bench.Env{Server: server, Events: 1000, Brief: true}, Repeats: 1, Say: t.Logf}
	var chosen []bench.Question
	for _, q := range questions(r.Env.Events) {
		if !slow[q.ID] {
			chosen = append(chosen, q)
		}
	}
	report, err := r.Run(t.Context(), chosen)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range report.Questions {
		for _, f := range q.Figures {
			if !f.Measured {
				t.Errorf("%s: %s was not measured", q.ID, f.Text)
			}
		}
	}
}
