package skill

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// thousand writes a thousand skills of a usual size and returns their files.
func thousand(b testing.TB) (dir string, files []string) {
	b.Helper()
	dir = b.TempDir()
	body := "# Title\n\n" + strings.Repeat("## Section\n\nSome text with `code` and a [link](references/a.md).\n\n", 60)
	for i := range 1000 {
		name := fmt.Sprintf("skill-%04d", i)
		file := filepath.Join(dir, name, "SKILL.md")
		header := "---\nname: " + name + "\ndescription: " + strings.Repeat("Reads tables and answers questions about them. ", 5) +
			"Use when the user sends one.\nlicense: Apache-2.0\nmetadata:\n  author: example\n  version: \"1.0\"\nallowed-tools: Read Bash(git:*)\n---\n"
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(header+body), 0o644); err != nil {
			b.Fatal(err)
		}
		files = append(files, file)
	}
	return dir, files
}

// paired alternates between ours and base, and reports the ratio of their times.
func paired(b *testing.B, ours, base func()) {
	var a, z time.Duration
	for b.Loop() {
		start := time.Now()
		ours()
		middle := time.Now()
		base()
		a, z = a+middle.Sub(start), z+time.Since(middle)
	}
	b.ReportMetric(float64(a)/float64(z), "ratio")
}

// BenchmarkColdScan compares a first Load with reading the same files and
// decoding their front matter.
func BenchmarkColdScan(b *testing.B) {
	dir, files := thousand(b)
	paired(b, func() {
		if skills, _, err := In(dir).Load(context.Background()); err != nil || len(skills) != len(files) {
			b.Fatal(len(skills), err)
		}
	}, func() {
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				b.Fatal(err)
			}
			var fields map[string]any
			if err := yaml.Load([]byte(strings.Split(string(content), "---\n")[1]), &fields); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWarmScan compares a Load of an unchanged folder with a stat call for
// each of its files.
func BenchmarkWarmScan(b *testing.B) {
	dir, files := thousand(b)
	l := In(dir)
	load := func() {
		if skills, _, err := l.Load(context.Background()); err != nil || len(skills) != len(files) {
			b.Fatal(len(skills), err)
		}
	}
	load()
	paired(b, load, func() {
		for _, file := range files {
			if _, err := os.Stat(file); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSection shows one section of a body of 100 kB that was parsed before.
func BenchmarkSection(b *testing.B) {
	var body strings.Builder
	for i := 0; body.Len() < 100_000; i++ {
		fmt.Fprintf(&body, "## Section %d\n\n%s\n\n", i, strings.Repeat("Some text. ", 90))
	}
	skills := []*Skill{{Name: "long", Description: "Use when long.", Body: body.String()}}
	q := Query{Skill: "long", Section: "section-50"}
	b.ReportAllocs()
	for b.Loop() {
		if page, err := View(b.Context(), skills, q); err != nil || len(page.Text) > 1100 {
			b.Fatal(err)
		}
	}
}

// BenchmarkDocument parses a body of 100 kB.
func BenchmarkDocument(b *testing.B) {
	body := strings.Repeat("## Section\n\nSome text with `code` and a [link](references/a.md).\n\n", 1500)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		ParseDocument(body)
	}
}

// BenchmarkFragment renders 200 skills, whose descriptions do not fit.
func BenchmarkFragment(b *testing.B) {
	var skills []*Skill
	for i := range 200 {
		skills = append(skills, &Skill{Name: fmt.Sprintf("skill-%d", i), Description: strings.Repeat("Some text. ", 20)})
	}
	b.ReportAllocs()
	for b.Loop() {
		Fragment(skills, 0)
	}
}
