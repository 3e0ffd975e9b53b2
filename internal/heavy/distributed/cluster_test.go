package distributed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/internal/child"
	"github.com/kitbag-go/kitbag/internal/heavy/temporalserver"
	"github.com/kitbag-go/kitbag/internal/pgtest"
)

// A cluster has the servers and the workers of the test.
type cluster struct {
	*host    // this process, which sends and watches
	pg       *pgtest.Server
	temporal *temporalserver.Server

	mu      sync.Mutex
	workers []*worker
	started int // workers started so far

	networks []*network // of the worker behind one
	dirs     []string

	fronts []*worker
	urls   []string // of the fronts
	web    struct{ runs, deltas, wrong int }

	sent    int // runs started so far
	watched map[string][]int64

	transactions float64 // of Postgres, for a step of the first phase
}

// A worker is the process of a worker or a web front.
type worker struct {
	workerConfig
	cmd *exec.Cmd
}

// serverSource is where the Temporal server is compiled, from the directory of this program.
const serverSource = "../temporalserver/server"

func newCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{watched: map[string][]int64{}}
	var starting sync.WaitGroup
	var errs [2]error
	starting.Go(func() { c.pg, errs[0] = pgtest.Start() })
	starting.Go(func() { c.temporal, errs[1] = temporalserver.Start(serverSource) })
	starting.Wait()
	err := errors.Join(errs[:]...)
	if err == nil {
		c.host, err = workerConfig{Postgres: c.pg.URL(), Temporal: c.temporal.Address, Think: 75 * time.Millisecond, Sessions: inProgress}.open(ctx)
	}
	if err == nil {
		_, err = c.pool.Exec(ctx, `
			CREATE TABLE noted (what text, session text, n integer, at timestamptz DEFAULT clock_timestamp());
			CREATE TABLE effect (key text UNIQUE, session text, n integer, token text UNIQUE);`)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close ends all processes.
func (c *cluster) close() (err error) {
	for _, w := range append(c.workers, c.fronts...) {
		_ = w.stop(syscall.SIGKILL)
	}
	for _, n := range c.networks {
		n.close()
	}
	for _, dir := range c.dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if c.host != nil {
		err = errors.Join(err, c.host.close())
	}
	if c.temporal != nil {
		err = errors.Join(err, c.temporal.Close())
	}
	if c.pg != nil {
		err = errors.Join(err, c.pg.Close())
	}
	return err
}

// startWorker starts a worker. Fields that cfg leaves empty have the values of this process.
func (c *cluster) startWorker(cfg workerConfig) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	cfg.Worker = c.started
	w, err := c.newProcess(cfg)
	if err == nil {
		err = w.cmd.Start()
	}
	if err == nil {
		c.workers = append(c.workers, w)
	}
	return err
}

// newProcess returns a process that ends with this one.
func (c *cluster) newProcess(cfg workerConfig) (*worker, error) {
	cfg.Think, cfg.Sessions = c.Think, c.Sessions
	if cfg.Postgres == "" {
		cfg.Postgres, cfg.Temporal = c.Postgres, c.Temporal
	}
	cmd, err := child.Command(cfg.program, cfg)
	return &worker{cfg, cmd}, err
}

func (w *worker) stop(sig os.Signal) error {
	err := w.cmd.Process.Signal(sig)
	_ = w.cmd.Wait() // its exit code is that of the signal; it also closes the pipe
	return err
}

// phase sends n inputs, each to a separate session, and returns when all runs have ended. The fault happens during the
// runs.
func (c *cluster) phase(ctx context.Context, n int, send func(ctx context.Context, id string) error, fault func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	first := c.sent
	c.sent += n
	during, stop := context.WithCancel(ctx)
	defer stop()
	var runs sync.WaitGroup
	errs := make([]error, n+1)
	slots := make(chan struct{}, inProgress)
	for i := range n {
		runs.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if errs[i] = send(ctx, sessionID(first+i)); errs[i] == nil {
				errs[i] = c.watch(ctx, sessionID(first+i))
			}
		})
	}
	var faulting sync.WaitGroup
	faulting.Go(func() { errs[n] = fault(during) })
	runs.Wait()
	stop()
	faulting.Wait()
	return errors.Join(errs...)
}

