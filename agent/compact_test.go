package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// talk returns a state with turns of a question, a call with a result of n bytes,
// and an answer.
func talk(turns, n int) *State {
	st := &State{ID: "s"}
	for i := range turns {
		id := fmt.Sprintf("old%d", i)
		st.Messages = append(st.Messages,
			&message.Message{ID: "u" + id, Role: message.RoleUser, Blocks: message.Blocks{&message.Text{Text: "question " + id}}},
			message.Assistant(&message.ToolCall{ID: id, Name: "note", Input: []byte(`{"path":"x"}`)}),
			&message.Message{Role: message.RoleTool, Blocks: message.Blocks{&message.ToolResult{ID: id, Name: "note",
				Outcome: message.OutcomeSuccess, Blocks: message.Blocks{&message.Text{Text: strings.Repeat("word ", n/5)}}}}},
			message.Assistant(&message.Text{Text: "answer " + id}))
	}
	return st
}

// remembering is a tool with a reminder, which is sent after a compaction.
type remembering struct{ tool.Tool }

func (r remembering) Unwrap() tool.Tool             { return r.Tool }
func (r remembering) Remind(context.Context) string { return "Open task: water the plants." }

func compactKit(t *testing.T, j *journal) *toolkit.Toolkit {
	t.Helper()
	extra := tool.Must(tool.New("extra", "Is in a group.", func(context.Context, struct{}) (string, error) { return "", nil }))
	tk, err := toolkit.New(toolkit.Config{
		Basic:   toolkit.Group{Tools: []tool.Tool{remembering{noting(j, "note", tool.Options{})}}},
		Groups:  []toolkit.Group{{Name: "more", Description: "More.", Instructions: "Be careful.", Tools: []tool.Tool{extra}}},
		Control: toolkit.ResetTools(nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

func TestCompaction(t *testing.T) {
	tooLong := turn{err: &model.Error{Kind: model.KindContextTooLong, Message: "maximum context length"}}
	for _, row := range []struct {
		name    string
		state   *State
		window  int
		turns   []turn
		summary string // expected in the last request and, unless failed, in the event
		failed  bool
		reqs    int
		kept    string // an old word that is kept
	}{
		{"fits", talk(3, 500), 10_000, []turn{says("done")}, "", false, 1, "question old0"},
		{"old results", talk(10, 4000), 13_000, []turn{says("done")}, "", false, 1, "question old0"},
		{"summary", talk(60, 500), 10_000, []turn{says("they talked"), says("done")}, "they talked", false, 2, ""},
		{"summary fails", talk(60, 500), 10_000, []turn{{err: errors.New("down")}, says("done")}, "cut off", true, 2, ""},
		{"server refuses", talk(60, 500), 1_000_000, []turn{tooLong, says("they talked"), says("done")}, "they talked", false, 3, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			kit := compactKit(t, &j)
			st := row.state
			if _, err := kit.Enable(t.Context(), &st.Scope, "more"); err != nil {
				t.Fatal(err)
			}
			a, w := newAgent(t, Config{Policy: bypass, Toolkit: kit, Window: Window{Tokens: row.window}, Retry: middleware.RetryConfig{Retries: -1}}, row.turns...)
			evs, err := play(t, a, st, Say("the newest question"))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "requests", len(w.reqs), row.reqs)
			equal(t, "answer", endOf(t, evs).Text, "done")
			last := transcriptOf(w.reqs[len(w.reqs)-1].Messages)
			if !strings.Contains(last, "the newest question") || !strings.Contains(last, row.kept) {
				t.Errorf("the model was asked:\n%s", last)
			}
			cs := of[*event.Compaction](evs)
			if row.name == "fits" {
				equal(t, "compactions", len(cs), 0)
				return
			}
			if len(cs) != 1 || cs[0].After >= cs[0].Before || (cs[0].Failed != "") != row.failed ||
				!row.failed && !strings.Contains(cs[0].Summary, row.summary) || row.failed && cs[0].Summary != "" {
				t.Fatalf("%+v", cs)
			}
			equal(t, "generation", st.Generation, 1)
			if row.summary == "" {
				return
			}
			for _, want := range []string{row.summary, "Be careful.", "water the plants"} {
				if !strings.Contains(last, want) {
					t.Errorf("the last request does not contain %q:\n%s", want, last)
				}
			}
			if row.name == "summary" { // the request for the summary continues the previous one
				asked := w.reqs[0].Messages
				equal(t, "question", historyText(asked[len(asked)-1]), summaryPrompt)
				if strings.ContainsAny(summaryPrompt, "{}%") {
					t.Error("the prompt for the summary has a placeholder")
				}
				if n := len(asked) - 2; !slices.Equal(asked[:n], talkPrefix(row.state, asked, n)) || w.reqs[0].Digest != w.reqs[1].Digest {
					t.Error("the request for the summary has another prefix")
				}
			}
		})
	}
}

// TestCompactInput compacts on demand.
func TestCompactInput(t *testing.T) {
	down := turn{err: errors.New("down")}
	for _, row := range []struct {
		name   string
		state  *State
		inputs []Input
		turns  []turn
		reason event.EndReason
		err    string
		kept   int // messages after it; 0 for an unchanged number
		reqs   int
	}{
		{"alone", talk(3, 500), []Input{Compact{ID: "i1"}}, []turn{says("they talked")}, event.EndCompleted, "", 3, 1},
		{"with a message", talk(3, 500), []Input{Say("more"), Compact{}}, []turn{says("they talked"), says("done")}, event.EndCompleted, "", 3, 2},
		{"before a message", talk(3, 500), []Input{Compact{}, Say("more")}, []turn{says("they talked"), says("done")}, event.EndCompleted, "", 3, 2},
		{"one round", talk(0, 0), []Input{Say("hello"), Compact{}}, []turn{says("done")}, event.EndCompleted, "", 2, 1},
		{"no summary", talk(3, 500), []Input{Compact{}}, []turn{down}, event.EndError, "the model gave no summary: ", 0, 1},
		{"longer summary", talk(3, 10), []Input{Compact{}}, []turn{says(strings.Repeat("they talked ", 1000))}, event.EndCompleted, "", 0, 1},
		{"interrupted before", &State{Messages: talk(3, 500).Messages[:11]}, []Input{Compact{}}, []turn{says("they talked")}, event.EndCompleted, "", 4, 1},
		{"after an interrupt", talk(3, 500), []Input{Interrupt{}, Compact{}}, nil, event.EndInterrupted, "", 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			before := len(row.state.Messages)
			var consumed []string
			cfg := Config{Policy: bypass, Toolkit: compactKit(t, &j), Limits: Limits{Time: time.Minute}, Retry: middleware.RetryConfig{Retries: -1},
				Save: func(_ context.Context, st *State) error {
					consumed = append(consumed, st.Saving().Inputs...)
					return nil
				}}
			a, w := newAgent(t, cfg, row.turns...)
			evs, err := play(t, a, row.state, row.inputs...)
			if row.err == "" && err != nil || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
				t.Fatalf("%v; want %q", err, row.err)
			}
			equal(t, "reason", endOf(t, evs).Reason, row.reason)
			equal(t, "requests", len(w.reqs), row.reqs)
			want := row.kept
			if want == 0 {
				want = before
			}
			equal(t, "messages", len(row.state.Messages), want)
			equal(t, "compactions", len(of[*event.Compaction](evs)) == 1, row.kept > 2)
			if id := row.inputs[0]; id == (Compact{ID: "i1"}) {
				equal(t, "consumed", fmt.Sprint(consumed), "[i1]")
			}
			if err := CheckHistory(row.state.Messages); err != nil {
				t.Error(err)
			}
		})
	}
}

