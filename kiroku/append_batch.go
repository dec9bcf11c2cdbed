package kiroku

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// appendBatch is one call of Append as the columns that the statement takes.
type appendBatch struct {
	appends []StreamAppend
	ids     []uuid.UUID
	// given are those of the ids that the caller chose.
	given []uuid.UUID

	names     []string
	kinds     []int16
	versions  []int64
	counts    []int64
	preceding []int64

	types        []string
	causations   pgtype.FlatArray[pgtype.UUID]
	correlations pgtype.FlatArray[pgtype.UUID]
	data         []string
	metadata     pgtype.FlatArray[pgtype.Text]
	streams      []int64
	numbers      []int64
}

// newAppendBatch lays the events out and gives each its id, once for all tries.
func newAppendBatch(appends []StreamAppend) (*appendBatch, error) {
	b := &appendBatch{appends: appends}
	seen := map[uuid.UUID]struct{}{}
	for i, a := range appends {
		b.names = append(b.names, a.Stream)
		b.kinds = append(b.kinds, int16(a.Expected.kind))
		b.versions = append(b.versions, a.Expected.version)
		b.counts = append(b.counts, int64(len(a.Events)))
		b.preceding = append(b.preceding, int64(len(b.ids)))
		for j, e := range a.Events {
			id, err := eventID(e)
			if err != nil {
				return nil, err
			}
			if _, ok := seen[id]; ok {
				return nil, &DuplicateEventError{EventID: id}
			}
			seen[id] = struct{}{}
			if e.ID != uuid.Nil {
				b.given = append(b.given, id)
			}
			b.ids = append(b.ids, id)
			b.types = append(b.types, e.Type)
			b.causations = append(b.causations, nullUUID(e.CausationID))
			b.correlations = append(b.correlations, nullUUID(e.CorrelationID))
			b.data = append(b.data, string(e.Data))
			b.metadata = append(b.metadata, pgtype.Text{String: string(e.Metadata), Valid: e.Metadata != nil})
			b.streams = append(b.streams, int64(i+1))
			b.numbers = append(b.numbers, int64(j+1))
		}
	}
	return b, nil
}

// args are of types that pgx knows without asking the server, so that they work
// in each of its query modes, also behind a transaction pooler.
func (b *appendBatch) args() []any {
	return []any{
		b.names, b.kinds, b.versions, b.counts, b.preceding,
		uuidArray(b.ids), b.types, b.causations, b.correlations, b.data, b.metadata, b.streams, b.numbers,
	}
}

// oneArgs are those of a batch for one stream.
func (b *appendBatch) oneArgs() []any {
	return []any{
		b.names[0], b.kinds[0], b.versions[0], b.counts[0],
		uuidArray(b.ids), b.types, b.causations, b.correlations, b.data, b.metadata,
	}
}

func eventID(e Event) (uuid.UUID, error) {
	if e.ID != uuid.Nil {
		return e.ID, nil
	}
	return uuid.NewV7()
}

// validateAppends finds whatever the store would refuse.
func validateAppends(appends []StreamAppend) error {
	names := make(map[string]struct{}, len(appends))
	for _, a := range appends {
		if err := ValidateStreamName(a.Stream); err != nil {
			return err
		}
		if _, ok := names[a.Stream]; ok {
			return &RepeatedStreamError{Stream: a.Stream}
		}
		names[a.Stream] = struct{}{}
		if len(a.Events) == 0 {
			return &EmptyAppendError{Stream: a.Stream}
		}
		for i, e := range a.Events {
			if field, err := invalidField(e); err != nil {
				return &InvalidEventError{Stream: a.Stream, Index: i, Field: field, Err: err}
			}
		}
	}
	return nil
}

// ValidateStreamName tells whether events can be appended to a stream of this
// name: a [*ReservedStreamError] or a [*StreamNameError] if not.
func ValidateStreamName(name string) error {
	switch {
	case name == AllStreams:
		return &ReservedStreamError{Stream: name}
	case len(name) > MaxStreamName:
		return &StreamNameError{Stream: name, Problem: fmt.Sprintf("longer than %d bytes", MaxStreamName)}
	}
	if err := invalidText(name); err != nil {
		return &StreamNameError{Stream: name, Problem: err.Error()}
	}
	return nil
}

var (
	errMissing = errors.New("is missing")
	errNotUTF8 = errors.New("is not UTF-8")
	errHasNUL  = errors.New("holds a NUL character")
)

func invalidField(e Event) (field string, err error) {
	if e.Type == "" {
		return "Type", errMissing
	}
	if err := invalidText(e.Type); err != nil {
		return "Type", err
	}
	if err := CheckJSON(e.Data); err != nil {
		return "Data", err
	}
	if e.Metadata != nil {
		if err := CheckJSON(e.Metadata); err != nil {
			return "Metadata", err
		}
	}
	return "", nil
}

// invalidText tells why PostgreSQL's text cannot hold s.
func invalidText(s string) error {
	switch {
	case !utf8.ValidString(s):
		return errNotUTF8
	case strings.IndexByte(s, 0) >= 0:
		return errHasNUL
	}
	return nil
}
