package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a run found.
type Report struct {
	When      string     `json:"when"`
	Machine   string     `json:"machine"`
	Server    string     `json:"server"`
	CommitMS  float64    `json:"commit_ms"`
	Events    int        `json:"events"`
	Repeats   int        `json:"repeats"`
	Seconds   float64    `json:"seconds"`
	Versions  []string   `json:"versions"`
	Questions []Answered `json:"questions"`
}

// Answered is a question with what came out.
type Answered struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Primary string   `json:"primary"`
	Unit    string   `json:"unit"`
	Low     bool     `json:"low"`
	Seconds float64  `json:"seconds"`
	Figures []Figure `json:"figures"`
	Rows    []Row    `json:"rows"`
}

// Figure is a goal and what was reached.
type Figure struct {
	Text     string  `json:"text"`
	Figure   float64 `json:"figure"`
	Target   float64 `json:"target"`
	Most     bool    `json:"most,omitempty"`
	Unit     string  `json:"unit,omitempty"`
	Reached  bool    `json:"reached"`
	Measured bool    `json:"measured"`
}

// Row is a case and what it measured: medians, and all runs.
type Row struct {
	Name    string   `json:"name"`
	Peer    string   `json:"peer,omitempty"`
	Best    bool     `json:"best,omitempty"`
	Options string   `json:"options,omitempty"`
	Note    string   `json:"note,omitempty"`
	Median  Values   `json:"median"`
	Runs    []Values `json:"runs"`
}

func newReport(version string, commit time.Duration, r *Runner) *Report {
	return &Report{
		When:     time.Now().UTC().Format("2006-01-02"),
		Machine:  fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()),
		Server:   version,
		CommitMS: float64(commit) / float64(time.Millisecond),
		Events:   r.Env.Events,
		Repeats:  r.Repeats,
		Versions: versions(),
	}
}

// versions are the modules that were measured.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var out []string
	for _, m := range info.Deps {
		for _, name := range []string{"ThreeDotsLabs/watermill", "jackc/pgx", "riverqueue/river", "nats-io/nats"} {
			if strings.HasPrefix(m.Path, "github.com/"+name) && !strings.Contains(m.Path, "/river/river") {
				out = append(out, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
			}
		}
	}
	return out
}

func (r *Report) add(q *Question, all runs, took time.Duration) {
	view := View{question: q, medians: medians(all)}
	a := Answered{ID: q.ID, Title: q.Title, Primary: q.Primary, Unit: q.Unit, Low: q.Low, Seconds: took.Seconds()}
	best := map[string]string{}
	for _, peer := range q.peers() {
		_, best[peer], _ = view.Best(peer, q.Primary)
	}
	for _, c := range q.Cases {
		a.Rows = append(a.Rows, Row{
			Name: c.Name, Peer: c.Peer, Best: c.Peer != "" && best[c.Peer] == c.Name,
			Options: c.Options, Note: c.Note, Median: view.medians[c.Name], Runs: all[c.Name],
		})
	}
	for _, g := range q.Goals {
		f := Figure{Text: g.Text, Target: g.Target, Most: g.Most, Unit: g.Unit}
		if f.Figure, f.Measured = g.Figure(view); f.Measured {
			f.Reached = f.Figure >= g.Target
			if g.Most {
				f.Reached = f.Figure <= g.Target
			}
		} else {
			f.Figure = 0
		}
		a.Figures = append(a.Figures, f)
	}
	r.Questions = append(r.Questions, a)
}

// WriteJSON writes it to a file.
func (r *Report) WriteJSON(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // G306: the report is no secret
}

// Print writes the tables: figures first.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s; %s; a commit takes %.2f ms; %s events; %d repeats, medians; %.0f s in all\n\n",
		r.Machine, r.Server, r.CommitMS, thousands(float64(r.Events)), r.Repeats, r.Seconds)
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "figure\t\tgoal\t\tof")
	for _, q := range r.Questions {
		fmt.Fprintf(table, "\t\t\t\t%s\n", strings.ToUpper(q.Title))
		for _, f := range q.Figures {
			fmt.Fprintf(table, "%s\t%s\t%s\t\t%s\n", f.figure(), f.verdict(), f.goal(), f.Text)
		}
	}
	for _, q := range r.Questions {
		fmt.Fprintf(table, "\n%s\t\t\t\t\n", q.Title)
		for _, row := range q.Rows {
			fmt.Fprintf(table, "%s\t%s\t%s\t\t%s\n", row.Name, quantity(row.Median[q.Primary], q.Unit), row.others(q.Primary), row.Options)
		}
	}
	return table.Flush()
}

// others are the values besides the primary one.
func (r Row) others(primary string) string {
	var parts []string
	for _, name := range sortedNames(r.Median) {
		if name != primary {
			parts = append(parts, name+" "+short(r.Median[name]))
		}
	}
	return strings.Join(parts, ", ")
}

func (f Figure) verdict() string {
	switch {
	case !f.Measured:
		return "not measured"
	case f.Reached:
		return "reached"
	}
	return "missed"
}

func (f Figure) figure() string {
	if !f.Measured {
		return "–"
	}
	return short(f.Figure) + f.unit()
}

func (f Figure) goal() string {
	sign := "≥ "
	if f.Most {
		sign = "≤ "
	}
	return sign + short(f.Target) + f.unit()
}

func (f Figure) unit() string {
	if f.Unit == "" {
		return " ×"
	}
	return " " + f.Unit
}

// quantity writes a value with its unit.
func quantity(x float64, unit string) string { return short(x) + " " + unit }

// short writes three digits, or all before the point.
func short(x float64) string {
	switch a := math.Abs(x); {
	case a >= 100:
		return thousands(x)
	case a >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case a == math.Trunc(a) && a > 0:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// thousands writes a whole number with commas.
func thousands(x float64) string {
	s := strconv.FormatInt(int64(math.Round(math.Abs(x))), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if x < 0 {
		return "-" + s
	}
	return s
}
