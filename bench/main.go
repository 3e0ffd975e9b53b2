// Command bench compares kitbag with other Go frameworks for agents, on the same tasks and with the same model.
// Package work defines the tasks, and RESULTS.md has the results.
//
//	go run . [-reps 5] [-peers floor,kitbag,eino] [-scenarios step,tokens] [-out RESULTS.md]
//
// Each framework is a program in a separate module below peers, so that the versions of their dependencies are
// independent, and a framework that cannot be downloaded does not stop the others. Each measurement is a separate
// process. In each repetition all frameworks run a scenario in turn; the next repetition begins with the next framework.
// A ratio is of two measurements of the same repetition, and the table has the median of the ratios, so that the load of
// the machine affects all frameworks equally.
//
// If a framework could not be built, or a measurement failed, the report gives the reason, and the exit code is 1.
package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/bench/work"
)

// paths is the section about fast paths, which were measured by hand.
//
//go:embed paths.md
var paths string

// floor is the peer that ratios are relative to.
const floor = "floor"

var allPeers = []string{"kitbag", floor, "eino", "langchaingo", "adk", "trpc", "genkit"}

const (
	buildTime   = 15 * time.Minute // with downloads
	measureTime = 3 * time.Minute
)

func main() {
	log.SetFlags(0)
	reps := flag.Int("reps", 5, "repetitions")
	peers := flag.String("peers", "", "frameworks, separated by commas; empty means all. "+floor+" is always included")
	scenarios := flag.String("scenarios", "", "scenarios, separated by commas; empty means all")
	minTime := flag.Duration("least", 300*time.Millisecond, "minimum time of a measurement")
	out := flag.String("out", "", "file for the results, in addition to standard output")
	flag.Parse()
	c := &comparison{reps: *reps, minTime: *minTime, failures: map[string]string{}}
	chosen := choose("framework", allPeers, *peers)
	if !slices.Contains(chosen, floor) {
		chosen = append(chosen, floor)
	}
	for _, name := range chosen {
		c.peers = append(c.peers, &peer{name: name, results: map[string][]*work.Result{}})
	}
	var names []string
	for _, s := range work.Scenarios {
		names = append(names, s.Name)
	}
	c.scenarios = choose("scenario", names, *scenarios)
	if err := c.run(); err != nil {
		log.Fatal(err)
	}
	var text bytes.Buffer
	c.report(&text)
	text.WriteString(paths)
	fmt.Print(text.String())
	if *out != "" {
		if err := os.WriteFile(*out, text.Bytes(), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	if len(c.failures) > 0 {
		os.Exit(1)
	}
}

// choose returns the names in list, separated by commas, or all if it is empty. A name that is not in all is fatal.
func choose(what string, all []string, list string) []string {
	if list == "" {
		return all
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(all, name) {
			log.Fatalf("unknown %s %q; use one of %s", what, name, strings.Join(all, ", "))
		}
	}
	return names
}

// A peer is a framework and its measurements.
type peer struct {
	name    string
	program string
	size    int64 // of the program, in bytes
	version string
	results map[string][]*work.Result // by scenario and repetition; nil if the measurement failed
}

type comparison struct {
	peers     []*peer // the peers that could be built
	scenarios []string
	reps      int
	minTime   time.Duration
	failures  map[string]string // errors, by peer or measurement
}

// run builds all programs and runs the measurements.
func (c *comparison) run() error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server := filepath.Join(dir, "mock")
	if err := build("mock", server); err != nil {
		return fmt.Errorf("build the server: %w", err)
	}
	c.peers = slices.DeleteFunc(c.peers, func(p *peer) bool {
		p.program = filepath.Join(dir, p.name)
		if err := build(filepath.Join("peers", p.name), p.program); err != nil {
			c.failures[p.name] = "cannot be built: " + err.Error()
			return true
		}
		if info, err := os.Stat(p.program); err == nil {
			p.size = info.Size()
		}
		return false
	})
	url, stop, err := serve(server)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	defer stop()
	for rep := range c.reps {
		for _, s := range c.scenarios {
			for i := range c.peers {
				p := c.peers[(i+rep)%len(c.peers)]
				if only := work.Find(s).Only; only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
					continue
				}
				res, err := c.measure(p, s, url)
				if err != nil {
					c.failures[p.name+", "+s] = err.Error()
				}
				p.results[s] = append(p.results[s], res)
			}
		}
		log.Printf("repetition %d of %d is done", rep+1, c.reps)
	}
	return nil
}

// build compiles the program of a module or package.
func build(dir, program string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return withOutput(cmd.CombinedOutput())
}

// withOutput adds the program's output to an error.
func withOutput(output []byte, err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(string(output))
	if lines := strings.Split(text, "\n"); len(lines) > 5 {
		text = strings.Join(lines[:5], "\n") + "\n…"
	}
	return fmt.Errorf("%w: %s", err, text)
}

// serve starts the server, on one processor, and returns its URL.
func serve(program string) (url string, stop func(), err error) {
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		in.Close()
		_ = cmd.Wait()
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("read its address: %w", err)
	}
	return "http://" + strings.TrimSpace(address), stop, nil
}

// measure runs a scenario with a peer.
func (c *comparison) measure(p *peer, scenario, url string) (*work.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), measureTime)
	defer cancel()
	if work.Find(scenario).Start {
		return startUp(ctx, p.program)
	}
	cmd := exec.CommandContext(ctx, p.program, "-server", url, "-scenario", scenario, "-least", c.minTime.String())
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, withOutput(errOut.Bytes(), errors.Join(err, ctx.Err()))
	}
	res := new(work.Result)
	if err := lastLine(&out, res); err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	if p.version = res.Version; p.version == "" {
		p.version = "of this tree"
	}
	return res, nil
}

// startUp measures ten starts of a program without a scenario.
func startUp(ctx context.Context, program string) (*work.Result, error) {
	const times = 10
	res := &work.Result{Steps: 1}
	for range times {
		cmd := exec.CommandContext(ctx, program)
		began := time.Now()
		if err := withOutput(cmd.CombinedOutput()); err != nil {
			return nil, err
		}
		res.Wall += float64(time.Since(began)) / times
		res.CPU += float64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()) / times
	}
	return res, nil
}

// lastLine decodes the last line, which is JSON; frameworks may print other lines before.
func lastLine(r io.Reader, v any) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	data = bytes.TrimSpace(data)
	return json.Unmarshal(data[bytes.LastIndexByte(data, '\n')+1:], v)
}
