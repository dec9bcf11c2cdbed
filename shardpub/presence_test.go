package shardpub_test

import (
	"testing"

	"github.com/suisha-go/suisha/shardpub"
)

// What a program says about itself stands where operators look for it.
func TestWhatANodeSaysOfItselfStandsWithItsWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node, _ := r.newNode(r.pool, func(c *shardpub.NodeConfig) {
		c.Name, c.Version = "reports-7", "v1.4.2"
		c.Lease.Labels, c.Lease.Weight = map[string]string{"zone": "b"}, 3
	})
	r.subscribe(r.subscriber(on(node), shards(2)), orders)
	var host, version, zone string
	var weight int
	const row = `select host, version, labels ->> 'zone', weight from suisha.workers`
	if err := r.pool.QueryRow(t.Context(), row).Scan(&host, &version, &zone, &weight); err != nil {
		t.Fatal(err)
	}
	if host != "reports-7" || version != "v1.4.2" || zone != "b" || weight != 3 {
		t.Errorf("%q, %q, zone %q, weight %d", host, version, zone, weight)
	}
}
