package tooltest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/tooltest"
)

var upper = tool.Must(tool.New("upper", "Turns a text into capitals.", func(_ context.Context, in struct {
	Text string `json:"text"`
}) (string, error) {
	return strings.ToUpper(in.Text), nil
}))

func TestUpper(t *testing.T) { tooltest.Run(t, upper) }

// A test function calls Run.
func Example() {
	test := func(t *testing.T) { tooltest.Run(t, upper, tooltest.Options{Calls: 100}) }
	_ = test // func TestUpper(t *testing.T) { … }
	// Output:
}
