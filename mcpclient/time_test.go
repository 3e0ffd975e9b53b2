package mcpclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

// A pipe is one end of a connection in memory.
type pipe struct {
	io.Reader
	io.WriteCloser
	closer io.Closer
}

func (p pipe) Close() error { return errors.Join(p.WriteCloser.Close(), p.closer.Close()) }

// inMemory returns a dial function for a scripted server. Each message is handled in its own goroutine, so that
// a script may sleep.
func inMemory(s script) func(context.Context) (io.ReadWriteCloser, error) {
	return func(context.Context) (io.ReadWriteCloser, error) {
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		var mu sync.Mutex
		reply := func(line string) {
			mu.Lock()
			defer mu.Unlock()
			if line == hangUp {
				out.Close()
				return
			}
			fmt.Fprintln(out, line)
		}
		go func() {
			defer out.Close()
			lines := bufio.NewScanner(in)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				var msg request
				if json.Unmarshal(lines.Bytes(), &msg) == nil {
					go s(msg, reply)
				}
			}
		}()
		return pipe{fromServer, toServer, fromServer}, nil
	}
}

// hangUp, as a reply, ends the connection.
const hangUp = "\x00hang up"

func memoryClient(t *testing.T, cfg Server, s script) *Client {
	t.Helper()
	cfg.Name, cfg.Transport = "srv", Dial(inMemory(s))
	c, err := New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// slow is a server whose tools take long.
func slow(msg request, reply func(string)) {
	if handleStandard(msg, reply, `[{"name":"steps"},{"name":"silent"},{"name":"half"},{"name":"late"},{"name":"stuck"}]`) || msg.Method != "tools/call" {
		return
	}
	var p struct {
		Arguments struct {
			N     int
			Every float64 // seconds
		}
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(msg.Params, &p)
	step := func(i int) {
		reply(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, p.Meta.Token, i))
	}
	switch msg.name() {
	case "steps":
		for i := range p.Arguments.N {
			time.Sleep(time.Duration(p.Arguments.Every * float64(time.Second)))
			step(i)
		}
		reply(msg.result(`{"content":[{"type":"text","text":"done"}]}`))
	case "stuck":
		for range 100 {
			time.Sleep(20 * time.Second)
			step(7) // the same value each time is not progress
		}
	case "half":
		reply(msg.result(`{"content":[{"type":"te`))
	case "late":
		time.Sleep(90 * time.Second)
		reply(msg.result(`{"content":[{"type":"text","text":"too late"}]}`))
	}
}

func TestTimeouts(t *testing.T) {
	for _, row := range []struct {
		tool, args string
		outcome    message.Outcome
		want       string
		after      time.Duration
	}{
		{"steps", `{"n":3,"every":1}`, message.OutcomeSuccess, "done", 3 * time.Second},
		{"steps", `{"n":4,"every":50}`, message.OutcomeSuccess, "done", 200 * time.Second},
		{"steps", `{"n":100,"every":50}`, message.OutcomeError, "still running after 10m", 10 * time.Minute},
		{"steps", `{"n":1,"every":61}`, message.OutcomeError, "no progress for 1m", time.Minute},
		{"stuck", `{}`, message.OutcomeError, "no progress", 80 * time.Second},
		{"half", `{}`, message.OutcomeError, "cannot be read", 0},
		{"late", `{}`, message.OutcomeError, "no progress", time.Minute},
	} {
		t.Run(row.tool+row.args, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, slow)
				tl := find(t, c, row.tool)
				start := time.Now()
				res := mustRun(t, tl, row.args)
				if d := time.Since(start); d < row.after || d > row.after+time.Second {
					t.Errorf("it took %v, want %v", d, row.after)
				}
				if res.Outcome != row.outcome || !strings.Contains(res.Text(), row.want) {
					t.Errorf("%s %q, want %s %q", res.Outcome, res.Text(), row.outcome, row.want)
				}
				time.Sleep(time.Minute) // for late messages
				if res := mustRun(t, find(t, c, "steps"), `{"n":1}`); res.Text() != "done" {
					t.Errorf("the next call: %q", res.Text())
				}
				c.Close()
				time.Sleep(2 * time.Hour) // lets the server finish
			})
		})
	}
}

func TestCancelReachesServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notified := make(chan string, 1)
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
			if !handleStandard(msg, reply, `[{"name":"wait"}]`) && msg.Method == "notifications/cancelled" {
				notified <- string(msg.Params)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := run(ctx, find(t, c, "wait"), `{}`); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
		if got := <-notified; !strings.Contains(got, `"requestId":"kb-`) {
			t.Errorf("the server was notified: %s", got)
		}
		c.Close()
	})
}

func TestListChangedIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists, version, changes atomic.Int64
		version.Store(1)
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
			if msg.Method == "tools/list" {
				lists.Add(1)
			}
			if handleStandard(msg, reply, fmt.Sprintf(`[{"name":"flood"},{"name":"v%d"}]`, version.Load())) || msg.Method != "tools/call" {
				return
			}
			version.Store(2)
			for range 500 {
				reply(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			}
			reply(msg.result(`{}`))
		})
		defer c.OnChange(func() { changes.Add(1) })()
		c.OnChange(func() { t.Error("a listener was called after its stop") })()
		before, err := c.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustRun(t, find(t, c, "flood"), `{}`)
		time.Sleep(debounce + time.Second)
		after, err := c.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if before[1].Info().Name != "mcp__srv__v1" || after[1].Info().Name != "mcp__srv__v2" || lists.Load() != 2 || changes.Load() != 1 {
			t.Errorf("%s, %s, %d lists, %d changes", before[1].Info().Name, after[1].Info().Name, lists.Load(), changes.Load())
		}
		mustRun(t, find(t, c, "flood"), `{}`)
		time.Sleep(debounce + time.Second)
		if again, _ := c.Tools(t.Context()); &again[0] != &after[0] || lists.Load() != 3 || changes.Load() != 1 {
			t.Errorf("an equal list counts as a change (%d lists, %d changes)", lists.Load(), changes.Load())
		}
		c.Close()
	})
}

func TestListTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int64
		var broken atomic.Bool
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, ListTTL: time.Minute}}, func(msg request, reply func(string)) {
			if msg.Method == "tools/list" {
				if lists.Add(1); broken.Load() {
					reply(msg.fail(-32603, "not today"))
					return
				}
			}
			handleStandard(msg, reply, `[{"name":"a"}]`)
		})
		for _, wait := range []time.Duration{0, 30 * time.Second, 31 * time.Second, time.Second} {
			time.Sleep(wait)
			if _, err := c.Tools(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if lists.Load() != 2 {
			t.Errorf("%d lists", lists.Load())
		}
		broken.Store(true)
		time.Sleep(time.Minute)
		for range 5 {
			if tools, err := c.Tools(t.Context()); err != nil || len(tools) != 1 {
				t.Errorf("the last list is gone: %v", err)
			}
		}
		if lists.Load() != 3 {
			t.Errorf("%d lists; a server that cannot list is asked too often", lists.Load())
		}
		c.Close()
	})
}

// TestListChangedAgainAndAgain checks that a server that keeps announcing changes is listed less and less
// often, and soon again after a quiet time.
func TestListChangedAgainAndAgain(t *testing.T) {
	for _, method := range []string{"notifications/tools/list_changed", "notifications/groups/list_changed", "notifications/subscriptions/acknowledged"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lists atomic.Int64
				announce := make(chan func(string), 1)
				c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
					switch msg.Method {
					case "tools/list":
						reply(msg.result(fmt.Sprintf(`{"tools":[{"name":"v%d"}]}`, lists.Add(1)))) // a new tool each time
					case "notifications/initialized":
						announce <- reply
					default:
						handleStandard(msg, reply, "")
					}
				})
				if _, err := c.Tools(t.Context()); err != nil {
					t.Fatal(err)
				}
				say := <-announce
				changed := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, method)
				for range 60 * 100 {
					say(changed)
					time.Sleep(10 * time.Millisecond)
				}
				if n := lists.Load(); n < 5 || n > 15 {
					t.Errorf("listed %d times in a minute", n)
				}
				time.Sleep(time.Minute)
				for range 3 { // like a server whose groups are opened now and then
					before := lists.Load()
					say(changed)
					time.Sleep(2 * debounce)
					if n := lists.Load(); n != before+1 {
						t.Errorf("after a quiet minute it was listed %d times in %v", n-before, 2*debounce)
					}
					time.Sleep(3 * time.Second)
				}
				c.Close()
			})
		})
	}
}

