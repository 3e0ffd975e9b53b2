package shell

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// hostile are pieces that nest, repeat or grow.
var hostile = []string{"$((", "$(", "(", "{ ", "`", "${a:-", "$(`", "if ", "while ", "for x in ", "case x in (", "[[ ( ", "! ", "<(", "a && ", "a | ",
	"\"$(", "a=( ", "((", "f() { ", "coproc ", "<<E\n", "{a,", "$'\\", "(')';", "x[$(", "\\\n", "a\n", "'a' ", "-- ",
	"env ", "sudo ", "xargs ", "find -exec ", "eval ", "sh -c ", "{a,b}", "{1..64} ", "while a;do ", "rm .*a ", "find . -delete ",
	"[", "a[", "*", "a", "$x", "> f ", "-name a ", "rm a;", "ln -s a b;", "timeout 1 ", "a|tee b|", "$(cd a)", "x=$((x+1));"}

// long are harmless pieces that are expensive when repeated.
var long = []string{"time ", "cd a;", "x=$y ", "2>&1 ", "git log ", "ls -la ", "cat <<E\na\nE\n", "(cd a);", "for i in a b; do ls; done;", "cat /etc/../",
	"a=bb;a=\"$a$a\";", "x=$x$x;", "f() { x=1; };", "${x:-a}", "`a`", "a \\\n", "cat <<E\n$x\nE\n", "((a));", "a=(b);", "read x;"}

// products are commands in which each part except the first and the last is repeated: the effect of one part
// applies to all following ones.
var products = []string{"find |a |-name b |-exec rm {} +", "find |a |-name b |-delete", "find |a |-exec rm {} + |-print", "cp |a |d", "mv |a |d; |rm x; |ls",
	"ln -s |a |d; |touch x; |ls", "cd /; |cd a; |rm b; |ls", "echo |$x |*a |", "git |-C a |status", "xargs |-I X |ls", "env |a=b |ls"}

// repeat returns a command of about size bytes.
func repeat(unit string, size int) string {
	parts := strings.Split(unit, "|")
	if !slices.Contains(products, unit) {
		return strings.Repeat(unit, size/len(unit))
	}
	for i, part := range parts[1 : len(parts)-1] {
		parts[i+1] = strings.Repeat(part, size/len(part)/(len(parts)-2))
	}
	return strings.Join(parts, "")
}

// TestGarbage checks that large or deeply nested commands are rejected, without recursion.
func TestGarbage(t *testing.T) {
	t.Parallel()
	for _, unit := range hostile {
		for _, size := range []int{1 << 10, 64 << 10, 65 << 10} {
			if a := Analyze(strings.Repeat(unit, size/len(unit)), here); a.ReadOnly() == "" {
				t.Errorf("%d times %q is read-only", size/len(unit), unit)
			}
		}
	}
	if a := Analyze(strings.Repeat("a", maxSource+1), here); a.Err() == nil {
		t.Error("a command over the limit is analysed")
	}
}

// TestLinear checks that the cost of a verdict is linear in the size of the command, whatever it consists of.
// The cost is measured in allocations, which are reproducible.
func TestLinear(t *testing.T) {
	const n = 4 << 10
	cost := func(src string) (allocs, bytes float64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := Analyze(src, here)
		a.Dangers(here, pathrule.Protected{})
		a.EditsInside(here)
		a.Suggest()
		a.CoveredBy("git *", "cd:*")
		a.Mentions("git *")
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)
	}
	for _, unit := range slices.Concat(hostile, long, products) {
		var allocs, bytes [4]float64
		for i := range allocs {
			allocs[i], bytes[i] = cost(repeat(unit, n<<i))
		}
		// The exponent of the growth, without fixed allocations.
		slope := func(c [4]float64, once float64) float64 { return math.Log2((c[3]+once)/(c[1]+once)) / 2 }
		if a, b := slope(allocs, 1000), slope(bytes, 256<<10); a > 1.15 || b > 1.15 {
			t.Errorf("%q: allocations grow with the power %.2f: %.0f; bytes with %.2f: %.0f", unit, a, allocs, b, bytes)
		}
	}
}

// TestFindLimit checks that find with an action has a limit of starting points: each file that the action reads is
// searched below each of them.
func TestFindLimit(t *testing.T) {
	for n, want := range map[int]bool{10: true, maxExpanded: true, maxExpanded + 1: false, 1500: false} {
		if why := Analyze("find "+strings.Repeat("a ", n)+"-exec wc -l {} +", here).ReadOnly(); (why == "") != want {
			t.Errorf("%d starting points: %q", n, why)
		}
	}
}
