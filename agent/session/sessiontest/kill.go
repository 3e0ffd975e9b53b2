package sessiontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/internal/killed"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The environment variables of a process that Kill starts: the directory, and the number for [killed.Save].
const (
	childDir  = "KITBAG_SESSIONTEST_DIR"
	childKill = "KITBAG_SESSIONTEST_KILL"
)

// Kill runs an agent on a session in the store by several processes in turn, each of which is killed (SIGKILL) at one
// of its saves. This process watches the session, and sends the inputs and the answers to questions. In the end every
// input and every tool call must have had its effect once, and no watcher may have missed an event or seen one twice.
// The store must work for several processes, and be a [session.Inbox], a [session.Watcher] and a [session.Reader].
// A claim of a store that has claims must expire within 30 s; the test takes about ten times as long as a claim.
//
// Each process is the test binary running the test t again, so the test must begin with the call of Kill.
func Kill(t *testing.T, open Opener) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := runChild(dir, open); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	k := &killTest{T: t, dir: t.TempDir()}
	k.store = openUntilEnd(t, open, k.dir)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var watchers sync.WaitGroup
	seen := make([][]string, 3)
	for i := range seen {
		store := openUntilEnd(t, open, k.dir)
		watchers.Go(func() { seen[i] = k.watch(ctx, store, i == 0) })
	}
	k.send("first", agent.Say("1 ask2 3"))
	k.send("second", agent.Say("4 ask5"))
	const maxProcesses = 500
	for n := 1; !k.ended(ctx); n++ {
		if n > maxProcesses || t.Failed() {
			t.Errorf("the session has not ended after %d processes", n-1)
			break
		}
		kill := 1 + n%4 // after the first to the fourth save
		if n%3 == 0 {
			kill = -kill // before this save
		}
		k.runProcess(t.Name(), kill)
	}
	k.send("last", agent.Interrupt{}) // ends the watchers
	k.runProcess(t.Name(), 0)
	k.check(ctx)
	if t.Failed() {
		cancel() // the watchers may not have seen the interrupt
	}
	watchers.Wait()
	for i := range seen {
		if !slices.Equal(seen[i], k.events) {
			t.Errorf("watcher %d has seen %d events of %d:\n%s\nwant\n%s", i, len(seen[i]), len(k.events), strings.Join(seen[i], "\n"), strings.Join(k.events, "\n"))
		}
	}
}

// claimTimeout is how long a process waits until the claim of a killed process has expired.
const claimTimeout = 30 * time.Second

// A killTest is one call of Kill.
type killTest struct {
	*testing.T
	dir    string
	store  session.Store
	events []string // all stored events, set by check
}

const killID = "killed" // the id of the session

func (k *killTest) send(id string, in agent.Input) {
	if _, err := session.Send(k.Context(), k.store, killID, id, in); err != nil {
		k.Errorf("send %s: %v", id, err)
	}
}

// watch returns the events up to the interrupt. If answer is true, it answers each question twice.
func (k *killTest) watch(ctx context.Context, store session.Store, answer bool) (seen []string) {
	interrupted := false
	after := int64(0)
	for !interrupted {
		n := 0 // events of this call of Watch, which ends after a few, as a client that reconnects
		for ev, err := range session.Watch(ctx, store, killID, after) {
			if err != nil {
				k.Errorf("watch after event %d: %v", after, err)
				return seen
			}
			after = ev.Head().Seq
			seen = append(seen, describe(ev))
			if q, ok := ev.(*event.Approval); ok && answer {
				k.send("answer-"+q.Call, q.Allow())
				k.send("again-"+q.Call+"-"+strconv.FormatInt(after, 10), q.Deny("too late"))
			}
			if end, ok := ev.(*event.End); ok && end.Reason == event.EndInterrupted {
				interrupted = true
				break
			}
			if n++; n == 7 {
				break
			}
		}
	}
	return seen
}

func describe(ev event.Event) string { return fmt.Sprintf("%d %s", ev.Head().Seq, event.TypeOf(ev)) }

// ended reports whether the session has ended and no input waits. If the session waits for an answer, ended gives the
// watcher time to send one.
func (k *killTest) ended(ctx context.Context) bool {
	page, err := k.store.List(ctx, session.Query{})
	if err != nil || len(page.Infos) != 1 {
		k.Fatalf("listed %+v, %v", page, err)
	}
	in := page.Infos[0]
	if in.Status == session.StatusWaiting && in.Inputs == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return in.Status == session.StatusEnded && in.Inputs == 0
}

// runProcess runs a process until it ends or kills itself.
func (k *killTest) runProcess(test string, kill int) {
	pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	cmd := exec.Command(os.Args[0], "-test.run="+pattern)
	cmd.Env = append(os.Environ(), childDir+"="+k.dir, childKill+"="+strconv.Itoa(kill), "GORACE=atexit_sleep_ms=0")
	if _, _, err := killed.Run(cmd); err != nil {
		k.Errorf("the process that is killed at save %d: %v", kill, err)
	}
}

