package shell

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/internal/casetest"
)

// sameTree fails the test if src is accepted without the parser and the parser builds a different tree from it.
// It reports whether src is accepted.
func sameTree(tb testing.TB, r *reader, src string) bool {
	tb.Helper()
	if readable(src) != nil {
		return false
	}
	r.reset()
	got := r.read(src)
	if got == nil {
		return false
	}
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(src), "")
	if err != nil {
		tb.Errorf("%q is accepted; the parser: %v", src, err)
	} else if len(got)+len(f.Stmts) > 0 && !reflect.DeepEqual(got, f.Stmts) {
		var ours, theirs strings.Builder
		syntax.DebugPrint(&ours, &syntax.File{Stmts: got})
		syntax.DebugPrint(&theirs, f)
		tb.Errorf("%q: the tree is\n%s\nthe parser's is\n%s", src, ours.String(), theirs.String())
	}
	return true
}

// pieces are parts of commands, with all characters and words that have a special meaning.
var pieces = append(strings.Fields(`ls git -a -la --x=y a=b =b 2 10 x.go {} { } {a,b} {fd} 'q' "q" '' "" 'a b' "a b" "\$" "\\" "$x" '$x'
	* ? + @ ! *.go a[0] [a] [ ] [[ ]] ~ ~/x % ^ , : . / \ \a \; \' \" # a#b $x ${x} $(x) `+"`x` "+`( ) (( )) ; ;; ;& & && || | |& > >> < << <<< >& <& &> &>> >| <> <(
	2>&1 2>/dev/null <&- >&2 10>x é ＝ if then elif else fi while until for select do done case esac in function time coproc let declare typeset
	local export readonly nameref @test f() x=(1) a+=b eval set cd -`), " ", "  ", "\t", "\n", "\\\n", "\r", " ", " ", " ", " ")

// TestPlain checks that text that is read without the parser is read as the parser reads it: every pair of
// pieces after every beginning that changes their meaning, and random longer commands.
func TestPlain(t *testing.T) {
	var r reader
	accepted := 0
	for _, head := range []string{"", "ls ", "ls|", "ls>"} {
		for _, a := range pieces {
			for _, b := range pieces {
				for _, gap := range []string{"", " "} {
					if sameTree(t, &r, head+a+gap+b) {
						accepted++
					}
				}
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var b strings.Builder
		for range 1 + random.IntN(12) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		if sameTree(t, &r, b.String()) {
			accepted++
		}
	}
	if accepted < 30_000 {
		t.Errorf("only %d commands are accepted", accepted)
	}
}

// TestPlainEveryday checks that most everyday commands are read without the parser.
func TestPlainEveryday(t *testing.T) {
	var r reader
	all, accepted := 0, 0
	for _, c := range casetest.Rows[commandCase](t, "bash_benign.jsonl") {
		if all++; sameTree(t, &r, c.Command) {
			accepted++
		}
	}
	if accepted*100 < all*80 {
		t.Errorf("%d of %d", accepted, all)
	}
}

func FuzzPlain(f *testing.F) {
	for _, name := range []string{"everyday.txt", "harmful.txt"} {
		for _, cmd := range lines(f, name) {
			f.Add(cmd)
		}
	}
	f.Fuzz(func(t *testing.T, src string) {
		var r reader
		sameTree(t, &r, src)
	})
}
