//go:build !unix

package builtin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"time"

	"github.com/kitbag-go/kitbag/internal/shell"
)

const openFlags = 0

// Run implements [Backend]. There are no process groups here: only the program
// itself is ended.
func (l *Local) Run(ctx context.Context, c Command) (Exit, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = shell.Environ(os.Environ())
	cmd.Stdout, cmd.Stderr = c.Output, c.Output
	cmd.WaitDelay = 50 * time.Millisecond
	err := cmd.Run()
	if ctx.Err() != nil {
		return Exit{Code: -1}, ctx.Err()
	}
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed && !errors.Is(err, exec.ErrWaitDelay) {
		return Exit{}, err
	}
	return Exit{Code: cmd.ProcessState.ExitCode()}, nil
}

func openList(root *os.Root) (*os.File, error) { return root.Open(".") }

func keepOwner(*os.File, fs.FileInfo) {}

func syncDir(*os.Root, string) error { return nil } // directories cannot be synced here