// talkPrefix returns the first n messages.
func talkPrefix(_ *State, asked []*message.Message, n int) []*message.Message {
	if n != 4*60 || asked[0].Text() != "question old0" || asked[n].Text() != "the newest question" {
		return nil
	}
	return asked[:n]
}

func transcriptOf(msgs []*message.Message) string {
	var b strings.Builder
	for _, m := range msgs {
		fmt.Fprintln(&b, m.Role, m.Text()+historyText(m))
	}
	return b.String()
}

// TestCompactionWithinATurn has one turn with more rounds than fit the window.
func TestCompactionWithinATurn(t *testing.T) {
	long := strings.Repeat("word ", 200)
	wordy := tool.Must(tool.New("wordy", "Talks.", func(_ context.Context, in pathArg) (string, error) { return in.Path + long, nil }))
	var turns []turn
	for i := range 30 {
		turns = append(turns, calls(fmt.Sprintf(`c%d wordy {"path":"%d"}`, i, i)))
	}
	a, w := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(wordy), Window: Window{Tokens: 4000}})
	summaries := 0
	w.turns = nil
	model := turnFunc(func(req *model.Request) turn {
		if strings.Contains(historyText(req.Messages[len(req.Messages)-1]), "too long") {
			summaries++
			return says(fmt.Sprintf("summary %d", summaries))
		}
		if len(turns) == 0 {
			return says("done")
		}
		tn := turns[0]
		turns = turns[1:]
		return tn
	})
	a.model = model
	var st State
	evs, err := play(t, a, &st, Say("the question"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "answer", endOf(t, evs).Text, "done")
	if n := len(of[*event.Compaction](evs)); n < 2 || n != summaries {
		t.Errorf("%d compactions, %d summaries", n, summaries)
	}
	text := transcriptOf(st.Messages)
	if !strings.Contains(text, "the question") || !strings.Contains(text, fmt.Sprintf("summary %d", summaries)) {
		t.Errorf("the conversation is now\n%s", text)
	}
}

