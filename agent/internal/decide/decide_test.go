package decide

import (
	"bufio"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// TestPure checks that the rules are pure: they import nothing that waits, starts or does I/O, read no clock,
// start no goroutine and use no channel.
func TestPure(t *testing.T) {
	allowed := []string{"bytes", "encoding/json", "errors", "fmt", "math", "slices", "strings", "time",
		"github.com/kitbag-go/kitbag/message", "github.com/kitbag-go/kitbag/permission"}
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range file.Imports {
			if path, _ := strconv.Unquote(imp.Path.Value); !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SendStmt, *ast.ChanType, *ast.SelectStmt:
				t.Errorf("%s: a %T", name, n)
			case *ast.SelectorExpr:
				if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s: time.%s", name, n.Sel.Name)
				}
			}
			return true
		})
	}
	if files < 5 {
		t.Errorf("%d files were read", files)
	}
}

func TestReady(t *testing.T) {
	// a: allowed, w: waits (for the user or the host), d: done. Upper case: alone; "!" after: late.
	for _, row := range []struct{ open, want string }{
		{"aa", "01"}, {"AA", "0"}, {"aA", "0"}, {"Aa", "0"}, {"waa", "12"}, {"wA", ""}, {"Wa", ""}, {"dA", "1"},
		{"awa", "02"}, {"awA", "0"}, {"dwA", ""}, {"ddA", "2"}, {"dd", ""},
		{"a!a", "1"}, {"a!A", "1"}, {"a!d", "0"}, {"a!w", ""}, {"a!a!d", "0"}, {"w!a!d", ""}, {"d!a!d", "1"},
	} {
		var open []*Call
		for _, ch := range row.open {
			if ch == '!' {
				open[len(open)-1].ChangesGroups = true
				continue
			}
			c := &Call{ID: strconv.Itoa(len(open)), Parallel: strings.ContainsRune("awd", ch)}
			c.Status = map[rune]Status{'a': Allowed, 'A': Allowed, 'w': Asking, 'W': External, 'd': Done}[ch]
			open = append(open, c)
		}
		got := ""
		for _, c := range Ready(open) {
			got += c.ID
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q", row.open, got, row.want)
		}
	}
}

// rows reads the JSON lines of a testdata file.
func rows[T any](t *testing.T, file string) (out []T) {
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var row T
		dec := json.NewDecoder(strings.NewReader(lines.Text()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&row); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		out = append(out, row)
	}
	return out
}

var steps = map[string]Action{"ask": AskModel, "last answer": LastAnswer, "remind": Remind, "judge": Judge, "start": Start, "receive": Receive,
	"close": Close, "wait": Wait, "settle": WaitBackground, "stop": Stop, "finish": Finish, "interrupt": Interrupt, "fail": Fail}

// TestNext has a table of next steps. Calls are written status by status; one in capitals runs alone.
func TestNext(t *testing.T) {
	for _, row := range rows[struct {
		Why, Open, Away, Last, Next, Stopped, Limit string
		Steps, Parallel                             int
		Ended, Failed                               bool
		Typed                                       Typed
		Start                                       string // which calls
	}](t, "next.jsonl") {
		s := &State{Spent: Spent{Steps: row.Steps, Stopped: row.Stopped}}
		for i, word := range strings.Fields(row.Open) {
			status := Status(strings.ToLower(word))
			s.Open = append(s.Open, &Call{ID: strconv.Itoa(i), Status: status, Parallel: string(status) == word})
		}
		for _, id := range strings.Fields(row.Away) {
			s.Background = append(s.Background, &BackgroundCall{ID: id})
		}
		got := Next(s, Situation{Messages: []*message.Message{{Role: message.RoleUser}, {Role: message.Role(row.Last)}}, Limits: Limits{Steps: 5},
			Parallel: max(row.Parallel, 8*(1-min(row.Parallel, 1))), Cancelled: row.Ended, Failed: row.Failed, Typed: row.Typed})
		want, ok := steps[row.Next]
		if !ok || got.Action != want || got.Limit != row.Limit {
			t.Errorf("%s: action %d, limit %q; want %s (%d), %q", row.Why, got.Action, got.Limit, row.Next, want, row.Limit)
		}
		var start []string
		if got.Action == Start {
			for _, c := range got.Calls {
				start = append(start, c.ID)
			}
		}
		if strings.Join(start, " ") != row.Start {
			t.Errorf("%s: %q start, want %q", row.Why, start, row.Start)
		}
	}
}

