package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/event"
	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A windowedServer has its own window and tokenizer, with a fixed number of bytes per token. It rejects
// requests that do not fit, and may report the usage.
type windowedServer struct {
	t        fataler
	window   int
	bytes    int  // per token
	silent   bool // reports no usage
	steps    int  // until it gives its last answer
	rand     *rand.Rand
	largest  int // of the results that it asks for, in bytes
	summary  int // length of its summaries, in words
	rules    int // in the system prompt
	skill    bool
	asked    int
	refusals int
	calls    int

	sizes   []int              // of the requests that were not for a summary
	refused []*message.Message // the conversation that it refused last
	last    *model.Request
	taught  bool // the skill was read
}

func (s *windowedServer) tokens(req *model.Request) int {
	n := len(req.System)
	for _, tl := range req.Tools {
		n += len(tl.Name) + len(tl.Description) + len(tl.Input)
	}
	for _, m := range req.Messages {
		n += 12
		for _, b := range m.Blocks {
			switch b := b.(type) {
			case *message.Text:
				n += len(b.Text)
			case *message.Hint:
				n += len(b.Text)
			case *message.ToolCall:
				n += len(b.Name) + len(b.Input) + 20
			case *message.ToolResult:
				n += len(b.Text()) + 20
			}
		}
	}
	return n / s.bytes
}

func (s *windowedServer) answer(req *model.Request) turn {
	if err := CheckHistory(req.Messages); err != nil {
		s.t.Fatal(err)
	}
	size := s.tokens(req)
	last := req.Messages[len(req.Messages)-1]
	summary := strings.Contains(historyText(last), "too long") && req.Choice.Mode == model.ChoiceNone
	if s.refused != nil && len(s.refused) == len(req.Messages) {
		same := true
		for i, m := range s.refused {
			same = same && m == req.Messages[i]
		}
		if same {
			s.t.Fatalf("the request that was refused at %d tokens was sent again", size)
		}
	}
	s.refused, s.last = nil, req
	if s.taught && !summary && !readsSkill(req.Messages) {
		s.t.Fatalf("request %d of %d tokens: the skill is not complete any more", len(s.sizes), size)
	}
	if !summary {
		s.sizes = append(s.sizes, size)
	}
	if size > s.window {
		s.refused = req.Messages
		s.refusals++
		return turn{err: &model.Error{Kind: model.KindContextTooLong, Message: fmt.Sprintf("%d tokens", size)}}
	}
	s.taught = s.taught || readsSkill(req.Messages)
	tn := s.say(summary)
	usage := message.Usage{Input: size, Output: 50}
	if s.silent {
		usage = message.Usage{}
	}
	tn.chunks[len(tn.chunks)-1].(*model.Finish).Usage = usage
	return tn
}

// readsSkill reports whether the model reads the whole skill.
func readsSkill(msgs []*message.Message) bool {
	for _, m := range msgs {
		text := historyText(m)
		for _, res := range m.ToolResults() {
			text += res.Text()
		}
		if strings.Contains(text, howTo) {
			return true
		}
	}
	return false
}

func (s *windowedServer) say(summary bool) turn {
	if summary {
		text := strings.Repeat("fact ", s.rand.IntN(s.summary))
		return says(`{"goal":"look around","facts":["` + text + `"],"next":"go on"}`)
	}
	if s.asked++; s.asked > s.steps {
		return says("done")
	}
	var specs []string
	for range 1 + s.rand.IntN(3)*s.rand.IntN(2) {
		s.calls++
		size := s.rand.IntN(400)
		if s.rand.IntN(3) == 0 {
			size = s.rand.IntN(s.largest + 1)
		}
		specs = append(specs, fmt.Sprintf(`c%d look {"n":%d,"id":%d}`, s.calls, size, s.calls))
	}
	if s.skill && s.asked%40 == 1 {
		s.calls++
		specs = append(specs, fmt.Sprintf(`c%d Skill {"skill":"howto"}`, s.calls))
	}
	return calls(specs...)
}

// howTo is the text of a skill.
var howTo = strings.Repeat("Always look twice. ", 120)

