package screen

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const green = 32

// File is a row of the table of the hottest files.
type File struct {
	Path                    string
	Commits, Added, Deleted int64
}

// Hottest draws the table of the files that changed most.
func Hottest(files []File, s Style) []string {
	p := palette(s.Color)
	title := "The hottest files"
	if len(files) == 10 {
		title = "The ten hottest files"
	}
	lines := []string{"", margin + p.paint(bold, title), "", margin + p.paint(dim, "commits      added    deleted   file")}
	room := max(min(s.Width, mostWidth)-len(margin)-33, 20)
	for _, f := range files {
		lines = append(lines, fmt.Sprintf("%s%7s %10s %10s   %s", margin, Count(f.Commits), Count(f.Added), Count(f.Deleted), Fit(f.Path, room)))
	}
	return lines
}

const bold = 1

// Finding is one line of the verdict.
type Finding struct {
	// Name and Value stand in columns; Notes follow, one a line.
	Name, Value string
	Notes       []string
	// Bad says that it must not be so.
	Bad bool
}

// Verdict draws the findings, and what they come to.
func Verdict(findings []Finding, s Style) []string {
	p := palette(s.Color)
	lines := []string{"", margin + p.paint(bold, "The verdict"), ""}
	failed := false
	for _, f := range findings {
		value := strings.Repeat(" ", max(9-utf8.RuneCountInString(f.Value), 0))
		if f.Bad {
			failed = true
			value += p.paint(red, f.Value)
		} else {
			value += f.Value
		}
		notes := slices.Concat(f.Notes, []string{""})
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%s%-12s %s   %s", margin, f.Name, value, p.note(notes[0])), " "))
		for _, n := range notes[1:max(len(notes)-1, 1)] {
			lines = append(lines, margin+strings.Repeat(" ", 25)+p.note(n))
		}
	}
	if failed {
		return append(lines, "", margin+p.paint(red, "✗ This must not happen."), "")
	}
	return append(lines, "", margin+p.paint(green, "✓ Every promise was kept."), "")
}

func (p palette) note(s string) string {
	if s == "" {
		return ""
	}
	return p.paint(dim, s)
}

// Title draws the first lines of the program: its name and what follows it.
func Title(name, subtitle string, s Style) []string {
	p := palette(s.Color)
	return []string{"", margin + p.paint(bold, name) + margin + p.paint(dim, subtitle), ""}
}

// Fact draws one line of the list of what the run is made of.
func Fact(name, text string, s Style) string {
	return margin + palette(s.Color).paint(dim, fmt.Sprintf("%-13s", name)) + text
}
