package grep

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/internal/countdown"
	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// search returns the formatted lines that Search yields for a text, which is read in uneven pieces through a
// window of the given size.
func search(t interface {
	Helper()
	Fatal(...any)
}, pattern string, o Options, text string, window int) []string {
	t.Helper()
	m, err := Compile(pattern, o)
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSearcher()
	s.buf = make([]byte, window)
	var got []string
	for range 2 { // a searcher can be reused
		got = nil
		err := s.Search(context.Background(), iotest.HalfReader(strings.NewReader(text)), func(l Line) bool {
			got = append(got, show(l.Number, string(l.Text), l.Match, l.Gap && o.Before+o.After > 0))
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func show(number int, text string, match, gap bool) string {
	sep := "-"
	if match {
		sep = ":"
	}
	if gap {
		sep += "gap" + sep
	}
	return fmt.Sprintf("%d%s%s", number, sep, text)
}

// slow is a simple implementation of Search.
func slow(re *regexp.Regexp, o Options, text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	var match []bool
	for i, l := range lines {
		if body, ended := strings.CutSuffix(l, "\n"); ended {
			lines[i] = strings.TrimSuffix(body, "\r")
		}
		match = append(match, re.MatchString(lines[i]))
	}
	var out []string
	last := -1
	for i, l := range lines {
		near := slices.Contains(match[max(0, i-o.After):min(len(match), i+o.Before+1)], true)
		if near {
			out = append(out, show(i+1, l, match[i], last >= 0 && last < i-1 && o.Before+o.After > 0))
			last = i
		}
	}
	return out
}

var patterns = rapid.SampledFrom([]string{
	"abc", "a", "", "^", "$", "^$", "a.c", "ab*c", "(abc|bcd)", "a|b|x", `\bab`, `\Bb`, `b\b`, "^a", "c$", "^abc$", `\w+`, `\W`, `[^a]b`, "a+b+c+",
	"(?i)abc", "(?i)aBx", "(?i)kelvin", "(?i)ſ", "é", "é+b", "[é-ü]", "x{2,3}", `\d`, `\s`, "(a|b)*c", ".", "..", "abcabc", "q.*z|abc", "(?:ab)+", `a\b|\bc`, "\\x{FFFD}",
})

var texts = rapid.Custom(func(t *rapid.T) string {
	return strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{
		"a", "b", "c", "abc", "x", "X", "xx", "ABC", "é", "É", "K", "kelvin", "ſ", "\xff", " ", "0", "\r", "\n", "\n", "\r\n", "q", "z", "_"})).Draw(t, "text"), "")
})

func TestLikeRegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern, text := patterns.Draw(t, "pattern"), texts.Draw(t, "text")
		o := Options{Before: rapid.IntRange(0, 3).Draw(t, "before"), After: rapid.IntRange(0, 3).Draw(t, "after")}
		window := rapid.IntRange(1, 40).Draw(t, "window")
		got, want := search(t, pattern, o, text, window), slow(regexp.MustCompile(pattern), o, text)
		if !slices.Equal(got, want) {
			t.Fatalf("%q in %q (%+v):\n got %q\nwant %q", pattern, text, o, got, want)
		}
	})
}

// FuzzLikeRegexp checks that any pattern that compiles matches as in package regexp.
func FuzzLikeRegexp(f *testing.F) {
	f.Add("a(b|c)*d$", "xabcd\nabd e\r\n")
	f.Add(`(?i)\bfoo\b|^\s*#`, "Foo\n # x\nfoobar\n")
	f.Add(`[[:alpha:]]{2,}\d?`, "a1\nab1\né\xff")
	f.Add(`(|a)*(|b)+`, "ab\n")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		m, err := Compile(pattern, Options{})
		if err != nil || strings.Contains(pattern, `\r`) || strings.Contains(pattern, "\r") || strings.ContainsRune(text, 0) {
			return // a CR may be part of a line end here
		}
		re := regexp.MustCompile(pattern)
		var got []string
		if err := m.NewSearcher().Search(t.Context(), strings.NewReader(text), func(l Line) bool {
			got = append(got, show(l.Number, string(l.Text), l.Match, false))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if want := slow(re, Options{}, text); !slices.Equal(got, want) {
			t.Errorf("%q in %q:\n got %q\nwant %q", pattern, text, got, want)
		}
	})
}