func lookKit(t testing.TB, results Results) *toolkit.Toolkit {
	t.Helper()
	type in struct {
		N  int `json:"n"`
		ID int `json:"id"`
	}
	look := tool.Must(tool.New("look", "Looks.", func(_ context.Context, in in) (string, error) {
		return fmt.Sprintf("call %d: ", in.ID) + strings.Repeat("seen something\n", in.N/15) + fmt.Sprintf("end of call %d", in.ID), nil
	}, tool.Options{Parallel: true}))
	tools := []tool.Tool{look}
	if results != nil {
		read, err := ReadResult(results)
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, read)
	}
	how, problems := skill.Parse("SKILL.md", []byte("---\nname: howto\ndescription: How to look, for when you look.\n---\n"+howTo))
	if how == nil {
		t.Fatal(problems)
	}
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: tools, Skills: []skill.Loader{skill.Memory(how)}}})
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

// memory stores results, and can fail from time to time.
type memory struct {
	mu    sync.Mutex
	texts map[string]string
	fails bool
}

func (m *memory) Put(_ context.Context, call, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails && len(text)%3 == 0 {
		return errors.New("the disk is full")
	}
	if m.texts == nil {
		m.texts = map[string]string{}
	}
	m.texts[call] = text
	return nil
}

func (m *memory) Get(_ context.Context, call string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, ok := m.texts[call]
	if !ok {
		return "", errors.New("none")
	}
	return text, nil
}

// runWindowed runs an agent against the server until its last answer, and checks every compaction: it is emitted,
// the server counts less after it, no two in a row gain less than a tenth, and no refused request is sent
// again.
func runWindowed(t fataler, kit *toolkit.Toolkit, s *windowedServer, results Results) (compactions int) {
	cfg := Config{Model: scripted.New(), Toolkit: kit, Policy: bypass, Instructions: "Look around. " + strings.Repeat("Mind this. ", s.rules), MaxParallel: 1,
		Limits: Limits{Steps: s.steps + 1}, Window: Window{Tokens: s.window, Results: results}, Retry: middleware.RetryConfig{Retries: -1}}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	a.model = turnFunc(s.answer)
	st := &State{}
	generation, before, poor := 0, 0, 0
	for ev, err := range a.Run(t.Context(), st, Say("the question: look around")) {
		if err != nil {
			t.Fatal(err)
		}
		now := s.tokens(&model.Request{System: s.last.System, Tools: s.last.Tools, Messages: st.Messages})
		switch ev := ev.(type) {
		case *event.Message:
			before = now
		case *event.Compaction:
			compactions++
			if generation++; st.Generation != generation {
				t.Fatalf("generation %d after %d compactions were emitted", st.Generation, generation)
			}
			if poor++; now*10 <= before*9 {
				poor = 0
			}
			if now >= before || ev.After >= ev.Before || poor > 1 {
				t.Fatalf("%d compactions in a row gained little: %d tokens became %d, the event says %d → %d", poor, before, now, ev.Before, ev.After)
			}
			before = now
		case *event.End:
			if ev.Reason != event.EndCompleted || ev.Text != "done" {
				t.Fatalf("after %d of %d steps: %+v", s.asked, s.steps, ev)
			}
		}
	}
	if !strings.Contains(transcriptOf(st.Messages), "the question: look around") {
		t.Fatal("the question was removed")
	}
	return compactions
}

// A fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Context() context.Context
	Fatal(...any)
	Fatalf(string, ...any)
}

// TestRunsContinue runs 500 steps in windows of many sizes, with servers that count tokens differently, and
// that may report the usage.
func TestRunsContinue(t *testing.T) {
	for _, win := range []int{8000, 12_000, 36_000, 128_000} {
		for _, bytes := range []int{3, 5} {
			for _, silent := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/%d/%v", win, bytes, silent), func(t *testing.T) {
					kept := new(memory)
					s := &windowedServer{last: &model.Request{}, window: win, bytes: bytes, silent: silent, steps: 500, skill: true,
						rand: rand.New(rand.NewPCG(1, uint64(win+bytes))), largest: 60_000, summary: 200}
					n := runWindowed(t, lookKit(t, kept), s, kept)
					t.Logf("%d compactions, %d refusals, %d requests", n, s.refusals, len(s.sizes))
					if n == 0 || n > 250 || !silent && s.refusals > 25 {
						t.Errorf("%d compactions, %d refusals", n, s.refusals)
					}
				})
			}
		}
	}
}