// check checks the contents of the store at the end.
func (k *killTest) check(ctx context.Context) {
	st, in, err := session.Read(ctx, k.store, killID, 0)
	if err != nil {
		k.Fatal(err)
	}
	words := effects(k.dir)
	slices.Sort(words)
	if got := strings.Join(words, " "); got != "1 3 4 ask2 ask5" {
		k.Errorf("the effects are %q", got)
	}
	var said, messages []string
	for _, m := range st.Messages {
		messages = append(messages, m.ID)
		if m.Role == message.RoleUser && m.Text() != "" {
			said = append(said, m.Text())
		}
	}
	if got := strings.Join(said, ", "); got != "1 ask2 3, 4 ask5" {
		k.Errorf("the messages of the user are %q", got)
	}
	if err := agent.CheckHistory(st.Messages); err != nil {
		k.Error(err)
	}
	var reported []string
	results := map[string]int{}
	last := int64(0)
	for ev, err := range session.Watch(ctx, k.store, killID, 0) {
		if err != nil {
			k.Fatal(err)
		}
		if ev.Head().Seq <= last {
			k.Errorf("event %d follows event %d", ev.Head().Seq, last)
		}
		last = ev.Head().Seq
		k.events = append(k.events, describe(ev))
		switch ev := ev.(type) {
		case *event.Message:
			reported = append(reported, ev.Message.ID)
		case *event.ToolResult:
			results[ev.Call]++
		}
		if last >= in.Event {
			break
		}
	}
	if !slices.Equal(reported, messages) {
		k.Errorf("the messages are\n%v\nthe events report\n%v", messages, reported)
	}
	for call, n := range results {
		if n != 1 {
			k.Errorf("call %s has %d results", call, n)
		}
	}
	k.checkInputs(ctx)
}

func (k *killTest) checkInputs(ctx context.Context) {
	box := as[session.Inbox](k.T, k.store)
	if waiting, err := box.Inputs(ctx, killID); err != nil || len(waiting) > 0 {
		k.Errorf("the inputs %v wait, %v", waiting, err)
	}
	for _, id := range []string{"first", "second", "last"} {
		if e, err := box.Input(ctx, killID, id); err != nil || e.Record == 0 || e.Refused != "" {
			k.Errorf("the input %s: %+v, %v", id, e, err)
		}
	}
}

// runChild runs the session until the run ends, or this process is killed.
func runChild(dir string, open Opener) error {
	kill, err := strconv.Atoi(os.Getenv(childKill))
	if err != nil {
		return err
	}
	store, err := open(dir)
	if err != nil {
		return err
	}
	ctx := context.Background()
	s, err := session.Open(ctx, store, killID)
	// The claim of the killed process may not have expired yet.
	for end := time.Now().Add(claimTimeout); errors.Is(err, session.ErrConflict) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		s, err = session.Open(ctx, store, killID)
	}
	if err != nil {
		return err
	}
	a, err := worker(dir, killed.Save(kill, s.Save))
	if err != nil {
		return err
	}
	for _, err := range s.Run(ctx, a) {
		if err != nil {
			return err
		}
	}
	return s.Close()
}

// effects returns the words that the calls of do and ask have written.
func effects(dir string) []string {
	data, err := os.ReadFile(filepath.Join(dir, "effects.txt"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

type task struct {
	Name string `json:"name"`
}

// worker returns an agent that makes a call for each word of the user. The call writes the word to a file; for words that
// start with "ask" it needs approval. If a process was killed during a call, the next process checks whether the call
// had its effect.
func worker(dir string, save func(context.Context, *agent.State) error) (*agent.Agent, error) {
	do := func(_ context.Context, in task) (string, error) {
		f, err := os.OpenFile(filepath.Join(dir, "effects.txt"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return "", err
		}
		_, err = fmt.Fprintln(f, in.Name)
		return "ok", errors.Join(err, f.Close())
	}
	check := func(_ context.Context, in task) (string, error) {
		if slices.Contains(effects(dir), in.Name) {
			return "ok", nil
		}
		return "missing", nil
	}
	return agent.New(agent.Config{
		Model: scripted.New(scripted.Repeat(scripted.Func(nextTask))),
		Toolkit: toolkit.Of(
			tool.Must(tool.New("do", "Does it.", do, tool.Options{})),
			tool.Must(tool.New("ask", "Does it, if a person allows.", do, tool.Options{})),
			tool.Must(tool.New("check", "Reports whether it was done.", check, tool.Options{ReadOnly: true}))),
		Policy: permission.Policy{Rules: []permission.Rule{{Tool: "do", Behavior: permission.Allow}, {Tool: "check", Behavior: permission.Allow}}},
		Save:   save,
	})
}

// nextTask is the model: it makes a call for the first word without a result that says "ok".
func nextTask(req *model.Request) (scripted.Turn, error) {
	var todo []string
	words, results := map[string]string{}, map[string]string{} // by call, and by word
	for _, m := range req.Messages {
		if m.Role == message.RoleUser {
			todo = append(todo, strings.Fields(m.Text())...)
		}
		for _, c := range m.ToolCalls() {
			var in task
			if err := json.Unmarshal(c.Input, &in); err != nil {
				return scripted.Turn{}, err
			}
			words[c.ID] = in.Name
		}
		for _, r := range m.ToolResults() {
			result := string(r.Outcome)
			if r.Outcome == message.OutcomeSuccess {
				result = r.Text()
			}
			results[words[r.ID]] = result
		}
	}
	for _, word := range todo {
		toolName := "do"
		if strings.HasPrefix(word, "ask") {
			toolName = "ask"
		}
		switch results[word] {
		case "ok":
			continue
		case string(message.OutcomeInterrupted):
			toolName = "check"
		}
		return scripted.Call(toolName, task{word}), nil
	}
	return scripted.Say("done"), nil
}
