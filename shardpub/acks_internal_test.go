package shardpub

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/kiroku"
)

var eventX, eventY = uuid.MustParse("018f0000-0000-7000-8000-000000000001"), uuid.MustParse("018f0000-0000-7000-8000-000000000002")

func acksAt(last uuid.UUID, at ...kiroku.Position) acks { return acks{at: at, last: last} }

func TestAcksAreWrittenInAFewBytesEach(t *testing.T) { // P-39
	t.Parallel()
	for _, c := range []struct {
		name string
		a    acks
		most int
	}{
		{"none", acks{}, 0},
		{"one", acksAt(eventX, 5), 18},
		{"one far away", acksAt(eventX, math.MaxInt64), 26},
		{"neighbours", acksAt(eventX, 1<<40, 1<<40+1, 1<<40+2, 1<<40+3), 17 + 6 + 3},
		{"every 64th, as of 64 buckets", acksAt(eventX, 64, 128, 192, 256), 17 + 5},
	} {
		b := c.a.encode()
		if b == nil || len(b) > c.most {
			t.Errorf("%s: %x, want at most %d bytes", c.name, b, c.most)
		}
		back, err := decodeAcks(b)
		if err != nil || !slices.Equal(back.at, c.a.at) || back.last != c.a.last {
			t.Errorf("%s: %v, %v came back", c.name, back, err)
		}
	}
}

func TestAcksThatNobodyWroteAreRefused(t *testing.T) {
	t.Parallel()
	good := acksAt(eventX, 3, 9).encode()
	for name, b := range map[string][]byte{
		"another format":       append([]byte{2}, good[1:]...),
		"nothing but a format": good[:1],
		"half an id":           good[:9],
		"no position":          good[:17],
		"half a number":        append(slices.Clone(good), 0x80),
		"a step of nothing":    append(slices.Clone(good), 0),
		"a long zero":          append(slices.Clone(good), 0x81, 0),
		"beyond all positions": append(slices.Clone(good), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f),
		"beyond 64 bits":       append(slices.Clone(good), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
	} {
		if a, err := decodeAcks(b); err == nil || len(a.at) > 0 {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	if a, err := decodeAcks(nil); err != nil || len(a.at) > 0 {
		t.Errorf("no row: %v, %v", a, err)
	}
}

func TestAcksAboveACheckpoint(t *testing.T) {
	t.Parallel()
	a := acksAt(eventX, 3, 5, 9)
	for checkpoint, want := range map[kiroku.Position][]kiroku.Position{
		0: {3, 5, 9}, 2: {3, 5, 9}, 3: {5, 9}, 4: {5, 9}, 8: {9}, 9: {}, 10: {},
	} {
		if got := a.above(checkpoint); !slices.Equal(got.at, want) {
			t.Errorf("above %d: %v, want %v", checkpoint, got.at, want)
		}
	}
}

// P-31: of another log nothing is skipped.
func TestAcksAreOfTheLogWhereTheirLastEventStands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		a      acks
		stands anchors
		want   bool
	}{
		{"it stands there", acksAt(eventX, 3, 9), anchors{9: eventX}, true},
		{"another one does", acksAt(eventX, 3, 9), anchors{9: eventY}, false},
		{"it stands elsewhere", acksAt(eventX, 3, 9), anchors{3: eventX}, false},
		{"it was deleted", acksAt(eventX, 3, 9), anchors{9: uuid.Nil}, false},
		{"nobody looked", acksAt(eventX, 3, 9), nil, false},
		{"its id is unknown", acksAt(uuid.Nil, 3, 9), anchors{9: uuid.Nil}, false},
		{"there are none", acks{}, anchors{9: eventX}, false},
	} {
		if got := c.a.of(c.stands); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Each position is taken once, in the order of the log, whatever stands between.
func TestAcksAreTakenAsTheLogIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		positions := rapid.SliceOfNDistinct(rapid.Int64Range(1, 40), 0, 12, rapid.ID[int64]).Draw(t, "positions")
		slices.Sort(positions)
		var a acks
		for _, p := range positions {
			a.at = append(a.at, kiroku.Position(p))
		}
		at := int64(0)
		for at <= 40 {
			at += rapid.Int64Range(1, 5).Draw(t, "step")
			if got, want := a.take(kiroku.Position(at)), slices.Contains(positions, at); got != want {
				t.Fatalf("take(%d) = %v of %v", at, got, positions)
			}
			if len(a.at) > 0 && int64(a.at[0]) <= at {
				t.Fatalf("%v is left after %d", a.at, at)
			}
		}
	})
}

func TestAcksComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := acks{last: eventX}
		for p, n := int64(0), rapid.IntRange(1, 300).Draw(t, "n"); len(a.at) < n; {
			p += rapid.Int64Range(1, rapid.SampledFrom([]int64{1, 200, 1 << 54}).Draw(t, "scale")).Draw(t, "gap")
			a.at = append(a.at, kiroku.Position(p))
		}
		back, err := decodeAcks(a.encode())
		if err != nil || !slices.Equal(back.at, a.at) || back.last != a.last {
			t.Fatalf("%v, %v", back, err)
		}
	})
}

// FuzzAcks: whatever is in the row, what is taken from it are ascending positions,
// and there is one way to write them.
func FuzzAcks(f *testing.F) {
	f.Add([]byte{})
	f.Add(acksAt(eventX, 1, 2, 300).encode())
	f.Add(acksAt(eventY, math.MaxInt64).encode())
	f.Add(append(acksAt(eventX, 7).encode(), 0x80, 0x00))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAcks(b)
		if err != nil {
			if len(a.at) > 0 {
				t.Fatal("something came with an error")
			}
			return
		}
		before := kiroku.Position(0)
		for _, p := range a.at {
			if p <= before {
				t.Fatalf("%d after %d", p, before)
			}
			before = p
		}
		if again := a.encode(); !bytes.Equal(again, b) {
			t.Fatalf("%x is written as %x", b, again)
		}
	})
}
