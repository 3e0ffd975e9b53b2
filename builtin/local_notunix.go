//go:build !unix

package builtin

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

// Run implements [Backend]. Without process groups it ends only the program itself, not its children.
func (l *Local) Run(ctx context.Context, c Command) (Exit, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir = c.Dir
	if cmd.Env = c.Env; c.Env == nil {
		cmd.Env = new(Config).environ()
	}
	cmd.Stdout, cmd.Stderr = c.Output, c.Output
	cmd.WaitDelay = 50 * time.Millisecond // for children that still have the output open
	err := cmd.Run()
	if ctx.Err() != nil {
		return Exit{Code: -1}, ctx.Err()
	}
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed && !errors.Is(err, exec.ErrWaitDelay) {
		return Exit{}, err
	}
	return Exit{Code: cmd.ProcessState.ExitCode()}, nil
}