// TestReact has a table of reactions to the last of several answers of the model to one request.
func TestReact(t *testing.T) {
	names := map[string]Reaction{"accept": {}, "give up": {}, "fix": {Fix: true, Again: true},
		"hint": {Again: true, Hint: HintEmpty}, "give up the hints": {Hint: HintEmpty},
		"discard": {Discard: true, Again: true}, "drop and fail": {Discard: true},
		"continue": {KeepText: true, Again: true, Hint: HintCutOff}, "keep and fail": {KeepText: true, Hint: HintCutOff}}
	for _, row := range rows[struct {
		Why     string
		Answers []Answer
		Want    string
	}](t, "answers.jsonl") {
		var q Attempts
		var got Reaction
		for _, a := range row.Answers {
			got = q.React(a)
		}
		if want, ok := names[row.Want]; !ok || got != want {
			t.Errorf("%s: reaction %+v, want %s, %+v", row.Why, got, row.Want, want)
		}
	}
}

// TestRecover has a table of what happens to a call that an earlier run left open.
func TestRecover(t *testing.T) {
	for _, row := range rows[struct {
		Why     string
		Call    Call
		Found   Recovery
		Want    Status
		Again   bool
		Asked   bool // the user's approval is no longer valid
		Unknown bool
	}](t, "recover.jsonl") {
		approved := row.Call.Approved
		unknown := row.Call.Recover(row.Found)
		c := row.Call
		if unknown != row.Unknown || c.Status != row.Want || c.Again != row.Again || c.Approved != (approved && !row.Asked) || c.Judged != -1 {
			t.Errorf("%s: %+v, unknown %v", row.Why, c, unknown)
		}
		if unknown && (c.Result.Outcome != message.OutcomeInterrupted || c.Result.Text() != OutcomeUnknown) {
			t.Errorf("%s: the result is %+v", row.Why, c.Result)
		}
	}
}

// TestJudged has a table of decisions about calls.
func TestJudged(t *testing.T) {
	allow, ask, deny := permission.Decision{Behavior: permission.Allow, Reason: "r"}, permission.Decision{Behavior: permission.Ask, Reason: "q"}, permission.Decision{Behavior: permission.Deny}
	danger := permission.Decision{Behavior: permission.Ask, Safety: true, Reason: "d"}
	open := &permission.Judgement{Profile: permission.ProfileOpen}
	leaving := permission.Decision{Behavior: permission.Ask, Confined: true, Judgement: *open}
	for _, row := range []struct {
		why  string
		call Call
		d    permission.Decision
		want permission.Behavior
	}{
		{"allowed", Call{}, allow, permission.Allow},
		{"denied", Call{Approved: true}, deny, permission.Deny},
		{"asked", Call{}, ask, permission.Ask},
		{"a person has allowed it", Call{Approved: true}, ask, permission.Allow},
		{"a danger of which the person knew nothing", Call{Approved: true}, danger, permission.Ask},
		{"the danger that the person read", Call{Approved: true, Safety: true, Danger: "d"}, danger, permission.Allow},
		{"a sandbox that the person was told of", Call{Approved: true, Confined: true, Judgement: &permission.Judgement{}}, permission.Decision{Behavior: permission.Ask, Confined: true}, permission.Allow},
		{"a sandbox that is gone", Call{Approved: true, Confined: true, Judgement: &permission.Judgement{}}, ask, permission.Ask},
		{"a claim that the person let it leave the sandbox", Call{Approved: true, Unverified: true, Confined: true, Judgement: open}, leaving, permission.Ask},
		{"a person let it leave the sandbox", Call{Approved: true, Confined: true, Judgement: open}, leaving, permission.Allow},
		{"a claim about a call in the sandbox", Call{Approved: true, Unverified: true, Confined: true, Judgement: &permission.Judgement{}}, permission.Decision{Behavior: permission.Ask, Confined: true}, permission.Allow},
		{"another danger", Call{Approved: true, Safety: true, Danger: "e"}, danger, permission.Ask},
	} {
		s := &State{Open: []*Call{&row.call, {Status: Done}}}
		if got := s.ApplyDecision(&row.call, row.d); got != row.want {
			t.Errorf("%s: %v, want %v", row.why, got, row.want)
		}
		if c := row.call; row.want == permission.Allow && (c.Status != Allowed || c.Judged != 1) || row.want == permission.Ask && c.Approved {
			t.Errorf("%s: %+v", row.why, c)
		}
	}
}

