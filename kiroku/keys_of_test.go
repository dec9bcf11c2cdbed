package kiroku_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/suisha-go/suisha/kiroku"
)

// Page after page, the keys of some categories are those that are left of the log
// when all others are taken out, however unequal the streams are (P-27).
func TestKeysOfCategoriesAreTheLogWithoutTheOthers(t *testing.T) {
	t.Parallel()
	pool := store(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 150 {
		category := []string{"a", "b", "c"}[rng.IntN(3)]
		stream := int(rng.ExpFloat64() * 4) // a few have most
		mustAppend(t, pool, fmt.Sprintf("%s-%d", category, stream), 1+rng.IntN(12))
	}
	all, err := kiroku.ReadKeys(t.Context(), pool, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	head := all[len(all)-1].Position
	for _, categories := range [][]string{{"a"}, {"a", "c"}, {"a", "b", "c"}, {"none"}} {
		want := []kiroku.Key{}
		for _, k := range all {
			if slices.Contains(categories, queryOne[string](t, pool, `select category from kiroku.streams where stream_id = $1`, k.StreamID)) {
				want = append(want, k)
			}
		}
		for _, limit := range []int{1, 7, 100, 5000} {
			got, pages := []kiroku.Key{}, 0
			for at, more := kiroku.Position(0), true; more; pages++ {
				k, few, err := kiroku.ReadKeysOf(t.Context(), pool, categories, at, limit, 100)
				if err != nil || !few {
					t.Fatal(few, err)
				}
				if at > 0 && (len(k.Keys) == 0 || k.Keys[0].Position != at) {
					t.Fatalf("what stands at %d is not among %v", at, k.Keys)
				}
				if k.More && k.End <= at || !k.More && k.End != head {
					t.Fatalf("from %d to %d of %d, more %v", at, k.End, head, k.More)
				}
				if last := k.Keys[len(k.Keys)-1]; last.Position != k.End {
					t.Fatalf("what stands at the end %d is not among the keys: %v", k.End, last)
				}
				for _, key := range k.Keys {
					if key.Position > at && slices.Contains(want, key) {
						got = append(got, key)
					}
				}
				at, more = k.End, k.More
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v by %d: %d keys, want %d", categories, limit, len(got), len(want))
			}
			if limit == 5000 && pages != 1 {
				t.Errorf("%v by %d: %d pages", categories, limit, pages)
			}
		}
	}
}

func TestKeysOfTooManyStreamsAreNotRead(t *testing.T) {
	t.Parallel()
	pool := store(t)
	for i := range 3 {
		mustAppend(t, pool, fmt.Sprintf("a-%d", i), 2)
	}
	if k, few, err := kiroku.ReadKeysOf(t.Context(), pool, []string{"a"}, 0, 10, 2); few || err != nil || len(k.Keys) != 0 {
		t.Errorf("%v, %v, %v", k, few, err)
	}
	if k, few, err := kiroku.ReadKeysOf(t.Context(), pool, []string{"a"}, 0, 10, 3); !few || err != nil || len(k.Keys) != 6 {
		t.Errorf("%v, %v, %v", k, few, err)
	}
	if _, _, err := kiroku.ReadKeysOf(t.Context(), pool, []string{"a"}, 0, 0, 3); !errors.Is(err, kiroku.ErrInvalid) {
		t.Errorf("limit 0: %v", err)
	}
}
