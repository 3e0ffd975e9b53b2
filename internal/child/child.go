// Package child starts the program of a test or demo again as another process, which ends with the one that started it.
package child

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

const variable = "KITBAG_CHILD" // the configuration in JSON

// Command returns a command for the program; "" is this program. [Main] in it gets the configuration.
func Command(program string, config any) (*exec.Cmd, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(cmp.Or(program, os.Args[0]))
	// Without GORACE each process of the race detector sleeps a second at its end.
	cmd.Env = append(os.Environ(), variable+"="+string(data), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // ends with this process, and then Main ends the child
	return cmd, err
}

// Main calls run and exits if this process was started with a [Command]; otherwise it does nothing. The context ends
// with SIGTERM.
func Main[T any](run func(ctx context.Context, config T) error) {
	data := os.Getenv(variable)
	if data == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var config T
	err := json.Unmarshal([]byte(data), &config)
	if err == nil {
		err = run(ctx, config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