// TestLimits has a table of reached limits.
func TestLimits(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, row := range []struct {
		why    string
		spent  Spent
		limits Limits
		want   string
	}{
		{"none", Spent{Calls: 9, Tokens: 9, Cost: 9, Since: start}, Limits{}, ""},
		{"calls", Spent{Calls: 2}, Limits{ToolCalls: 2}, "the limit of 2 tool calls"},
		{"tokens", Spent{Tokens: 7}, Limits{Tokens: 7}, "the limit of 7 tokens"},
		{"time", Spent{Since: start}, Limits{Time: time.Minute}, "the limit of 1m0s"},
		{"almost the time", Spent{Since: start.Add(1)}, Limits{Time: time.Minute}, ""},
		{"cost", Spent{Cost: 1.5}, Limits{Cost: 1.5}, "the cost limit of 1.5"},
	} {
		if got := row.spent.ReachedShared(row.limits, start.Add(time.Minute)); got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
	for limit, want := range map[time.Duration]time.Duration{200 * time.Millisecond: time.Second, time.Minute: 15 * time.Second, time.Hour: 30 * time.Second} {
		if got := (Limits{Time: limit}).LastAnswerTime(); got != want {
			t.Errorf("last answer within %v: %v, want %v", limit, got, want)
		}
	}
}

// TestFullAnswer joins the parts of answers that broke off.
func TestFullAnswer(t *testing.T) {
	text := func(id, s string) message.Block { return &message.Text{ID: id, Text: s} }
	says := func(id string, blocks ...message.Block) *message.Message {
		return &message.Message{ID: id, Role: message.RoleAssistant, Blocks: blocks}
	}
	cut := &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Hint{Source: HintSource, Text: HintCutOff}}}
	other := &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Hint{Source: HintSource, Text: HintEmpty}}}
	for _, row := range []struct {
		why  string
		msgs []*message.Message
		want string // "" is the last message itself
		n    int    // blocks
	}{
		{"whole", []*message.Message{message.User("?"), says("a", text("1", "one"))}, "", 1},
		{"two parts", []*message.Message{message.User("?"), says("a", text("1", "one ")), cut, says("b", text("2", "two"))}, "one two", 1},
		{"three parts", []*message.Message{says("a", text("1", "one ")), cut, says("b", text("2", "two ")), cut, says("c", text("3", "three"))}, "one two three", 1},
		{"with a thought between", []*message.Message{says("a", text("1", "one ")), cut, says("b", &message.Thinking{Text: "hm"}, text("2", "two"))}, "one two", 1},
		{"a picture ends the first part", []*message.Message{says("a", text("1", "one"), &message.Data{}), cut, says("b", text("2", "two"))}, "one\ntwo", 3},
		{"another hint", []*message.Message{says("a", text("1", "one ")), other, says("b", text("2", "two"))}, "", 1},
	} {
		last := row.msgs[len(row.msgs)-1]
		before := len(last.Blocks)
		got := FullAnswer(row.msgs)
		if row.want == "" {
			if got != last {
				t.Errorf("%s: %q", row.why, got.Text())
			}
			continue
		}
		if got.Text() != row.want || got.ID != last.ID || len(got.Blocks) != row.n || len(last.Blocks) != before {
			t.Errorf("%s: %q of %d blocks, id %s", row.why, got.Text(), len(got.Blocks), got.ID)
		}
	}
}

// TestHintWithData checks that a hint with an image counts as the program's message, and a hint with text as the user's.
func TestHintWithData(t *testing.T) {
	answer := &message.Message{ID: "a", Role: message.RoleAssistant, Blocks: message.Blocks{&message.Text{Text: "one"}}}
	ofProgram := &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Hint{Text: "ended"}, &message.Data{}}}
	ofUser := &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Hint{Text: "the file"}, &message.Text{Text: "again"}}}
	if got := AnswerOf([]*message.Message{message.User("?"), answer, ofProgram}); got == nil || got.ID != "a" {
		t.Errorf("the answer before a hint with an image: %v", got)
	}
	if got := AnswerOf([]*message.Message{answer, ofUser}); got != nil {
		t.Errorf("the answer before the user's last message: %v", got)
	}
	step := []*message.Message{{Role: message.RoleAssistant}, {Role: message.RoleTool}}
	for between, want := range map[*message.Message]int{ofProgram: 2, ofUser: 1} {
		if got := Repeats(slices.Concat([]*message.Message{message.User("?")}, step, []*message.Message{between}, step)); got != want {
			t.Errorf("after %q: %d identical steps, want %d", between.Blocks[0], got, want)
		}
	}
}

// TestCallJSON checks the names in the JSON of a call: sessions that were saved before must stay readable.
func TestCallJSON(t *testing.T) {
	want := "id name tool input status again parallel late handoff approved - edited judged why safety danger suggest judgement confined preview asked question told result sub charged"
	var got []string
	for f := range reflect.TypeFor[Call]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		got = append(got, name)
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, " "), want)
	}
}