func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Bool
		var pings atomic.Int64
		c := memoryClient(t, Server{}, func(msg request, reply func(string)) {
			if msg.Method == "ping" {
				pings.Add(1)
				if hung.Load() {
					return
				}
			}
			slow(msg, reply)
		})
		tl := find(t, c, "steps")
		time.Sleep(5*time.Minute + time.Second)
		if pings.Load() != 10 || c.Status().Restarts != 0 {
			t.Errorf("%d pings in 5 min, %d restarts", pings.Load(), c.Status().Restarts)
		}
		if res := mustRun(t, tl, `{"n":10,"every":30}`); res.Outcome != message.OutcomeSuccess || pings.Load() > 11 {
			t.Errorf("a busy server is pinged (%d): %q", pings.Load(), res.Text())
		}
		hung.Store(true)
		time.Sleep(time.Minute)
		hung.Store(false)
		time.Sleep(time.Minute)
		if st := c.Status(); st.Restarts == 0 || st.State != stateReady {
			t.Errorf("a hung server was not replaced: %+v", st)
		}
		c.Close()
		time.Sleep(time.Hour)
	})
}

// A slowPipe takes long to close, like a process whose output another process has open. It counts the pipes
// that are open.
type slowPipe struct {
	io.ReadWriteCloser
	once *sync.Once
	open *atomic.Int64
}

func (p slowPipe) Close() error {
	p.once.Do(func() {
		time.Sleep(50 * time.Millisecond)
		p.open.Add(-1)
	})
	return p.ReadWriteCloser.Close()
}

// TestRestartsAreCounted checks that a lost connection counts once, whichever goroutine notices it first, and
// before the server is restarted; and that the server is restarted once, after the old connection has ended.
func TestRestartsAreCounted(t *testing.T) {
	var open, most, dials atomic.Int64
	var counted []int
	var c *Client
	dial := inMemory(func(msg request, reply func(string)) {
		if handleStandard(msg, reply, `[{"name":"die"},{"name":"work"}]`) || msg.Method != "tools/call" {
			return
		}
		if msg.name() == "die" {
			reply(hangUp)
			return
		}
		reply(msg.result(`{"content":[{"type":"text","text":"done"}]}`))
	})
	cfg := Server{Name: "srv", Transport: Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
		if dials.Add(1) > 1 {
			counted = append(counted, c.Status().Restarts)
		}
		most.Store(max(most.Load(), open.Add(1)))
		p, err := dial(ctx)
		return slowPipe{p, new(sync.Once), &open}, err
	}),
		Options: Options{PingInterval: -1}}
	var err error
	if c, err = New(cfg.Name, cfg.Transport, &cfg.Options); err != nil {
		t.Fatal(err)
	}
	die, work := find(t, c, "die"), find(t, c, "work")
	for n := 1; n <= 3; n++ {
		mustRun(t, die, `{}`)
		if st := c.Status(); st.Restarts != n || st.State != stateRestarting {
			t.Errorf("after loss %d: %+v", n, st)
		}
		if res := mustRun(t, work, `{}`); res.Text() != "done" {
			t.Errorf("the next call: %q", res.Text())
		}
		time.Sleep(200 * time.Millisecond) // for goroutines that notice later
		if st := c.Status(); st.Restarts != n || st.State != stateReady || dials.Load() != int64(n)+1 {
			t.Errorf("%d losses, %d dials: %+v", n, dials.Load(), st)
		}
	}
	if want := []int{1, 2, 3}; !slices.Equal(counted, want) || most.Load() != 1 {
		t.Errorf("counted at each restart: %v; %d connections at a time", counted, most.Load())
	}
	c.Close()
}

