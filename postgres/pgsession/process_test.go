package pgsession_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// children are the functions of the tests' other processes, which run this program too. They
// report their progress on standard output, and continue after each line of standard input.
var children = map[string]func(ctx context.Context, store *pgsession.Store, lines *bufio.Scanner) error{
	"open":   func(context.Context, *pgsession.Store, *bufio.Scanner) error { return nil },
	"hold":   hold,
	"append": appendAll,
	"send":   sendAnswers,
}

const childEnv = "KITBAG_POSTGRES_CHILD" // name, URL, schema, claim

// child runs a child, if this process is one.
func child() {
	args := strings.Fields(os.Getenv(childEnv))
	if len(args) == 0 {
		return
	}
	if err := runChild(args); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runChild(args []string) error {
	claim, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	ctx := context.Background()
	store, err := pgsession.Open(ctx, args[1], pgsession.Options{Schema: args[2], Claim: claim})
	if err != nil {
		return err
	}
	err = children[args[0]](ctx, store, bufio.NewScanner(os.Stdin))
	return errors.Join(err, store.Close())
}

// A process is a child that runs.
type process struct {
	*testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func startProcess(t *testing.T, name string, p place, claim time.Duration) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %v", childEnv, name, p.url, p.schema, claim))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &process{t, cmd, in, bufio.NewScanner(out)}
	t.Cleanup(c.kill)
	return c
}

// kill ends the process as kill -9 does.
func (c *process) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// step has the process continue.
func (c *process) step() {
	if _, err := fmt.Fprintln(c.in); err != nil {
		c.Error(err)
	}
}

// line returns the next line that the process writes, empty if it has ended.
func (c *process) line() string {
	c.lines.Scan()
	return c.lines.Text()
}

// newPlace returns a place in the server of this process.
func newPlace(t *testing.T) place {
	t.Helper()
	u, err := url()
	if err != nil {
		t.Fatal(err)
	}
	return place{u, schema()}
}

func open(t *testing.T, p place, opts pgsession.Options) *pgsession.Store {
	t.Helper()
	opts.Schema = p.schema
	store, err := pgsession.Open(t.Context(), p.url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func openLog(t *testing.T, store session.Store, id string) session.Log {
	t.Helper()
	log, err := store.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

func record(seq int64) session.Record {
	return session.Record{Seq: seq, Whole: seq == 1, Data: json.RawMessage(`{}`), Status: session.StatusWorking,
		Events: []session.Event{{Seq: seq, Data: fmt.Appendf(nil, "%d", seq)}}}
}

func appendTo(t *testing.T, log session.Log, recs ...session.Record) {
	t.Helper()
	for _, rec := range recs {
		if err := log.Append(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
}

// hold keeps a session open, and appends a record for each line.
func hold(ctx context.Context, store *pgsession.Store, lines *bufio.Scanner) error {
	log, err := store.Open(ctx, "x")
	if err != nil {
		return err
	}
	for seq := int64(1); ; seq++ {
		err := log.Append(ctx, record(seq))
		fmt.Println(seq, errors.Is(err, session.ErrConflict), err)
		if err != nil || !lines.Scan() {
			return nil
		}
	}
}

// appendAll appends records until it is killed, and reports each that is stored.
func appendAll(ctx context.Context, store *pgsession.Store, _ *bufio.Scanner) error {
	log, err := store.Open(ctx, "x")
	for errors.Is(err, session.ErrConflict) {
		time.Sleep(10 * time.Millisecond)
		log, err = store.Open(ctx, "x")
	}
	if err != nil {
		return err
	}
	recs, err := log.Load(ctx)
	if err != nil {
		return err
	}
	for seq := int64(len(recs)) + 1; ; seq++ {
		if err := log.Append(ctx, record(seq)); err != nil {
			return err
		}
		fmt.Println(seq)
	}
}

// TestKilledAnywhere kills processes at any time, also during a save. The reported records
// are stored, and a watcher gets every event once.
func TestKilledAnywhere(t *testing.T) {
	const claim, kills = 200 * time.Millisecond, 12
	p := newPlace(t)
	store := open(t, p, pgsession.Options{Claim: claim})
	var mu sync.Mutex
	var seen []int64
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ev, err := range store.Watch(ctx, "x", 0) {
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			seen = append(seen, ev.Seq)
			mu.Unlock()
		}
	})
	r := rand.New(rand.NewPCG(1, 2))
	var reported, unreported int64 // each process may have stored one record that it could not report
	for range kills {
		c := startProcess(t, "append", p, claim)
		timer := time.AfterFunc(claim+time.Duration(r.IntN(300))*time.Millisecond, func() { _ = c.cmd.Process.Kill() })
		for line := c.line(); line != ""; line = c.line() {
			var seq int64
			if _, err := fmt.Sscan(line, &seq); err != nil {
				t.Fatalf("the process reports %q", line)
			}
			if seq <= reported || seq > reported+1+unreported {
				t.Errorf("record %d was stored after record %d", seq, reported)
			}
			reported, unreported = seq, 0
		}
		unreported++
		timer.Stop()
		c.kill()
	}
	page, err := store.List(t.Context(), session.Query{})
	if err != nil || len(page.Infos) != 1 || page.Infos[0].Seq < reported || page.Infos[0].Seq > reported+unreported || reported < kills {
		t.Fatalf("%+v, %v; %d records were reported", page, err, reported)
	}
	last := page.Infos[0].Seq
	for range 300 {
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		if int64(n) >= last {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	watching.Wait()
	for i, seq := range seen {
		if seq != int64(i+1) {
			t.Fatalf("event %d is the watcher's number %d", seq, i+1)
		}
	}
	if int64(len(seen)) != last {
		t.Errorf("the watcher has seen %d events of %d", len(seen), last)
	}
	t.Logf("%d processes were killed within %d records", kills, last)
}

// TestOpenAtOnce has several processes create the tables of a new database at once.
func TestOpenAtOnce(t *testing.T) {
	p := newPlace(t)
	var all []*process
	for range 4 {
		all = append(all, startProcess(t, "open", p, time.Second))
	}
	for _, c := range all {
		if got := c.line(); got != "" {
			t.Errorf("a process reports %q", got)
		}
		if err := c.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	appendTo(t, openLog(t, open(t, p, pgsession.Options{}), "x"), record(1))
}

// sendAnswers answers the question of a session with an id of its own, and then sends an input with
// an id that another process uses too.
func sendAnswers(ctx context.Context, store *pgsession.Store, lines *bufio.Scanner) error {
	st, _, err := session.Read(ctx, store, "x", 0)
	if err != nil {
		return err
	}
	question, ok := st.Pending()[0].(*event.Approval)
	if !ok {
		return errors.New("the session has no question")
	}
	fmt.Println("ready")
	lines.Scan()
	own, err := session.Send(ctx, store, "x", fmt.Sprintf("own-%d", os.Getpid()), question.Allow())
	if err != nil {
		return err
	}
	shared, err := session.Send(ctx, store, "x", "shared", agent.Say("Thanks."))
	fmt.Println(own, shared)
	return err
}

// TestAnswers has two processes answer one question at once: one answer is used, the other is
// refused, and both processes can read which.
func TestAnswers(t *testing.T) {
	p := newPlace(t)
	store := open(t, p, pgsession.Options{})
	done := 0
	book := tool.Must(tool.New("book", "Books it.", func(context.Context, struct{}) (string, error) {
		done++
		return "ok", nil
	}, tool.Options{}))
	a, err := agent.New(agent.Config{Toolkit: toolkit.Of(book), Policy: permission.Policy{}, Save: session.Save,
		Model: scripted.New(scripted.Call("book", struct{}{}), scripted.Say("Booked."), scripted.Say("You are welcome."))})
	if err != nil {
		t.Fatal(err)
	}
	run := func() {
		s, err := session.Open(t.Context(), store, "x")
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range s.Run(t.Context(), a) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := session.Send(t.Context(), store, "x", "first", agent.Say("Book it.")); err != nil {
		t.Fatal(err)
	}
	run()
	senders := []*process{startProcess(t, "send", p, time.Second), startProcess(t, "send", p, time.Second)}
	for _, c := range senders {
		if got := c.line(); got != "ready" {
			t.Fatalf("a process reports %q", got)
		}
	}
	var reported []string
	for _, c := range senders {
		c.step()
	}
	for _, c := range senders {
		reported = append(reported, c.line())
	}
	slices.Sort(reported)
	if strings.Join(reported, ", ") != "true false, true true" {
		t.Errorf("the processes report %q: the shared id must be accepted once, each own one too", reported)
	}
	run()
	var counts, refused int
	for _, c := range senders {
		e, err := store.Input(t.Context(), "x", fmt.Sprintf("own-%d", c.cmd.Process.Pid))
		switch {
		case err != nil || e.Record == 0:
			t.Errorf("an answer is %+v, %v", e, err)
		case e.Refused == "":
			counts++
		case strings.Contains(e.Refused, "answered before"):
			refused++
		}
	}
	if counts != 1 || refused != 1 || done != 1 {
		t.Errorf("%d answers count, %d are refused, and the call was made %d times", counts, refused, done)
	}
}
