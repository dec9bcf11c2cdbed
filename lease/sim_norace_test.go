//go:build !race

package lease_test

// simDefault is how many schedules are simulated.
const simDefault = 20_000