func TestLongResultsAreClipped(t *testing.T) {
	long := strings.Repeat("äöü", 1000)
	wordy := tool.Must(tool.New("wordy", "Talks.", func(context.Context, struct{}) (string, error) { return long, nil }))
	kept := ResultDir(filepath.Join(t.TempDir(), "kept"))
	read, err := ReadResult(kept)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Policy: permission.Policy{Mode: permission.ModeBypass}, Toolkit: toolkit.Of(wordy, read), Window: Window{MaxResult: 900, Results: kept}}
	a, w := newAgent(t, cfg, calls(`c1 wordy {}`), says("done"))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	got := results(&st)[0]
	if len(got) > 1100 || !strings.Contains(got, `read them with read_result {"call":"c1","offset":600}]`) || !strings.HasSuffix(got, "ü") || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if whole, err := kept.Get(t.Context(), "c1"); err != nil || whole != long {
		t.Errorf("kept %d bytes, %v", len(whole), err)
	}
	w.turns = []turn{calls(`r1 read_result {"call":"c1","grep":"äöüä"}`, `r2 read_result {"call":"../c1"}`), says("done")}
	if _, err := play(t, a, &st, Say("read it")); err != nil {
		t.Fatal(err)
	}
	if r := results(&st); !strings.Contains(r[0], "success: 1: äöü") || !strings.Contains(r[1], "error") {
		t.Errorf("%.200q", r)
	}
}

func TestReadResultPicks(t *testing.T) {
	for _, row := range []struct{ text, lines, grep, path, want, err string }{
		{text: "a\nb\nc\n", want: "a\nb\nc\n"},
		{text: "a\nb\nc\n", lines: "2-9", want: "b\nc\n"},
		{text: "a\nb\nc\n", lines: "2", want: "b\n"},
		{text: "a\nb\nc\n", lines: "4-5", err: "3 lines"},
		{text: "a\nb\nc\n", lines: "x", err: "FROM-TO"},
		{text: "ab\nb\nc\n", grep: "b$", want: "1: ab\n2: b\n"},
		{text: "a\n", grep: "z", want: "(no line of 1-1 matches z; try another expression)"},
		{text: "a\n", grep: "(", err: "grep"},
		{text: `{"a":[{"b/c":1e400}]}`, path: "/a/0/b~1c", want: "1e400\n"},
		{text: `{"a":[1]}`, path: "/a/1", err: `no "1" below "/a"`},
		{text: `{"a":[1]}`, path: "/a/+0", err: `no "+0" below "/a"`}, // RFC 6901, section 4: digits, without leading zeros
		{text: `{"a":[1,2]}`, path: "/a/01", err: `no "01" below "/a"`},
		{text: `{"a":[1,2]}`, path: "/a/-0", err: `no "-0" below "/a"`},
		{text: `{"01":[1]}`, path: "/01/0", want: "1\n"},
		{text: `{"a":[1]}`, path: "a", err: "begins with /"},
		{text: `nope`, path: "/a", err: "not valid JSON"},
	} {
		text, err := row.text, error(nil)
		if row.path != "" {
			text, err = selectJSON(text, row.path)
		}
		if err == nil {
			text, err = pickLines(text, row.lines, row.grep)
		}
		if row.err == "" && (err != nil || text != row.want) || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%+v: %q, %v", row, text, err)
		}
	}
}

func TestImagesAreReplaced(t *testing.T) {
	shot := tool.Must(tool.New("shot", "Takes a screenshot.", func(context.Context, struct{}) (*tool.Result, error) {
		return &tool.Result{Blocks: []message.Block{&message.Data{MediaType: "image/gif", Bytes: tinyGIF}}}, nil
	}))
	var turns []turn
	for i := range 9 {
		turns = append(turns, calls(fmt.Sprintf(`c%d shot {}`, i)))
	}
	a, w := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(shot), Window: Window{MaxData: 4}, Limits: Limits{Steps: 50}}, append(turns, says("done"))...)
	var st State
	evs, err := play(t, a, &st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	for i, req := range w.reqs {
		n := 0
		for _, m := range req.Messages {
			n += len(window.DataIn(m.Blocks))
		}
		if n > 4 {
			t.Errorf("request %d has %d images", i, n)
		}
	}
	if n := len(of[*event.Compaction](evs)); n == 0 || n > 3 {
		t.Errorf("the conversation was rewritten %d times", n)
	}
}
