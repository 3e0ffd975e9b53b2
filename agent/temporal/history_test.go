package temporal

import (
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// TestReplay replays the histories of conversations that older versions have begun: a new version must continue them.
// The tests with a server, in internal/heavy/temporal, write them with -update. Add files under another name, and do not
// change those that a release has written.
func TestReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("histories: %q, %v", files, err)
	}
	logger := log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	for _, file := range files {
		r := worker.NewWorkflowReplayer()
		r.RegisterWorkflowWithOptions(converse, workflow.RegisterOptions{Name: workflowName})
		if err := r.ReplayWorkflowHistoryFromJSONFile(logger, file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
