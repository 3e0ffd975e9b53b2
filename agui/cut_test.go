package agui_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agui"
	"github.com/kitbag-go/kitbag/agui/internal/desk"
	"github.com/kitbag-go/kitbag/model"
)

var paint = `"tools":[{"name":"paint","description":"Paints.","parameters":{"type":"object"}}]`

// streams are runs, each of a thread of its own.
var streams = []struct{ text, more string }{
	{"hello", ""}, {"think tea", ""}, {"note milk", ""}, {"send it", ""}, {"two things", ""}, {"clerk look here", ""}, {"flaky", ""},
	{"break", ""}, {"long", ""}, {"front paint", paint},
}

// TestCuts cuts each stream after each of its events. Another replica continues it after the last event that
// arrived: nothing is lost, and nothing comes twice. Only what was discarded before the cut is not repeated.
func TestCuts(t *testing.T) {
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			here, there := newReplica(t, store), newReplica(t, store)
			for i, s := range streams {
				thread := fmt.Sprintf("t%d", i)
				var more []string
				if s.more != "" {
					more = []string{s.more}
				}
				whole := here.run(thread, "m1", s.text, more...)
				want := kept(t, whole)
				if s.text == "long" && len(whole) < 20 {
					t.Errorf("the text came in %d events: it was not streamed", len(whole))
				}
				for n := 1; n <= len(whole); n++ {
					id := whole[n-1].id
					if id == "" {
						continue // the stream has only begun: the client sends its request again
					}
					rest := there.stream("GET", "?threadId="+thread, "", "Last-Event-ID", id)
					if got := kept(t, append(whole[:n:n], rest...)); got != want {
						t.Fatalf("%q, cut after event %d, %s:\n%s\nwant\n%s", s.text, n, id, got, want)
					}
				}
				if got := kept(t, there.oneByOne(thread, whole[:2:2])); got != want {
					t.Errorf("%q, cut after each event:\n%s\nwant\n%s", s.text, got, want)
				}
			}
		})
	}
}

// oneByOne continues a stream, and again after each event.
func (r *replica) oneByOne(thread string, list []frame) []frame {
	for {
		res := r.do("GET", "?threadId="+thread, "", "Last-Event-ID", last(r.t, list).id)
		n := len(list)
		frames(r.t, res.Body, func(f frame) bool { list = append(list, f); return false })
		res.Body.Close()
		if len(list) == n {
			return list
		}
	}
}

// kept returns the normal form of a stream without messages that were discarded.
func kept(t *testing.T, list []frame) string {
	t.Helper()
	discarded := []string{}
	for _, f := range list {
		if f.data["name"] == "kitbag.discard" {
			discarded = append(discarded, f.data["value"].(map[string]any)["messageId"].(string))
		}
	}
	return normal(t, slices.DeleteFunc(slices.Clone(list), func(f frame) bool {
		id, _ := f.data["messageId"].(string)
		return f.data["name"] == "kitbag.discard" || slices.ContainsFunc(discarded, func(d string) bool { return strings.HasPrefix(id, d+".") })
	}))
}

func stores(t *testing.T) map[string]session.Store {
	dir, err := session.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]session.Store{"memory": session.Memory(), "dir": dir}
}

// TestTakenUp cuts the stream of a run that is in progress. Another replica over the same directory continues it.
func TestTakenUp(t *testing.T) {
	dir := t.TempDir()
	open := func() session.Store {
		s, err := session.Dir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	here, there := newReplica(t, open()), newReplica(t, open())
	res := here.do("POST", "", request("t", "m1", "wait"))
	var got []frame
	frames(t, res.Body, func(f frame) bool {
		got = append(got, f)
		return f.kind() != "TOOL_CALL_END"
	})
	res.Body.Close()
	done := make(chan []frame)
	go func() { done <- there.stream("GET", "?threadId=t", "", "Last-Event-ID", last(t, got).id) }()
	joined := make(chan []frame)
	go func() { joined <- there.stream("GET", "?threadId=t&runId=other", "") }()
	ahead := make(chan string)
	go func() { // with an id that no server sent
		res := there.do("GET", "?threadId=t", "", "Last-Event-ID", "r~~0~0~9223372036854775807~0")
		text, _ := io.ReadAll(res.Body)
		ahead <- string(text)
		res.Body.Close()
	}()
	here.release <- struct{}{}
	got = append(got, <-done...)
	if text := <-ahead; !strings.Contains(text, "Last-Event-ID is after the end of the thread") { // before the end of the run, or after it
		t.Errorf("a stream from the future is %s", text)
	}
	if want := "RUN_STARTED STATE_SNAPSHOT STEP_STARTED TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END TOOL_CALL_RESULT " +
		"STEP_FINISHED STEP_STARTED TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END STEP_FINISHED RUN_FINISHED"; kinds(got) != want {
		t.Errorf("the events are\n%s\nwant\n%s", kinds(got), want)
	}
	if f := last(t, got); f.data["runId"] != "run-m1" {
		t.Errorf("the end is that of run %v", f.data["runId"])
	}
	if got := kinds(<-joined); !strings.HasPrefix(got, "RUN_STARTED STATE_SNAPSHOT MESSAGES_SNAPSHOT ") || !strings.HasSuffix(got, " RUN_FINISHED") {
		t.Errorf("a client that joins gets %s", got)
	}
	res = there.do("GET", "?threadId=t", "", "Last-Event-ID", last(t, got).id)
	res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		t.Errorf("after the end the status is %s", res.Status)
	}
}

