package lease_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suisha-go/suisha/lease"
)

var update = flag.Bool("update", false, "rewrite the golden scenarios")

// TestScenarios plays testdata/scenario/*.txt: commands, a line ---, and what
// is seen at the end of each wait. Workers are letters; they run with the
// defaults (TTL 30 s, renewal every 10 s) on a table in memory.
//
//	shards N      the number of buckets; first
//	push          releases, joins and leaves are notified
//	start a b     workers begin, at the same moment
//	stop a        a leaves in good order
//	cut a, heal a a loses its way to the database, and finds it again
//	hang a 3      a's handler of bucket 3 hangs when it is to drain
//	wait 10s      time passes; then the state is shown
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenario/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script, want, _ := strings.Cut(string(text), "---\n")
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, script) })
			if *update {
				if err := os.WriteFile(file, []byte(script+"---\n"+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// player plays one scenario.
type player struct {
	*bubble
	names   []string
	workers map[string]*worker
	hangs   map[string]int
	release chan struct{}
	began   time.Time
	shown   map[string]int // events shown, by worker
	out     strings.Builder
}

func play(t *testing.T, script string) string {
	p := &player{
		bubble:  &bubble{t: t, lines: map[*worker]*line{}},
		workers: map[string]*worker{}, hangs: map[string]int{}, shown: map[string]int{},
		release: make(chan struct{}), began: time.Now(),
	}
	lines := bufio.NewScanner(strings.NewReader(script))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		p.do(words[0], words[1:])
	}
	for _, w := range p.workers {
		w.stop()
	}
	close(p.release)
	return p.out.String()
}

func (p *player) do(command string, args []string) {
	p.t.Helper()
	switch command {
	case "shards":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			p.t.Fatal(err)
		}
		p.n, p.table = n, newTable(n)
	case "push":
		p.push = true
	case "hang":
		b, err := strconv.Atoi(args[1])
		if err != nil {
			p.t.Fatal(err)
		}
		p.hangs[args[0]] = b
	case "start":
		for _, who := range args {
			p.names = append(p.names, who)
			w := p.add(who[0], p.hanging(who))
			// Each its own, so that no two ever do something at the same instant:
			// what is seen is the same in every run.
			p.lines[w].latency = time.Millisecond + time.Duration(who[0])*7001*time.Nanosecond
			p.workers[who] = w.start(p.t)
		}
		slices.Sort(p.names)
	case "stop":
		for _, who := range args {
			p.workers[who].stop()
		}
	case "cut", "heal":
		for _, who := range args {
			p.lines[p.workers[who]].set(command == "cut", nil)
		}
	case "wait":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			p.t.Fatal(err)
		}
		p.after(d)
		p.show()
	default:
		p.t.Fatalf("no command %q", command)
	}
}

// hanging makes the holder hang where the scenario says so.
func (p *player) hanging(who string) func(*lease.KeeperConfig, *holder) {
	return func(_ *lease.KeeperConfig, h *holder) {
		h.onDrain = drainUnless(func(bucket int) bool {
			b, ok := p.hangs[who]
			return ok && b == bucket
		}, p.release)
	}
}

// show prints what happened since the last time, and who owns what.
func (p *player) show() {
	fmt.Fprintf(&p.out, "%v\n", time.Since(p.began).Round(time.Millisecond))
	for _, who := range p.names {
		w := p.workers[who]
		w.mu.Lock()
		events := w.events[p.shown[who]:]
		p.shown[who] = len(w.events)
		w.mu.Unlock()
		for _, line := range digest(events) {
			fmt.Fprintf(&p.out, "  %s %s\n", who, line)
		}
	}
	owned := map[string][]int{}
	for b, o := range p.table.owners() {
		name := "free"
		for _, who := range p.names {
			if p.workers[who].id == o {
				name = who
			}
		}
		owned[name] = append(owned[name], b)
	}
	var parts []string
	for _, name := range append(slices.Clone(p.names), "free") {
		if len(owned[name]) > 0 {
			parts = append(parts, name+": "+ranges(owned[name]))
		}
	}
	fmt.Fprintf(&p.out, "  = %s\n", strings.Join(parts, " | "))
}

// digest puts events of one kind and reason into one line, in the order of the
// first.
func digest(events []lease.Event) []string {
	var keys []string
	buckets := map[string][]int{}
	for _, e := range events {
		key := strings.TrimSpace(string(e.Kind) + " " + e.Reason)
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
		if e.Bucket >= 0 {
			buckets[key] = append(buckets[key], e.Bucket)
		}
	}
	slices.Sort(keys)
	var out []string
	for _, key := range keys {
		line := key
		if b := buckets[key]; len(b) > 0 {
			slices.Sort(b)
			line += " " + ranges(b)
		}
		out = append(out, line)
	}
	return out
}

// ranges writes sorted numbers as "0-3 7".
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] <= numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if numbers[j] > numbers[i] {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, " ")
}
