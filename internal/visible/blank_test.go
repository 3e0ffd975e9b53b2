package visible_test

import (
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// TestEscapeBlanks: letters and symbols that fonts draw blank, characters that fonts may
// lack, and combining marks stacked until they cover the lines around.
func TestEscapeBlanks(t *testing.T) {
	for _, r := range []rune{'\u2800', '\U00013441', '\U00013442', '\U0001D159', '\U00016FE4', '\uE000', '\U000F0000', '\U0010FFFD', '\u0378', '\uFFFE'} {
		if got, found := visible.Escape("a"+string(r)+"b", nil); found != 1 || !strings.Contains(got, "<U+") {
			t.Errorf("%U is shown as %q, %d found", r, got, found)
		}
	}
	heap := "a" + strings.Repeat("\u0336\u0301", 50)
	if got, found := visible.Escape(heap, nil); found < 90 {
		t.Errorf("100 marks on one letter are shown as %q", got)
	}
	for _, s := range []string{"Việt e\u0323\u0302\u0301", "हिन्दी", "שָׁלוֹם", "ภาษาไทย", "漢字", "😀👍🏽", "∑→✓│"} {
		if got, found := visible.Escape(s, nil); found != 0 || got != s {
			t.Errorf("%q is shown as %q", s, got)
		}
	}
}
