package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suisha-go/suisha/lease"
)

// timed notes when beats are sent.
type timed struct {
	lease.Store
	at []time.Time
}

func (s *timed) Beat(ctx context.Context, b lease.Beat) (lease.Snapshot, error) {
	s.at = append(s.at, time.Now())
	return s.Store.Beat(ctx, b)
}

// Keepers of a process that started at different times beat together, never more
// than a tenth of an interval late, and in the long run no more often.
func TestKeepersOfAProcessBeatTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const renew, minutes = lease.DefaultRenewInterval, 10
		rhythm := lease.NewRhythm()
		members := make([]*timed, 8)
		for i := range members {
			members[i] = &timed{Store: &line{table: newTable(4)}}
			newWorker(t, members[i], lease.Config{}, 4, func(c *lease.KeeperConfig, _ *holder) { c.Rhythm = rhythm }).start(t)
			time.Sleep(1700 * time.Millisecond)
		}
		time.Sleep(minutes * time.Minute)
		synctest.Wait()
		beats, moments := 0, map[time.Time]bool{}
		for _, m := range members {
			beats += len(m.at)
			for i, at := range m.at {
				moments[at] = true
				if i > 0 && at.Sub(m.at[i-1]) > renew+renew/10 {
					t.Errorf("a beat came %v after the one before", at.Sub(m.at[i-1]))
				}
			}
		}
		if most := len(members) * (minutes*6 + 6); beats > most {
			t.Errorf("%d beats of %d in %d minutes, want %d at the most", beats, len(members), minutes, most)
		}
		if most := minutes*6 + 6*len(members); len(moments) > most {
			t.Errorf("they beat at %d moments, want %d at the most", len(moments), most)
		}
	})
}
