// Command sim computes the cores, disk and databases that many conversations need, from the measured figures of one step.
// The defaults are those of docs/scaling.md; the benchmark and the test in the directory above measure them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"strconv"
	"strings"
)

// table has the figures of docs/scaling.md; the prices, the peak and max-tx are assumptions.
var table = []struct {
	name, help string
	value      float64
}{
	{"worker-cpu", "CPU of the workers, ms a step", 2.1},
	{"postgres-cpu", "CPU of Postgres, ms a step", 2.1},
	{"temporal-cpu", "CPU of Temporal, ms a step", 3.9},
	{"db-bytes", "bytes in Postgres a step", 5900},
	{"history-bytes", "bytes in Temporal's history a step", 250},
	{"transactions", "transactions in Postgres a step", 33},
	{"per-day", "runs of a conversation a day", 10},
	{"steps", "steps of a run", 6},
	{"peak", "load at the peak, relative to the mean", 4},
	{"step-time", "seconds that a step takes, of which most is the model", 5},
	{"cores", "cores of a database machine", 16},
	{"use", "share of the cores that may be used", 0.6},
	{"max-tx", "transactions a second of one database", 10_000},
	{"retention", "days that data are kept", 30},
	{"core-price", "dollars an hour for a core", 0.05},
	{"disk-price", "dollars a month for a GB", 0.12},
}

// figures are the values of the table by name.
type figures map[string]float64

func defaults() figures {
	f := figures{}
	for _, row := range table {
		f[row.name] = row.value
	}
	return f
}

func (f figures) set(name, text string) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0 && v <= 1e12) {
		return errors.New("give a positive number of at most 1e12")
	}
	f[name] = v
	return nil
}

func main() {
	f := defaults()
	for _, row := range table {
		flag.Func(row.name, fmt.Sprintf("%s (default %v)", row.help, row.value), func(s string) error { return f.set(row.name, s) })
	}
	flag.Parse()
	if err := printTable(os.Stdout, f); err != nil {
		log.Fatal(err)
	}
}

// A load is what a number of conversations need at the peak.
type load struct {
	stepsPerSecond, inProgress  float64
	workers, postgres, temporal float64 // cores
	transactions, diskGB        float64
	databases                   float64
	limit                       string // the resource of a database that is used up first
	dollars                     float64
}

func (f figures) load(conversations float64) load {
	runs := conversations * f["per-day"] // a day
	l := load{stepsPerSecond: runs * f["steps"] * f["peak"] / 86400}
	l.inProgress = l.stepsPerSecond * f["step-time"]
	l.transactions = l.stepsPerSecond * f["transactions"]
	cores := func(ms float64) float64 { return l.stepsPerSecond * ms / 1000 / f["use"] }
	l.workers, l.postgres, l.temporal = cores(f["worker-cpu"]), cores(f["postgres-cpu"]), cores(f["temporal-cpu"])
	l.diskGB = runs * f["steps"] * (f["db-bytes"] + f["history-bytes"]) * f["retention"] / 1e9
	byCPU, byTx := l.postgres/f["cores"], l.transactions/f["max-tx"]
	if l.limit = "cores"; byTx > byCPU {
		l.limit = "transactions"
	}
	l.databases = math.Max(1, math.Ceil(math.Max(byCPU, byTx)))
	const hours = 730 // of a month
	l.dollars = (l.workers+l.postgres+l.temporal)*f["core-price"]*hours + l.diskGB*f["disk-price"]
	return l
}

func printTable(w io.Writer, f figures) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%13s %9s %8s %8s %9s %9s %9s %9s %4s %-12s %10s\n", "conversations", "steps/s", "runs now", "workers", "Postgres", "Temporal", "trans./s", "disk GB", "DBs", "limit", "$/month")
	for _, n := range []float64{1e3, 1e4, 1e5, 3e5, 1e6, 3e6} {
		l := f.load(n)
		fmt.Fprintf(&b, "%13.0f %9.1f %8.0f %8.1f %9.1f %9.1f %9.0f %9.1f %4.0f %-12s %10.0f  %s\n", n, l.stepsPerSecond, l.inProgress,
			l.workers, l.postgres, l.temporal, l.transactions, l.diskGB, l.databases, l.limit, l.dollars, strings.Repeat("#", int(math.Log10(1+l.postgres)*20)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
