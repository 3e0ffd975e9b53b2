// Package casetest reads the case files that tests check rules against, and the lists of rows that are deliberately
// decided differently, with their reasons.
//
// Case files are JSON Lines in the folder named by the environment variable KITBAG_CASES, by default
// testdata/cases at the root of the repository. Another folder may hold only some of the files, and other rows: a
// test whose file is missing is then skipped, and unused deviations are not an error.
package casetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
)

// Rows decodes every row of a case file. It fails the test if there are none.
func Rows[T any](tb testing.TB, name string) []T {
	tb.Helper()
	dir := os.Getenv("KITBAG_CASES")
	if dir == "" {
		_, self, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(self), "..", "..", "testdata", "cases")
	}
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if otherCases() && errors.Is(err, fs.ErrNotExist) {
		tb.Skipf("%s is not in the folder that KITBAG_CASES names", name)
	}
	if err != nil {
		tb.Fatal(err)
	}
	var rows []T
	for line := range bytes.Lines(raw) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var row T
		if err := json.Unmarshal(line, &row); err != nil {
			tb.Fatalf("%s, row %d: %v", name, len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		tb.Fatalf("%s has no rows", name)
	}
	return rows
}

// otherCases reports whether the case files are not the repository's own.
func otherCases() bool { return os.Getenv("KITBAG_CASES") != "" }

// Deviations are the rows that may be decided differently: those whose keys match one of the patterns.
type Deviations []struct {
	Key    string `json:"key"` // a regular expression
	Reason string `json:"reason"`
	re     *regexp.Regexp
	used   bool
}

// LoadDeviations reads testdata/name of the package under test. At the end of the test an
// unused rule is an error: remove it.
func LoadDeviations(t *testing.T, name string) Deviations {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var list Deviations
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for i := range list {
		if list[i].re, err = regexp.Compile(list[i].Key); err != nil || list[i].Reason == "" {
			t.Fatalf("%s, entry %d: the key must be a regular expression, and the reason must not be empty: %v", name, i, err)
		}
	}
	t.Cleanup(func() {
		if otherCases() || t.Failed() {
			return
		}
		for _, d := range list {
			if !d.used {
				t.Errorf("%s: no row needs the deviation %q any more; remove it", name, d.Key)
			}
		}
	})
	return list
}

// Allowed reports whether the row with this key may differ.
func (list Deviations) Allowed(key string) bool {
	for i := range list {
		if list[i].re.MatchString(key) {
			list[i].used = true
			return true
		}
	}
	return false
}
