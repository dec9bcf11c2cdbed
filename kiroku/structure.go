package kiroku

import (
	"fmt"
	"slices"
)

// What this package depends on, as data. It is the state after kiroku's 0007,
// without what only others use; more may be there.

type column struct {
	Table, Name, Type string
	NotNull           bool
	// Filled: the database gives a value where a statement names none.
	Filled    bool
	Generated bool
	// Expression is compared only where the column is generated.
	Expression string
}

var columns = []column{
	{Table: "streams", Name: "stream_id", Type: "bigint", NotNull: true, Filled: true},
	{Table: "streams", Name: "stream_name", Type: "text", NotNull: true},
	{
		Table: "streams", Name: "category", Type: "text", Filled: true, Generated: true,
		Expression: "split_part(stream_name, '-'::text, 1)",
	},
	{Table: "streams", Name: "stream_version", Type: "bigint", NotNull: true},
	{Table: "streams", Name: "created_at", Type: "timestamp with time zone", NotNull: true, Filled: true},
	{Table: "streams", Name: "deleted_at", Type: "timestamp with time zone"},
	{Table: "streams", Name: "truncate_before", Type: "bigint", NotNull: true, Filled: true},

	{Table: "events", Name: "event_id", Type: "uuid", NotNull: true},
	{Table: "events", Name: "event_type", Type: "text", NotNull: true},
	{Table: "events", Name: "causation_id", Type: "uuid"},
	{Table: "events", Name: "correlation_id", Type: "uuid"},
	{Table: "events", Name: "data", Type: "jsonb", NotNull: true},
	{Table: "events", Name: "metadata", Type: "jsonb"},
	{Table: "events", Name: "created_at", Type: "timestamp with time zone", NotNull: true},

	{Table: "stream_events", Name: "event_id", Type: "uuid", NotNull: true},
	{Table: "stream_events", Name: "stream_id", Type: "bigint", NotNull: true},
	{Table: "stream_events", Name: "stream_version", Type: "bigint", NotNull: true},
	{Table: "stream_events", Name: "original_stream_id", Type: "bigint", NotNull: true},
	{Table: "stream_events", Name: "original_stream_version", Type: "bigint", NotNull: true},

	{Table: "subscriptions", Name: "subscription_id", Type: "bigint", NotNull: true, Filled: true},
	{Table: "subscriptions", Name: "subscription_name", Type: "text", NotNull: true},
	{Table: "subscriptions", Name: "last_seen", Type: "bigint", NotNull: true},
	{Table: "subscriptions", Name: "consumer_group_member", Type: "integer", NotNull: true},
	{Table: "subscriptions", Name: "updated_at", Type: "timestamp with time zone", NotNull: true},

	{Table: "dead_letters", Name: "dead_letter_id", Type: "bigint", NotNull: true, Filled: true},
	{Table: "dead_letters", Name: "subscription_name", Type: "text", NotNull: true},
	{Table: "dead_letters", Name: "consumer_group_member", Type: "integer", NotNull: true},
	{Table: "dead_letters", Name: "global_position", Type: "bigint", NotNull: true},
	{Table: "dead_letters", Name: "event_id", Type: "uuid", NotNull: true},
	{Table: "dead_letters", Name: "reason", Type: "jsonb", NotNull: true},
	{Table: "dead_letters", Name: "reason_summary", Type: "text", NotNull: true},
	{Table: "dead_letters", Name: "attempt_count", Type: "integer", NotNull: true},
	{Table: "dead_letters", Name: "created_at", Type: "timestamp with time zone", NotNull: true, Filled: true},
}

type index struct {
	Table, Name string
	Unique      bool
	Usable      bool
	Columns     []string
	Predicate   string
}

