package kiroku

import (
	"fmt"
	"slices"
)

const (
	ledgerPgMigrate = "pgmigrate.migrations"

	// minimumThrough is the first migration after which the store has all that
	// this package uses; 0008 to 0011 add a comment, a view and retention.
	minimumThrough = 7

	cureRunTool   = "run kiroku-store-migrate up"
	cureAskTool   = "run kiroku-store-migrate verify and repair what it says"
	cureOtherTool = "use a version of suisha that knows this kiroku"
)

// migration is one of kiroku's own, by the name in its ledger and the SHA-256
// of its file.
type migration struct{ name, checksum string }

var kirokuMigrations = []migration{
	{"0001-kiroku-bootstrap", "af7c777f8702d9b5bce6b3ea16540ab7542bc78725cb45e945c6d5b6025a4d66"},
	{"0002-add-subscription-dead-letters", "2771cdd2605a8808ea469c0bcba175c8ba4c5d2465f43eb05c56edb188fa8141"},
	{"0003-notify-trigger-append-guard", "432796c59389d45478ba773b62e9f38d0a562807061eb49280d295ec83248351"},
	{"0004-dead-letters-event-id-index", "f698db092ebf34beeddecc949bbd506afc0b9c63d3e9983ad5d14f203f2ee1cd"},
	{"0005-index-hygiene-and-streams-fillfactor", "80c28c7743f1d9967eadf921c0509fc8477db16500466bf7a49c5f59aadb0fa2"},
	{"0006-stream-name-length-check", "a0e4338a2feadf8f01499a3809d3de78966966689b095ea46195c4d07743e4aa"},
	{"0007-stream-truncate-before", "a4fe42ad8702b43c3d6f72edf263d6b301e783493d49f40a35dd14d2a7928fa7"},
	{"0008-schema-management-comment", "3fb3dd5a7172da3cd14edecb0877cc9963fc9a6dceaff9ed41705a2365070f70"},
	{"0009", "62c80d627dc8f17393d26ff7dbc00cabde11ed38ee7bf3cb1ae42ea89f484c74"},
	{"0010", "debc19187d79cd263be66c6c85cd789c1176e508d562a27390095aaa70f650c4"},
	{"0011", "bf8b76a712a31cb602aee793a11691283ccd1eafdc16224e45e14484512b5af7"},
}

// withdrawnChecksum is of the 0010 that kiroku 0.3.2 shipped and took back. It
// differs in a default that this package does not use.
const withdrawnChecksum = "257d94b8ea24156af0ee477196c5a6682cf5616cf8dfd0cfc527a49b5e7a97ac"

// ledgerRow is one row of pg-migrate's ledger.
type ledgerRow struct {
	Migration string
	Position  int
	Checksum  string // hexadecimal
	Status    string
}

// judgeLedger says whether a schema with these rows, ordered by position, may
// be used, as far as its ledger tells.
func judgeLedger(rows []ledgerRow) (Installation, error) {
	found := Installation{Origin: OriginPgMigrate}
	for _, row := range rows {
		if row.Status != "applied" {
			return found, refuse(row.Migration, "is "+row.Status, cureAskTool)
		}
		if row.Position > len(kirokuMigrations) {
			found.Newer = append(found.Newer, row.Migration)
			continue
		}
		if row.Position != found.Through+1 {
			return found, refuse(nameAt(found.Through+1), fmt.Sprintf("is missing before %q", row.Migration), cureRunTool)
		}
		known := kirokuMigrations[row.Position-1]
		switch {
		case row.Migration != known.name:
			return found, refuse(row.Migration, fmt.Sprintf("at position %d is unknown, %q belongs there", row.Position, known.name), cureOtherTool)
		case row.Checksum == known.checksum:
		case known.name == "0010" && row.Checksum == withdrawnChecksum:
			found.Withdrawn = true
		default:
			return found, refuse(row.Migration, "has the unknown checksum "+row.Checksum, cureAskTool)
		}
		found.Through = row.Position
	}
	if found.Through < minimumThrough || len(found.Newer) > 0 && found.Through < len(kirokuMigrations) {
		return found, refuse(nameAt(found.Through+1), "is not applied", cureRunTool)
	}
	for _, m := range kirokuMigrations[found.Through:] {
		found.Pending = append(found.Pending, m.name)
	}
	return found, nil
}

func refuse(migration, problem, cure string) error {
	return &LedgerError{Ledger: ledgerPgMigrate, Migration: migration, Problem: problem, Cure: cure}
}

func nameAt(position int) string { return kirokuMigrations[position-1].name }

// coddMigrations are the first seven under the names they had in codd's
// ledger, without the time in front, which was not always the same.
var coddMigrations = []string{
	"kiroku-bootstrap.sql",
	"add-subscription-dead-letters.sql",
	"notify-trigger-append-guard.sql",
	"dead-letters-event-id-index.sql",
	"index-hygiene-and-streams-fillfactor.sql",
	"stream-name-length-check.sql",
	"stream-truncate-before.sql",
}

// coddTime is the length of the time in front of a name, e.g.
// "2026-05-16-12-17-14-".
const coddTime = len("2006-01-02-15-04-05-")

// judgeCodd does as judgeLedger for the names in codd's ledger, which holds
// other people's migrations, too. known is false if kiroku's are not among them.
func judgeCodd(ledger string, names []string) (found Installation, known bool, err error) {
	found = Installation{Origin: OriginCodd}
	var missing []string
	for _, want := range coddMigrations {
		applied := slices.ContainsFunc(names, func(name string) bool {
			return len(name) > coddTime && name[coddTime:] == want
		})
		switch {
		case !applied:
			missing = append(missing, want)
		case len(missing) == 0:
			found.Through++
			fallthrough
		default:
			known = true
		}
	}
	if !known {
		return Installation{}, false, nil
	}
	if len(missing) > 0 {
		return found, true, &LedgerError{Ledger: ledger, Migration: missing[0], Problem: "is not applied", Cure: cureRunTool}
	}
	for _, m := range kirokuMigrations[found.Through:] {
		found.Pending = append(found.Pending, m.name)
	}
	return found, true, nil
}
