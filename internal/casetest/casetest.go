// Package casetest reads the case files that tests check rules against, and
// the reasoned lists of rows that we decide otherwise on purpose.
//
// Case files are JSON Lines in the folder named by the environment variable
// KITBAG_CASES, by default testdata/cases at the root of the repository. Another
// folder may hold some of the files only, and other rows: a test whose file is
// not there is skipped, and deviations that no row needs are no error then.
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
	if elsewhere() && errors.Is(err, fs.ErrNotExist) {
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

// elsewhere reports whether other cases than ours are read.
func elsewhere() bool { return os.Getenv("KITBAG_CASES") != "" }

// Deviations are rules about rows that we decide otherwise: a row whose key
// one of them matches may differ, for the reason given.
type Deviations []struct {
	Key    string `json:"key"` // a regular expression
	Reason string `json:"reason"`
	re     *regexp.Regexp
	used   bool
}

// LoadDeviations reads testdata/name of the package under test. A rule that no
// row needed by the end of the test is an error: it must be taken out.
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
			t.Fatalf("%s, entry %d: a key that compiles and a reason are needed: %v", name, i, err)
		}
	}
	t.Cleanup(func() {
		if elsewhere() {
			return
		}
		for _, d := range list {
			if !d.used && !t.Failed() {
				t.Errorf("%s: no row deviates by %q any more", name, d.Key)
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