// TestRunsContinueInAnyWindow is the same for any windows, results and stores.
func TestRunsContinueInAnyWindow(t *testing.T) {
	whole, failing := new(memory), &memory{fails: true}
	kits := []*toolkit.Toolkit{lookKit(t, whole), lookKit(t, failing), lookKit(t, nil)}
	rapid.Check(t, func(t *rapid.T) {
		pick := rapid.IntRange(0, 2).Draw(t, "store")
		s := &windowedServer{last: &model.Request{}, window: rapid.IntRange(8000, 100_000).Draw(t, "window"), bytes: rapid.IntRange(2, 7).Draw(t, "bytes"),
			silent: rapid.Bool().Draw(t, "silent"), steps: 40, skill: rapid.Bool().Draw(t, "skill"),
			rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), largest: rapid.IntRange(100, 200_000).Draw(t, "largest"), summary: rapid.SampledFrom([]int{200, 2000, 20_000}).Draw(t, "summary")}
		if s.skill { // it must fit beside the rest
			s.bytes = max(s.bytes, 3)
		} else {
			s.rules = rapid.IntRange(0, s.window*s.bytes/11/2).Draw(t, "rules") // up to half of the window
		}
		runWindowed(t, kits[pick], s, []Results{whole, failing, nil}[pick])
	})
}

// TestNothingToRemove has a server refuse a conversation that cannot be made shorter: the error names what is
// too long, and no request was made twice.
func TestNothingToRemove(t *testing.T) {
	pictures := &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Text{Text: "see"}}}
	for range 5 {
		pictures.Blocks = append(pictures.Blocks, &message.Data{MediaType: "application/pdf", Bytes: []byte{1}})
	}
	for _, row := range []struct {
		why     string
		ctx     Window
		st      *State
		message Input
		reqs    int
		want    string
	}{
		{"long words", Window{Tokens: 8000}, &State{}, Say(strings.Repeat("word ", 8000)), 1, "longest message, with role user, 10004; shorten one of them"},
		{"an old answer can be removed", Window{Tokens: 8000}, talk(1, 5000), Say(strings.Repeat("word ", 8000)), 2, "longest message, with role user, 10004; shorten one of them"},
		{"images can be removed", Window{Tokens: 8000}, &State{}, Say("", pictures.Blocks...), 2, "nothing more can be removed"},
		{"no compaction", Window{Tokens: 8000, Compact: -1}, talk(1, 100), Say("x"), 1, "context_too_long"},
	} {
		a, w := newAgent(t, Config{Policy: bypass, Window: row.ctx})
		w.turns = nil
		n := 0
		a.model = turnFunc(func(req *model.Request) turn {
			n++
			if req.Choice.Mode == model.ChoiceNone {
				return says("They talked.")
			}
			return turn{err: &model.Error{Kind: model.KindContextTooLong, Message: "too long"}}
		})
		_, err := play(t, a, row.st, row.message)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindContextTooLong || !strings.Contains(err.Error(), row.want) || n != row.reqs {
			t.Errorf("%s: after %d requests: %v", row.why, n, err)
		}
	}
}

