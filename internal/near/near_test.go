package near

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

func TestNames(t *testing.T) {
	known := []string{"get_weather", "get_whether", "send_mail", "archive-mail", "ls", "naïve", "mode", "model", "zsh", "fish"}
	for _, row := range []struct {
		word string
		n    int
		want []string
	}{
		{"get_weather", 1, []string{"get_weather"}},
		{"getWeather", 1, []string{"get_weather"}},
		{"get_wether", 2, []string{"get_weather", "get_whether"}},
		{"get weahter", 1, []string{"get_weather"}},
		{"modle", 5, []string{"model", "mode"}},
		{"fsh", 1, []string{"fish"}},
		{"mail", 5, []string{"send_mail", "archive-mail"}},
		{"the_send_mail_tool", 5, []string{"send_mail"}},
		{"ls", 5, []string{"ls"}},
		{"sl", 5, []string{"ls"}},
		{"l", 5, nil},
		{"naive", 5, []string{"naïve"}},
		{"naïv", 5, []string{"naïve"}},
		{"xyzzy", 5, nil},
		{"", 5, nil},
		{"-_ .", 5, nil},
		{strings.Repeat("mail", 10_000), 1, nil},
	} {
		if got := Names(row.word, known, row.n); !slices.Equal(got, row.want) {
			t.Errorf("%.40q: got %q, want %q", row.word, got, row.want)
		}
	}
}

func TestTypos(t *testing.T) {
	known := []string{"add", "Bash", "Edit", "WebSearch", "send_mail", "reset_tools", "read1"}
	for _, row := range []struct {
		word string
		want []string
	}{
		{"ad", []string{"add"}}, {"bash", []string{"Bash"}}, {"Bahs", []string{"Bash"}}, {"sendMail", []string{"send_mail"}},
		{"send_mial", []string{"send_mail"}}, {"reset_tool", []string{"reset_tools"}}, {"add", []string{"add"}},
		{"WebFetch", nil}, {"NotebookEdit", nil}, {"mail", nil}, {"a", nil}, {"", nil}, {"Task", nil}, {"read2", nil}, {"read3x", nil},
	} {
		if got := Typos(row.word, known, 3); !slices.Equal(got, row.want) {
			t.Errorf("%q: got %q, want %q", row.word, got, row.want)
		}
	}
}

func TestDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab]{0,6}`)
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		ab := distance(a, b)
		switch {
		case (ab == 0) != (a == b):
			t.Fatalf("distance %d", ab)
		case ab != distance(b, a):
			t.Fatalf("%d, and %d the other way", ab, distance(b, a))
		case ab > max(len(a), len(b)):
			t.Fatalf("%d is more than replacing the whole word", ab)
		case distance(a, c+"x") > distance(a, c)+1:
			t.Fatal("one more letter costs more than one edit")
		}
	})
}
