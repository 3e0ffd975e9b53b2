package window_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/internal/window"
	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/message"
)

// TestImports: the package imports only packages without I/O.
func TestImports(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 4 {
		t.Fatalf("%q, %v", files, err)
	}
	pure := []string{"encoding/json", "fmt", "slices", "strings", "unicode/utf8",
		"github.com/kitbag-go/kitbag/message", "github.com/kitbag-go/kitbag/tool"}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if path, err := strconv.Unquote(imp.Path.Value); err != nil || !slices.Contains(pure, path) {
				t.Errorf("%s imports %s", file, imp.Path.Value)
			}
		}
	}
}

func result(id, text string) *message.ToolResult {
	return &message.ToolResult{ID: id, Name: "look", Outcome: message.OutcomeSuccess, Blocks: message.Blocks{&message.Text{Text: text}}}
}

// round returns a message with a call, and its result.
func round(id, text string) []*message.Message {
	return []*message.Message{
		message.Assistant(&message.ToolCall{ID: id, Name: "look", Input: []byte(`{}`)}),
		{Role: message.RoleTool, Blocks: message.Blocks{result(id, text)}},
	}
}

func hint(source, text string) *message.Message {
	return &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Hint{Source: source, Text: text}}}
}

func image() *message.Data {
	return &message.Data{MediaType: "image/png", Name: "a.png", Bytes: []byte{1}}
}

func TestText(t *testing.T) {
	for text, want := range map[string]int{"": 0, "four": 1, strings.Repeat("word ", 100): 125, strings.Repeat("日本", 100): 183, strings.Repeat("word ", 100) + "…": 125} {
		if got := window.Text(text); got != want {
			t.Errorf("%.20q: %d, want %d", text, got, want)
		}
	}
}

func TestRatio(t *testing.T) {
	for _, row := range []struct {
		estimated, reported int
		want                float64 // 0 for none
	}{
		{1000, 1500, 1.5},
		{1000, 100_000, 4}, // bounded
		{100_000, 100, 0.25},
		{99, 1000, 0},
		{1000, 0, 0},
	} {
		got, ok := window.Ratio(row.estimated, row.reported)
		if ok != (row.want != 0) || ok && got != row.want {
			t.Errorf("%d of %d: %v, %v; want %v", row.reported, row.estimated, got, ok, row.want)
		}
	}
	if got := window.Clamp(0); got != 0 {
		t.Errorf("an unknown ratio became %v", got)
	}
}

func TestGauge(t *testing.T) {
	fresh := func() *window.Gauge { return &window.Gauge{Window: 10_000, Compact: 0.8} }
	for _, row := range []struct {
		why    string
		set    func(*window.Gauge)
		size   int
		due    bool
		budget int // without a fixed part
	}{
		{"below", func(*window.Gauge) {}, 7999, false, 6000},
		{"above", func(*window.Gauge) {}, 8000, true, 6000},
		{"never", func(g *window.Gauge) { g.Compact = -1 }, 9999, false, 5000},
		{"the server counts more", func(g *window.Gauge) { g.Ratio = 2 }, 4000, true, 3000},
		{"the server counts less", func(g *window.Gauge) { g.Ratio = 0.5 }, 15_999, false, 12_000},
		{"it refused less", func(g *window.Gauge) { g.Refuse(5000) }, 4000, true, 3000},
		{"it refused more later", func(g *window.Gauge) { g.Refuse(5000); g.Refuse(6000) }, 4000, true, 3000},
		{"hardly grown since", func(g *window.Gauge) { g.Compacted(7500) }, 8000, false, 6000},
		{"grown since", func(g *window.Gauge) { g.Compacted(7500) }, 8400, true, 6000},
		{"no use", func(g *window.Gauge) { g.Compacted(8100) }, 8200, false, 6000},
	} {
		g := fresh()
		row.set(g)
		if due, budget := g.Due(0, row.size), g.Budget(0); due != row.due || budget != row.budget {
			t.Errorf("%s: due %v, budget %d; want %v, %d", row.why, due, budget, row.due, row.budget)
		}
	}
	g := fresh()
	// A large fixed part leaves less to remove, so that compaction is due later.
	if got := g.Budget(7000); got != 1500 || g.Due(7000, 2400) || !g.Due(7000, 2450) {
		t.Errorf("budget %d with a large fixed part", got)
	}
}

