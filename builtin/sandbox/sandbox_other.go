//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"fmt"
	"os/exec"
	"runtime"

	"github.com/kitbag-go/kitbag/permission"
)

// Command fails with [ErrUnavailable] for every profile except open, for which it does not change cmd.
func (s *Spec) Command(cmd *exec.Cmd) (cleanup func() (Result, error), err error) {
	switch s.Profile {
	case permission.ProfileOpen:
		return func() (Result, error) { return Result{}, nil }, cmd.Err
	case permission.ProfileRead, permission.ProfileWork:
		return nil, fmt.Errorf("sandbox: %w: there is no sandbox for %s/%s; use profile open, or a backend that confines", ErrUnavailable, runtime.GOOS, runtime.GOARCH)
	}
	return nil, fmt.Errorf("sandbox: unknown profile %q; use read, work or open", s.Profile)
}

// Check returns a status that says that there is no sandbox for this system.
func Check() Status {
	return Status{Layers: []Layer{{Name: layerSystem, Detail: "there is no sandbox for " + runtime.GOOS + "/" + runtime.GOARCH, Means: "no command can be confined"}}}
}

func machineMemory() int64 { return 0 }
