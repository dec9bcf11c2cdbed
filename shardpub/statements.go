package shardpub

import _ "embed"

var (
	//go:embed sql/checkpoint.sql
	checkpointSQL string
	//go:embed sql/dead_letter.sql
	deadLetterSQL string
	//go:embed sql/fenced.sql
	fencedSQL string
	//go:embed sql/keepalive.sql
	keepaliveSQL string
	//go:embed sql/missing_grants.sql
	missingGrantsSQL string
	//go:embed sql/places.sql
	placesSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/server.sql
	serverSQL string
	//go:embed sql/session_lock.sql
	sessionLockSQL string
	//go:embed sql/session_probe.sql
	sessionProbeSQL string
	//go:embed sql/settings.sql
	settingsSQL string
)
