package kiroku

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed grants.sql
var grantsSQL string

// Grants returns the statements that let a role read, append and run
// subscriptions, and nothing else. The role's name is quoted. Run them as the
// owner of the schema.
func Grants(role string) (string, error) {
	const longest = 63 // PostgreSQL cuts identifiers there
	switch {
	case role == "":
		return "", &ArgumentError{Argument: "role", Problem: "is empty"}
	case len(role) > longest:
		return "", &ArgumentError{Argument: "role", Problem: fmt.Sprintf("is longer than %d bytes", longest)}
	}
	if err := invalidText(role); err != nil {
		return "", &ArgumentError{Argument: "role", Problem: err.Error()}
	}
	return strings.ReplaceAll(grantsSQL, ":role", pgx.Identifier{role}.Sanitize()), nil
}

// GrantError: the role may not do what it has to. Several are joined.
type GrantError struct {
	Object    string
	Privilege string
}

func (e *GrantError) Error() string {
	return fmt.Sprintf("kiroku: no privilege %s on %s (run what kiroku.Grants returns, as the owner)", e.Privilege, e.Object)
}

// CheckGrants tells whether the role of db may run subscriptions and, if writer,
// append: joined [*GrantError] if not. Objects that are missing are [Verify]'s
// to find. It reads the catalog, which needs no privilege.
func CheckGrants(ctx context.Context, db DB, writer bool) error {
	missing, err := collect[GrantError](ctx, db, missingGrantsSQL, writer)
	if err != nil {
		return fmt.Errorf("kiroku: check grants: %w", err)
	}
	var problems []error
	for _, m := range missing {
		problems = append(problems, &m)
	}
	return errors.Join(problems...)
}
