package distributed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/child"
)

const (
	steps     = 6 // of a run: model calls, each but the last followed by a tool call
	heartbeat = 4 * time.Second
)

// options are the sizes of the test. Those of "make distributed" are larger.
type options struct {
	runs, faultRuns, clockRuns, workers int
	kill, cut                           time.Duration
}

var sizes options

func init() {
	flag.IntVar(&sizes.runs, "runs", 60, "the number of runs while workers are killed, or of a benchmark")
	flag.IntVar(&sizes.faultRuns, "fault-runs", 15, "the number of runs during each other fault")
	flag.IntVar(&sizes.clockRuns, "clock-runs", 0, "the number of runs with a worker whose clock is wrong, for which a program must be compiled")
	flag.IntVar(&sizes.workers, "workers", 3, "the number of worker processes")
	flag.DurationVar(&sizes.kill, "kill", 2*time.Second, "the time between two kills")
	flag.DurationVar(&sizes.cut, "cut", 3*time.Second, "how long servers and networks are away")
}

func TestMain(m *testing.M) {
	child.Main(func(ctx context.Context, cfg workerConfig) error { return cfg.run(ctx) })
	os.Exit(m.Run())
}

// TestFaults checks that no fault loses anything or has it done twice. Its last line is the result in JSON.
func TestFaults(t *testing.T) {
	var out bytes.Buffer
	if err := faults(t.Context(), &out, sizes); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Log("\n" + out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var res result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &res); err != nil {
		t.Fatal(err)
	}
	if res.Ended != res.Runs || res.EffectsTwice+res.Repeated+res.LostEvents+res.WebWrong != 0 || res.WebDeltas <= res.WebRuns || res.HistoryBytes > 5000 || res.Takeovers == 0 {
		t.Error("something was lost, or done twice")
	}
	if res.TakeoverP99 > 4*heartbeat.Seconds() { // the machine may be busy
		t.Errorf("another worker takes over only after %.1f s", res.TakeoverP99)
	}
}

// BenchmarkRuns prints how many runs a second end without faults.
func BenchmarkRuns(b *testing.B) {
	if err := benchmark(b.Context(), os.Stdout, sizes.runs); err != nil {
		b.Fatal(err)
	}
}

// faults runs everything, and prints the result.
func faults(ctx context.Context, out io.Writer, o options) (err error) {
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
