package router

import _ "embed"

//go:embed sql/pending.sql
var pendingSQL string

//go:embed sql/unowned.sql
var unownedSQL string