// inProgress is how many runs are in progress at a time. A single worker can have all of them.
const inProgress = 30

// send sends the only input of a session, again after each error.
func (c *cluster) send(ctx context.Context, id string) error {
	for {
		_, err := c.Send(ctx, id, "input", agent.Say("Book five seats."))
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// watch watches a session to the end of its run. Like a browser it reconnects after errors, and also after five events.
func (c *cluster) watch(ctx context.Context, id string) error {
	var seen []int64
	last := int64(0)
	for ended := false; !ended; {
		n := 0
		for ev, err := range session.Watch(ctx, c.store, id, last) {
			if ctx.Err() != nil {
				return fmt.Errorf("%s: after %d events: %w", id, len(seen), ctx.Err())
			}
			if err != nil {
				break
			}
			last = ev.Head().Seq
			seen = append(seen, last)
			if _, ended = ev.(*event.End); ended {
				break
			}
			if n++; n == 5 {
				break
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched[id] = seen
	return nil
}

// killWorkers kills one worker after another, with pauses, and starts a new one for each.
func (c *cluster) killWorkers(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		c.mu.Lock()
		w := c.workers[0]
		c.workers = slices.Delete(c.workers, 0, 1)
		c.mu.Unlock()
		if err := w.stop(syscall.SIGKILL); err != nil {
			return err
		}
		if err := c.note(context.Background(), "killed", "", w.Worker); err != nil {
			return err
		}
		if err := c.startWorker(workerConfig{}); err != nil {
			return err
		}
	}
}

func (c *cluster) restartPostgres(_ context.Context, away time.Duration) error {
	time.Sleep(time.Second)
	if err := c.pg.Kill(); err != nil {
		return err
	}
	time.Sleep(away)
	return c.pg.Start()
}

func (c *cluster) restartTemporal(_ context.Context, away time.Duration) error {
	time.Sleep(time.Second)
	if err := c.temporal.Kill(); err != nil {
		return err
	}
	time.Sleep(away)
	return c.temporal.Start()
}

// startBehindNetwork starts a worker whose connections can be cut.
func (c *cluster) startBehindNetwork(ctx context.Context) error {
	dir, err := os.MkdirTemp("/tmp", "distributed")
	if err != nil {
		return err
	}
	c.dirs = append(c.dirs, dir)
	const socket = "/.s.PGSQL.5432"
	for _, n := range []struct{ kind, address, server string }{{"unix", dir + socket, c.pg.Dir + socket}, {"tcp", "127.0.0.1:0", c.temporal.Address}} {
		net, err := newNetwork(n.kind, n.address, n.server)
		if err != nil {
			return err
		}
		c.networks = append(c.networks, net)
	}
	return c.startWorker(workerConfig{Postgres: strings.Replace(c.pg.URL(), c.pg.Dir, dir, 1), Temporal: c.networks[1].ln.Addr().String()})
}

// join stops all but two workers, and returns when the newest has run a session.
func (c *cluster) join(ctx context.Context) error {
	for len(c.workers) > 2 {
		w := c.workers[0]
		c.workers = c.workers[1:]
		if err := w.stop(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for {
		if err := c.phase(ctx, len(c.workers), c.send, func(context.Context) error { return nil }); err != nil {
			return err
		}
		if n, err := c.opened(ctx); n > 0 || err != nil {
			return err
		}
	}
}

// opened returns how often the newest worker has opened a session.
func (c *cluster) opened(ctx context.Context) (n int, err error) {
	err = c.pool.QueryRow(ctx, "SELECT count(*) FROM noted WHERE what = 'opened' AND n = $1", c.started).Scan(&n)
	return n, err
}

// cutNetwork cuts the network of the worker behind one for a while: its connections hang, and then end.
func (c *cluster) cutNetwork(ctx context.Context, away time.Duration) error {
	first, err := c.opened(ctx)
	for n := first; err == nil && n == first; {
		time.Sleep(10 * time.Millisecond)
		n, err = c.opened(ctx)
	}
	if err != nil {
		return fmt.Errorf("the worker behind the network has had nothing to do: %w", err)
	}
	for _, n := range c.networks {
		n.cut()
	}
	time.Sleep(away)
	for _, n := range c.networks {
		n.restore()
	}
	return nil
}
