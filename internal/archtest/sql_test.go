package archtest_test

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

var (
	sqlComment  = regexp.MustCompile(`--[^\n]*`)
	sqlQuoted   = regexp.MustCompile(`(?s)\$([a-z_]*)\$.*?\$([a-z_]*)\$|'(?:[^']|'')*'`)
	namesKiroku = regexp.MustCompile(`\bkiroku\.\w`)
	namesKeiro  = regexp.MustCompile(`\bkeiro\.\w`)
	upperCase   = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|FROM|WHERE|VALUES|RETURNING)\b`)
	statement   = regexp.MustCompile(`(?i)^\s*(select\s+\S+.*\sfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s|create\s+(table|schema|index|function|trigger)\s|alter\s+table\s|drop\s+(table|schema)\s|with\s+\w+\s+as\s*\()`)
)

// fencedPlace is where the library names both schemas. Programs of users may
// look at both, and so may examples.
const fencedPlace = "shardpub/sql"

var bothAllowed = []string{fencedPlace, "examples", "integration"}

func namesBoth(text string) bool {
	return namesKiroku.MatchString(text) && namesKeiro.MatchString(text)
}

// sqlFileFaults judges a file of SQL of the library.
func sqlFileFaults(s source) []string {
	var faults []string
	code := sqlComment.ReplaceAllString(s.text, "")
	if namesBoth(code) && !within(s.pkg(), bothAllowed) {
		faults = append(faults, fmt.Sprintf("%s names both schemas: fenced statements live in %s (P-26)", s.path, fencedPlace))
	}
	if !within(s.pkg(), library) && !within(s.pkg(), []string{"internal"}) {
		return faults
	}
	if !strings.HasPrefix(s.text, "--") {
		faults = append(faults, s.path+" has no head comment")
	}
	bare := sqlQuoted.ReplaceAllString(code, "")
	if word := upperCase.FindString(bare); word != "" {
		faults = append(faults, fmt.Sprintf("%s writes %s in upper case", s.path, word))
	}
	// Grants are a script for operators.
	single := strings.HasSuffix(s.pkg(), "/sql") && !strings.HasSuffix(s.path, "/grants.sql")
	if single && strings.Contains(strings.TrimRight(bare, "; \n"), ";") {
		faults = append(faults, s.path+" has more than one statement")
	}
	return faults
}

// sqlLiteralFaults judges the string literals of a Go file.
func sqlLiteralFaults(s source) []string {
	if s.file == nil || s.test() {
		return nil
	}
	var faults []string
	literals(s.file, func(n ast.Node, text string) {
		if namesBoth(text) && !within(s.pkg(), bothAllowed) && statement.MatchString(text) {
			faults = append(faults, fmt.Sprintf("%s:%d names both schemas: fenced statements live in %s (P-26)", s.path, line(n), fencedPlace))
		}
		if within(s.pkg(), library) && statement.MatchString(text) {
			faults = append(faults, fmt.Sprintf("%s:%d holds SQL: it lives in .sql files", s.path, line(n)))
		}
	})
	return faults
}

func TestSQLLivesInItsFilesAndOneStatementEach(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		faults := sqlLiteralFaults(s)
		if s.file == nil {
			faults = append(faults, sqlFileFaults(s)...)
		}
		for _, f := range faults {
			t.Error(f)
		}
	}
}

func TestPlantedSQLIsReported(t *testing.T) {
	t.Parallel()
	const both = "-- Both.\nselect 1 from kiroku.events, keiro.keiro_subscription_shards\n"
	tests := []struct {
		path, text string
		faults     int
	}{
		{"shardpub/sql/checkpoint.sql", both, 0},
		{"lease/sql/claim.sql", both, 1},
		{"kiroku/sql/a.sql", "-- A comment may name keiro.keiro_subscription_shards.\nselect 1 from kiroku.events\n", 0},
		{"kiroku/sql/a.sql", "select 1\n", 1},
		{"kiroku/sql/a.sql", "-- A.\nselect 1; select 2;\n", 1},
		{"kiroku/sql/a.sql", "-- A.\nselect ';', $$a;b$$;\n", 0},
		{"kiroku/sql/a.sql", "-- A.\nSELECT 1\n", 1},
		{"kiroku/schema/01.sql", "-- A.\nselect 1; select 2;\n", 0},
	}
	for _, tt := range tests {
		if got := sqlFileFaults(source{path: tt.path, text: tt.text}); len(got) != tt.faults {
			t.Errorf("%s: %q gives %q, want %d faults", tt.path, tt.text, got, tt.faults)
		}
	}
	glued := parse(t, "lease/x.go", "package x\nconst q = `\nselect a from b`\nconst ok = \"update failed: select one from the list\"\n")
	if got := sqlLiteralFaults(glued); len(got) != 1 {
		t.Errorf("got %q, want 1 fault", got)
	}
}