func TestMultiline(t *testing.T) {
	text := "def f(\n  a,\n  b):\n  pass\n\ndef g(a):\n  pass\n"
	for _, row := range []struct{ pattern, want string }{
		{`f\(\n.*?a`, "1:def f(\n2:  a,"},
		{`f\(\n`, "1:def f("},
		{`^def`, "1:def f(\n6:def g(a):"},
		{`pass$`, "4:  pass\n7:  pass"},
		{`a,\s+b`, "2:  a,\n3:  b):"},
		{`\n\n`, "4:  pass\n5:"},
		{`zzz`, ""},
		{`\A(def|  a)`, "1:def f("},
		{`(?-m:^)(def|  a)`, "1:def f("},
		{`pass\n\z`, "7:  pass"},
		{`pass\z`, ""},
		{`\z`, ""}, // matches after the last line end
	} {
		if got := strings.Join(search(t, row.pattern, Options{Multiline: true}, text, 16), "\n"); got != row.want {
			t.Errorf("%q: %q, want %q", row.pattern, got, row.want)
		}
	}
}

// TestMultilineLikeRegexp checks that assertions refer to the whole text, at any position of the search.
func TestMultilineLikeRegexp(t *testing.T) {
	patterns := rapid.SampledFrom([]string{`\Aa`, `a\z`, `\A`, `\z`, `^a`, `a$`, `^$`, `\ba`, `\Ba`, `a\b`, `\n\z`, `\n\A`, `(\A|b)a`, `(\A|b)\n?a`,
		`(?:\Aa)*b`, `(?i:\AA)|b`, `a\n+b`, `a.b`, `(?-s:a.b)`, `(?-m:^a|a$)`, `(\Aa|\bb)+`, `[^a]\z`})
	rapid.Check(t, func(t *rapid.T) {
		pattern := patterns.Draw(t, "pattern")
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "A", "\n", "\n", " "})).Draw(t, "text"), "")
		var want []string
		for pos := 0; pos < len(text); {
			whole := regexp.MustCompile(fmt.Sprintf(`\A[\s\S]{%d}[\s\S]*?((?ms:%s))`, pos, pattern))
			loc := whole.FindStringSubmatchIndex(text)
			if loc == nil || loc[2] == len(text) && strings.HasSuffix(text, "\n") {
				break
			}
			pos = strings.LastIndex(text[:loc[2]], "\n") + 1
			for line := range strings.Lines(text[pos:]) {
				want = append(want, show(strings.Count(text[:pos], "\n")+1, strings.TrimSuffix(line, "\n"), true, false))
				if pos += len(line); pos >= loc[3] {
					break
				}
			}
		}
		if got := search(t, pattern, Options{Multiline: true}, text, 16); !slices.Equal(got, want) {
			t.Fatalf("%q in %q:\n got %q\nwant %q", pattern, text, got, want)
		}
	})
}

func TestLiterals(t *testing.T) {
	for _, row := range []struct {
		pattern string
		fold    bool
		want    []string
	}{
		{"hello", false, []string{"hello"}},
		{`\bfunc\s+(\w+)Reader\(`, false, []string{"Reader("}},
		{"foo|bar", false, []string{"foo", "bar"}},
		{"foo|b?", false, nil},
		{"context.withtimeout", true, []string{"withtimeout"}},
		{"class", true, []string{"cla"}},
		{"sss", true, nil},
		{"(abc)+", false, []string{"abc"}},
		{"(abc){2,}", false, []string{"abc"}},
		{"(abc)*", false, nil},
		{"[a-z]+", false, nil},
	} {
		m, err := Compile(row.pattern, Options{IgnoreCase: row.fold})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range m.literals {
			got = append(got, l.text)
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%q: %q, want %q", row.pattern, got, row.want)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for _, row := range []struct{ pattern, want string }{
		{"[invalid(regex", "missing closing ]"}, {"(", `"\("`}, {"(?=a)", "look-around"}, {`f\(\n`, "multiline"},
		{"a\nb", "multiline"}, {"((a{100}){10}){10}", "invalid repeat"}, {"(a?){1000}b{900}", "too large"},
	} {
		if _, err := Compile(row.pattern, Options{}); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: %v, want %q", row.pattern, err, row.want)
		}
	}
}

