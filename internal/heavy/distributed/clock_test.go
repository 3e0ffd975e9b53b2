package distributed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// startWrongClock starts a worker whose clock is an hour ahead.
func (c *cluster) startWrongClock(ctx context.Context) error {
	program, err := c.buildWrongClock(ctx)
	if err != nil {
		return err
	}
	return c.startWorker(workerConfig{program: program})
}

// buildWrongClock builds this program with another time.Now, so that all its code, including libraries, sees a clock that
// is an hour ahead. libfaketime has no effect on Go programs, and a time namespace does not change the wall clock. The
// first build takes minutes.
func (c *cluster) buildWrongClock(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "distributed")
	if err != nil {
		return "", err
	}
	c.dirs = append(c.dirs, dir)
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	source, patched := filepath.Join(strings.TrimSpace(string(root)), "src/time/time.go"), filepath.Join(dir, "time.go")
	data, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	const read = "sec, nsec, mono := runtimeNow()\n"
	code := strings.Replace(string(data), "func Now() Time {\n\t"+read, "func Now() Time {\n\t"+read+"\tsec += 3600\n", 1)
	if code == string(data) {
		return "", errors.New("this version of Go has another time.Now; change buildWrongClock")
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: patched}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(patched, []byte(code), 0o600), os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "worker")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	return program, nil
}
