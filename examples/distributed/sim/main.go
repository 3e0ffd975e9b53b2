// Command sim computes from measured figures of one step what many conversations need: cores, disk, and how many
// databases. The defaults are those of docs/scaling.md; "go run . -bench" and "go run ." in the directory above measure them.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"strings"
)

// figures are what a step costs, how much there is to do, and what a machine has.
type figures struct {
	workerCPU, postgresCPU, temporalCPU float64 // ms a step
	dbBytes, historyBytes               float64 // a step
	transactions                        float64 // a step, in Postgres

	perDay, steps, peak float64 // runs of a conversation a day, steps of a run, load at the peak relative to the mean
	polls               float64 // transactions a second for each run in progress
	stepTime            float64 // seconds, of which most is the model

	cores, use  float64 // of a machine for a database, and how much of it may be used
	maxTx       float64 // transactions a second of one database
	retention   float64 // days
	corePerHour float64 // price of a core, in dollars
	diskPrice   float64 // of a GB a month, in dollars
}

func main() {
	f := defaults()
	vars := []struct {
		to         *float64
		name, help string
	}{
		{&f.workerCPU, "worker-cpu", "CPU of the workers, ms a step"},
		{&f.postgresCPU, "postgres-cpu", "CPU of Postgres, ms a step"},
		{&f.temporalCPU, "temporal-cpu", "CPU of Temporal, ms a step"},
		{&f.dbBytes, "db-bytes", "bytes in Postgres a step"},
		{&f.historyBytes, "history-bytes", "bytes in Temporal's history a step"},
		{&f.transactions, "transactions", "transactions a step"},
		{&f.perDay, "per-day", "runs of a conversation a day"},
		{&f.steps, "steps", "steps of a run"},
		{&f.peak, "peak", "load at the peak, relative to the mean"},
		{&f.polls, "polls", "transactions a second of a run in progress"},
		{&f.stepTime, "step-time", "seconds that a step takes"},
		{&f.cores, "cores", "cores of a database machine"},
		{&f.use, "use", "share of the cores that may be used"},
		{&f.maxTx, "max-tx", "transactions a second of one database"},
		{&f.retention, "retention", "days that data are kept"},
		{&f.corePerHour, "core-price", "dollars an hour for a core"},
		{&f.diskPrice, "disk-price", "dollars a month for a GB"},
	}
	for _, v := range vars {
		flag.Float64Var(v.to, v.name, *v.to, v.help)
	}
	flag.Parse()
	if err := draw(os.Stdout, f); err != nil {
		log.Fatal(err)
	}
}

// A load is what a number of conversations need at the peak.
type load struct {
	stepsPerSecond, inProgress  float64
	workers, postgres, temporal float64 // cores
	transactions, diskGB        float64
	databases                   float64
	limit                       string // what one database runs out of first
	dollars                     float64
}

func (f figures) load(conversations float64) load {
	l := load{stepsPerSecond: conversations * f.perDay * f.steps * f.peak / 86400}
	l.inProgress = l.stepsPerSecond * f.stepTime
	l.transactions = l.stepsPerSecond*f.transactions + l.inProgress*f.polls
	perTx := f.postgresCPU / f.transactions // polls cost about as much as other transactions
	l.workers = l.stepsPerSecond * f.workerCPU / 1000 / f.use
	l.postgres = l.transactions * perTx / 1000 / f.use
	l.temporal = l.stepsPerSecond * f.temporalCPU / 1000 / f.use
	l.diskGB = conversations * f.perDay * f.steps * (f.dbBytes + f.historyBytes) * f.retention / 1e9
	byCPU, byTx := l.postgres/f.cores, l.transactions/f.maxTx
	if l.limit = "cores"; byTx > byCPU {
		l.limit = "transactions"
	}
	l.databases = math.Max(1, math.Ceil(math.Max(byCPU, byTx)))
	l.dollars = (l.workers+l.postgres+l.temporal)*f.corePerHour*730 + l.diskGB*f.diskPrice
	return l
}

func draw(w io.Writer, f figures) error {
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

// defaults returns the figures of docs/scaling.md; the prices, the peak and maxTx are assumptions.
func defaults() figures {
	return figures{workerCPU: 1.9, postgresCPU: 1.9, temporalCPU: 4.0, dbBytes: 5900, historyBytes: 250, transactions: 25,
		perDay: 10, steps: 6, peak: 4, polls: 2, stepTime: 5, cores: 16, use: 0.6, maxTx: 10_000, retention: 30, corePerHour: 0.05, diskPrice: 0.12}
}
