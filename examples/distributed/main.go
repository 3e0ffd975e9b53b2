// Command distributed shows what happens to conversations when the machines that run them die: it starts Postgres,
// a Temporal server and workers, each in processes of its own, sends inputs, kills workers, restarts the servers and
// cuts the network, and then counts in the database what was lost or done twice. Its last line is JSON.
//
//	make distributed       # in the root of the repository
//	go run . -short        # less of everything
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
	"strings"
	"syscall"
	"time"
)

const (
	steps     = 6 // of a run: model calls, each but the last followed by a tool call
	heartbeat = 4 * time.Second
)

func main() {
	if os.Getenv(workerEnv) != "" {
		if err := workerMain(); err != nil {
			log.Fatal("worker: ", err)
		}
		return
	}
	var o options
	flag.IntVar(&o.runs, "runs", 500, "the number of runs while workers are killed")
	flag.IntVar(&o.faultRuns, "fault-runs", 100, "the number of runs during each other fault")
	flag.IntVar(&o.workers, "workers", 3, "the number of worker processes")
	flag.DurationVar(&o.kill, "kill", 2*time.Second, "the time between two kills")
	flag.DurationVar(&o.cut, "cut", 10*time.Second, "how long servers and networks are away")
	short := flag.Bool("short", false, "less of everything")
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

// options say how much is done.
type options struct {
	runs, faultRuns, workers int
	kill, cut                time.Duration
}

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
	phases := []struct {
		name  string
		runs  int
		fault func(context.Context) error
	}{
		{"workers killed", o.runs, func(ctx context.Context) error { return c.killWorkers(ctx, o.kill) }},
		{"Postgres restarted", o.faultRuns, func(ctx context.Context) error { return c.restartPostgres(ctx, o.cut/3) }},
		{"Temporal restarted", o.faultRuns, func(ctx context.Context) error { return c.restartTemporal(ctx, o.cut/3) }},
		{"clock of a worker off by an hour", o.faultRuns, func(context.Context) error { return c.startWorker(workerConfig{Clock: time.Hour}) }},
		{"network of a worker cut", o.faultRuns, func(ctx context.Context) error { return c.cutNetwork(ctx, o.cut) }},
	}
	for _, p := range phases {
		if strings.HasPrefix(p.name, "network") {
			if err := c.startBehindNetwork(ctx); err != nil {
				return err
			}
		}
		begin := time.Now()
		if err := c.phase(ctx, p.runs, p.fault); err != nil {
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