var indexes = []index{
	{Table: "streams", Name: "streams_pkey", Unique: true, Columns: []string{"stream_id"}},
	{Table: "streams", Name: "ix_streams_stream_name", Unique: true, Columns: []string{"stream_name"}},
	{Table: "streams", Name: "ix_streams_category", Columns: []string{"category"}},
	{Table: "events", Name: "events_pkey", Unique: true, Columns: []string{"event_id"}},
	{Table: "stream_events", Name: "stream_events_pkey", Unique: true, Columns: []string{"event_id", "stream_id"}},
	{
		Table: "stream_events", Name: "ux_stream_events_stream_version", Unique: true,
		Columns: []string{"stream_id", "stream_version"},
	},
	{
		Table: "stream_events", Name: "ix_stream_events_all_by_origin",
		Columns: []string{"original_stream_id", "stream_version"}, Predicate: "(stream_id = 0)",
	},
	{
		Table: "subscriptions", Name: "ix_subscriptions_name_member", Unique: true,
		Columns: []string{"subscription_name", "consumer_group_member"},
	},
	{Table: "dead_letters", Name: "dead_letters_pkey", Unique: true, Columns: []string{"dead_letter_id"}},
	{
		Table: "dead_letters", Name: "dead_letters_subscription_name_consumer_group_member_global_key", Unique: true,
		Columns: []string{"subscription_name", "consumer_group_member", "global_position", "event_id"},
	},
}

type constraint struct{ Table, Name, Definition string }

var constraints = []constraint{
	{"streams", "chk_streams_stream_name_length", "CHECK ((octet_length(stream_name) <= 512))"},
	{"stream_events", "stream_events_event_id_fkey", "FOREIGN KEY (event_id) REFERENCES kiroku.events(event_id)"},
	{"stream_events", "stream_events_stream_id_fkey", "FOREIGN KEY (stream_id) REFERENCES kiroku.streams(stream_id)"},
	{"dead_letters", "dead_letters_event_id_fkey", "FOREIGN KEY (event_id) REFERENCES kiroku.events(event_id)"},
}

type trigger struct {
	Table, Name string
	// Type is PostgreSQL's tgtype: what it fires on.
	Type     int16
	Enabled  bool
	Function string
}

// Bits of tgtype.
const (
	forEachRow = 1 << iota
	before
	onInsert
	onDelete
	onUpdate
	onTruncate
)

var triggers = []trigger{
	{Table: "streams", Name: "stream_events_notify_insert", Type: forEachRow | onInsert, Function: "kiroku.notify_events"},
	{Table: "streams", Name: "stream_events_notify_update", Type: forEachRow | onUpdate, Function: "kiroku.notify_events"},
	{Table: "events", Name: "no_update_events", Type: forEachRow | before | onUpdate, Function: "kiroku.prevent_mutation"},
	{Table: "stream_events", Name: "no_update_stream_events", Type: forEachRow | before | onUpdate, Function: "kiroku.prevent_mutation"},
	{Table: "streams", Name: "no_delete_streams", Type: forEachRow | before | onDelete, Function: "kiroku.protect_deletion"},
	{Table: "events", Name: "no_delete_events", Type: forEachRow | before | onDelete, Function: "kiroku.protect_deletion"},
	{Table: "stream_events", Name: "no_delete_stream_events", Type: forEachRow | before | onDelete, Function: "kiroku.protect_deletion"},
	{Table: "streams", Name: "no_truncate_streams", Type: before | onTruncate, Function: "kiroku.protect_truncation"},
	{Table: "events", Name: "no_truncate_events", Type: before | onTruncate, Function: "kiroku.protect_truncation"},
	{Table: "stream_events", Name: "no_truncate_stream_events", Type: before | onTruncate, Function: "kiroku.protect_truncation"},
}

