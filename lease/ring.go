package lease

import "slices"

// successor is whose session this worker watches: of all sessions of live workers
// that hold a lock, in a ring by their numbers, the one after its own. So each is
// watched by one other, however many there are; the presence of the long dead
// stands in nobody's way. 0 when there is none.
func successor(own int64, workers []Worker) int64 {
	var locks []int64
	for _, w := range workers {
		if w.Lock != 0 && w.Lock != own && !w.Gone && w.Left > 0 {
			locks = append(locks, w.Lock)
		}
	}
	if own == 0 || len(locks) == 0 {
		return 0
	}
	slices.Sort(locks)
	i, _ := slices.BinarySearch(locks, own)
	return locks[i%len(locks)]
}
