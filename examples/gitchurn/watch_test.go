package main

import (
	"testing"
	"time"
)

func TestVictimIsTheBusiestWorkerAndOfEqualsTheMiddleOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		held []int // buckets of worker 1, 2, …
		want int
	}{
		{[]int{0, 0, 0}, 0},
		{[]int{4, 4, 4}, 2},
		{[]int{4, 3, 5}, 3},
		{[]int{4, 0, 4}, 1},
		{[]int{0, 0, 1}, 3},
		{[]int{6, 6}, 1},
		{[]int{2, 3, 3}, 2},
	} {
		s := sample{held: map[int][]bucket{}}
		for i, n := range c.held {
			s.held[i+1] = make([]bucket, n)
		}
		if got := s.victim(len(c.held)); got != c.want {
			t.Errorf("%v: got %d, want %d", c.held, got, c.want)
		}
	}
}

func TestBucketsAreAdoptedWhenEachHasAnotherOwner(t *testing.T) {
	t.Parallel()
	a, b := bucket{"churn", 1}, bucket{"revenue", 1}
	for name, c := range map[string]struct {
		held map[int][]bucket
		want bool
	}{
		"all with others":      {map[int][]bucket{1: {a}, 4: {b}}, true},
		"one still the killed": {map[int][]bucket{1: {a}, 2: {b}}, false},
		"one free":             {map[int][]bucket{1: {a}}, false},
		"all free":             {nil, false},
	} {
		s := sample{held: c.held}
		if got := s.adopted([]bucket{a, b}, 2); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestRateIsThatOfTheLastSeconds(t *testing.T) {
	t.Parallel()
	var r rate
	start, got := time.Now(), 0.0
	for i := range 100 {
		perSecond := int64(1000)
		if i > 50 {
			perSecond = 3000
		}
		got = r.add(start.Add(time.Duration(i)*100*time.Millisecond), int64(i)*perSecond/10)
	}
	if got < 2990 || got > 3010 {
		t.Errorf("got %v", got)
	}
	if first := new(rate).add(start, 5); first != 0 {
		t.Errorf("first: got %v", first)
	}
}
