//go:build amd64 || arm64

package sandbox

import (
	"os"
	"sync"
	"testing"
)

// Lacking takes layers away while the test runs.
func Lacking(t *testing.T, layers ...string) {
	old, found := lacks, checked
	t.Cleanup(func() { lacks, checked = old, found })
	for _, l := range layers {
		switch l {
		case "namespaces":
			lacks.Namespaces = true
		case "proc":
			lacks.Proc = true
		case "landlock":
			lacks.Landlock = true
		case "unix":
			lacks.Unix = true
		case "scratch":
			lacks.Scratch = true
		default:
			t.Fatalf("no layer %q", l)
		}
	}
	checked = sync.OnceValue(check)
}

// WithoutLandlock leaves it out for the rest of the program.
func WithoutLandlock() { lacks.Landlock = true }

// Crafted returns a plan that grants everything in a directory.
func Crafted(dir string) []byte {
	return encode(&plan{
		User: os.Geteuid(), Group: os.Getegid(), Path: "/bin/sh", Args: []string{"sh", "-c", "echo x >" + dir + "/file"}, Dir: "/", Network: true, NoLandlock: true,
		Places: []place{{dir, asWrite}}, Limits: Limits{Processes: 4096, Temporary: 1 << 20},
	})
}
