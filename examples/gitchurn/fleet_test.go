package main

import (
	"strings"
	"testing"
)

func TestWorkerWithoutAConfigurationEndsWithAReason(t *testing.T) {
	t.Parallel()
	var said tail
	if code := workerMain(strings.NewReader("not JSON\n"), &said); code != exitUsage || !strings.Contains(said.String(), "configuration") {
		t.Errorf("got %d, %q", code, said.String())
	}
}

func TestWorkerThatEndsByItselfIsAnErrorWithItsLastWords(t *testing.T) {
	t.Parallel()
	f := fleet{config: workerConfig{Database: "host=/nowhere port=1", Buckets: 0}} // no number of buckets: refused at once
	p, err := f.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-p.exited
	if err := f.failed(); err == nil || !strings.Contains(err.Error(), "worker 1 ended: exit status 1") || !strings.Contains(err.Error(), "Shards") {
		t.Errorf("got %v", err)
	}
	if err := f.stop(); err == nil {
		t.Error("stop has forgotten it")
	}
}

func TestTailKeepsTheLastWords(t *testing.T) {
	t.Parallel()
	var said tail
	for range 1000 {
		said.Write([]byte("some words that nobody needs\n")) //nolint:errcheck // it cannot fail
	}
	said.Write([]byte("the end")) //nolint:errcheck // it cannot fail
	if s := said.String(); len(s) > tailSize || !strings.HasSuffix(s, "the end") {
		t.Errorf("%d bytes, ends with %q", len(s), s[len(s)-10:])
	}
}
