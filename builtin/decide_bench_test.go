package builtin_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// Compare a decision about a shell command with parsing the command, its minimum cost, by running both: -bench
// 'Decide|Parse'.

// commands returns n variants of everyday commands, all different.
func commands(b *testing.B, n int) (texts []string, inputs []json.RawMessage) {
	rows := casetest.Rows[struct{ Command string }](b, "bash_benign.jsonl")
	for i := range n {
		text := strings.Repeat(" ", 1+i/len(rows)) + rows[i%len(rows)].Command
		raw, err := json.Marshal(map[string]string{"command": text})
		if err != nil {
			b.Fatal(err)
		}
		texts, inputs = append(texts, text), append(inputs, raw)
	}
	return texts, inputs
}

func BenchmarkParse(b *testing.B) {
	texts, _ := commands(b, 2000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := syntax.NewParser(syntax.Variant(syntax.LangBash))
		if _, err := p.Parse(strings.NewReader(texts[i%len(texts)]), ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	_, inputs := commands(b, 2000)
	bash, err := builtin.Bash(builtin.Config{Dirs: []string{"/tmp"}})
	if err != nil {
		b.Fatal(err)
	}
	p := &permission.Policy{Dirs: []string{"/tmp"}}
	for i := range 100 {
		p.Rules = append(p.Rules, permission.Rule{Tool: fmt.Sprintf("mcp__server__tool%d", i), Behavior: permission.Allow})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		permission.Decide(p, tool.PermissionCall(bash, inputs[i%len(inputs)]))
	}
}

// BenchmarkDecideFirst reports the cost of the first decision about a command relative to parsing it, as the
// median over the everyday commands and, of each, over the rounds. Deciding and parsing alternate. Garbage is
// collected between the rounds: otherwise it depends on the number of processors who waits for whose garbage. What each
// allocates is in BenchmarkParse and BenchmarkDecide.
func BenchmarkDecideFirst(b *testing.B) {
	const rounds, variants = 15, 8
	rows := casetest.Rows[struct{ Command string }](b, "bash_benign.jsonl")
	texts, inputs := commands(b, variants*len(rows))
	p := &permission.Policy{Dirs: []string{"/tmp"}}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for b.Loop() {
		each := make([][]float64, len(rows)) // the ratios of each row, by round
		for range rounds {
			bash, err := builtin.Bash(builtin.Config{Dirs: []string{"/tmp"}})
			if err != nil {
				b.Fatal(err)
			}
			runtime.GC()
			for row := range rows {
				start := time.Now()
				for i := row; i < len(texts); i += len(rows) {
					parser := syntax.NewParser(syntax.Variant(syntax.LangBash))
					parser.Parse(strings.NewReader(texts[i]), "")
				}
				parsed := time.Now()
				for i := row; i < len(inputs); i += len(rows) {
					permission.Decide(p, tool.PermissionCall(bash, inputs[i]))
				}
				each[row] = append(each[row], float64(time.Since(parsed))/float64(parsed.Sub(start)))
			}
		}
		usual := make([]float64, len(rows))
		for row := range rows {
			usual[row] = median(each[row])
		}
		b.ReportMetric(median(usual), "x-parse")
	}
	b.ReportMetric(0, "ns/op")
}
