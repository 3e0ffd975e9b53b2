package shell

import (
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/internal/casetest"
)

// Compare the benchmarks with each other: a verdict should cost little more than parsing.

func benign(b *testing.B) []string {
	var list []string
	for _, c := range casetest.Rows[commandCase](b, "bash_benign.jsonl") {
		list = append(list, c.Command)
	}
	return list
}

func BenchmarkParse(b *testing.B) {
	list := benign(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := syntax.NewParser(syntax.Variant(syntax.LangBash))
		if _, err := p.Parse(strings.NewReader(list[i%len(list)]), ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAnalyze(b *testing.B) {
	list := benign(b)
	Analyze(list[0], here)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Analyze(list[i%len(list)], here)
	}
}

func BenchmarkAnalyzeNested(b *testing.B) {
	src := strings.Repeat("$((((", 13000)
	b.ReportAllocs()
	for b.Loop() {
		Analyze(src, here)
	}
}