// TestCount: the tally equals the size of the whole conversation after messages were added
// and after a rewrite, even if the last message was kept.
func TestCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &window.Gauge{Window: 10_000, Compact: 0.8}
		var msgs []*message.Message
		for i := range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "rewrite") == 0 && len(msgs) > 0 {
				msgs = window.Cut{From: len(msgs), Old: rapid.IntRange(10, 500).Draw(t, "limit")}.Apply(msgs, keepNothing)
				g.Rewritten()
			} else {
				msgs = append(msgs, round(fmt.Sprint(i), strings.Repeat("word ", rapid.IntRange(0, 300).Draw(t, "size")))...)
			}
			if got, want := g.Count(msgs).Tokens, window.Messages(msgs); got != want {
				t.Fatalf("%d messages hold %d tokens, counted %d", len(msgs), want, got)
			}
		}
	})
}

func keepNothing(res *message.ToolResult) (*message.ToolResult, string) { return res, "" }

func TestKeepFrom(t *testing.T) {
	msgs := append([]*message.Message{message.User("old"), message.Assistant(&message.Text{Text: "yes"}), message.User("new")},
		append(append(round("1", "short"), round("2", "short")...), round("3", strings.Repeat("word ", 100))...)...)
	for budget, want := range map[int]int{0: 7, 170: 7, 180: 5, 205: 3, 207: 2, 10_000: 0} {
		if got := window.KeepFrom(msgs, budget); got != want {
			t.Errorf("budget %d: from %d, want %d", budget, got, want)
		}
	}
	if got := window.KeepFrom(msgs[:3], 0); got != 2 {
		t.Errorf("a new user message: from %d", got)
	}
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("0123456789", 100)
	kept := func(res *message.ToolResult) (*message.ToolResult, string) {
		cp := *res
		cp.Kept = true
		return &cp, ""
	}
	full := func(res *message.ToolResult) (*message.ToolResult, string) { return res, "the disk is full" }
	for _, row := range []struct {
		why  string
		res  *message.ToolResult
		keep window.Keeper
		want string // instead of the missing part; "" if nothing is cut
	}{
		{"short", result("c", long[:300]), kept, ""},
		{"kept", result("c", long), kept, `[… 700 bytes left out here; read them with read_result {"call":"c","offset":200}]`},
		{"not kept", result("c", long), keepNothing, `[… 700 bytes left out here; to read them call look again, for less at a time]`},
		{"could not be kept", result("c", long), full, `[… 700 bytes left out here, which could not be kept (the disk is full); to read them call look again, for less at a time]`},
		{"pinned", &message.ToolResult{Pinned: true, Blocks: result("c", long).Blocks}, kept, ""},
		{"cut before, a little shorter", &message.ToolResult{Kept: true, Blocks: result("c", long[:599]).Blocks}, kept, ""},
	} {
		got := window.Shorten(row.res, 300, row.keep).Text()
		if row.want == "" && got != row.res.Text() || row.want != "" && got != long[:200]+"\n"+row.want+"\n"+long[900:] {
			t.Errorf("%s: %s", row.why, got)
		}
	}
}

// TestShortenKeepsRunes: no rune is split, an image is kept, and the offset in the note
// is the length of the kept beginning.
func TestShortenKeepsRunes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("aä日🙂\n")), 50, 300, -1).Draw(t, "text")
		res := result("c", text)
		res.Blocks = append(res.Blocks, image())
		limit := rapid.IntRange(3, 100).Draw(t, "limit")
		got := window.Shorten(res, limit, func(r *message.ToolResult) (*message.ToolResult, string) {
			cp := *r
			cp.Kept = true
			return &cp, ""
		})
		if len(text) <= limit+limit/2 {
			return
		}
		head, rest, ok := strings.Cut(got.Text(), "\n[… ")
		note, tail, ok2 := strings.Cut(rest, "]\n")
		if !ok || !ok2 || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) || len(got.Blocks) != 2 ||
			!strings.Contains(note, fmt.Sprintf(`%d bytes`, len(text)-len(head)-len(tail))) ||
			len(head) > 0 && !strings.Contains(note, fmt.Sprintf(`"offset":%d}`, len(head))) {
			t.Fatalf("%q at %d became %q", text, limit, got.Text())
		}
	})
}

