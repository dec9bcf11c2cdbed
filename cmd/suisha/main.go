// Suisha is the tool beside the library.
//
//	go run ./cmd/suisha bench [-h]
//
// bench measures this machine, or a server of yours: how fast events are drained
// and appended, beside what PostgreSQL and Watermill can do at most. How others
// do in the same run is in integration/bench.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/suisha-go/suisha/internal/bench"
)

// command is one of the tool's.
type command struct {
	name, about string
	// run takes the arguments behind the name and returns the exit code.
	run func(args []string) int
}

var commands = []command{
	{"bench", "measure this machine or a server", func(args []string) int {
		return bench.Command("suisha bench", args, bench.Questions)
	}},
}

func main() {
	bench.Child()
	os.Exit(run(os.Args[1:], os.Stderr))
}

func run(args []string, stderr io.Writer) int {
	if len(args) > 0 {
		for _, c := range commands {
			if c.name == args[0] {
				return c.run(args[1:])
			}
		}
	}
	fmt.Fprintln(stderr, "usage: suisha <command> [flags]")
	for _, c := range commands {
		fmt.Fprintf(stderr, "  %-10s %s\n", c.name, c.about)
	}
	if len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help") {
		return 0
	}
	return 2
}
