package migrate

import _ "embed" // the statements

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/state.sql
	stateSQL string
	//go:embed sql/create_schema.sql
	createSchemaSQL string
	//go:embed sql/create_ledger.sql
	createLedgerSQL string
	//go:embed sql/read.sql
	readSQL string
	//go:embed sql/record.sql
	recordSQL string
)
