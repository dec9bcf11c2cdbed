package lease

import _ "embed" // the statements

// The statements, one per file.
var (
	//go:embed sql/ensure_lock.sql
	ensureLockSQL string
	//go:embed sql/ensure_read.sql
	ensureReadSQL string
	//go:embed sql/ensure_insert.sql
	ensureInsertSQL string
	//go:embed sql/join.sql
	joinSQL string
	//go:embed sql/beat.sql
	beatSQL string
	//go:embed sql/give.sql
	giveSQL string
	//go:embed sql/claim.sql
	claimSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/leave.sql
	leaveSQL string
	//go:embed sql/relinquish.sql
	relinquishSQL string
	//go:embed sql/relinquish_preview.sql
	relinquishPreviewSQL string
	//go:embed sql/schema_lock.sql
	schemaLockSQL string
	//go:embed sql/schema_state.sql
	schemaStateSQL string
	//go:embed sql/schema_create.sql
	schemaCreateSQL string
	//go:embed sql/schema_columns.sql
	schemaColumnsSQL string
	//go:embed sql/schema_constraints.sql
	schemaConstraintsSQL string
	//go:embed sql/schema_indexes.sql
	schemaIndexesSQL string
	//go:embed sql/watch_held.sql
	watchHeldSQL string
	//go:embed sql/watch_await.sql
	watchAwaitSQL string
	//go:embed sql/watch_suspects.sql
	watchSuspectsSQL string
	//go:embed sql/watch_mark.sql
	watchMarkSQL string
	//go:embed sql/grants.sql
	grantsSQL string
)
