package distributed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/sqlite"
)

// benchmark prints how many runs a second end, with a model and tools that take no time: with the plain loop on
// SQLite, and with workers.
func benchmark(ctx context.Context, out io.Writer, n int) (err error) {
	c, err := newCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	c.Think = 0
	print := func(name string, took time.Duration) {
		fmt.Fprintf(out, "%-28s %8.1f runs/s  %6.2f ms a step\n", name, float64(n)/took.Seconds(), took.Seconds()*1000/float64(n*steps))
	}
	took, err := plainLoop(ctx, n)
	if err != nil {
		return err
	}
	print("plain loop, SQLite", took)
	for _, workers := range []int{1, 2, 4} {
		for len(c.workers) < workers {
			if err := c.startWorker(workerConfig{}); err != nil {
				return err
			}
		}
		noFault := func(context.Context) error { return nil }
		if err := c.phase(ctx, 8*workers, c.send, noFault); err != nil { // warm up
			return err
		}
		before, begin := c.cpu(), time.Now()
		if err := c.phase(ctx, n, c.send, noFault); err != nil {
			return err
		}
		print(fmt.Sprintf("%d workers, Postgres, Temporal", workers), time.Since(begin))
		after := c.cpu()
		fmt.Fprint(out, "  CPU in ms a step:")
		for i, name := range []string{"workers", "Postgres", "Temporal"} {
			fmt.Fprintf(out, "  %s %.2f", name, float64((after[i]-before[i]).Microseconds())/1000/float64(n*steps))
		}
		fmt.Fprintln(out)
	}
	return nil
}

// cpu returns the CPU time of the workers, Postgres and Temporal.
func (c *cluster) cpu() (used [3]time.Duration) {
	for _, w := range c.workers {
		own, _ := cpuOf(w.cmd.Process.Pid)
		used[0] += own
	}
	data, _ := os.ReadFile(filepath.Join(c.pg.Dir, "data", "postmaster.pid")) // without it the figure is 0
	line, _, _ := strings.Cut(string(data), "\n")
	postmaster, _ := strconv.Atoi(line)
	own, ended := cpuOf(postmaster)
	used[1] = own + ended
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", postmaster, postmaster))
	for child := range strings.FieldsSeq(string(children)) {
		pid, _ := strconv.Atoi(child)
		own, _ := cpuOf(pid)
		used[1] += own
	}
	used[2], _ = cpuOf(c.temporal.PID())
	return used
}

// cpuOf returns the CPU time of a process and of its children that have ended; 0 if it is unknown.
func cpuOf(pid int) (own, ended time.Duration) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(data), ") ") // the name may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0, 0
	}
	ticks := func(i int) time.Duration {
		n, _ := strconv.Atoi(fields[i])
		return time.Duration(n) * 10 * time.Millisecond
	}
	return ticks(11) + ticks(12), ticks(13) + ticks(14)
}

// discard is a recorder that stores nothing.
type discard struct{}

func (discard) note(context.Context, string, string, int) error   { return nil }
func (discard) effect(context.Context, string, string, int) error { return nil }

// plainLoop runs n sessions in this process, eight at a time.
func plainLoop(ctx context.Context, n int) (took time.Duration, err error) {
	dir, err := os.MkdirTemp("", "distributed")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := sqlite.Open(filepath.Join(dir, "db"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	begin := time.Now()
	var running sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		running.Go(func() {
			for j := i; j < n && errs[i] == nil; j += len(errs) {
				errs[i] = runPlain(ctx, store, sessionID(j))
			}
		})
	}
	running.Wait()
	return time.Since(begin), errors.Join(errs...)
}

func runPlain(ctx context.Context, store *sqlite.Store, id string) error {
	s, err := session.Open(ctx, store, id)
	if err != nil {
		return err
	}
	a, err := agent.New(agentConfig(id, 0, discard{}))
	if err == nil {
		_, err = a.Reply(s.Context(ctx), s.State, agent.Say("Book five seats."))
	}
	return errors.Join(err, s.Close())
}