// compareColumns judges the columns found, also those that are not expected: one
// that demands a value breaks every insert.
func compareColumns(found []column) []error {
	var problems []error
	tables := map[string]bool{}
	byName := map[[2]string]column{}
	for _, c := range found {
		tables[c.Table] = true
		byName[[2]string{c.Table, c.Name}] = c
	}
	missing := map[string]bool{}
	for _, want := range columns {
		if !tables[want.Table] {
			if !missing[want.Table] {
				missing[want.Table] = true
				problems = append(problems, &SchemaError{Object: "table kiroku." + want.Table, Problem: "is missing", Cure: cureInstall})
			}
			continue
		}
		key := [2]string{want.Table, want.Name}
		got, ok := byName[key]
		delete(byName, key)
		if problem := columnProblem(want, got, ok); problem != "" {
			problems = append(problems, &SchemaError{Object: columnObject(want), Problem: problem, Cure: cureRestore})
		}
	}
	for _, c := range found {
		if _, extra := byName[[2]string{c.Table, c.Name}]; extra && isOurs(c.Table) && c.NotNull && !c.Filled {
			problems = append(problems, &SchemaError{Object: columnObject(c), Problem: "is unknown and demands a value", Cure: cureOtherTool})
		}
	}
	return problems
}

func columnObject(c column) string { return "column kiroku." + c.Table + "." + c.Name }

func isOurs(table string) bool {
	return slices.ContainsFunc(columns, func(c column) bool { return c.Table == table })
}

func columnProblem(want, got column, ok bool) string {
	switch {
	case !ok:
		return "is missing"
	case got.Type != want.Type:
		return fmt.Sprintf("is %s, not %s", got.Type, want.Type)
	case got.Generated != want.Generated:
		if want.Generated {
			return "is not generated"
		}
		return "is generated"
	case want.Generated && got.Expression != want.Expression:
		return fmt.Sprintf("is generated as %s, not %s", got.Expression, want.Expression)
	case want.NotNull && !got.NotNull:
		return "allows null"
	case !want.NotNull && got.NotNull:
		return "does not allow null"
	case want.Filled && !got.Filled:
		return "has no default"
	}
	return ""
}

func compareIndexes(found []index) []error {
	return compare(indexes, found, func(i index) string { return "index kiroku." + i.Name }, func(want, got index) string {
		switch {
		case got.Table != want.Table:
			return "is on kiroku." + got.Table
		case want.Unique && !got.Unique:
			return "is not unique"
		case !slices.Equal(got.Columns, want.Columns):
			return fmt.Sprintf("is on %v, not %v", got.Columns, want.Columns)
		case got.Predicate != want.Predicate:
			return fmt.Sprintf("has the condition %q, not %q", got.Predicate, want.Predicate)
		case !got.Usable:
			return "is not valid"
		}
		return ""
	})
}

func compareConstraints(found []constraint) []error {
	object := func(c constraint) string { return "constraint " + c.Name + " on kiroku." + c.Table }
	return compare(constraints, found, object, func(want, got constraint) string {
		if got.Definition != want.Definition {
			return fmt.Sprintf("is %s, not %s", got.Definition, want.Definition)
		}
		return ""
	})
}

func compareTriggers(found []trigger) []error {
	object := func(t trigger) string { return "trigger " + t.Name + " on kiroku." + t.Table }
	return compare(triggers, found, object, func(want, got trigger) string {
		switch {
		case got.Function != want.Function:
			return fmt.Sprintf("runs %s, not %s", got.Function, want.Function)
		case got.Type != want.Type:
			return "fires on other events"
		case !got.Enabled:
			return "is disabled"
		}
		return ""
	})
}

// compare looks for each wanted object among the found ones by its name.
func compare[T any](wanted, found []T, object func(T) string, problem func(want, got T) string) []error {
	byName := make(map[string]T, len(found))
	for _, f := range found {
		byName[object(f)] = f
	}
	var problems []error
	for _, want := range wanted {
		name := object(want)
		got, ok := byName[name]
		if !ok {
			problems = append(problems, &SchemaError{Object: name, Problem: "is missing", Cure: cureRestore})
			continue
		}
		if p := problem(want, got); p != "" {
			problems = append(problems, &SchemaError{Object: name, Problem: p, Cure: cureRestore})
		}
	}
	return problems
}
