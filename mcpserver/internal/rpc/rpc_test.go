package rpc_test

import (
	"encoding/json"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
)

// TestAnswerThatIsNoJSON checks that a result that cannot be encoded is an error with the id of the request.
func TestAnswerThatIsNoJSON(t *testing.T) {
	var got struct {
		ID    json.RawMessage
		Error *rpc.Error
	}
	data := rpc.Answer(json.RawMessage("7"), map[string]any{"a": json.RawMessage("{")}, nil)
	if err := json.Unmarshal(data, &got); err != nil || string(got.ID) != "7" || got.Error == nil {
		t.Errorf("%s: %v", data, err)
	}
}