// kinds returns the types of events; the pieces of a text count as one.
func kinds(list []frame) string {
	var all []string
	for _, f := range list {
		if n := len(all); n == 0 || !strings.HasSuffix(f.kind(), "_CONTENT") || all[n-1] != f.kind() {
			all = append(all, f.kind())
		}
	}
	return strings.Join(all, " ")
}

// TestCrash kills the process of a run. A client that comes back to another replica finds the run continued there.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	here := &replica{t: t, url: strings.TrimSpace(url)}
	res := here.do("POST", "", request("t", "m1", "wait"))
	var got []frame
	frames(t, res.Body, func(f frame) bool {
		got = append(got, f)
		return f.kind() != "TOOL_CALL_END"
	})
	res.Body.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	store, err := session.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	there := newReplica(t, store)
	there.release <- struct{}{} // if the call had not started
	got = append(got, there.stream("GET", "?threadId=t", "", "Last-Event-ID", last(t, got).id)...)
	if end := last(t, got); end.kind() != "RUN_FINISHED" || strings.Count(kinds(got), "TOOL_CALL_RESULT") != 1 || strings.Count(kinds(got), "RUN_STARTED") != 1 {
		t.Errorf("the events are %s, the last is %v", kinds(got), end.data)
	}
}

// A gate is a model that stops within each answer, until a value is sent to it.
type gate struct {
	model.Model
	open chan struct{}
}

func (g gate) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		n := 0
		for c, err := range g.Model.Generate(ctx, req) {
			if n++; n == 4 {
				select {
				case <-g.open:
				case <-ctx.Done():
				}
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// TestMidText cuts a stream in the middle of a text that the model is still writing. Both the same replica and another
// one continue it with the next letter.
func TestMidText(t *testing.T) {
	store := session.Memory()
	g := gate{desk.Model(), make(chan struct{})}
	here, there := newReplica(t, store, func(c *agui.Config) { c.Agent.Model = g }), newReplica(t, store)
	for i, text := range []string{"think about tea", "long"} {
		thread := fmt.Sprintf("t%d", i)
		res := here.do("POST", "", request(thread, "m1", text))
		var got []frame
		frames(t, res.Body, func(f frame) bool {
			got = append(got, f)
			return !strings.HasSuffix(f.kind(), "_CONTENT")
		})
		res.Body.Close()
		cut, rest := last(t, got), make(chan []frame, 2)
		for _, r := range []*replica{here, there} {
			go func() { rest <- r.stream("GET", "?threadId="+thread, "", "Last-Event-ID", cut.id) }()
		}
		time.Sleep(20 * time.Millisecond) // so that both wait; the result does not depend on it
		g.open <- struct{}{}
		want := normal(t, there.run(thread+"-whole", "m1", text))
		for range 2 {
			if all := normal(t, append(got[:len(got):len(got)], <-rest...)); contents(all) != contents(want) {
				t.Errorf("%q: the text is\n%s\nwant\n%s", text, contents(all), contents(want))
			}
		}
	}
}

// contents returns the pieces of text in a normal form.
func contents(stream string) string {
	var list []string
	for _, m := range regexp.MustCompile(`"delta":"([^"]*)"`).FindAllStringSubmatch(stream, -1) {
		list = append(list, m[1])
	}
	return strings.Join(list, "\n")
}
