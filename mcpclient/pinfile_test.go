package mcpclient

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// pinsEach is how many pins each process of TestPinFileProcesses adds.
const pinsEach = 25

// addPins is what each process of TestPinFileProcesses runs.
func addPins(file, process string) int {
	for i := range pinsEach {
		tool := fmt.Sprintf("%s.%d", process, i)
		err := PinFile(file).Update("srv", func(pins map[string]Pin) {
			pins[tool] = Pin{Definition: json.RawMessage(`{"name":"` + tool + `"}`)}
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// TestPinFileProcesses checks that no pin is lost if several processes use one file, and that a concurrent
// reader never sees half of it.
func TestPinFileProcesses(t *testing.T) {
	const processes = 8
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "new", "pins.json")
	var wg sync.WaitGroup
	for i := range processes {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=pins %d %s", roleEnv, i, file))
		wg.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for last := 0; ; {
		pins, err := PinFile(file).Load("srv")
		if err != nil || len(pins) < last {
			t.Errorf("%d pins after %d: %v", len(pins), last, err)
		}
		last = len(pins)
		select {
		case <-done:
			if pins, err := PinFile(file).Load("srv"); err != nil || len(pins) != processes*pinsEach {
				t.Errorf("%d pins, want %d: %v", len(pins), processes*pinsEach, err)
			}
			return
		default:
		}
	}
}

// pinsRole reads the role of a process of TestPinFileProcesses.
func pinsRole(role string) (process, file string, ok bool) {
	rest, ok := strings.CutPrefix(role, "pins ")
	process, file, _ = strings.Cut(rest, " ")
	return process, file, ok
}
