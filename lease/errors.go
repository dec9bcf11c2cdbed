package lease

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Why the context of a tenure, or of a message handed out under it, ended.
// Read them with context.Cause.
var (
	// ErrLost: the lease was lost, or can no longer be believed. Nothing done
	// from here on is recorded; the next owner gets the event again.
	ErrLost = errors.New("lease: bucket lost")
	// ErrShutdown: the worker is leaving and its drain time is over.
	ErrShutdown = errors.New("lease: worker shutting down")
	// ErrDrain: the bucket moves to another worker and its drain time is over.
	ErrDrain = errors.New("lease: bucket moving to another worker")
	// ErrReleased: the bucket was given back in good order.
	ErrReleased = errors.New("lease: bucket released")
)

// ErrUsed is returned by [Keeper.Run] when the Keeper has run before, and by
// [Keeper.Once] when it has ended.
var ErrUsed = errors.New("lease: a Keeper runs once: make a new one, with a new worker id")

// ConfigError says which field is wrong and what it must be.
type ConfigError struct {
	Field string
	Value any
	// Rule is the sentence that the value breaks.
	Rule string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("lease: %s = %v: %s", e.Field, e.Value, e.Rule)
}

// ShardCountError says that a subscription exists with another number of
// shards. Nothing was written.
type ShardCountError struct {
	Subscription string
	// Configured is the number asked for, Found the other numbers in the
	// database, ascending.
	Configured int
	Found      []int
}

func (e *ShardCountError) Error() string {
	found := make([]string, len(e.Found))
	for i, n := range e.Found {
		found[i] = strconv.Itoa(n)
	}
	return fmt.Sprintf("lease: subscription %q is configured with %d shards, but the database has %s: "+
		"use that number, or another name; the number is fixed for the life of a subscription", e.Subscription, e.Configured, strings.Join(found, " and "))
}

// TargetError says that a subscription exists and reads something else.
// Nothing was written.
type TargetError struct {
	Subscription string
	// Field is "target" or "filter".
	Field             string
	Configured, Found string
}

func (e *TargetError) Error() string {
	return fmt.Sprintf("lease: subscription %q is configured with %s %q, but the database has %q: "+
		"a name belongs to one target and one filter, so use another name", e.Subscription, e.Field, e.Configured, e.Found)
}

// SchemaError says what is wrong with the tables.
type SchemaError struct {
	// Object is the schema or table, qualified; empty when only the server
	// knows.
	Object string
	// Problem is what is wrong with it, Cure what to do.
	Problem, Cure string
	// Err is the database's error, if there was one.
	Err error
}

func (e *SchemaError) Error() string {
	text := "lease: "
	if e.Object != "" {
		text += e.Object + ": "
	}
	text += e.Problem
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + "; " + e.Cure
}

func (e *SchemaError) Unwrap() error { return e.Err }

// PrivilegeError says that the database role lacks a privilege. [Grants] gives
// the statements that grant what a worker needs.
type PrivilegeError struct {
	// Err is the database's error; it names the object.
	Err error
}

func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("lease: missing privilege: %v; run the statements of lease.Grants for this role", e.Err)
}

func (e *PrivilegeError) Unwrap() error { return e.Err }

// Step is a part of a pass.
type Step string

// The parts of a pass that can fail.
const (
	StepJoin    Step = "join"
	StepBeat    Step = "beat"
	StepGive    Step = "give"
	StepClaim   Step = "claim"
	StepRelease Step = "release"
	StepLeave   Step = "leave"
)

// PassError is a part of a pass that failed. The pass is tried again; what is
// owned is kept while it is trusted.
type PassError struct {
	Step         Step
	Subscription string
	Err          error
}

func (e *PassError) Error() string {
	return fmt.Sprintf("lease: %s of %q: %v", e.Step, e.Subscription, e.Err)
}

func (e *PassError) Unwrap() error { return e.Err }

// DrainError is a bucket that was not released: its lease runs out by itself,
// and another worker takes it then.
type DrainError struct {
	Subscription string
	Bucket       int
	Reason       Reason
	Err          error
}

func (e *DrainError) Error() string {
	return fmt.Sprintf("lease: bucket %d of %q not released (%s): %v", e.Bucket, e.Subscription, e.Reason, e.Err)
}

func (e *DrainError) Unwrap() error { return e.Err }

// HookError is a panic of a function that the user gave.
type HookError struct {
	// Hook names the function.
	Hook  string
	Value any
}

func (e *HookError) Error() string { return fmt.Sprintf("lease: %s panicked: %v", e.Hook, e.Value) }
