package kiroku

import "strconv"

// ExpectedVersion is what an append expects of its stream. The zero value
// expects nothing. Values are comparable.
type ExpectedVersion struct {
	kind    expectation
	version int64
}

// expectation is numbered as the append statement reads it.
type expectation int16

const (
	anyVersion expectation = iota
	noStream
	streamExists
	exactVersion
)

// AnyVersion expects nothing: the stream is created if it is missing.
func AnyVersion() ExpectedVersion { return ExpectedVersion{} }

// NoStream expects that the stream is new. A softly deleted one is not.
func NoStream() ExpectedVersion { return ExpectedVersion{kind: noStream} }

// StreamExists expects a stream that exists and is not deleted.
func StreamExists() ExpectedVersion { return ExpectedVersion{kind: streamExists} }

// ExactVersion expects a stream that exists and whose last event has number v.
// It never creates a stream, also not for 0.
func ExactVersion(v int64) ExpectedVersion {
	return ExpectedVersion{kind: exactVersion, version: v}
}

func (e ExpectedVersion) String() string {
	switch e.kind {
	case noStream:
		return "no stream"
	case streamExists:
		return "an existing stream"
	case exactVersion:
		return "version " + strconv.FormatInt(e.version, 10)
	default:
		return "any version"
	}
}
