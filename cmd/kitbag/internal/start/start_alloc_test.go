package start_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	_ "github.com/kitbag-go/kitbag/agent/agentlog"
	_ "github.com/kitbag-go/kitbag/agent/session"
	_ "github.com/kitbag-go/kitbag/builtin"
	_ "github.com/kitbag-go/kitbag/mcpgateway"
	_ "github.com/kitbag-go/kitbag/model/anthropic"
	_ "github.com/kitbag-go/kitbag/model/openai"
	_ "github.com/kitbag-go/kitbag/model/replay"
	_ "github.com/kitbag-go/kitbag/tool/middleware"
	_ "github.com/kitbag-go/kitbag/toolkit/config"
)

// TestCostOfStart checks what each package allocates before main runs. It starts this test binary, which
// imports the packages of all modules, without a test.
func TestCostOfStart(t *testing.T) {
	const limit = 25_000 // bytes per package, also under the race detector
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var name string
		var at, clock float64
		var size, allocs int
		n, _ := fmt.Sscanf(lines.Text(), "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &name, &at, &clock, &size, &allocs)
		if n < 5 || !strings.HasPrefix(name, "github.com/kitbag-go/kitbag/") {
			continue
		}
		seen++
		if size > limit {
			t.Errorf("%s allocates %d bytes when a program starts; at most %d are allowed. Use package lazy or sync.OnceValue", name, size, limit)
		}
	}
	if seen < 10 {
		t.Errorf("%d packages of ours in the trace; the test would check too little:\n%s", seen, out)
	}
}
