package shardpub

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// Errors of PostgreSQL are told apart here, by SQLSTATE and constraint name.
const (
	stateForeignKey       = "23503"
	stateDenied           = "42501"
	stateUndefinedTable   = "42P01"
	stateUndefinedSchema  = "3F000"
	stateUndefinedColumn  = "42703"
	constraintLetterEvent = "dead_letters_event_id_fkey"
)

// SchemaMissingError: a table or column is not there.
type SchemaMissingError struct{ Err error }

func (e *SchemaMissingError) Error() string {
	return "shardpub: the schema is missing or too old; run shardpub.Migrate once, with a role that may create schemas: " + serverSaid(e.Err)
}

// Unwrap returns PostgreSQL's error.
func (e *SchemaMissingError) Unwrap() error { return e.Err }

// GrantError: the role lacks a privilege.
type GrantError struct{ Err error }

func (e *GrantError) Error() string {
	return "shardpub: the role lacks a privilege; run the statements of shardpub.Grants for it: " + serverSaid(e.Err)
}

// Unwrap returns PostgreSQL's error, or what is missing.
func (e *GrantError) Unwrap() error { return e.Err }

// serverSaid is PostgreSQL's own message where there is one: the packages below
// have cures of their own to add, for those who use them alone.
func serverSaid(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Message
	}
	return err.Error()
}

// explain wraps errors that have a cure.
func explain(err error) error {
	switch stateOf(err) {
	case stateUndefinedTable, stateUndefinedSchema, stateUndefinedColumn:
		return &SchemaMissingError{Err: err}
	case stateDenied:
		return &GrantError{Err: err}
	}
	return err
}

func stateOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// isEventGone: a dead letter refused because its event was hard-deleted.
func isEventGone(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == stateForeignKey && pg.ConstraintName == constraintLetterEvent
}

// isUnreachable: the server did not answer, is starting or stopping, or is
// short of something. Worth another try; everything else is not.
func isUnreachable(err error) bool {
	if code := stateOf(err); code != "" {
		return slices.Contains([]string{"08", "53", "57", "40"}, code[:2]) || code == "55P03"
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || errors.As(err, &network) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err)
}