// TestStatusStartsNothing checks that Status starts no server, not even one that will be restarted in a moment.
func TestStatusStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials, lists atomic.Int64
		var say func(string)
		dial := inMemory(func(msg request, reply func(string)) {
			if msg.Method == "initialize" {
				say = reply
			}
			handleStandard(msg, reply, fmt.Sprintf(`[{"name":"t%d"}]`, lists.Add(1)))
		})
		c, err := New("srv", Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
			dials.Add(1)
			return dial(ctx)
		}),
			&Options{PingInterval: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
		busy := make(chan struct{}) // blocks the goroutine that supervises the connection
		c.OnChange(func() { <-busy })
		say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		time.Sleep(time.Second)
		say(hangUp)
		synctest.Wait()
		for range 3 {
			if st := c.Status(); st.State != stateRestarting || st.Restarts != 1 || !errors.Is(st.Err, ErrLost) || dials.Load() != 1 {
				t.Errorf("%d dials: %+v", dials.Load(), st)
			}
			time.Sleep(time.Minute)
		}
		close(busy)
		time.Sleep(time.Minute)
		if st := c.Status(); st.State != stateReady || st.Restarts != 1 || dials.Load() != 2 {
			t.Errorf("in the end %d dials: %+v", dials.Load(), st)
		}
		c.Close()
	})
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int64
		var broken atomic.Bool
		script := func(msg request, reply func(string)) {
			if msg.Method == "initialize" && broken.Load() {
				reply(hangUp)
				return
			}
			if !handleStandard(msg, reply, `[{"name":"work"}]`) && msg.Method == "tools/call" {
				if broken.Load() {
					reply(hangUp)
				} else {
					reply(msg.result(`{}`))
				}
			}
		}
		cfg := Server{Name: "srv", Options: Options{PingInterval: -1, Timeouts: Timeouts{Start: time.Minute}}}
		dial := inMemory(script)
		cfg.Transport = Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
			starts.Add(1)
			return dial(ctx)
		})
		c, err := New(cfg.Name, cfg.Transport, &cfg.Options)
		if err != nil {
			t.Fatal(err)
		}
		tl := find(t, c, "work")
		if starts.Load() != 1 {
			t.Fatalf("%d starts", starts.Load())
		}
		broken.Store(true)
		mustRun(t, tl, `{}`)
		time.Sleep(time.Hour)
		if n := starts.Load(); n < eagerRestarts || n > 2*eagerRestarts {
			t.Errorf("a broken server was started %d times in an hour", n)
		}
		if st := c.Status(); st.State != stateFailed || st.Err == nil {
			t.Errorf("status: %+v", st)
		}
		if tools, err := c.Tools(t.Context()); err != nil || len(tools) != 1 {
			t.Errorf("the list is lost: %v", err)
		}
		if res := mustRun(t, tl, `{}`); res.Outcome != message.OutcomeError {
			t.Errorf("a call of a broken server: %q", res.Text())
		}
		broken.Store(false)
		if res := mustRun(t, tl, `{}`); res.Outcome != message.OutcomeSuccess {
			if !strings.Contains(res.Text(), "restarting") {
				t.Errorf("a call in the pause: %q", res.Text())
			}
			time.Sleep(maxBackoff)
			if res := mustRun(t, tl, `{}`); res.Outcome != message.OutcomeSuccess {
				t.Errorf("a call of a server that works again: %q", res.Text())
			}
		}
		c.Close()
	})
}

// TestProgressOfTheSecondTry checks that progress of the second try extends a call that is repeated after a
// lost connection, although the steps start from the beginning.
func TestProgressOfTheSecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, TrustReadOnly: true}}, func(msg request, reply func(string)) {
			if handleStandard(msg, reply, `[{"name":"steps","annotations":{"idempotentHint":true}}]`) || msg.Method != "tools/call" {
				return
			}
			token := strings.Split(strings.SplitAfter(string(msg.Params), `"progressToken":"`)[1], `"`)[0]
			step := func(i int) {
				reply(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%q,"progress":%d,"total":9}}`, token, i))
			}
			if calls.Add(1) == 1 {
				step(9)
				time.Sleep(time.Second)
				reply(hangUp)
				return
			}
			for i := range 4 {
				time.Sleep(50 * time.Second)
				step(i + 1)
			}
			reply(msg.result(`{"content":[{"type":"text","text":"done"}]}`))
		})
		if res := mustRun(t, find(t, c, "steps"), `{}`); !strings.HasSuffix(res.Text(), "done") || calls.Load() != 2 {
			t.Errorf("%q after %d calls, want done after 2", res.Text(), calls.Load())
		}
		time.Sleep(5 * time.Minute) // for late messages
	})
}

// TestStatelessFailure checks that a stateless client works again after a failure, and that Close does not wait
// for a server that does not answer.
func TestStatelessFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		dial := inMemory(func(msg request, reply func(string)) {
			if dials.Load() < 3 {
				handleStandard(msg, reply, `[{"name":"a"}]`)
			}
		})
		c, err := New("srv", Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
			if dials.Add(1) == 1 {
				return nil, errors.New("not yet")
			}
			return dial(ctx)
		}),
			&Options{Stateless: true, PingInterval: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Ping(t.Context()); err == nil || c.Status().State != stateFailed {
			t.Errorf("first: %v, %+v", err, c.Status())
		}
		if err := c.Ping(t.Context()); err != nil || c.Status().State != stateIdle || c.Status().Err != nil {
			t.Errorf("second: %v, %+v", err, c.Status())
		}
		failed := make(chan error)
		go func() { failed <- c.Ping(t.Context()) }()
		synctest.Wait()
		start := time.Now()
		go c.Close()
		if err := <-failed; !errors.Is(err, ErrClosed) || time.Since(start) > 4*time.Second {
			t.Errorf("closed: %v after %v", err, time.Since(start))
		}
	})
}
