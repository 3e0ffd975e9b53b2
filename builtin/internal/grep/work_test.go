package grep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// maxLate is how late a search may end. Without the limits of the package it would take most of a minute; the
// race detector and a busy machine may turn a tenth of a second into ten.
const maxLate = 10 * time.Second

// TestSearchEndsInTime checks that a search ends soon after its context, for any pattern and text.
func TestSearchEndsInTime(t *testing.T) {
	texts := map[string]string{
		"letters": strings.Repeat("é", 1<<20), "ascii": strings.Repeat("ab", 1<<20),
		"lines": strings.Repeat("aébб€ ÿ\n", 1<<17), "spread": spread(1 << 18),
	}
	for _, pattern := range []string{
		`\pL{500}\pN`, `(?:\pL?){400}\pN`, `(a|é|b|ü){400}1`, `(.*)(.*)(.*)(.*)(.*)[^\x00-\x{10ffff}]`,
		`(?:\pL|\pN|.){250}\z`,
	} {
		for _, o := range []Options{{}, {Multiline: true, IgnoreCase: true}} {
			m, err := Compile(pattern, o)
			if err != nil {
				continue // the pattern is too large
			}
			for name, text := range texts {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				start := time.Now()
				err := m.NewSearcher().Search(ctx, strings.NewReader(text), func(Line) bool { return ctx.Err() == nil })
				took := time.Since(start)
				cancel()
				if took > maxLate || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s %+v in %s: %v after %v", pattern, o, name, err, took)
				}
			}
		}
	}
}

// TestPatternTooLarge checks that a pattern that is slow to compile, or to match a single character, is refused.
func TestPatternTooLarge(t *testing.T) {
	for pattern, large := range map[string]bool{
		`\pL{500}\pN`: false, `\pL{1000}\pL{999}`: true, strings.Repeat(`\pL`, 25): false, strings.Repeat(`\pL`, 90): true,
		strings.Repeat("a", 1990): false, strings.Repeat("a", 2010): true, strings.Repeat("a|", 900) + "b": false,
	} {
		for _, o := range []Options{{}, {IgnoreCase: true}, {Multiline: true, IgnoreCase: true}} {
			start := time.Now()
			_, err := Compile(pattern, o)
			if (err != nil) != large || err != nil && !strings.Contains(err.Error(), "too large") {
				t.Errorf("%.40s %+v: %.200v", pattern, o, err)
			}
			if took := time.Since(start); took > maxLate {
				t.Errorf("%.40s %+v: %v", pattern, o, took)
			}
		}
	}
}

// spread returns a text with a different character at each position.
func spread(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%c", 0xa1+i%0xd000)
	}
	return b.String()
}
