// Package killed helps tests to kill processes at the saves of a session.
package killed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
)

// Save returns a function that calls save, and kills the process after the nth call. If n is negative, it kills the
// process before call number -n; if n is 0, never.
func Save(n int, save func(context.Context, *agent.State) error) func(context.Context, *agent.State) error {
	calls := 0
	return func(ctx context.Context, st *agent.State) error {
		if calls++; calls == -n {
			Now()
		}
		err := save(ctx, st)
		if calls == n {
			Now()
		}
		return err
	}
}

// Now kills the current process, as kill -9 does.
func Now() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {} // Kill may return before the process ends
}

// Run runs a process that may kill itself, and returns what it printed and whether it was killed. Any other failure
// of the process is an error.
func Run(cmd *exec.Cmd) (out string, killed bool, err error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil && (cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != -1) { // -1: ended by a signal
		return "", false, fmt.Errorf("%w\n%s%s", err, data, stderr.String())
	}
	return strings.TrimSpace(string(data)), err != nil, nil
}
