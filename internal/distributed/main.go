// Command distributed shows what happens to conversations when the machines that run them die: it starts Postgres,
// a Temporal server and workers, each in processes of its own, sends inputs, kills workers, restarts the servers and
// cuts the network, and then counts in the database what was lost or done twice. Its last line is JSON.
//
//	make distributed       # in the root of the repository
//	go run . -short        # fewer runs, and no wrong clock
//	go run . -bench        # runs a second, without faults
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kitbag-go/kitbag/internal/child"
)

const (
	steps     = 6 // of a run: model calls, each but the last followed by a tool call
	heartbeat = 4 * time.Second
)

func main() {
	child.Main(func(ctx context.Context, cfg workerConfig) error { return cfg.run(ctx) })
	var o options
	flag.IntVar(&o.runs, "runs", 500, "the number of runs while workers are killed")
	flag.IntVar(&o.faultRuns, "fault-runs", 100, "the number of runs during each other fault")
	flag.IntVar(&o.clockRuns, "clock-runs", 100, "the number of runs with a worker whose clock is wrong")
	flag.IntVar(&o.workers, "workers", 3, "the number of worker processes")
	flag.DurationVar(&o.kill, "kill", 2*time.Second, "the time between two kills")
	flag.DurationVar(&o.cut, "cut", 10*time.Second, "how long servers and networks are away")
	short := flag.Bool("short", false, "fewer runs, and no wrong clock")
	bench := flag.Bool("bench", false, "measure runs a second instead")
	flag.Parse()
	if *short {
		o = shortened
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *bench {
		err = benchmark(ctx, os.Stdout, o.runs)
	} else {
		err = demo(ctx, os.Stdout, o)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// options are the sizes of the demo.
type options struct {
	runs, faultRuns, clockRuns, workers int
	kill, cut                           time.Duration
}

// shortened has no runs with a wrong clock, which need a program to be compiled.
var shortened = options{runs: 60, faultRuns: 15, workers: 3, kill: 2 * time.Second, cut: 3 * time.Second}

// demo runs everything, and prints the result.
func demo(ctx context.Context, out io.Writer, o options) (err error) {
	c, err := newCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for range o.workers {
		if err := c.startWorker(workerConfig{}); err != nil {
			return err
		}
	}
	if err := c.startWeb(); err != nil {
		return err
	}
	kill := func(ctx context.Context) error { return c.killWorkers(ctx, o.kill) }
	phases := []struct {
		name  string
		runs  int
		start func(context.Context) error // nil, or starts a worker that has the fault
		send  func(context.Context, string) error
		fault func(context.Context) error
	}{
		{"workers killed", o.runs, nil, c.send, kill},
		{"workers killed, through the web fronts", o.faultRuns, nil, c.browse, kill},
		{"Postgres restarted", o.faultRuns, nil, c.send, func(ctx context.Context) error { return c.restartPostgres(ctx, o.cut/3) }},
		{"Temporal restarted", o.faultRuns, nil, c.send, func(ctx context.Context) error { return c.restartTemporal(ctx, o.cut/3) }},
		{"clock of a worker off by an hour", o.clockRuns, c.startWrongClock, c.send, kill},
		{"network of a worker cut", o.faultRuns, c.startBehindNetwork, c.send, func(ctx context.Context) error { return c.cutNetwork(ctx, o.cut) }},
	}
	for _, p := range phases {
		if p.runs == 0 {
			continue
		}
		if p.start != nil {
			if err := errors.Join(p.start(ctx), c.join(ctx)); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		begin := time.Now()
		if err := c.phase(ctx, p.runs, p.send, p.fault); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if c.transactions == 0 {
			if err := c.countTransactions(ctx); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "%s: %d runs ended after %.1f s\n", p.name, p.runs, time.Since(begin).Seconds())
	}
	res, err := c.measure(ctx)
	if err != nil {
		return err
	}
	line, err := json.Marshal(res)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", line)
	return err
}