func TestBinary(t *testing.T) {
	m, err := Compile("foo", Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = m.NewSearcher().Search(t.Context(), strings.NewReader("\x00\x01foo\n"), func(Line) bool { t.Error("a line is yielded"); return true })
	if err != ErrBinary {
		t.Errorf("error %v", err)
	}
}

func TestByteOrderMark(t *testing.T) {
	for _, multiline := range []bool{false, true} {
		if got := search(t, "^a", Options{Multiline: multiline}, "\uFEFFa\na\n", 64); !slices.Equal(got, []string{"1:a", "2:a"}) {
			t.Errorf("multiline %v: %q", multiline, got)
		}
	}
}

// TestLongLinesAndAllocations checks that a line longer than the window is one line, and that searching does
// not allocate once the buffers exist.
func TestLongLinesAndAllocations(t *testing.T) {
	long := strings.Repeat("x", 3*windowSize) + "needle" + strings.Repeat("y", windowSize)
	text := "a\n" + long + "\nneedle\n"
	m, err := Compile("needle", Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSearcher()
	var numbers []int
	run := func() {
		numbers = numbers[:0]
		s.Search(t.Context(), strings.NewReader(text), func(l Line) bool { numbers = append(numbers, l.Number); return true })
	}
	run()
	if !slices.Equal(numbers, []int{2, 3}) {
		t.Errorf("lines %v", numbers)
	}
	r := bytes.NewReader([]byte(text))
	yield := func(Line) bool { return true }
	if n := testing.AllocsPerRun(10, func() { r.Reset([]byte(text)); s.Search(t.Context(), r, yield) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// TestMemoryOfManyCharacters checks that a text of many different characters needs bounded memory.
func TestMemoryOfManyCharacters(t *testing.T) {
	m, err := Compile("x.{30}y", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for at := range 20_000 {
		text.WriteString("x")
		for i := range 30 {
			text.WriteRune(rune(0x4E00 + (at+i)%20_000))
		}
		text.WriteString("\n")
	}
	s := m.NewSearcher()
	if err := s.Search(t.Context(), strings.NewReader(text.String()), func(Line) bool { return true }); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, state := range s.dfa.states {
		steps += len(state.nonASCII)
	}
	if steps > maxNonASCII+100 {
		t.Errorf("%d transitions are cached", steps)
	}
}

// TestMultilineCRLF checks that a line may end with CRLF, and "$" matches before it.
func TestMultilineCRLF(t *testing.T) {
	text := "a\r\nb c\r\n\r\na\rb\r\nab\n"
	for _, row := range []struct{ pattern, want string }{
		{`a$`, "1:a"}, {`^$`, "3:"}, {`(a|b)$`, "1:a\n4:a\rb\n5:ab"}, {`^b c$\s+^a`, "2:b c\n3:\n4:a\rb"}, {`a$\nb`, "1:a\n2:b c"}, {`a\nb`, ""}, {`$`, "1:a\n2:b c\n3:\n4:a\rb\n5:ab"},
	} {
		if got := strings.Join(search(t, row.pattern, Options{Multiline: true}, text, 16), "\n"); got != row.want {
			t.Errorf("%q: %q, want %q", row.pattern, got, row.want)
		}
	}
}

// TestMultilineIsCancelled checks that one search for a match in a large text ends with its context.
func TestMultilineIsCancelled(t *testing.T) {
	m, err := Compile("[ax]{4}[bx]", Options{Multiline: true})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("aaaa\n", maxFile/5)
	if len(text)*m.work <= maxUnpolled {
		t.Fatalf("%d bytes are too few for work of %d", len(text), m.work)
	}
	ctx := &countdown.Context{Context: t.Context(), Left: 40} // more than the reads that fill the buffer
	err = m.NewSearcher().Search(ctx, strings.NewReader(text), func(Line) bool { t.Error("a line is yielded"); return true })
	if err != context.Canceled || ctx.Left < -3 {
		t.Errorf("%v, polled %d times too often", err, -ctx.Left)
	}
}

// TestFindPolling checks that a search that polls its context finds the same as one that does not.
func TestFindPolling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		re := regexp.MustCompile("(?ms:" + patterns.Draw(t, "pattern") + ")")
		text := []byte(texts.Draw(t, "text"))
		got, want := findPolling(context.Background(), re, text, maxUnpolled+1), findPolling(context.Background(), re, text, 0)
		if len(text) > 1 && !slices.Equal(got, want) {
			t.Fatalf("%s in %q: %v, want %v", re, text, got, want)
		}
	})
}