// TestCutResultsCanBeRead has a model follow the note of each cut, both when the result is added and in a
// compaction, until nothing is left out: the model has then read what the tool returned.
func TestCutResultsCanBeRead(t *testing.T) {
	var text strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&text, "line %d: äöü 日本\n", i)
	}
	whole := text.String()
	for _, row := range []struct {
		why string
		cfg Window
		n   int // bytes of the result
	}{
		{"when added", Window{}, len(whole)},
		{"in a small window", Window{Tokens: 8000}, 60_000},
		{"in a compaction", Window{Tokens: 8000, MaxResult: -1}, 20_000},
		{"cut twice", Window{Tokens: 8000, MaxResult: 5000}, 60_000},
		{"hardly readable", Window{MaxResult: 800}, 10_000},
	} {
		t.Run(row.why, func(t *testing.T) {
			kept := new(memory)
			read, err := ReadResult(kept)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.ToValidUTF8(whole[:row.n], "")
			wordy := tool.Must(tool.New("wordy", "Talks.", func(context.Context, struct{}) (string, error) { return want, nil }))
			other := tool.Must(tool.New("other", "Fills.", func(_ context.Context, in pathArg) (string, error) {
				return in.Path + strings.Repeat("word ", 300), nil
			}))
			row.cfg.Results = kept
			a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(wordy, other, read), Window: row.cfg, Limits: Limits{Steps: 500}})
			got, steps, filled := "", 0, false
			readOn := regexp.MustCompile(`(?s)^(.*?)\n\[… \d+ bytes (?:left out here|more); read them with (\w+) (\{[^\n]*?\})\]`)
			a.model = turnFunc(func(req *model.Request) turn {
				if req.Choice.Mode == model.ChoiceNone {
					return says("It is being read.")
				}
				var last *message.ToolResult
				for _, m := range req.Messages {
					for _, res := range m.ToolResults() {
						if res.Name == "wordy" && !filled || res.Name == "read_result" {
							last = res
						}
						if res.Name == "wordy" && res.Kept && len(res.Text()) < 1500 {
							filled = true // it was cut in a compaction
						}
					}
				}
				steps++
				switch {
				case steps == 1:
					return calls(`w wordy {}`)
				case row.why == "in a compaction" || row.why == "cut twice":
					if !filled {
						return calls(fmt.Sprintf(`f%d other {"path":"%d"}`, steps, steps))
					}
				}
				return followed(last, req.Messages, readOn, &got, steps)
			})
			if _, err := play(t, a, new(State), Say("go")); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("after %d steps the model has read %d of %d bytes:\n%.300s", steps, len(got), len(want), got)
			}
		})
	}
}

// followed adds the text before the cut of a result to got, and makes the call that the cut names.
func followed(last *message.ToolResult, msgs []*message.Message, readOn *regexp.Regexp, got *string, steps int) turn {
	if last == nil { // the first has been cut in a compaction meanwhile
		for _, m := range msgs {
			for _, res := range m.ToolResults() {
				if res.Name == "wordy" {
					last = res
				}
			}
		}
	}
	parts := readOn.FindStringSubmatch(last.Text())
	if parts == nil {
		*got += last.Text()
		return says("done")
	}
	*got += parts[1]
	return calls(fmt.Sprintf(`r%d %s %s`, steps, parts[2], parts[3]))
}

// TestWindowShares checks which shares of the window an agent accepts, and its defaults.
func TestWindowShares(t *testing.T) {
	nan := math.NaN()
	for _, row := range []struct{ compact, keep, wantCompact, wantKeep float64 }{ // wantKeep is -1 for an error
		{0, 0, 0.8, 0.1},
		{0, 0.4, 0.8, 0.4},
		{0, 0.9, 0.8, -1},
		{0, 0.41, 0.8, -1},
		{0.8, 0.6, 0.8, -1},
		{1, 0.5, 1, 0.5},
		{0.1, 0, 0.1, 0.05},
		{0.1, 0.1, 0.1, -1},
		{1.1, 0, 1.1, -1},
		{0, -0.1, 0.8, -1},
		{-1, 0, -1, 0},
		{-1, 0.9, -1, 0.9},
		{nan, 0, nan, -1},
		{0, nan, 0.8, -1},
	} {
		w := Window{Compact: row.compact, Keep: row.keep}
		err := w.setDefaults(scripted.New())
		if row.wantKeep < 0 {
			if want := fmt.Sprintf("Window.Compact is %g and Keep %g; Compact must be at most 1, and Keep from 0 to half of Compact", row.wantCompact, row.keep); err == nil || err.Error() != want {
				t.Errorf("%g %g: %v, want %s", row.compact, row.keep, err, want)
			}
		} else if err != nil || w.Compact != row.wantCompact || w.Keep != row.wantKeep {
			t.Errorf("%g %g: %g %g, %v", row.compact, row.keep, w.Compact, w.Keep, err)
		}
	}
}
