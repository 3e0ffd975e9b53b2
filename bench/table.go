package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/bench/work"
)

// A row shows one figure of a scenario.
type row struct {
	title, unit string
	scenario    string
	value       func(*work.Result) float64
}

const (
	micro = 1e3 // nanoseconds
	milli = 1e6
	kilo  = 1 << 10
)

func cpuPerStep(r *work.Result) float64 { return r.CPU / float64(r.Steps) / micro }

func allocsPerStep(r *work.Result) float64 { return r.Allocs / float64(r.Steps) }

// tokens is the number of tokens in the scenario with this name.
const tokens = 5000

var rows = []row{
	{"the start of the program: CPU", "ms", "start", func(r *work.Result) float64 { return r.CPU / milli }},
	{"… wall", "ms", "start", func(r *work.Result) float64 { return r.Wall / milli }},
	{"a step in a run of 20: CPU", "µs", "step", cpuPerStep},
	{"… wall", "µs", "step", func(r *work.Result) float64 { return r.Wall / float64(r.Steps) / micro }},
	{"… allocations", "", "step", allocsPerStep},
	{"… memory allocated", "KiB", "step", func(r *work.Result) float64 { return r.Bytes / float64(r.Steps) / kilo }},
	{"… request bytes sent", "KiB", "step", func(r *work.Result) float64 { return r.Sent / float64(r.Steps) / kilo }},
	{"a step in a run of 20, not streamed: CPU", "µs", "whole", cpuPerStep},
	{"… allocations", "", "whole", allocsPerStep},
	{"a step in a run of 20, Responses API: CPU", "µs", "responses", cpuPerStep},
	{"… allocations", "", "responses", allocsPerStep},
	{"a step with 100 tools: CPU", "µs", "tools100", cpuPerStep},
	{"a step with 1,000 tools: CPU", "µs", "tools1000", cpuPerStep},
	{"… allocations", "", "tools1000", allocsPerStep},
	{"a step in a run of 100: CPU", "µs", "steps100", cpuPerStep},
	{"a step in a run of 200: CPU", "µs", "steps200", cpuPerStep},
	{"… allocations", "", "steps200", allocsPerStep},
	{"a streamed token: CPU", "ns", "tokens", func(r *work.Result) float64 { return r.CPU / tokens }},
	{"… allocations", "", "tokens", func(r *work.Result) float64 { return r.Allocs / tokens }},
	{"… memory allocated", "B", "tokens", func(r *work.Result) float64 { return r.Bytes / tokens }},
	{"until the first text: wall", "µs", "first", func(r *work.Result) float64 { return r.First / micro }},
	{"20 steps of 8 calls of 5 ms: wall", "ms", "parallel", func(r *work.Result) float64 { return r.Wall / milli }},
	{"200 runs together: CPU a run", "µs", "together", func(r *work.Result) float64 { return r.CPU / micro }},
	{"… wall a run", "µs", "together", func(r *work.Result) float64 { return r.Wall / micro }},
	{"an idle conversation, shared tools: memory", "KiB", "shared", func(r *work.Result) float64 { return r.Heap / kilo }},
	{"… CPU to make", "µs", "shared", func(r *work.Result) float64 { return r.CPU / micro }},
	{"an idle conversation, 20 tools of its own: memory", "KiB", "own", func(r *work.Result) float64 { return r.Heap / kilo }},
	{"… CPU to make", "µs", "own", func(r *work.Result) float64 { return r.CPU / micro }},
}

// kitbagRows are the rows of scenarios that only kitbag can run.
var kitbagRows = []row{
	{"a group of 20 tools opened and closed, of 1,000 tools: CPU", "µs", "open", func(r *work.Result) float64 { return r.CPU / micro }},
	{"… allocations", "", "open", func(r *work.Result) float64 { return r.Allocs }},
	{"a permission decision under 101 rules, and the call: CPU", "µs", "judge", func(r *work.Result) float64 { return r.CPU / micro }},
	{"… allocations", "", "judge", func(r *work.Result) float64 { return r.Allocs }},
	{"a run that compacts 500 messages, with its two model calls: CPU", "µs", "compact", func(r *work.Result) float64 { return r.CPU / micro }},
	{"… allocations", "", "compact", func(r *work.Result) float64 { return r.Allocs }},
	{"hooks that do nothing, ratio: CPU", "", "traced", func(r *work.Result) float64 { return r.HooksCPU }},
	{"… allocations", "", "traced", func(r *work.Result) float64 { return r.HooksAllocs }},
}

