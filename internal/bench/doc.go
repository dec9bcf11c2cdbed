// Package bench measures suisha, and whatever it is compared with, by one set
// of rules, and writes down what came out.
//
// A [Question] has cases and goals. Its cases take turns, A B A B A B, on one
// server, each on a database of its own that was loaded the same way and is
// warm. What counts are ratios of medians; a goal says which, and how large.
// A case that loses, repeats or reorders an event fails the run, whoever's it
// is.
//
// Where options are to be chosen for a peer, a grid of them is measured once
// and the best is the one that takes part in the further rounds. A case that is
// too slow to be measured whole is measured over a part of the work that is
// easier than the average, never harder, and its note says which.
//
// cmd/suisha has the cases that need nothing but this repository. Those of the
// peers are in integration/bench, a module of its own.
package bench
