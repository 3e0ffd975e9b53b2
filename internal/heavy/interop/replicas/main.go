// Command replicas starts three gateways that serve as one, on Postgres, behind a round-robin balancer, and clients of MCP
// revisions with and without sessions. The clients call tools, answer questions about calls, and call a server that is a
// separate process for each session. Meanwhile each gateway is restarted twice: first as a deployment does, then by killing
// it. The last line of the output is JSON: what was called, and what was lost.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kitbag-go/kitbag/internal/pgtest"
)

func main() {
	if role := os.Getenv(roleVar); role != "" {
		if err := runRole(role); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
			os.Exit(1)
		}
		return
	}
	o := options{log: os.Stderr}
	flag.IntVar(&o.sessions, "sessions", 250, "how many sessions work")
	flag.DurationVar(&o.pause, "pause", time.Second, "how long a session waits between two calls")
	flag.DurationVar(&o.between, "between", 3*time.Second, "how long all gateways run between two restarts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	got, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "replicas:", err)
		os.Exit(1)
	}
	line, _ := json.Marshal(got)
	fmt.Println(string(line))
	if bad := got.check(); bad != nil {
		fmt.Fprintln(os.Stderr, "replicas:", bad)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	sessions       int
	pause, between time.Duration
	log            *os.File
}

const gateways = 3

// run starts everything, restarts each gateway in both ways, and counts.
func run(ctx context.Context, o options) (got result, err error) {
	dir, err := os.MkdirTemp("", "replicas")
	if err != nil {
		return got, err
	}
	defer os.RemoveAll(dir)
	db, err := pgtest.Start("fsync=off")
	if err != nil {
		return got, err
	}
	defer db.Close()
	c := &cluster{database: db.URL(), marks: filepath.Join(dir, "marks"), log: o.log}
	defer c.stop()
	if err := c.start(); err != nil {
		return got, err
	}
	balancer, url, err := c.balance()
	if err != nil {
		return got, err
	}
	defer balancer.Close()

	w := &workers{url: url, pause: o.pause}
	defer w.stop() // also if only some have started
	if err := w.start(ctx, o.sessions); err != nil {
		return got, err
	}
	for _, how := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for i := range gateways {
			time.Sleep(o.between)
			before := w.count.FailedAndTold.Load()
			w.killing.Store(how == syscall.SIGKILL)
			if err := c.restart(ctx, i, how); err != nil {
				return got, err
			}
			time.Sleep(o.between)
			fmt.Fprintf(o.log, "gateway %d, %v: %d calls failed\n", i, how, w.count.FailedAndTold.Load()-before)
		}
	}
	w.stop()
	return w.result(c.marks)
}

// A cluster is the gateways.
type cluster struct {
	database, marks string
	log             *os.File
	addresses       [gateways]string
	running         [gateways]*exec.Cmd
	excluded        [gateways]atomic.Bool // from balancing
	requests        atomic.Int64
}

func (c *cluster) start() error {
	for i := range gateways {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the gateway gets the address that is free now
		if err != nil {
			return err
		}
		c.addresses[i] = l.Addr().String()
		_ = l.Close()
		if err := c.startOne(context.Background(), i); err != nil {
			return err
		}
	}
	return nil
}

// startOne starts a gateway and waits until it listens.
func (c *cluster) startOne(ctx context.Context, i int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVar+"=gateway", addressVar+"="+c.addresses[i], databaseVar+"="+c.database, marksVar+"="+c.marks)
	cmd.Stderr = c.log
	if err := cmd.Start(); err != nil {
		return err
	}
	c.running[i] = cmd
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", c.addresses[i]); err == nil {
			return conn.Close()
		}
	}
	return fmt.Errorf("gateway %d does not listen", i)
}

// leaveBalancer is how long before its end a deployment takes a gateway out of the balancer.
const leaveBalancer = 100 * time.Millisecond

// restart ends a gateway by a signal, and starts another one at its address. A gateway that is not killed is taken out of
// the balancer first.
func (c *cluster) restart(ctx context.Context, i int, how os.Signal) error {
	if how == syscall.SIGTERM {
		c.excluded[i].Store(true)
		defer c.excluded[i].Store(false)
		time.Sleep(leaveBalancer)
	}
	if err := c.running[i].Process.Signal(how); err != nil {
		return err
	}
	if err := c.running[i].Wait(); err != nil && how == syscall.SIGTERM {
		return fmt.Errorf("gateway %d: %w", i, err)
	}
	return c.startOne(ctx, i)
}

func (c *cluster) stop() {
	for _, cmd := range c.running {
		if cmd != nil {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		}
	}
}

// balance serves a balancer that knows nothing about sessions. As usual it tries the next gateway if it cannot connect.
func (c *cluster) balance() (*http.Server, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Transport: c.roundRobin(&http.Transport{MaxIdleConnsPerHost: 512}),
		Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.Host = "http", "" }}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	s := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	return s, "http://" + l.Addr().String() + "/", nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// roundRobin sends each request to the next gateway.
func (c *cluster) roundRobin(transport http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (res *http.Response, err error) {
		var body []byte
		if r.Body != nil {
			if body, err = io.ReadAll(r.Body); err != nil {
				return nil, err
			}
		}
		first := int(c.requests.Add(1))
		for i := range gateways {
			to := (first + i) % gateways
			if c.excluded[to].Load() {
				continue
			}
			r.URL.Host = c.addresses[to]
			if r.Body != nil {
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			res, err = transport.RoundTrip(r)
			if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
				break
			}
		}
		return res, err
	})
}

// A result is the last line of the output.
type result struct {
	Sessions      int   `json:"sessions"`
	Calls         int64 `json:"calls"`
	LostSilently  int64 `json:"lost_silently"`   // calls without an answer, with a wrong answer, or with effects that are not as the answer says
	FailedAndTold int64 `json:"failed_and_told"` // calls with an error that says that they failed
	Asked         int64 `json:"asked"`           // questions about calls
	Answered      int64 `json:"answered"`        // calls that were made after the answer to their question

	InDeployment int64 `json:"failed_in_deployment"` // the part of FailedAndTold that neither a killed gateway nor a lost process explains
}

// check returns an error if calls were lost, or failed in a deployment.
func (r *result) check() error {
	switch {
	case r.LostSilently > 0:
		return fmt.Errorf("%d calls were lost silently", r.LostSilently)
	case r.InDeployment > 0:
		return fmt.Errorf("%d calls failed although no gateway was killed", r.InDeployment)
	case r.Calls == 0 || r.Answered == 0 || r.Answered > r.Asked:
		return fmt.Errorf("%d calls, %d asked, %d answered", r.Calls, r.Asked, r.Answered)
	}
	return nil
}

// countMarks returns how often each token is in the file of marks.
func countMarks(file string) (map[string]int, error) {
	data, err := os.ReadFile(file)
	out := map[string]int{}
	for token := range strings.FieldsSeq(string(data)) {
		out[token]++
	}
	return out, err
}