// report writes the tables.
func (c *comparison) report(w io.Writer) {
	fmt.Fprintf(w, "# kitbag compared with other frameworks\n\n%s, %s, %d processors, %s.\n"+
		"Made by `make bench-peers`, with %d repetitions.\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), processor(), c.reps)
	fmt.Fprintf(w, "Ratios are paired and interleaved: in each repetition every framework runs the scenario\n"+
		"in turn, each measurement is a separate process, and the table has the median over the\n"+
		"repetitions of the ratio to `%s` in the same repetition. Less is better. CPU is user and system\n"+
		"time of the framework's process only; another process plays the model. Allocations and memory\n"+
		"vary by 1 %%. Times vary more: other load on the machine affects all frameworks equally, but on\n"+
		"a busy machine, ratios of times with few repetitions may be wrong by a third. `work/` defines the\n"+
		"scenarios, `peers/` shows how each framework is used; `%s` is a loop on go-openai written by\n"+
		"hand, which validates, judges, stores and emits nothing.\n", floor, floor)
	c.table(w, "Ratios to the floor", c.ratio)
	c.table(w, "Medians", func(p *peer, r row) []float64 { return p.values(r) })
	c.kitbagTable(w)
	fmt.Fprint(w, "\n## Versions\n\n")
	for _, p := range c.peers {
		fmt.Fprintf(w, "- %s %s, a program of %.1f MiB\n", p.name, p.version, float64(p.size)/(1<<20))
	}
	if len(c.failures) > 0 {
		fmt.Fprint(w, "\n## Failures\n\n")
	}
	for _, what := range slices.Sorted(maps.Keys(c.failures)) {
		fmt.Fprintf(w, "- %s: %s\n", what, strings.ReplaceAll(c.failures[what], "\n", "\n  "))
	}
}

// kitbagTable writes kitbagRows.
func (c *comparison) kitbagTable(w io.Writer) {
	i := slices.IndexFunc(c.peers, func(p *peer) bool { return p.name == "kitbag" })
	if i < 0 {
		return
	}
	p := c.peers[i]
	fmt.Fprint(w, "\n## What only kitbag can do\n\nMedians. The ratios compare runs of 20 steps with a hook at every possible place, none of which\n"+
		"does anything, to the same runs without hooks; both alternate in one process.\n\n| | kitbag |\n|---|--:|\n")
	for _, r := range kitbagRows {
		if slices.Contains(c.scenarios, r.scenario) {
			fmt.Fprintf(w, "| %s | %s |\n", r.name(), figure(p.values(r)))
		}
	}
}

func (r row) name() string {
	if r.unit == "" {
		return r.title
	}
	return r.title + ", " + r.unit
}

func (c *comparison) table(w io.Writer, title string, cell func(*peer, row) []float64) {
	fmt.Fprintf(w, "\n## %s\n\n| |", title)
	for _, p := range c.peers {
		fmt.Fprintf(w, " %s |", p.name)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("--:|", len(c.peers)))
	for _, r := range rows {
		if !slices.Contains(c.scenarios, r.scenario) {
			continue
		}
		fmt.Fprintf(w, "| %s |", r.name())
		for _, p := range c.peers {
			fmt.Fprintf(w, " %s |", figure(cell(p, r)))
		}
		fmt.Fprintln(w)
	}
}

// values returns the values of all repetitions that did not fail.
func (p *peer) values(r row) (v []float64) {
	for _, res := range p.results[r.scenario] {
		if res != nil {
			v = append(v, r.value(res))
		}
	}
	return v
}

// ratio divides the measurements of p by those of the floor in the same repetition.
func (c *comparison) ratio(p *peer, r row) (v []float64) {
	i := slices.IndexFunc(c.peers, func(p *peer) bool { return p.name == floor })
	if i < 0 { // it could not be built
		return nil
	}
	base := c.peers[i].results[r.scenario]
	for rep, res := range p.results[r.scenario] {
		if res != nil && base[rep] != nil && r.value(base[rep]) != 0 {
			v = append(v, r.value(res)/r.value(base[rep]))
		}
	}
	return v
}

// figure formats the median of the values with two or three digits.
func figure(v []float64) string {
	if len(v) == 0 {
		return "—"
	}
	slices.Sort(v)
	m := (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	switch {
	case m < 0.1:
		return fmt.Sprintf("%.3f", m)
	case m < 10:
		return fmt.Sprintf("%.2f", m)
	case m < 100:
		return fmt.Sprintf("%.1f", m)
	default:
		return fmt.Sprintf("%.0f", m)
	}
}

// processor returns the name of the machine's processor.
func processor() string {
	system := runtime.GOOS + "/" + runtime.GOARCH
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return system
	}
	_, name, _ := strings.Cut(string(data), "model name")
	name, _, _ = strings.Cut(strings.TrimLeft(name, "\t: "), "\n")
	if kernel, err := exec.Command("uname", "-r").Output(); err == nil {
		system += " " + strings.TrimSpace(string(kernel))
	}
	return strings.TrimSpace(name + ", " + system)
}