func TestAbridge(t *testing.T) {
	long := "beginning " + strings.Repeat("äöü ", 1000) + "end"
	for _, tokens := range []int{-1, 0, 20, 500, 100_000} {
		got := window.Abridge(long, tokens)
		whole := tokens > 1000
		if whole != (got == long) || !utf8.ValidString(got) || window.Text(got) > max(tokens, 0)+20 ||
			tokens >= 20 && (!strings.HasPrefix(got, "beginning") || !strings.HasSuffix(got, "end")) {
			t.Errorf("%d tokens: %d bytes, %.40q…", tokens, len(got), got)
		}
	}
}

// TestPage follows the notes from page to page: together the pages are the text.
func TestPage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("aä日🙂\n")), 0, 300, -1).Draw(t, "text")
		limit := rapid.IntRange(4, 100).Draw(t, "limit")
		in := window.Read{Call: "c"}
		got := ""
		for {
			page, err := window.Page(text, limit, in)
			if err != nil {
				t.Fatal(err)
			}
			part, note, more := strings.Cut(page, "\n[… ")
			got += part
			if !more {
				break
			}
			if _, err := fmt.Sscanf(note[strings.Index(note, "{"):], `{"call":"c","offset":%d}]`, &in.Offset); err != nil {
				t.Fatalf("%q: %v", note, err)
			}
		}
		if got != text {
			t.Fatalf("read %q of %q", got, text)
		}
	})
	for _, offset := range []int{-1, 3, 4} {
		if _, err := window.Page("abc", 10, window.Read{Offset: offset}); err == nil {
			t.Errorf("offset %d of 3 is not an error", offset)
		}
	}
}

// conversation draws a conversation with messages of every kind.
func conversation(t *rapid.T) []*message.Message {
	var msgs []*message.Message
	msgs = append(msgs, message.User("begin"))
	for i := range rapid.IntRange(0, 12).Draw(t, "rounds") {
		r := round(fmt.Sprint(i), strings.Repeat("word ", rapid.IntRange(0, 2000).Draw(t, "size")))
		res := r[1].Blocks[0].(*message.ToolResult)
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			res.Pinned = true
		case 1:
			res.Blocks = append(res.Blocks, image())
		case 2:
			r = append(r, message.Assistant(&message.Text{Text: "so"}), message.User("and?"))
		case 3:
			r = append(r, hint("agent", "remember"))
		}
		msgs = append(msgs, r...)
	}
	return msgs
}

// TestCuts: every chosen cut fits, its estimate is the size of its result, and neither pinned
// results nor the original change.
func TestCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msgs := conversation(t)
		before, text := window.Messages(msgs), fmt.Sprintf("%+v", blocks(msgs))
		keep, budget := rapid.IntRange(0, 2000).Draw(t, "keep"), rapid.IntRange(0, 8000).Draw(t, "budget")
		from := window.KeepFrom(msgs, keep)
		first, fits := window.WithoutSummary(msgs, from, keep, budget)
		last, fitsLast := window.WithSummary(msgs, from, budget)
		for _, c := range []struct {
			cut  window.Cut
			fits bool
		}{{first, fits}, {last, fitsLast}} {
			out := c.cut.Apply(msgs, keepNothing)
			size := window.Messages(out)
			if estimated := c.cut.Size(msgs); size > estimated+len(msgs) || c.fits && estimated > budget {
				t.Fatalf("%+v of %d: fits %v in %d, estimated %d, is %d", c.cut, before, c.fits, budget, estimated, size)
			}
			for i, m := range out {
				for j, res := range m.ToolResults() {
					if was := msgs[i].ToolResults()[j]; res.Pinned && res.Text() != was.Text() {
						t.Fatal("a pinned result was cut")
					}
				}
			}
		}
		if fmt.Sprintf("%+v", blocks(msgs)) != text {
			t.Fatal("the original conversation was modified")
		}
	})
}

func blocks(msgs []*message.Message) (out []message.Block) {
	for _, m := range msgs {
		out = append(out, m.Blocks...)
	}
	return out
}

