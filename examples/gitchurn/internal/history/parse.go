package history

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
)

// Change is what one commit did to one file.
type Change struct {
	// Path is the file's path as git has it: any bytes but NUL. After a rename
	// it is the new one.
	Path string
	// Commit is the commit's full hash.
	Commit string
	// Author is the author's name, as valid UTF-8.
	Author string
	// At is the time of the commit. It is zero where the commit has no time
	// that a calendar with four-digit years can show.
	At time.Time
	// Added and Deleted count lines; both are zero for a binary file.
	Added, Deleted int64
	// Binary says that git counted no lines.
	Binary bool
}

// format is the header of a commit. It cannot be taken for a record, which
// begins with a digit or a dash.
const format = "commit %H %ct %an"

// Parse reads what git log prints with -z, --numstat and our header:
//
//	commit <hash> <seconds> <author> NUL
//	[LF] <added> TAB <deleted> TAB <path> NUL
//	     <added> TAB <deleted> TAB NUL <old path> NUL <new path> NUL
//
// The sequence ends at its first error.
func Parse(r io.Reader) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		p := parser{in: bufio.NewReaderSize(r, 1<<16)}
		for {
			c, err := p.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

type parser struct {
	in     *bufio.Reader
	commit Change // the fields of the commit that the records belong to
	first  bool   // no record of the commit was read yet
}

// next reads up to the end of the next record. It returns io.EOF only between
// two records.
func (p *parser) next() (Change, error) {
	for {
		token, err := p.token()
		if err != nil {
			return Change{}, err
		}
		if header, ok := bytes.CutPrefix(token, []byte("commit ")); ok {
			if err := p.header(string(header)); err != nil {
				return Change{}, err
			}
			continue
		}
		if p.first {
			token = bytes.TrimPrefix(token, []byte("\n"))
			p.first = false
		}
		return p.record(string(token))
	}
}

func (p *parser) header(s string) error {
	hash, rest, ok := strings.Cut(s, " ")
	seconds, author, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || hash == "" {
		return malformed("header", s)
	}
	p.commit = Change{Commit: hash, Author: strings.ToValidUTF8(author, "\uFFFD"), At: clockTime(seconds)}
	p.first = true
	return nil
}

func (p *parser) record(s string) (Change, error) {
	c := p.commit
	if c.Commit == "" {
		return Change{}, malformed("record before the first commit", s)
	}
	added, rest, ok := strings.Cut(s, "\t")
	deleted, path, ok2 := strings.Cut(rest, "\t")
	if !ok || !ok2 {
		return Change{}, malformed("record", s)
	}
	if added == "-" && deleted == "-" {
		c.Binary = true
	} else {
		var err, err2 error
		c.Added, err = strconv.ParseInt(added, 10, 64)
		c.Deleted, err2 = strconv.ParseInt(deleted, 10, 64)
		if err != nil || err2 != nil || c.Added < 0 || c.Deleted < 0 {
			return Change{}, malformed("count", s)
		}
	}
	if path == "" {
		var err error
		if path, err = p.renamed(); err != nil {
			return Change{}, err
		}
	}
	c.Path = path
	return c, nil
}

// renamed reads the two paths of a rename and returns the new one.
func (p *parser) renamed() (string, error) {
	from, err := p.token()
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	to, err := p.token()
	if errors.Is(err, io.EOF) || len(from) == 0 || err == nil && len(to) == 0 {
		return "", malformed("rename from", string(from))
	}
	return string(to), err
}

// token reads up to the next NUL. A rest without one is an error: git was cut off.
func (p *parser) token() ([]byte, error) {
	token, err := p.in.ReadBytes(0)
	if err == nil {
		return token[:len(token)-1], nil
	}
	if errors.Is(err, io.EOF) && len(token) > 0 {
		return nil, malformed("end", string(token))
	}
	return nil, err
}

// clockTime is the time of so many seconds, if JSON can hold it.
func clockTime(seconds string) time.Time {
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || s < 0 || s > maxSeconds {
		return time.Time{}
	}
	return time.Unix(s, 0).UTC()
}

// maxSeconds is the last second of the year 9999.
const maxSeconds = 253402300799

func malformed(what, s string) error {
	return fmt.Errorf("history: git log: malformed %s: %.200q", what, s)
}
