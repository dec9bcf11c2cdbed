package kiroku

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"
)

func wants(uses ...streamUse) shareable { return shareable{uses: uses, events: 1, bytes: 1} }

func use(stream string, e ExpectedVersion) streamUse { return streamUse{stream: stream, expected: e} }

func TestWhatGoesTogether(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	withID := func(s shareable) shareable { s.ids = []uuid.UUID{id}; return s }
	large := func(events, bytes int) shareable {
		return shareable{uses: []streamUse{use("l", AnyVersion())}, events: events, bytes: bytes}
	}
	for name, c := range map[string]struct {
		waiting []shareable
		want    []int
	}{
		"nothing":                       {nil, nil},
		"any to one stream":             {[]shareable{wants(use("a", AnyVersion())), wants(use("a", AnyVersion()))}, []int{0, 1}},
		"conditions on two streams":     {[]shareable{wants(use("a", ExactVersion(1))), wants(use("b", NoStream()))}, []int{0, 1}},
		"any behind a condition":        {[]shareable{wants(use("a", ExactVersion(1))), wants(use("a", AnyVersion()))}, []int{0, 1}},
		"two versions of one stream":    {[]shareable{wants(use("a", ExactVersion(1))), wants(use("a", ExactVersion(2)))}, []int{0}},
		"a condition behind any":        {[]shareable{wants(use("a", AnyVersion())), wants(use("a", NoStream()))}, []int{0}},
		"exists behind exists":          {[]shareable{wants(use("a", StreamExists())), wants(use("a", StreamExists()))}, []int{0, 1}},
		"exists behind what may create": {[]shareable{wants(use("a", AnyVersion())), wants(use("a", StreamExists()))}, []int{0}},
		"none overtakes in a stream": {
			[]shareable{
				wants(use("a", AnyVersion())), wants(use("a", NoStream()), use("b", AnyVersion())),
				wants(use("b", AnyVersion())), wants(use("c", AnyVersion())),
			}, []int{0, 3},
		},
		"an id twice":        {[]shareable{withID(wants(use("a", AnyVersion()))), withID(wants(use("b", AnyVersion())))}, []int{0}},
		"too many":           {slices.Repeat([]shareable{wants(use("a", AnyVersion()))}, 5), []int{0, 1, 2}},
		"too many events":    {[]shareable{large(6, 1), large(4, 1), large(1, 1)}, []int{0, 1}},
		"too many bytes":     {[]shareable{large(1, 60), large(1, 41), large(1, 1)}, []int{0}},
		"one, however large": {[]shareable{large(1000, 1000), large(1, 1)}, []int{0}},
	} {
		if got := choose(c.waiting, nil, shareLimits{appends: 3, events: 10, bytes: 100}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// append applies one append to streams as if it came alone.
func sequentially(streams map[string]streamNow, s shareable) bool {
	for _, u := range s.uses {
		now := streams[u.stream]
		if !u.expected.met(appendRow{found: now.exists, deleted: now.deleted, versionFound: now.version}) {
			return false
		}
	}
	for _, u := range s.uses {
		now := streams[u.stream]
		streams[u.stream] = streamNow{exists: true, version: now.version + int64(s.events)}
	}
	return true
}

func anyStreams(rt *rapid.T) map[string]streamNow {
	streams := map[string]streamNow{}
	for _, name := range []string{"a", "b", "c"} {
		streams[name] = rapid.SampledFrom([]streamNow{
			{}, {exists: true, version: 1}, {exists: true, version: 2}, {exists: true, deleted: true, version: 2},
		}).Draw(rt, name)
	}
	return streams
}

func anyWaiting(rt *rapid.T) []shareable {
	expected := rapid.SampledFrom([]ExpectedVersion{
		AnyVersion(), AnyVersion(), NoStream(), StreamExists(), ExactVersion(1), ExactVersion(2), ExactVersion(3),
	})
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) shareable {
		s := shareable{events: rapid.IntRange(1, 4).Draw(rt, "events"), bytes: rapid.IntRange(1, 40).Draw(rt, "bytes")}
		names := rapid.Permutation([]string{"a", "b", "c"}).Draw(rt, "streams")
		for _, name := range names[:rapid.IntRange(1, 3).Draw(rt, "count")] {
			s.uses = append(s.uses, use(name, expected.Draw(rt, "expected")))
		}
		if n := rapid.IntRange(0, 9).Draw(rt, "id"); n < 3 {
			s.ids = []uuid.UUID{{15: byte(n + 1)}}
		}
		return s
	}), 1, 12).Draw(rt, "waiting")
}

