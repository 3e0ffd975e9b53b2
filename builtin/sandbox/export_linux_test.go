//go:build amd64 || arm64

package sandbox

import (
	"os"
	"sync"
	"testing"
)

// Lacking takes layers away while the test runs.
func Lacking(t *testing.T, layers ...string) {
	old, found := disabledByTest, checked
	t.Cleanup(func() { disabledByTest, checked = old, found })
	for _, l := range layers {
		switch l {
		case "namespaces":
			disabledByTest.Namespaces = true
		case "proc":
			disabledByTest.Proc = true
		case "landlock":
			disabledByTest.Landlock = true
		case "unix":
			disabledByTest.Unix = true
		case "scratch":
			disabledByTest.Scratch = true
		default:
			t.Fatalf("no layer %q", l)
		}
	}
	checked = sync.OnceValue(check)
}

// WithoutLandlock leaves it out for the rest of the program.
func WithoutLandlock() { disabledByTest.Landlock = true }

// Crafted returns a plan that grants everything in a directory.
func Crafted(dir string) []byte {
	return encode(&plan{
		User: os.Geteuid(), Group: os.Getegid(), Path: "/bin/sh", Args: []string{"sh", "-c", "echo x >" + dir + "/file"}, Dir: "/", Network: true, NoLandlock: true,
		Places: []place{{dir, asWrite}}, Limits: Limits{Processes: 4096, Temporary: 1 << 20},
	})
}
