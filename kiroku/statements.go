package kiroku

import _ "embed"

// The statements, one per file. Each is schema-qualified and says in its head
// what its parameters are.
var (
	//go:embed sql/append.sql
	appendSQL string
	//go:embed sql/append_one.sql
	appendOneSQL string
	//go:embed sql/append_shared.sql
	appendSharedSQL string
	//go:embed sql/head.sql
	headSQL string
	//go:embed sql/read_keys.sql
	readKeysSQL string
	//go:embed sql/read_keys_of.sql
	readKeysOfSQL string
	//go:embed sql/keys_at.sql
	keysAtSQL string
	//go:embed sql/read_events.sql
	readEventsSQL string
	//go:embed sql/lookup_streams.sql
	lookupStreamsSQL string
	//go:embed sql/read_stream.sql
	readStreamSQL string
	//go:embed sql/read_stream_backward.sql
	readStreamBackwardSQL string
	//go:embed sql/read_category.sql
	readCategorySQL string
	//go:embed sql/read_category_backward.sql
	readCategoryBackwardSQL string
	//go:embed sql/read_all.sql
	readAllSQL string
	//go:embed sql/read_all_backward.sql
	readAllBackwardSQL string

	//go:embed sql/load_checkpoints.sql
	loadCheckpointsSQL string
	//go:embed sql/save_checkpoint.sql
	saveCheckpointSQL string
	//go:embed sql/seed_checkpoints.sql
	seedCheckpointsSQL string
	//go:embed sql/inventory.sql
	inventorySQL string
	//go:embed sql/reset_checkpoints.sql
	resetCheckpointsSQL string

	//go:embed sql/record_dead_letter.sql
	recordDeadLetterSQL string
	//go:embed sql/list_dead_letters.sql
	listDeadLettersSQL string
	//go:embed sql/get_dead_letter.sql
	getDeadLetterSQL string

	//go:embed sql/lock_migrations.sql
	lockMigrationsSQL string
	//go:embed sql/install_marker_schema.sql
	installMarkerSchemaSQL string
	//go:embed sql/install_marker_table.sql
	installMarkerTableSQL string
	//go:embed sql/install_marker_row.sql
	installMarkerRowSQL string
	//go:embed sql/inspect.sql
	inspectSQL string
	//go:embed sql/inspect_ledger.sql
	inspectLedgerSQL string
	//go:embed sql/inspect_codd.sql
	inspectCoddSQL string
	//go:embed sql/inspect_codd_schema.sql
	inspectCoddSchemaSQL string
	//go:embed sql/inspect_marker.sql
	inspectMarkerSQL string
	//go:embed sql/verify_columns.sql
	verifyColumnsSQL string
	//go:embed sql/verify_indexes.sql
	verifyIndexesSQL string
	//go:embed sql/verify_constraints.sql
	verifyConstraintsSQL string
	//go:embed sql/verify_triggers.sql
	verifyTriggersSQL string
	//go:embed sql/verify_all_row.sql
	verifyAllRowSQL string
	//go:embed sql/missing_grants.sql
	missingGrantsSQL string
)