// Judged each by what was before all of them, those who go together get what
// they would have got one after another.
func checkChoice(rt *rapid.T) {
	waiting, streams := anyWaiting(rt), anyStreams(rt)
	most := shareLimits{appends: rapid.IntRange(1, 8).Draw(rt, "most"), events: 12, bytes: 90}
	underWay := map[string]bool{}
	if rapid.Bool().Draw(rt, "some under way") {
		underWay[rapid.SampledFrom([]string{"a", "b", "d"}).Draw(rt, "under way")] = true
	}
	chosen := choose(waiting, underWay, most)
	first := !slices.ContainsFunc(waiting[0].uses, func(u streamUse) bool { return underWay[u.stream] })
	if first != (len(chosen) > 0 && chosen[0] == 0) || !slices.IsSorted(chosen) || len(chosen) > most.appends {
		rt.Fatalf("chosen %v", chosen)
	}
	before := maps.Clone(streams)
	events, bytes, ids := 0, 0, map[uuid.UUID]bool{}
	left := map[string]bool{}
	for stream := range underWay {
		left[stream] = true
	}
	for i, s := range waiting {
		if !slices.Contains(chosen, i) {
			for _, u := range s.uses {
				left[u.stream] = true
			}
			continue
		}
		alone := true
		for _, u := range s.uses {
			now := before[u.stream]
			alone = alone && u.expected.met(appendRow{found: now.exists, deleted: now.deleted, versionFound: now.version})
			if left[u.stream] {
				rt.Fatalf("%d overtakes in %s", i, u.stream)
			}
		}
		if ordered := sequentially(streams, s); alone != ordered {
			rt.Fatalf("%d of %v: %v by what was before, %v in order", i, chosen, alone, ordered)
		}
		for _, id := range s.ids {
			if ids[id] {
				rt.Fatalf("id %v twice", id)
			}
			ids[id] = true
		}
		events, bytes = events+s.events, bytes+s.bytes
	}
	if len(chosen) > 1 && (events > most.events || bytes > most.bytes) {
		rt.Fatalf("%d events, %d bytes", events, bytes)
	}
}

func TestThoseWhoGoTogetherGetWhatTheyWouldInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, checkChoice)
}

func FuzzChoose(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17"))
	f.Fuzz(rapid.MakeFuzz(checkChoice))
}

func TestOnlyWhatIsKnownToBeWrongIsRefuted(t *testing.T) {
	t.Parallel()
	known := map[string]streamNow{"at3": {exists: true, version: 3}, "deleted": {exists: true, deleted: true, version: 2}, "missing": {}}
	for _, c := range []struct {
		appends []StreamAppend
		want    string
	}{
		{[]StreamAppend{{Stream: "at3", Expected: ExactVersion(3)}}, "<nil>"},
		{[]StreamAppend{{Stream: "at3", Expected: ExactVersion(2)}}, `kiroku: stream "at3" is at version 3, expected version 2`},
		{[]StreamAppend{{Stream: "at3", Expected: NoStream()}}, `kiroku: stream "at3" exists already, at version 3`},
		{[]StreamAppend{{Stream: "at3", Expected: ExactVersion(2)}, {Stream: "unknown"}}, "<nil>"},
		{[]StreamAppend{{Stream: "unknown", Expected: NoStream()}}, "<nil>"},
		{[]StreamAppend{{Stream: "deleted"}}, `kiroku: stream "deleted" is deleted, expected any version`},
		{[]StreamAppend{{Stream: "missing", Expected: StreamExists()}}, `kiroku: stream "missing" does not exist, expected an existing stream`},
		{[]StreamAppend{{Stream: "missing"}, {Stream: "at3"}}, "<nil>"},
	} {
		if got := fmt.Sprint(errors.Join(refute(c.appends, known)...)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.appends, got, c.want)
		}
	}
}

func TestAfterAFailureOnlyWhatWasNotWrittenIsTriedAgain(t *testing.T) {
	t.Parallel()
	pg := func(severity, code string) error { return &pgconn.PgError{SeverityUnlocalized: severity, Code: code} }
	for _, c := range []struct {
		err   error
		alone bool
	}{
		{io.ErrUnexpectedEOF, false},
		{pg("FATAL", "57P01"), false},
		{pg("PANIC", "XX000"), false},
		{pg("ERROR", sqlstateLockNotAvailable), false},
		{pg("ERROR", sqlstateUniqueViolation), true},
		{pg("ERROR", sqlstateDeadlockDetected), true},
		{pg("ERROR", "57014"), true},
	} {
		if got := afterFailure(fmt.Errorf("wrapped: %w", c.err)); got.alone != c.alone || (got.err == nil) != c.alone || !c.alone && !errors.Is(got.err, c.err) && !errors.As(got.err, new(*TransientError)) {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
}
