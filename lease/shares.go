package lease

import (
	"cmp"
	"slices"
)

// claimant is one who gets a share.
type claimant struct {
	weight int
	// holds is what it has already: of those with an equal claim on one bucket
	// more, who holds more beyond the rest of its share gets it, and nothing moves.
	// Who holds no more than that has no say, however little it is: it may be claiming.
	holds int
}

// shares divides n among the claimants by weight, exactly: each gets its quota
// rounded down, and what remains goes out one by one, to the largest remainder
// first. The claimants are in the order of their ids, which breaks ties.
func shares(n int, claimants []claimant) []int {
	if len(claimants) == 0 {
		return nil
	}
	total := 0
	for _, c := range claimants {
		total += c.weight
	}
	out := make([]int, len(claimants))
	order := make([]int, len(claimants))
	left := n
	for i, c := range claimants {
		out[i] = n * c.weight / total
		left -= out[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(n*claimants[b].weight%total, n*claimants[a].weight%total),
			cmp.Compare(max(claimants[b].holds-out[b], 0), max(claimants[a].holds-out[a], 0)),
		)
	})
	for _, i := range order[:left] {
		out[i]++
	}
	return out
}
