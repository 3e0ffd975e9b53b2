package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/child"
)

func TestMain(m *testing.M) {
	child.Main(func(ctx context.Context, cfg workerConfig) error { return cfg.run(ctx) })
	os.Exit(m.Run())
}

// TestShort runs the short form: nothing is lost, and nothing done twice.
func TestShort(t *testing.T) {
	var out bytes.Buffer
	if err := demo(t.Context(), &out, shortened); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Log("\n" + out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var res result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &res); err != nil {
		t.Fatal(err)
	}
	if res.Ended != res.Runs || res.EffectsTwice+res.Repeated+res.LostEvents+res.WebWrong != 0 || res.WebDeltas <= res.WebRuns || res.HistoryBytes > 5000 || res.Takeovers == 0 {
		t.Error("something was lost, or done twice")
	}
	if res.TakeoverP99 > 4*heartbeat.Seconds() { // the machine may be busy
		t.Errorf("another worker takes over only after %.1f s", res.TakeoverP99)
	}
}
