// Package styletest holds each package to the best style that it has had. It has no code of its own.
package styletest

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write what has become better")

const (
	golden = "testdata/style.txt"
	header = "# The best so far: p95 of the line width in columns, conditions of four or more terms, package.\n"

	tabColumns = 4
	maxTerms   = 3 // of a condition

	// What a package without a row must keep.
	maxWidth          = 100
	linesPerCondition = 1000 // for each condition of more terms
)

// A style is what is measured of a package, without tests and generated files.
type style struct {
	widths     []int // of lines that are not blank
	conditions int   // with more than maxTerms terms
	lines      int
}

// p95 returns the width that 95 % of the lines do not exceed.
func (s *style) p95() int {
	slices.Sort(s.widths)
	return s.widths[(len(s.widths)*95+99)/100-1]
}

func (s *style) add(f *ast.File, src []byte) {
	for line := range strings.Lines(string(src)) {
		s.lines++
		if line = strings.TrimRight(line, " \t\r\n"); line != "" {
			s.widths = append(s.widths, utf8.RuneCountInString(line)+(tabColumns-1)*strings.Count(line, "\t"))
		}
	}
	s.conditions += longConditions(f)
}

// longConditions counts the expressions with more than maxTerms terms. Terms are what && and || join, also in
// parentheses and behind a negation: !(a && b) || c has three. The expression may be anywhere: in an if, for, case,
// return or assignment, or an argument. One in a function literal or an argument of a term counts by itself.
func longConditions(f *ast.File) (n int) {
	inner := map[ast.Expr]bool{} // parts of expressions that were counted
	var terms func(ast.Expr) int
	terms = func(e ast.Expr) int {
		inner[e] = true
		switch e := e.(type) {
		case *ast.ParenExpr:
			return terms(e.X)
		case *ast.UnaryExpr:
			if e.Op == token.NOT {
				return terms(e.X)
			}
		case *ast.BinaryExpr:
			if e.Op == token.LAND || e.Op == token.LOR {
				return terms(e.X) + terms(e.Y)
			}
		}
		return 1
	}
	ast.Inspect(f, func(node ast.Node) bool {
		if e, ok := node.(ast.Expr); ok && !inner[e] && terms(e) > maxTerms {
			n++
		}
		return true
	})
	return n
}

// ignored matches the names of directories that have no packages of ours.
var ignored = regexp.MustCompile(`^([._].*|testdata|node_modules|dist)$`)

// measure returns the styles of all packages of all modules below root, which ends in a slash, by their directories.
func measure(t *testing.T, root string) map[string]*style {
	styles, files := map[string]*style{}, token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && ignored.MatchString(d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(files, path, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || ast.IsGenerated(f) {
			return err
		}
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root))
		if styles[dir] == nil {
			styles[dir] = new(style)
		}
		styles[dir].add(f, src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return styles
}

// A row is the best style that a package has had.
type row struct{ p95, conditions int }

func readRows(t *testing.T) map[string]row {
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var r row
		var name string
		if _, err := fmt.Sscan(line, &r.p95, &r.conditions, &name); err != nil {
			t.Fatalf("%s: the row %q: %v", golden, line, err)
		}
		rows[name] = r
	}
	return rows
}

// problems says what of a package is worse than its row, or too bad for a package without one.
func problems(s *style, r row, hasRow bool) (all []string) {
	if !hasRow {
		r = row{maxWidth, s.lines / linesPerCondition}
	}
	if got := s.p95(); got > r.p95 {
		all = append(all, fmt.Sprintf("95 %% of its lines are within %d columns, and must be within %d: break the longest ones", got, r.p95))
	}
	if s.conditions > r.conditions {
		all = append(all, fmt.Sprintf("%d conditions have more than %d terms, at most %d may: give a part of the new one a name, as a predicate",
			s.conditions, maxTerms, r.conditions))
	}
	return all
}

func TestStyle(t *testing.T) {
	styles, rows := measure(t, filepath.FromSlash("../../")), readRows(t)
	best := header
	for _, name := range slices.Sorted(maps.Keys(styles)) {
		s := styles[name]
		r, hasRow := rows[name]
		if testing.Verbose() {
			t.Logf("%4d columns %3d conditions %6d lines  %s", s.p95(), s.conditions, s.lines, name)
		}
		wrong := problems(s, r, hasRow)
		for _, p := range wrong {
			t.Errorf("%s: %s", name, p)
		}
		switch {
		case hasRow:
			best += fmt.Sprintf("%3d %3d %s\n", min(s.p95(), r.p95), min(s.conditions, r.conditions), name)
		case len(wrong) == 0:
			best += fmt.Sprintf("%3d %3d %s\n", s.p95(), s.conditions, name)
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(best), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name := range rows {
		if styles[name] == nil {
			t.Errorf("%s has a row for %s, which does not exist; rename the row, or remove it with -update", golden, name)
		}
	}
}

// TestCounter checks the counter by the example, and what is held.
func TestCounter(t *testing.T) {
	src := []byte(`package p

func f(a, b, c, d bool) bool {
	if a && b && c { // three
		return a && (b || !(c && d))
	}
	return g(a || b, func() bool { return a || b || c || d }) && c && d
}
`)
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	var s style
	s.add(f, src)
	if s.conditions != 2 || s.lines != 8 || s.p95() != 71 {
		t.Errorf("%d conditions, %d lines, p95 %d", s.conditions, s.lines, s.p95())
	}
	for _, c := range []struct {
		row    row
		hasRow bool
		want   int
	}{{row{71, 2}, true, 0}, {row{70, 2}, true, 1}, {row{71, 1}, true, 1}, {row{70, 1}, true, 2}, {row{}, false, 1}} {
		if got := problems(&s, c.row, c.hasRow); len(got) != c.want {
			t.Errorf("%+v, has a row %v: %q", c.row, c.hasRow, got)
		}
	}
}
