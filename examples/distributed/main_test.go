package main

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := workerMain(); err != nil {
			log.Fatal("worker: ", err)
		}
		return
	}
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
	if res.Ended != res.Runs || res.EffectsTwice+res.Repeated+res.LostEvents != 0 || res.HistoryBytes > 5000 || res.Takeovers == 0 {
		t.Error("something was lost, or done twice")
	}
	if res.TakeoverP99 > 4*heartbeat.Seconds() { // the machine may be busy
		t.Errorf("another worker takes over only after %.1f s", res.TakeoverP99)
	}
}
