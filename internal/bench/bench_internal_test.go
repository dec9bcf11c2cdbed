package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestMeterFindsWhatIsLostRepeatedOrOutOfOrder(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		numbers []int // of six events in two streams
		ordered bool
		ok      bool
	}{
		{"in order", []int{0, 1, 2, 3, 4, 5}, true, true},
		{"streams interleaved", []int{1, 3, 0, 2, 5, 4}, true, true},
		{"a stream out of order", []int{0, 1, 4, 2, 3, 5}, true, false},
		{"a repeat", []int{0, 1, 2, 2, 3, 4, 5}, true, false},
		{"an event that does not exist", []int{0, 1, 6}, true, false},
		{"any order", []int{5, 4, 3, 2, 1, 0}, false, true},
		{"a repeat in any order", []int{5, 4, 4}, false, false},
	}
	for _, tt := range tests {
		m := NewMeter(6, 2, tt.ordered, 0)
		for _, n := range tt.numbers {
			m.Note(Payload(n))
		}
		n, err := m.Wait(t.Context(), 0)
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok = %v", tt.name, err, tt.ok)
		}
		if tt.ok && n != 6 {
			t.Errorf("%s: %d events", tt.name, n)
		}
	}
}

func TestMeterGoesOnFromWhatWasSkipped(t *testing.T) {
	t.Parallel()
	m := NewMeter(10, 3, true, 8)
	m.Spare(5)
	for n := 5; n < 8; n++ {
		m.Note(Payload(n))
	}
	if n, err := m.Wait(t.Context(), 0); n != 8 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestNumbersAreReadBackWhateverTheSpaces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{`{"n": 12, "pad": ""}`: 12, `{"n":7}`: 7, `{"n":  0, "x": 1}`: 0} {
		if got, err := number([]byte(text)); got != want || err != nil {
			t.Errorf("%s: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "{}", `{"n": "1"}`, `{"n": 1`, `{"n":`} {
		if _, err := number([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// made is a question whose cases write down that they were asked.
func made(asked *[]string) Question {
	c := func(name, peer string, once bool, rates ...float64) Case {
		turn := 0
		return Case{Name: name, Peer: peer, Once: once, Run: func(context.Context, *Env) (Values, error) {
			*asked = append(*asked, name)
			turn++
			return Values{"rate": rates[(turn-1)%len(rates)]}, nil
		}}
	}
	return Question{
		ID: "made", Title: "A <question>", Primary: "rate", Unit: "events/s",
		Cases: []Case{
			c(Ours, "", false, 100, 300, 200), c("limit", "", false, 400),
			c("peer, worse", "peer", false, 10), c("peer, better", "peer", false, 50), c("slow", "slow", true, 1),
		},
		Goals: []Goal{
			{Text: "half", Figure: Ratio(Ours, "limit", "rate"), Target: 0.5},
			{Text: "best", Figure: RatioToBest(Ours, "peer", "rate"), Target: 5},
			{Text: "absent", Figure: Ratio(Ours, "nobody", "rate"), Target: 1},
			{Text: "most", Figure: Value(Ours, "rate"), Target: 250, Most: true, Unit: "events/s"},
		},
	}
}

func runner() Runner {
	return Runner{Env: &Env{Events: 1000}, Repeats: 3, Say: func(string, ...any) {}}
}

func TestCasesTakeTurnsAndOnlyTheBestOfAGridGoesOn(t *testing.T) {
	t.Parallel()
	var asked []string
	q := made(&asked)
	r := runner()
	all, err := r.measure(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	later := []string{Ours, "limit", "peer, better"}
	want := slices.Concat([]string{Ours, "limit", "peer, worse", "peer, better", "slow"}, later, later)
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	report := newReport("PostgreSQL", 0, &r)
	report.add(&q, all, 0)
	var got []string
	for _, f := range report.Questions[0].Figures {
		got = append(got, f.Text+" "+f.figure()+" "+f.verdict())
	}
	wantFigures := []string{"half 0.50 × reached", "best 4 × missed", "absent – not measured", "most 200 events/s reached"}
	if !slices.Equal(got, wantFigures) {
		t.Errorf("figures %q, want %q", got, wantFigures)
	}
	chart := report.Questions[0].Chart()
	if !strings.Contains(chart, "A &lt;question&gt;") || strings.Count(chart, "<rect") != 5 {
		t.Errorf("chart: %s", chart)
	}
	var text strings.Builder
	if err := report.Print(&text); err != nil || !strings.Contains(text.String(), "0.50 ×") {
		t.Errorf("%v: %s", err, text.String())
	}
	if doc := report.Markdown("bench"); !strings.Contains(doc, "| **peer, better** | 50.0 | 3, 50.0 to 50.0 |") {
		t.Errorf("markdown: %s", doc)
	}
}

func TestRunEndsWithTheFirstCaseThatFails(t *testing.T) {
	t.Parallel()
	var asked []string
	q := made(&asked)
	broken := errors.New("lost")
	q.Cases[1].Run = func(context.Context, *Env) (Values, error) { return nil, broken }
	r := runner()
	if _, err := r.measure(t.Context(), &q); !errors.Is(err, broken) || len(asked) != 1 {
		t.Errorf("got %v after %q", err, asked)
	}
}

func TestTablesReplaceOnlyWhatIsBetweenTheMarks(t *testing.T) {
	t.Parallel()
	doc := "before\n" + markBegin + "\nold\n" + markEnd + "\nafter\n"
	got, err := between(doc, "new")
	if want := "before\n" + markBegin + "\n\nnew\n" + markEnd + "\nafter\n"; got != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"", markBegin, markEnd + markBegin} {
		if _, err := between(bad, "new"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestNumbersAreWrittenShort(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0.00", 0.349: "0.35", 1: "1", 2.5: "2.50", 10.04: "10.0", 999.6: "1,000", 1234567: "1,234,567"} {
		if got := short(x); got != want {
			t.Errorf("%v: got %q, want %q", x, got, want)
		}
	}
}

func TestQuestionsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, q := range Questions(1000) {
		if ids[q.ID] || q.Title == "" || q.Primary == "" || q.Unit == "" || len(q.Goals) == 0 {
			t.Errorf("question %q is not complete, or not alone", q.ID)
		}
		ids[q.ID] = true
		names := map[string]bool{}
		for _, c := range q.Cases {
			if names[c.Name] || c.Run == nil {
				t.Errorf("%s: case %q is not complete, or not alone", q.ID, c.Name)
			}
			names[c.Name] = true
		}
	}
}