func TestReplace(t *testing.T) {
	pinned := result("p", "how to do it")
	pinned.Pinned = true
	msgs := []*message.Message{message.User("first"), hint(window.SummarySource, "earlier"), message.User("last"),
		message.Assistant(&message.ToolCall{ID: "p", Name: "look"}), {Role: message.RoleTool, Blocks: message.Blocks{pinned}},
		message.Assistant(&message.Text{Text: "newest"})}
	texts := func(msgs []*message.Message) string {
		var out []string
		for _, m := range msgs {
			for _, b := range m.Blocks {
				switch b := b.(type) {
				case *message.Hint:
					out = append(out, b.Source+": "+b.Text)
				case *message.Text:
					out = append(out, b.Text)
				}
			}
		}
		return strings.Join(out, " | ")
	}
	for source, want := range map[string]string{
		window.SummarySource: "last | summary: new | newest",
		window.CutSource:     "last | summary: earlier | cut: new | newest",
	} {
		if got := texts(window.Replace(msgs, 5, hint(source, "new"))); got != want {
			t.Errorf("%s: %s", source, got)
		}
	}
	// There may be no message of the user to keep.
	for _, first := range [][]*message.Message{round("1", "seen"), {hint(window.SummarySource, "earlier")}} {
		if got := texts(window.Replace(append(first, msgs[5]), len(first), hint(window.SummarySource, "new"))); got != "summary: new | newest" {
			t.Error(got)
		}
	}
	// Pinned results are kept once, also after several summaries.
	for range 3 {
		h := hint(window.SummarySource, "new")
		h.Blocks = append(h.Blocks, window.Pinned(msgs, 1000)...)
		msgs = append(window.Replace(msgs, len(msgs), h), message.Assistant(&message.Text{Text: "more"}))
		if got := texts(msgs); got != "last | summary: new | pinned: look returned this before; it is still valid.\n\nhow to do it | more" {
			t.Fatal(got)
		}
	}
	if got := window.Pinned(msgs, 5); len(got) != 0 {
		t.Errorf("%d pinned results exceed the budget", len(got))
	}
}

func TestSummarised(t *testing.T) {
	for _, row := range []struct {
		why  string
		msgs []*message.Message
		want bool
	}{
		{"a user message alone", []*message.Message{message.User("go")}, true},
		{"a summary", []*message.Message{message.User("go"), hint(window.SummarySource, "x"), hint(window.CutSource, "y")}, true},
		{"an answer", []*message.Message{message.User("go"), message.Assistant(&message.Text{Text: "x"})}, false},
		{"a call alone", round("1", "seen"), false},
		{"an earlier user message", []*message.Message{message.User("go"), message.User("and")}, false},
		{"another hint", []*message.Message{message.User("go"), hint("agent", "x")}, false},
	} {
		if got := window.Summarised(row.msgs, len(row.msgs)); got != row.want {
			t.Errorf("%s: %v", row.why, got)
		}
	}
}

func TestWithoutData(t *testing.T) {
	res := result("c", "see")
	res.Blocks = append(res.Blocks, image(), &message.Data{MediaType: "text/plain"})
	msgs := []*message.Message{{Role: message.RoleUser, Blocks: message.Blocks{image()}}, {Role: message.RoleTool, Blocks: message.Blocks{res}}}
	out := window.WithoutData(msgs, func(d *message.Data, tool string) string {
		if d.MediaType != "image/png" {
			return ""
		}
		return window.RemovedNote(d, tool)
	})
	if got := out[0].Text() + out[1].ToolResults()[0].Text(); got != "[image/png a.png was removed to save space; ask for it again if you need it]see\n"+
		"[image/png a.png was removed to save space; call look again if you need it]" {
		t.Error(got)
	}
	withImage := hint("agent", "look")
	withImage.Blocks = append(withImage.Blocks, image())
	if m := window.WithoutData([]*message.Message{withImage}, window.RemovedNote)[0]; !window.IsHint(m) || len(window.DataIn(m.Blocks)) != 0 {
		t.Errorf("a hint became a message of the user: %+v", m.Blocks)
	}
	if len(window.DataIn(out[1].Blocks)) != 1 || len(window.DataIn(msgs[1].Blocks)) != 2 {
		t.Error("another file was removed, or the original was modified")
	}
}

func TestLargest(t *testing.T) {
	g := &window.Gauge{Ratio: 2}
	got := g.Largest(strings.Repeat("a", 400), nil, []*message.Message{message.User("x"), message.User(strings.Repeat("a", 784))})
	const want = "nothing more can be removed: the system prompt has about 200 tokens, its 0 tools 0, and the longest message, with role user, 400; " +
		"shorten one of them, or use a model with a larger window"
	if got != want {
		t.Error(got)
	}
}
